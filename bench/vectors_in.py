"""Can a decoder write what vectors show? Made pictures of numbers, read column by column.

    python bench/vectors_in.py --record vectors_in

One JSON line a seed: the share of held-out pictures whose words are right to the last, with its
interval, and the seconds of the training. `--recipes` may name others that read vectors.
"""

import argparse
import tempfile
from pathlib import Path

from record import Record

import weft
from weft.text.synthetic.digits import write_digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", default="seq2seq-vectors")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    record = Record(asked.record)
    with tempfile.TemporaryDirectory(prefix="weft-vectors-") as name:
        folder = Path(name)
        files = {f"data.{path.stem}": str(path) for path in write_digits(folder)}
        for recipe in asked.recipes.split(","):
            for seed in range(1, asked.seeds + 1):
                own = {"train.seed": seed, "train.threads": asked.threads}
                config = weft.recipe(recipe).with_values({**files, **own}, "bench")
                run = folder / f"{recipe}-{seed}"
                out = weft.train(config, run, quiet=True, device=asked.device)
                right = out.figures["test"]["exact_match"]
                record.line(
                    "vectors in", recipe=recipe, seed=seed, exact_match=round(right.value, 4),
                    low=round(right.low, 4), high=round(right.high, 4), n=right.n,
                    parameters=out.record["parameters"], seconds=round(out.record["seconds"], 1),
                )  # fmt: skip


if __name__ == "__main__":
    main()
