"""Are vectors trained here as good as gensim's? Lists of word pairs and analogies, several seeds.

    python bench/similarity.py --corpus FILE --peers VENV/bin/python --lists FOLDER --seeds 3

FILE holds a tokenised sentence a line, spaces between tokens: one tokenisation for both. A line a
list: the mean over the seeds of each system with its deviation, coverage, the bootstrap interval of
the first seed, and whether ours is below theirs by more than their own seeds differ. `--folder`
keeps the vectors, so that another list or another run costs no training.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import Record, options
from vectors import trained

from weft.measure import spread
from weft.vectors.evaluate import evaluate
from weft.vectors.lists import read
from weft.vectors.store import Vectors


def vectors_of(asked: argparse.Namespace, folder: Path, system: str, seed: int) -> Vectors:
    """One training, or the file that an earlier one left."""
    name = folder / f"{system}-{asked.method}-{asked.epochs}-{seed}"
    endings = (".safetensors", ".bin")
    if not any(name.with_name(name.name + ending).exists() for ending in endings):
        trained(asked, system, asked.method, str(name), seed=seed)
    files = [name.with_name(name.name + ending) for ending in endings]
    return Vectors.load(next(file for file in files if file.exists()))


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--lists", required=True, help="a folder of lists, searched to the bottom")
    parser.add_argument("--peers", default=sys.executable, help="a Python with gensim, fastText")
    parser.add_argument("--peer", default="gensim")
    parser.add_argument("--method", default="skipgram")
    parser.add_argument("--folder", default="", help="where the vectors are kept")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.025)
    asked = parser.parse_args()
    record = Record(asked.record)
    lists = [read(path) for path in sorted(Path(asked.lists).rglob("*.txt"))]
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(asked.folder or spare)
        folder.mkdir(exist_ok=True)
        found: dict[str, dict[str, list[Any]]] = {}  # list -> system -> a result a seed
        for seed in range(1, asked.seeds + 1):
            for system in ("weft", asked.peer):
                vectors = vectors_of(asked, folder, system, seed)
                for listed in lists:
                    result = evaluate(vectors, listed).to_json()
                    found.setdefault(listed.name, {}).setdefault(system, []).append(result)
    for name, systems in found.items():
        record.line(
            "similarity", list=name, method=asked.method, epochs=asked.epochs,
            **compared(systems, asked.peer),
        )  # fmt: skip


def compared(systems: dict[str, list[Any]], peer: str) -> dict[str, Any]:
    """Both systems on one list, and the difference beside the spread of the peer's seeds."""
    out: dict[str, Any] = {}
    values: dict[str, list[float]] = {}
    for system, results in systems.items():
        figures = [one.get("spearman") or one["accuracy"] for one in results]
        values[system] = [figure["value"] for figure in figures]
        over = spread(values[system])
        out[system] = {
            "mean": round(over.mean, 4),
            "deviation": round(over.deviation, 4),
            "seeds": over.n,
            "interval": [round(figures[0]["low"], 4), round(figures[0]["high"], 4)],
            "coverage": round(results[0]["coverage"], 4),
        }
    ours, theirs = values["weft"], values[peer]
    difference = statistics.mean(ours) - statistics.mean(theirs)
    return {**out, "difference": round(difference, 4), "not_below": difference >= _slack(theirs)}


def _slack(theirs: list[float]) -> float:
    """As far below their mean as their own seeds reach."""
    return min(theirs) - statistics.mean(theirs)


if __name__ == "__main__":
    main()
