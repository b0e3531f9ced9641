"""Is memory constant? Trains a neural bag for one epoch on a generated file of any size.

    python bench/memory.py --megabytes 2048 --folder SCRATCH

The file has about 100 characters a row, words drawn by Zipf's law from 200,000, and four classes
with some signal. The bag holds words and hashed word pairs. Peak memory is that of the whole
training command; "beyond the model" is what remains after Python with torch imported, the weights,
and the optimiser's two numbers for each.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options

BAR = 2.0  # GB beyond the model
PAIRS = (
    *("embedder.kind=word-ngrams", "embedder.width=16", "tokenizer.min_count=1"),
    *("train.learning_rate=0.005", "train.epochs=1", "train.threads=1"),
)
WORDS, CLASSES, LENGTH, CHUNK = 200_000, 4, 12, 20_000
SIGNAL, OWN = 0.2, 500  # share of the words that speak for the class, and how many those are


def words(random: np.random.Generator) -> list[str]:
    """Distinct made-up words; frequent ones are shorter, as in any language."""
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    found: dict[str, None] = {}
    while len(found) < WORDS:
        size = 2 + int(min(8, np.log2(len(found) + 2) / 2 + random.integers(0, 3)))
        found.setdefault("".join(random.choice(letters, size)))
    return list(found)


def generate(path: Path, megabytes: float, seed: int) -> int:
    """Write a tab-separated file of that size; how many rows it got."""
    random = np.random.default_rng(seed)
    vocabulary = np.array(words(np.random.default_rng(0)), dtype=object)
    share = np.cumsum(1 / np.arange(10, WORDS + 10))
    share /= share[-1]
    rows, size = 0, 0
    with open(path, "w", encoding="utf-8", buffering=2**22) as file:
        file.write("label\ttext\n")
        while size < megabytes * 2**20:
            labels = random.integers(0, CLASSES, CHUNK)
            ids = np.searchsorted(share, random.random((CHUNK, LENGTH)))
            telling = random.random((CHUNK, LENGTH)) < SIGNAL
            # Half of what speaks for a class speaks for its neighbour too, so nobody is perfect.
            own = 1000 + labels[:, None] * OWN // 2 + random.integers(0, OWN, (CHUNK, LENGTH))
            texts = vocabulary[np.where(telling, own, ids)].tolist()
            lines = [
                f"c{label}\t{' '.join(text)}\n"
                for label, text in zip(labels.tolist(), texts, strict=True)
            ]
            size += file.write("".join(lines))
            rows += CHUNK
    return rows


def watched(command: Sequence[str], log: Path, every: float = 0.2) -> dict[str, Any]:
    """Run a command; its peak memory in bytes, and when each line of its log was written."""
    started = time.perf_counter()
    child = subprocess.Popen(command)
    peak = 0
    lines: list[tuple[float, int, str]] = []
    while child.poll() is None:
        peak = max(peak, _status(child.pid, "VmHWM"))
        told = log.read_text("utf-8").splitlines() if log.exists() else []
        now = _status(child.pid, "VmRSS")
        for line in told[len(lines) :]:
            lines.append((round(time.perf_counter() - started, 1), round(now / 2**20), line))
        time.sleep(every)
    if child.returncode:
        sys.exit(f"training failed with status {child.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    seconds = time.perf_counter() - started
    return {"peak": max(peak, after), "seconds": seconds, "lines": lines}


def _status(pid: int, field: str) -> int:
    """A line of /proc/PID/status in bytes; 0 once the process has gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def bare() -> int:
    """Bytes of a Python that has done nothing but import torch and the tokenizers."""
    code = "import torch, tokenizers, resource as r; print(r.getrusage(r.RUSAGE_SELF).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024


def measure(folder: Path, megabytes: float, sets: Sequence[str]) -> dict[str, Any]:
    """Generate, train, and say what it took."""
    train, test, run = folder / "train.tsv", folder / "test.tsv", folder / "run"
    started = time.perf_counter()
    rows = generate(train, megabytes, seed=1)
    generate(test, 10, seed=2)
    generated = time.perf_counter() - started
    # Before any large child: the peak of all children together is all that is kept.
    base = bare()
    command = [sys.executable, "-m", "weft", "train", "--recipe", "bag", "-o", str(run)]
    command += ["--train", str(train), "--test", str(test)]
    for setting in (*PAIRS, *sets):
        command += ["--set", setting]
    found = watched(command, run / "log.txt")
    saved = json.loads((run / "model" / "record.json").read_text("utf-8"))
    model = saved["parameters"] * 4 * 3
    beyond = found["peak"] - base - model
    size = train.stat().st_size / 2**20
    return {
        "megabytes": round(size),
        "rows": rows,
        "peak_mb": round(found["peak"] / 2**20),
        "python_and_torch_mb": round(base / 2**20),
        "model_mb": round(model / 2**20),
        "beyond_model_gb": round(beyond / 2**30, 2),
        "bar": BAR,
        "seconds": round(found["seconds"]),
        "mb_per_second": round(size / found["seconds"], 2),
        "test_accuracy": round(saved["figures"]["test"]["accuracy"]["value"], 4),
        "generation_seconds": round(generated),
        "log": found["lines"],  # (seconds, MB of memory then, what the run said)
    }


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--megabytes", type=float, default=2048)
    parser.add_argument("--folder", help="where the file and the run may lie; a temporary one")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    for _ in range(arguments.repeats):
        with tempfile.TemporaryDirectory(prefix="weft-memory-", dir=arguments.folder) as folder:
            os.chdir(folder)
            record.line("memory", **measure(Path(folder), arguments.megabytes, arguments.sets))


if __name__ == "__main__":
    main()
