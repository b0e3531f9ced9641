"""N-gram models of Wikipedia text: counting speed, memory, perplexity, and KenLM beside them.

    python bench/ngram.py --data DATA
    python bench/ngram.py --data DATA --peers FOLDER

DATA is laid out as in bench/quality.py, with lm/wiki_en and lm/wikitext2_eval. A line is a
sentence, cut into words by Weft's own rule; the vocabulary is the most frequent words of the
training part, others are <unk>, a word like any other. Perplexities are per word and end of line.
Models are made in processes of their own, whose peak memory is all that they ever held, libraries
and compiler included.

FOLDER has KenLM's `lmplz` and `query`. KenLM refuses <unk> in training text and keeps one of its
own that never occurs, so there the rare words are one more word of the vocabulary, here as well.
"""

import json
import lzma
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from gzip import open as open_gz
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options, spread

BAR = 1_000_000  # n-grams counted in a second, on two cores
PARTS = {
    "train": "lm/wiki_en/train.txt.xz",
    "valid": "lm/wiki_en/valid.txt.gz",
    "test": "lm/wiki_en/test.txt.gz",
    "wikitext2": "lm/wikitext2_eval/test.txt.gz",
}
MODELS = ("interpolated 3", "interpolated 5", "buckets 5", "kneser-ney 3", "kneser-ney 5",
          "pruned 5")  # fmt: skip


def lines(path: Path) -> Iterator[list[str]]:
    """The words of every line that has some."""
    from weft.tokens.pretokenizer import split_words

    with (lzma.open if path.suffix == ".xz" else open_gz)(path, "rt", encoding="utf-8") as file:
        for line in file:
            if "wikitext2" in str(path):  # is cut already, and has its own <unk>
                words = tuple(line.split())
            else:
                words = split_words(line.strip())[0]
            if words:
                yield list(words)


def prepare(data: Path, size: int, folder: Path) -> None:
    """Write the ids of every part, and the vocabulary."""
    from weft.tokens.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, rank_entries

    counts: Counter[str] = Counter()
    for words in lines(data / PARTS["train"]):
        counts.update(words)
    vocabulary = Vocabulary(rank_entries(counts, size=size, special=(PAD, UNK, BOS, EOS)))
    vocabulary.save(folder / "vocabulary.json")
    for part, name in PARTS.items():
        rows = [np.array(vocabulary.ids(words), np.int32) for words in lines(data / name)]
        np.savez(folder / part, ids=np.concatenate(rows), ends=np.cumsum([len(r) for r in rows]))


def part(folder: Path, name: str) -> list[np.ndarray]:
    """The sentences that `prepare` wrote."""
    with np.load(folder / f"{name}.npz") as file:
        return np.split(file["ids"], file["ends"][:-1])


def peak() -> int:
    """Megabytes that this process has held at once."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def counting(folder: Path, size: int, repeats: int) -> dict[str, Any]:
    """N-grams counted in a second, in a process that does nothing else."""
    from weft.classic.ngram.counts import count

    sentences = part(folder, "train")
    tokens = sum(map(len, sentences)) + 2 * len(sentences)
    count(sentences[:100], size)  # compiles
    before, seconds = peak(), []
    for _ in range(repeats):
        began = time.perf_counter()
        counts = count(sentences, size)
        seconds.append(time.perf_counter() - began)
        order, different = counts.order, counts.starts[-1]
        del counts  # or two would be held at once
    # Of a sentence between its marks, n − k + 1 n-grams of order k.
    lengths = np.array([len(row) + 2 for row in sentences])
    grams = sum(int(np.maximum(lengths - k, 0).sum()) for k in range(order))
    rates = [grams / s for s in seconds]
    return {
        "tokens": tokens, "n_grams": grams, "different": different,
        "seconds": spread(seconds), "per_second": spread(rates, 0),
        "bar": BAR, "passed": min(rates) >= BAR,
        "megabytes_before": before, "peak_megabytes": peak(),
    }  # fmt: skip


def modelling(folder: Path, size: int, name: str) -> dict[str, Any]:
    """Perplexities of one model, and what it took."""
    from weft.classic.ngram.counts import count
    from weft.classic.ngram.interpolated import estimate_interpolated
    from weft.classic.ngram.kneser_ney import kneser_ney

    kind, order = name.split()
    sentences = part(folder, "train")
    count(sentences[:100], size)
    began = time.perf_counter()
    counts = count(sentences, size, int(order))
    counted = time.perf_counter()
    details: dict[str, Any] = {}
    if kind in ("interpolated", "buckets"):
        fitted = estimate_interpolated(counts, part(folder, "valid"), buckets=kind == "buckets")
        model = fitted.model
        details["weights"] = fitted.weights.round(4).tolist()
    else:
        estimate = kneser_ney(counts, prune=(0, 0, 1) if kind == "pruned" else ())
        model = estimate.model
        details["discounts"] = estimate.discounts.round(4).tolist()
    ended = time.perf_counter()
    test = part(folder, "test")
    model.perplexity(test[:2])
    asked = time.perf_counter()
    perplexity = model.perplexity(test)
    answered = time.perf_counter()
    model.save(folder)
    return {
        "test": round(perplexity, 2),
        "valid": round(model.perplexity(part(folder, "valid")), 2),
        "wikitext2": round(model.perplexity(part(folder, "wikitext2")), 2),
        "n_grams": len(model.words),
        "count_seconds": round(counted - began, 2), "fit_seconds": round(ended - counted, 2),
        "queries_per_second": round((sum(map(len, test)) + len(test)) / (answered - asked)),
        "steps_per_second": round(stepping(model, test)),
        "file_megabytes": round((folder / "weights.safetensors").stat().st_size / 2**20),
        "peak_megabytes": peak(), **details,
    }  # fmt: skip


def stepping(model: Any, test: list[np.ndarray], batch: int = 32, steps: int = 20) -> float:
    """Whole distributions over the vocabulary in a second, histories from the test text."""
    import torch

    rows = [row for row in test if len(row) >= steps][:batch]
    ids = torch.from_numpy(np.stack([row[:steps] for row in rows]).astype(np.int64))
    state = model.start(len(rows))
    _, state = model.step(torch.full((len(rows),), model.marks.bos), state)
    began = time.perf_counter()
    for t in range(steps):
        _, state = model.step(ids[:, t], state)
    return len(rows) * steps / (time.perf_counter() - began)


def against_kenlm(folder: Path, size: int, peers: Path, prune: tuple[int, ...]) -> dict[str, Any]:
    """The same text and vocabulary given to lmplz; perplexities of test by either program."""
    from weft.classic.ngram.arpa import read_arpa, write_arpa
    from weft.classic.ngram.counts import count
    from weft.classic.ngram.kneser_ney import kneser_ney
    from weft.tokens.vocabulary import Vocabulary

    # Rare words become the word `size`; <unk> stays without a count, as KenLM has it.
    parts = {n: [np.where(r == 1, size, r) for r in part(folder, n)] for n in ("train", "test")}
    for name, rows in parts.items():
        text = "".join(" ".join(f"w{i}" for i in row) + "\n" for row in rows)
        (folder / f"{name}.txt").write_text(text)
    began = time.perf_counter()
    estimate = kneser_ney(count(parts["train"], size + 1), prune)
    ours = time.perf_counter() - began
    limits = ["--prune", *map(str, prune)] if prune else []
    with open(folder / "train.txt") as text, open(folder / "lmplz.arpa", "w") as arpa:
        began = time.perf_counter()
        subprocess.run([peers / "lmplz", "-o", "5", "-S", "2G", "-T", folder, *limits],
                       stdin=text, stdout=arpa, stderr=subprocess.PIPE, check=True)  # fmt: skip
        theirs = time.perf_counter() - began
    marks = ["<pad>", "<unk>", "<bos>", "<eos>"]
    names = Vocabulary([*marks, *(f"w{i}" for i in range(4, size + 1))])
    write_arpa(estimate.model, names, folder / "ours.arpa")
    theirs_read, known = read_arpa(folder / "lmplz.arpa")
    renamed = [np.array(known.ids(f"w{i}" for i in row), np.int32) for row in parts["test"]]
    values = {
        "weft": estimate.model.perplexity(parts["test"]),
        "kenlm": queried(peers, folder / "lmplz.arpa", folder / "test.txt"),
        "weft_arpa_in_kenlm": queried(peers, folder / "ours.arpa", folder / "test.txt"),
        "kenlm_arpa_in_weft": theirs_read.perplexity(renamed),
    }
    gap = max(values.values()) / min(values.values()) - 1
    return {
        **{name: round(value, 5) for name, value in values.items()},
        "n_grams": len(estimate.model.words), "kenlm_n_grams": len(theirs_read.words),
        "relative_difference": float(f"{gap:.2g}"), "bar": 1e-4, "passed": gap < 1e-4,
        "weft_seconds": round(ours, 1), "kenlm_seconds_with_arpa": round(theirs, 1),
    }  # fmt: skip


def queried(peers: Path, arpa: Path, text: Path) -> float:
    """The perplexity that KenLM's query prints."""
    with open(text) as lines:
        done = subprocess.run([peers / "query", "-v", "summary", arpa], stdin=lines,
                              capture_output=True, text=True, check=True)  # fmt: skip
    return float(done.stdout.split("Perplexity including OOVs:")[1].split()[0])


def apart(work: Any, *given: Any) -> dict[str, Any]:
    """What a function gives in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--peers", default="", help="a folder with KenLM's lmplz and query")
    parser.add_argument("--vocabulary", type=int, default=30_000)
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    if not given.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    record, size = Record(given.record), given.vocabulary
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(Path(given.data), size, folder)
        size = len(json.loads((folder / "vocabulary.json").read_text("utf-8")))
        record.line("counting, order 5", **apart(counting, folder, size, given.repeats))
        for model in filter(None, given.models.split(",")):
            record.line(f"perplexity, {model}", **apart(modelling, folder, size, model))
        if given.peers:
            for prune in ((), (0, 0, 1)):
                found = apart(against_kenlm, folder, size, Path(given.peers), prune)
                record.line(f"KenLM's lmplz, order 5, prune {list(prune)}", **found)


if __name__ == "__main__":
    main()
