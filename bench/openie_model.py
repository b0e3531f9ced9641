"""How good are the tuples of a model? One JSON line a part of CaRB, with the speed.

    python bench/openie_model.py --data DATA --model MODEL

MODEL is of the task srl (`weft train --recipe srl-bert --pretrained MiniLM` on EWT PropBank; the
rules were chosen on dev), or of the task openie (`--recipe openie-bert` on silver tuples).
"""

import argparse
import time
from pathlib import Path

from openie import read_gold
from record import Record

from weft.loading import load
from weft.metrics.structure.carb import CarbScores, pair_by_sentence
from weft.tasks.semantics.role_tuples import extract_tuples
from weft.text.annotation.frames import Extractions
from weft.text.annotation.word_tuples import read_tuples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parts", default="dev,test")
    parser.add_argument("--record", default="")
    asked = parser.parse_args()
    root = Path(asked.data) / "openie/carb"
    record = Record(asked.record)
    predictor = load(asked.model, device=asked.device, replay=False)
    for part in asked.parts.split(","):
        lines = (root / f"sentences_{part}.txt").read_text("utf-8").splitlines()
        sentences = [line.strip() for line in lines if line.strip()]
        began = time.perf_counter()
        found, count = [], 0
        for text, answer in zip(sentences, predictor(sentences), strict=True):
            structure = answer.structure
            if structure.kind == "tuples":
                tuples = read_tuples(structure.tuples)
            else:
                tuples = extract_tuples(structure.words, structure.frames, answer.scores)
            made = tuple(one.to_extraction(text, structure.places) for one in tuples)
            found.append((text, Extractions(made)))
            count += len(made)
        seconds = time.perf_counter() - began
        scores = CarbScores()
        scores.add(*pair_by_sentence(found, read_gold(root / f"gold_{part}.tsv.gz")))
        row: dict[str, object] = {}
        for name, one in scores.compute().items():
            row[name] = round(100 * one.value, 2)
            row[f"{name}_interval"] = [round(100 * one.low, 2), round(100 * one.high, 2)]
        record.line(
            "carb tuples of a model",
            part=part, head=predictor.config["head"]["kind"], **row, tuples=count, n=scores.n,
            sentences_per_second=round(len(sentences) / seconds, 1),
            tuples_per_second=round(count / seconds, 1),
        )  # fmt: skip


if __name__ == "__main__":
    main()
