"""Does our CaRB scorer agree with the published curves? One JSON line a stored system output.

    python bench/openie.py --data DATA

`curve_gap` is the largest difference from the published points of precision and recall, where
there are any.
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
from carb_outputs import read_output
from record import Record

from weft.metrics.structure.carb import CarbScores, Curve, pair_by_sentence
from weft.text.annotation.frames import Extractions
from weft.text.formats.semantics.extractions import read_gold_tuples

CURVES = {"clausie": "clausie", "openie4": "openie-4", "openie5": "openie-5", "props": "props"}


def read_gold(path: Path) -> list[tuple[str, Extractions]]:
    """The gold tuples of each sentence."""
    pairs = ((example.text, example.label) for example in read_gold_tuples(path))
    return [(text, label) for text, label in pairs if isinstance(label, Extractions)]


def curve_gap(curve: Curve, path: Path) -> float:
    """The largest difference from a published curve."""
    with gzip.open(path, "rt") as lines:
        next(lines)
        points = np.array([[float(cell) for cell in line.split("\t")] for line in lines])
    points = points[np.argsort(points[:, 2])]
    ours = np.stack([curve.precision, curve.recall, curve.confidence], axis=1)
    return float(np.abs(points - ours).max()) if points.shape == ours.shape else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--record", default="")
    asked = parser.parse_args()
    root = Path(asked.data) / "openie/carb"
    record = Record(asked.record)
    for part in ("dev", "test"):
        gold = read_gold(root / f"gold_{part}.tsv.gz")
        for path in sorted((root / "system_outputs" / part).iterdir()):
            system = path.name.split("_")[0]
            scores = CarbScores()
            scores.add(*pair_by_sentence(read_output(path), gold))
            row = {k: round(100 * one.value, 2) for k, one in scores.compute(0).items()}
            if part == "test" and system in CURVES:
                published = root / "pr_curves" / f"{CURVES[system]}.dat.gz"
                row["curve_gap"] = curve_gap(scores.curve(), published)
            record.line("carb stored output", part=part, system=system, **row, n=scores.n)


if __name__ == "__main__":
    main()
