"""Parts of speech from raw text: `tagger-cnn` and `tagger-bilstm` against spaCy's tagger, in turn.

    python bench/tagging_speed.py --data DATA --peers VENV/bin/python --folder MODELS
    python bench/tagging_speed.py --data DATA --peers … --recipes tagger-cnn --repeats 9

DATA is laid out as in bench/quality.py, with parsing/ud_english_ewt and lm/wiki_en; VENV has spaCy.
Both learn from the same sentences; what MODELS holds already is not trained again. Accuracy is that
of the test part with its words given. Speed is from texts to the tags of their words, all in
memory: of the sentences of the test part, the same in every repeat, and of paragraphs that neither
has seen before, others in every repeat. spaCy runs in one process and in two, and the faster is
what the bar is about; `raw_f1` counts words found in raw text with the right place and tag.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import Record, interleaved, options, ratios, spread

import weft
from weft.config import recipe
from weft.predict.evaluate import evaluate
from weft.text.example import Example, WordAnnotations
from weft.text.read import read
from weft.tokens.word_segmenter import split_shared_offsets

WORKER = Path(__file__).with_name("tagging_peer.py")
TREEBANK, PARAGRAPHS = "parsing/ud_english_ewt/en_ewt-ud-{}.conllu.gz", "lm/wiki_en/{}.txt.gz"
PEERS = {"spacy": 1, "spacy-2": 2}  # processes
BAR = 1.0  # times spaCy's words in a second


def tags(example: Example) -> tuple[str, ...]:
    """The right parts of speech."""
    assert isinstance(example.label, WordAnnotations)
    return example.label.columns["upos"]


def written(examples: Sequence[Example], path: Path) -> str:
    """Sentences as bench/tagging_peer.py reads them."""
    with open(path, "w", encoding="utf-8") as file:
        for one in examples:
            ends = [end for _, end in one.places]
            starts = [start for start, _ in one.places[1:]] + [len(one.text) + 1]
            spaces = [start > end for start, end in zip(starts, ends, strict=True)]
            row = {"words": one.words, "spaces": spaces, "tags": tags(one)}
            file.write(json.dumps(row) + "\n")
    return str(path)


class Peer:
    """spaCy in its own process, trained where it is not yet."""

    def __init__(self, given: argparse.Namespace, parts: dict[str, list[Example]], folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.test = written(parts["test"], folder / "test.jsonl")
        threads = {name: str(given.threads) for name in ("OMP_NUM_THREADS", "BLIS_NUM_THREADS")}
        self.python, self.environment = given.peers, {**os.environ, **threads}
        if not (folder / "run" / "model-best").is_dir():
            files = {part: written(parts[part], folder / f"{part}.jsonl") for part in parts}
            job = {"do": "train", "folder": str(folder), "seed": given.seed, **files}
            subprocess.run(self._command(job), check=True, env=self.environment)
        self.process = subprocess.Popen(
            self._command({"do": "serve", "folder": str(folder)}), env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def _command(self, job: dict[str, Any]) -> list[str]:
        return [self.python, str(WORKER), json.dumps(job)]

    def ask(self, do: str, **job: Any) -> dict[str, Any]:
        """One job, and its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps({"do": do, **job}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("spaCy's process ended; its message stands above.")
        return json.loads(line)

    def seconds(self, processes: int, texts: str) -> float:
        """From the texts of a file, which is read before the clock starts, to their tags."""
        return self.ask("raw", texts=texts, processes=processes)["seconds"]

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def trained(name: str, given: argparse.Namespace, folder: Path) -> weft.Predictor:
    """Our model, trained where it is not yet."""
    if not (folder / "model" / "golden.jsonl").is_file():
        root = Path(given.data)
        files = {f"data.{part}": str(root / TREEBANK.format(part)) for part in ("train", "dev")}
        settings = {**files, "train.seed": given.seed, "train.threads": given.threads}
        weft.train(
            recipe(name).with_values(settings, "bench"), folder, device="cpu", overwrite=True
        )
    return weft.load(folder, device="cpu")


def raw_f1(found: Sequence[Sequence[Any]], gold: Sequence[Example]) -> float:
    """Harmonic mean of precision and recall of (start, end, tag); "do" and "n't" are two places."""
    right = said = true = 0
    for ours, example in zip(found, gold, strict=True):
        wanted = {
            (*place, tag)
            for place, tag in zip(split_shared_offsets(example), tags(example), strict=True)
        }
        right += len(wanted & {tuple(word) for word in ours})
        said, true = said + len(ours), true + len(example.words)
    return 2 * right / (said + true)


def quality(
    record: Record, peer: Peer, ours: dict[str, weft.Predictor], gold: list[Example], folder: Path
) -> dict[str, float]:
    """Accuracy and size of every system."""
    texts = folder / "texts.json"
    texts.write_text(json.dumps([example.text for example in gold]), "utf-8")
    reached = {"spacy": peer.ask("gold", test=peer.test)["accuracy"]}
    found = raw_f1(peer.ask("aligned", texts=str(texts))["found"], gold)
    facts = {"accuracy": round(reached["spacy"], 4), "raw_f1": round(found, 4)}
    record.line("tagging, accuracy", system="spacy", **facts, **peer.ask("size"))
    for name, predictor in ours.items():
        reached[name] = evaluate(predictor, gold).compute(resamples=0)["upos"].value
        seen = [answer.structure for answer in predictor([example.text for example in gold])]
        words = [
            [(*place, tag) for place, tag in zip(s.places, s.tags, strict=True)] for s in seen if s
        ]
        files = [path for path in (folder / name / "model").iterdir() if path.is_file()]
        record.line(
            "tagging, accuracy", system=name, accuracy=round(reached[name], 4),
            raw_f1=round(raw_f1(words, gold), 4), parameters=predictor.parameters,
            bytes=sum(path.stat().st_size for path in files),
            weights_bytes=(folder / name / "model" / "weights.safetensors").stat().st_size,
        )  # fmt: skip
    return reached


def turns(texts: Sequence[Any], work: Callable[[Any], float]) -> Callable[[], float]:
    """Work on the next of several texts each time it is called."""
    left = iter(texts)
    return lambda: work(next(left))


def speed(
    record: Record, given: argparse.Namespace, peer: Peer, ours: dict[str, weft.Predictor],
    what: str, texts: list[list[str]], words: list[int], reached: dict[str, float],
) -> None:  # fmt: skip
    """Seconds from texts to tags, every system in turn; `texts` has one list for every turn."""
    files = []
    for i, some in enumerate(texts):
        files.append(f"{peer.test}.{what.split()[0]}.{i}.json")
        Path(files[-1]).write_text(json.dumps(some), "utf-8")
    ways = {name: turns(files, partial(peer.seconds, n)) for name, n in PEERS.items()}
    ways |= {name: turns(texts, partial(timed, predictor)) for name, predictor in ours.items()}
    took = interleaved(ways, given.repeats, warm=1)
    rates = {
        name: [n / s for n, s in zip(words[1:], each, strict=True)] for name, each in took.items()
    }
    best = max(PEERS, key=lambda name: spread(rates[name])["median"])
    for name, each in rates.items():
        line: dict[str, Any] = {"words_per_second": spread(each, 0)}
        if name in ours:
            line |= {f"times_{peer}": ratios(each, rates[peer]) for peer in PEERS}
            fast = line[f"times_{best}"]["median"] >= BAR
            good = reached[name] >= reached["spacy"]
            line |= {"bar": BAR, "against": best, "passed": bool(fast and good)}
        record.line(
            f"tagging speed, {what}", system=name, words=words[-1], threads=given.threads, **line
        )


def work(
    record: Record, peer: Peer, ours: dict[str, weft.Predictor], texts: list[str], words: int
) -> None:
    """Processor time on one thread, which others' work on the machine changes least."""
    torch.set_num_threads(1)
    ways = {name: partial(processor, predictor, texts) for name, predictor in ours.items()}
    file = f"{peer.test}.work.json"
    Path(file).write_text(json.dumps(texts), "utf-8")
    ways["spacy"] = lambda: peer.ask("raw", texts=file, processes=1)["processor"]
    took = interleaved(ways, 5)
    for name, each in took.items():
        times = {"times_spacy": ratios(took["spacy"], each)} if name in ours else {}
        cost = spread([1e6 * seconds / words for seconds in each], 1)
        record.line("tagging, work on one thread", system=name, us_per_word=cost, **times)


def processor(predictor: weft.Predictor, texts: list[str]) -> float:
    """Seconds that the processor worked."""
    began = time.process_time()
    predictor(texts)
    return time.process_time() - began


def timed(predictor: weft.Predictor, texts: list[str]) -> float:
    """Seconds until every text has its Answer."""
    began = time.perf_counter()
    predictor(texts)
    return time.perf_counter() - began


def paragraphs(root: Path, count: int) -> tuple[list[list[str]], list[int]]:
    """`count` lists of texts that have no line in common, and how many words each has."""
    lines = []
    for part in ("valid", "test"):
        with gzip.open(root / PARAGRAPHS.format(part), "rt", encoding="utf-8") as file:
            lines += [line.strip() for line in file if line.strip()]
    lines = list(dict.fromkeys(lines))
    texts = [lines[i::count] for i in range(count)]
    return texts, [sum(len(line.split()) for line in some) for some in texts]


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--peers", "--spacy-python", required=True, help="a Python with spaCy")
    parser.add_argument("--folder", required=True, help="where the trained models are kept")
    parser.add_argument("--recipes", default="tagger-cnn,tagger-bilstm")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if not given.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    root, folder, record = Path(given.data), Path(given.folder), Record(given.record)
    parts = {p: list(read(root / TREEBANK.format(p))) for p in ("train", "dev", "test")}
    ours = {name: trained(name, given, folder / name) for name in given.recipes.split(",")}
    peer = Peer(given, parts, folder / "spacy")
    torch.set_num_threads(given.threads)
    reached = quality(record, peer, ours, parts["test"], folder)
    count = given.repeats + 1
    same = [[example.text for example in parts["test"]]] * count
    words = [sum(len(example.words) for example in parts["test"])] * count
    speed(record, given, peer, ours, "the test part", same, words, reached)
    speed(record, given, peer, ours, "new paragraphs", *paragraphs(root, count), reached)
    work(record, peer, ours, same[0], words[0])
    peer.close()


if __name__ == "__main__":
    main()
