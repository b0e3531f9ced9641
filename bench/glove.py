"""GloVe beside skip-gram on 23 million words, and what its quality depends on.

    python bench/glove.py --data DATA [--jobs 8 --threads 2] [--settings published,both,skip-gram]
    python bench/glove.py --data DATA --settings reference --reference FOLDER
    python bench/glove.py --data DATA --count

DATA has the layout of the benchmark data (lm/wiki_en, lm/english_novels, embeddings). The text is
that of both corpora, lower-cased words without punctuation, in a temporary folder. Settings are
chosen by `dev`, the mean of MEN and MTurk-771; the other lists are the test. FOLDER holds the
programs of github.com/stanfordnlp/GloVe (cooccur, shuffle, glove), which read the same words and
vocabulary. With `--count`, time and memory of counting are measured in a process of its own.
`--limit` reads only some lines, to try it out.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from record import Record, options

SIMILARITY = ("ws-353-all", "men-tr-3k", "mturk-771", "simlex-999", "rw-stanford")
SETTINGS = {
    "published": {},
    "x_max 100": {"x_max": 100.0},
    "x_max 1": {"x_max": 1.0},
    "no distances": {"distance": "none"},
    "word vectors only": {"combine": "word"},
    "30 epochs": {"epochs": 30},
    "subsampled": {"sample": 1e-4},
    "negatives": {"negative_weight": 0.2},
    "both": {"sample": 1e-4, "negative_weight": 0.2},
    "both, weight 0.5": {"sample": 1e-4, "negative_weight": 0.5},
    "both, weight 1": {"sample": 1e-4, "negative_weight": 1.0},
    "both, 1e-3": {"sample": 1e-3, "negative_weight": 0.2},
}


def prepare(data: Path, into: Path, limit: int) -> Path:
    """Write the words of both corpora, a paragraph a line, without punctuation."""
    from weft.vectors.corpus import corpus

    sources = [data / "lm/wiki_en/train.txt.xz", data / "lm/english_novels/novels.txt.xz"]
    text = corpus(sources, min_count=5)
    words = np.array(
        [word if any(map(str.isalnum, word)) else "" for word in text.words], dtype=object
    )
    ids, path, begin = np.asarray(text.ids), into / "text.txt", 0
    with open(path, "w", encoding="utf-8") as file:
        for end in text.ends.tolist()[: limit or None]:
            file.write(" ".join(filter(None, words[ids[begin:end]])) + "\n")
            begin = end
    return path


def quality(vectors, data: Path) -> dict[str, float]:
    """Spearman of each list and the fraction of analogies solved, in per cent."""
    from weft.vectors.benchmarks import read
    from weft.vectors.evaluate import evaluate

    out = {}
    for name in SIMILARITY:
        pairs = read(data / "embeddings" / "word_similarity" / f"en-{name}.txt")
        out[name] = round(100 * evaluate(vectors, pairs, resamples=10).spearman.value, 1)
    out["dev"] = round((out["men-tr-3k"] + out["mturk-771"]) / 2, 1)
    analogies = read(data / "embeddings" / "analogy" / "questions-words.txt")
    found = evaluate(vectors, analogies, resamples=10)
    out["analogies"] = round(100 * found.total.accuracy.value, 1)
    for kind in found.kinds:
        out[kind.name] = round(100 * kind.accuracy.value, 1)
    return out


def learn(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Train one setting and measure it; what a process of its own does."""
    from weft.vectors.corpus import corpus
    from weft.vectors.glove import glove
    from weft.vectors.word2vec import train_vectors

    text = corpus([path], tokenizer="whitespace")
    common = {"width": arguments.dim, "window": 10, "threads": arguments.threads, "seed": 1}
    if name == "skip-gram":
        made = train_vectors(text, "skipgram", epochs=5, **common)
    else:
        made = glove(text, **{"epochs": arguments.epochs, **common, **SETTINGS[name]})
    shown = (
        "x_max",
        "sample",
        "negative_weight",
        "epochs",
        "pairs",
        "count_seconds",
        "train_seconds",
    )
    record = {key: made.record[key] for key in shown if key in made.record}
    return {**record, **quality(made, Path(arguments.data))}


def reference(path: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """The authors' program with x_max 10 on the same words."""
    from weft.vectors.corpus import corpus
    from weft.vectors.store import Vectors

    programs, folder = Path(arguments.reference), path.parent
    text = corpus([path], tokenizer="whitespace")
    lines = (f"{word} {n}\n" for word, n in zip(text.words, text.counts.tolist(), strict=True))
    (folder / "vocab.txt").write_text("".join(lines), "utf-8")
    common = ["-verbose", "0", "-memory", "4"]
    with open(path, "rb") as source, open(folder / "pairs", "wb") as into:
        subprocess.run(
            [programs / "cooccur", *common, "-vocab-file", folder / "vocab.txt",
             "-window-size", "10", "-symmetric", "1"],
            stdin=source, stdout=into, check=True,
        )  # fmt: skip
    with open(folder / "pairs", "rb") as source, open(folder / "shuffled", "wb") as into:
        subprocess.run([programs / "shuffle", *common], stdin=source, stdout=into, check=True)
    began = time.perf_counter()
    subprocess.run(
        [programs / "glove", "-input-file", folder / "shuffled", "-vocab-file",
         folder / "vocab.txt", "-save-file", folder / "vectors", "-threads",
         str(arguments.threads), "-x-max", "10", "-iter", str(arguments.epochs), "-vector-size",
         str(arguments.dim), "-eta", "0.05", "-alpha", "0.75", "-seed", "1", "-verbose", "0",
         "-write-header", "1"],
        check=True, capture_output=True,
    )  # fmt: skip
    seconds = round(time.perf_counter() - began, 1)
    # The program adds a row for unknown words that its header does not count.
    rows = (folder / "vectors.txt").read_text("utf-8").splitlines()[1 : 1 + len(text.words)]
    matrix = np.array([row.split(" ")[1:] for row in rows], np.float32)
    made = Vectors(text.words, matrix)
    return {"x_max": 10.0, "epochs": arguments.epochs, "train_seconds": seconds,
            **quality(made, Path(arguments.data))}  # fmt: skip


def count(path: Path, arguments: argparse.Namespace) -> dict[str, object]:
    """Count the pairs: time, and the peak memory of the whole process."""
    from weft.vectors.cooccurrence import cooccurrences
    from weft.vectors.corpus import corpus

    text = corpus([path], tokenizer="whitespace")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    pairs = cooccurrences(text, 10, threads=arguments.threads, memory=arguments.memory)
    return {
        "memory": arguments.memory,
        "words": len(text.ids),
        "vocabulary": len(text.words),
        "pairs": len(pairs),
        "seconds": round(time.perf_counter() - began, 1),
        "corpus_megabytes": round(before / 1024),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def in_process(name: str, path: Path) -> dict[str, object]:
    """Run this script for one setting."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", name, "--text", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--settings", default=",".join(["skip-gram", *SETTINGS]).replace(", ", ";"))
    parser.add_argument("--reference", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=15, help="of GloVe")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--memory", type=int, default=2**30)
    parser.add_argument("--limit", type=int, default=0, help="lines of the text; 0 for all")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--text", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        work = {"count": count, "reference": reference}.get(arguments.one)
        path = Path(arguments.text)
        found = work(path, arguments) if work else learn(arguments.one, path, arguments)
        print(json.dumps(found))
        return
    record = Record(arguments.record)
    names = ["count"] if arguments.count else arguments.settings.split(",")
    names = [name.replace(";", ", ").strip() for name in names]
    unknown = set(names) - set(SETTINGS) - {"skip-gram", "reference", "count"}
    if unknown:
        raise SystemExit(f"Unknown settings: {', '.join(sorted(unknown))}.")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        path = prepare(Path(arguments.data), Path(folder), arguments.limit)
        waiting = {name: pool.submit(in_process, name, path) for name in names}
        for name, done in waiting.items():
            question = "count" if name == "count" else "glove"
            record.line(question, setting=name, window=10, **done.result())


if __name__ == "__main__":
    main()
