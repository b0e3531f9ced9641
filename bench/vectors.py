"""Word vectors trained here, by gensim and by fastText, in turn: speed and quality.

    python bench/vectors.py --corpus FILE --peers VENV/bin/python --repeats 3
    python bench/vectors.py --corpus FILE --peers … --lists FOLDER --epochs 5 --seeds 3

FILE holds a tokenised sentence a line, spaces between tokens: one tokenisation for all. A ratio is
that of two trainings one after the other, and the spread is over the repeats. With `--lists`, a
folder of word-similarity and analogy lists, vectors of several seeds are measured instead.
`words` counts every running word of the file once an epoch, kept or not, for every system.
`--scaling` times one thread against two, deterministic threads against free ones, and the text ten
times over (with the memory of both, beside what the ids take on disk).
"""

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from record import Record, options, spread

PEERS = {
    "skipgram": ("gensim", "fasttext"),
    "cbow": ("gensim",),
    "fasttext": ("fasttext", "gensim"),
}
WORKER = Path(__file__).with_name("vectors_peer.py")


def trained(asked: argparse.Namespace, system: str, method: str, output: str, **more: Any) -> Any:
    """Train once in a new process; seconds before training, of training, and of the whole."""
    job = {
        "system": system, "method": method, "corpus": asked.corpus, "output": output,
        "width": asked.dim, "window": 5, "negative": 5, "minimum": 5, "epochs": asked.epochs,
        "threads": asked.threads, "seed": 1, "rate": asked.rate, **more,
    }  # fmt: skip
    python = sys.executable if system == "weft" else asked.peers
    # Each brings its own threads; those of BLAS would only be in their way.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [python, WORKER, json.dumps(job)],
            capture_output=True, text=True, env=environment,
            timeout=getattr(asked, "patience", None),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{system} {method}: not done in time.") from None
    whole = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{system} {method}:\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "whole": whole}


def speed(asked: argparse.Namespace, record: Record, words: int, folder: str) -> None:
    """Words a second of each system, and the ratios of neighbouring runs."""
    for method in asked.methods.split(","):
        systems = ("weft", *(one for one in PEERS[method] if one in asked.systems.split(",")))
        trained(asked, "weft", method, f"{folder}/warm")  # compiles what is not yet
        runs: dict[str, list[Any]] = {system: [] for system in systems}
        for _ in range(asked.repeats):
            for system in systems:
                runs[system].append(trained(asked, system, method, f"{folder}/{system}"))
        for system, done in runs.items():
            rates = [words * asked.epochs / one["train"] for one in done]
            seconds = [one["whole"] for one in done]
            ratios = {}
            if system != "weft":
                pairs = list(zip(done, runs["weft"], strict=True))
                ratios = {
                    "train_ratio": spread([a["train"] / b["train"] for a, b in pairs]),
                    # fastText's reading was timed by doing it once more.
                    "whole_ratio": spread(
                        [
                            (a["whole"] - (a["before"] if system == "fasttext" else 0)) / b["whole"]
                            for a, b in pairs
                        ]
                    ),
                }
            record.line(
                "speed", method=method, system=system, words=words,
                words_per_second=spread(rates), whole_seconds=spread(seconds), **ratios,
            )  # fmt: skip


def scaling(asked: argparse.Namespace, record: Record, folder: str) -> None:
    """One thread against two, what deterministic threads cost, and ten times the text."""
    long = f"{folder}/long.txt"
    with open(long, "wb") as file:
        for _ in range(10):
            with open(asked.corpus, "rb") as once:
                shutil.copyfileobj(once, file, 1 << 24)
    for method in asked.methods.split(","):
        trained(asked, "weft", method, f"{folder}/warm")
        found: dict[str, list[float]] = {
            "two threads": [], "deterministic": [], "ten times the text": [],
            "its megabytes": [], "megabytes": [],
        }  # fmt: skip
        for _ in range(asked.repeats):
            one = trained(asked, "weft", method, f"{folder}/a", threads=1)
            two = trained(asked, "weft", method, f"{folder}/b", threads=2)
            fixed = trained(asked, "weft", method, f"{folder}/c", threads=2, deterministic=True)
            # With ten times the minimum the words stay the same.
            ten = trained(asked, "weft", method, f"{folder}/d", corpus=long, min_count=50)
            found["two threads"].append(one["train"] / two["train"])
            found["deterministic"].append(fixed["train"] / two["train"])
            found["ten times the text"].append(ten["whole"] / two["whole"])
            found["its megabytes"].append(ten["megabytes"])
            found["megabytes"].append(two["megabytes"])
        for name, values in found.items():
            record.line("scaling", method=method, what=name, value=spread(values))


def quality(asked: argparse.Namespace, record: Record, folder: str) -> None:
    """Agreement with people and analogies solved, for each system and seed; `jobs` at once."""
    from weft.vectors.benchmarks import read
    from weft.vectors.store import Vectors

    lists = [read(path) for path in sorted(Path(asked.lists).rglob("*.txt"))]
    rows = [
        (method, system)
        for method in asked.methods.split(",")
        for system in ("weft", *PEERS[method])
        if system in asked.systems.split(",")
    ]
    free: queue.Queue[int] = queue.Queue()
    for slot in range(asked.jobs):
        free.put(slot)

    def one(method: str, system: str, seed: int) -> dict[str, float]:
        slot = free.get()
        output = f"{folder}/{slot}"
        cores = list(range(slot * asked.threads, (slot + 1) * asked.threads))
        trained(asked, system, method, output, seed=seed, cores=cores)
        path = next(p for e in (".safetensors", ".bin") if (p := Path(output + e)).exists())
        found = figures(Vectors.load(path), lists)
        path.unlink()
        free.put(slot)
        return found

    with ThreadPoolExecutor(asked.jobs) as pool:
        waiting = {
            row: [pool.submit(one, *row, seed) for seed in range(1, asked.seeds + 1)]
            for row in rows
        }
        for (method, system), seeds in waiting.items():
            found = [done.result() for done in seeds]
            for name in found[0]:
                record.line(
                    "quality", method=method, system=system, list=name, epochs=asked.epochs,
                    rate=asked.rate, value=spread([values[name] for values in found], digits=4),
                )  # fmt: skip


def figures(vectors: Any, lists: list[Any]) -> dict[str, float]:
    """Spearman's correlation or the accuracy of vectors on each list."""
    from weft.vectors.evaluate import evaluate

    found = {}
    for listed in lists:
        result = evaluate(vectors, listed, resamples=10).to_json()
        found[result["list"]] = (result.get("spearman") or result["accuracy"])["value"]
    return found


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--peers", default=sys.executable, help="a Python with gensim, fastText")
    parser.add_argument("--methods", default="skipgram,cbow,fasttext")
    parser.add_argument("--systems", default="weft,gensim,fasttext")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.025)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lists", default="", help="measure quality with the lists of a folder")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once, for quality")
    parser.add_argument("--patience", type=int, default=3600, help="seconds for one training")
    parser.add_argument("--scaling", action="store_true")
    asked = parser.parse_args()
    record = Record(asked.record)
    with tempfile.TemporaryDirectory() as folder:
        if asked.lists:
            quality(asked, record, folder)
        elif asked.scaling:
            scaling(asked, record, folder)
        else:
            with open(asked.corpus, encoding="utf-8") as lines:
                words = sum(len(line.split()) for line in lines)
            speed(asked, record, words, folder)


if __name__ == "__main__":
    main()
