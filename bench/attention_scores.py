"""Does the attention score matter? Four scores in every use of attention, and the masks.

    python bench/attention_scores.py --data DATA --jobs 8 --device cuda --record attention_scores

One task a use: pool and Transformer encoder on TREC, the three decoders on the first 6,000 pairs
of Multi30k (English to German, test2016), ESIM and decomposable attention on SICK entailment,
BiDAF on SQuAD's dev set, parted by article. Settings are the recipes' own but for `EPOCHS`. First
quality, all trainings in parallel processes; then speed, one training after the other with nothing
beside it, and an untimed one before each. One JSON line a figure: the metric on test, and examples
a second in training, both with what they are relative to the score that the recipe has. `--limit N`
takes N examples of every part, for a quick look.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import finetune
import generation
import trials
from record import Record
from trials import Job, Parts

import weft

SCORES = ("additive", "dot", "scaled", "bilinear")
MASKS: tuple[Job, ...] = (
    {"mask": "causal"},
    {"mask": "no-diagonal"},
    {"mask": "local", "window": 2},
    {"mask": "local", "window": 5},
)
PAIRS = 6_000  # of Multi30k
# use -> recipe, data, metric, its own score
USES = {
    "pool": ("bilstm-attention", "trec", "accuracy", "scaled"),
    "transformer encoder": ("transformer", "trec", "accuracy", "scaled"),
    "recurrent decoder": ("seq2seq-attention", "multi30k-de", "bleu", "additive"),
    "convolutional decoder": ("seq2seq-cnn", "multi30k-de", "bleu", "dot"),
    "transformer decoder": ("seq2seq-transformer", "multi30k-de", "bleu", "scaled"),
    "esim": ("esim", "sick", "accuracy", "dot"),
    "decomposable": ("decomposable", "sick", "accuracy", "dot"),
    "bidaf": ("bidaf", "squad", "f1", "trilinear"),
}
EPOCHS = {"bidaf": 6, "transformer decoder": 10, "decomposable": 15}  # fewer than the recipes'
SLOW = ("bidaf", "transformer decoder", "convolutional decoder", "recurrent decoder")  # first
SPEED_EXAMPLES = 1_920  # of an epoch that is timed


def loaded(name: str, root: Path, limit: int) -> tuple[Parts, Job]:
    """The parts of a data set, and the settings that belong to it."""
    own: Job = {}
    if name == "multi30k-de":
        parts, own = generation.loaded(name, root)
        parts = {**parts, "train": parts["train"][:PAIRS]}
    else:
        parts = finetune.SETS[name][0](root)
    return {part: found[: limit or len(found)] for part, found in parts.items()}, own


def trained(job: Job, folder: Path) -> Job:
    """Train once and measure on test."""
    recipe, data, metric, _ = USES[job["use"]]
    parts, own = loaded(data, Path(job["root"]), job["limit"])
    config = trials.configured({**job, "changes": {**own, **job["changes"]}}, recipe)
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    figure = out.figures["test"][metric]
    scale = 1 if metric == "bleu" else 100
    value, low, high = (round(scale * x, 2) for x in (figure.value, figure.low, figure.high))
    seen = trials.epochs(folder / "run")
    seconds = out.record["training_seconds"] / seen["epochs"]
    return {
        "metric": metric, "value": value, "low": low, "high": high, "n": figure.n,
        "train": len(parts["train"]),
        **seen, "seconds_per_epoch": round(seconds, 2),
    }  # fmt: skip


def trial(job: Job) -> Job:
    """One training, in a process of its own."""
    return trials.attempt(job, ("use", "score", "mask", "seed"), trained)


def planned(asked: argparse.Namespace) -> list[Job]:
    """Every use with every score, and the Transformer encoder with every mask; slow ones first."""
    plans: list[Job] = []
    for use in sorted(asked.uses, key=lambda use: use not in SLOW):
        default = USES[use][3]
        for score in (*SCORES, *(() if default in SCORES else (default,))):
            plans.append({"use": use, "score": score, "mask": "", "attention": {"score": score}})
    if "transformer encoder" in asked.uses:
        for attention in MASKS:
            name = " ".join(str(value) for value in attention.values())
            plan = {"use": "transformer encoder", "score": "scaled", "mask": name}
            plans.append({**plan, "attention": attention})
    return plans


def jobs(asked: argparse.Namespace, plans: list[Job]) -> list[Job]:
    """Every plan with each of its seeds."""
    own = {"root": asked.data, "device": asked.device, "threads": 1, "limit": asked.limit}
    out = []
    for plan in plans:
        changes = {f"attention.{key}": value for key, value in plan["attention"].items()}
        if asked.epochs or plan["use"] in EPOCHS:
            changes["train.epochs"] = asked.epochs or EPOCHS[plan["use"]]
        out += [
            {**own, **plan, "changes": changes, "seed": seed + 1} for seed in range(asked.seeds)
        ]
    return out


def summarise(record: Record, rows: list[Job]) -> None:
    """The mean of each score and mask over the seeds, and its difference to the recipe's score."""
    good = [{**row, "test_value": row["value"]} for row in rows if "error" not in row]
    means = trials.means(good, ("use", "score", "mask", "metric"))
    defaults = {
        row["use"]: row["test_value"]
        for row in means
        if row["score"] == USES[row["use"]][3] and not row["mask"]
    }
    for row in sorted(means, key=lambda row: (list(USES).index(row["use"]), row["mask"])):
        base = defaults.get(row["use"])
        own = {} if base is None else {"to_default": round(row["test_value"] - base, 2)}
        record.line("attention score", **row, **own)


def measure_speed(record: Record, asked: argparse.Namespace, plans: list[Job]) -> None:
    """Examples a second of one epoch, and sentences written a second by the decoders."""
    found: dict[tuple[str, str, str], Job] = {}
    for job in jobs(argparse.Namespace(**{**vars(asked), "seeds": 1, "epochs": 1}), plans):
        recipe, data, _, _ = USES[job["use"]]
        limit = min(asked.limit or SPEED_EXAMPLES, SPEED_EXAMPLES)
        parts, own = loaded(data, Path(job["root"]), limit)
        parts = {**parts, "dev": parts["dev"][:32], "test": parts["test"][:32]}
        changes = {**own, **job["changes"], "train.patience": 0}
        config = trials.configured({**job, "changes": changes}, recipe)
        speeds: Job = {}
        for _ in range(2):  # the first one is for the kernels and the allocator
            with tempfile.TemporaryDirectory() as folder:
                out = weft.train(
                    config, Path(folder) / "run", splits=trials.splits(parts), quiet=True,
                    device=job["device"],
                )  # fmt: skip
            speeds["examples_per_second"] = round(
                len(parts["train"]) / out.record["training_seconds"], 1
            )
        if data == "multi30k-de":
            sources = loaded(data, Path(job["root"]), limit)[0]["test"][:512]
            speeds["written_per_second"] = generation.decoding(out.predictor, sources)
        del out
        gc.collect()
        key = (job["use"], job["score"], job["mask"])
        found[key] = {"n": len(parts["train"]), **speeds}
    for (use, score, mask), speeds in found.items():
        base = found[use, USES[use][3], ""]
        ratios = {
            f"{name}_ratio": round(speeds[name] / base[name], 3)
            for name in ("examples_per_second", "written_per_second")
            if name in speeds
        }
        record.line("attention score, speed", use=use, score=score, mask=mask, **speeds, **ratios)


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--uses", default=",".join(USES), help="some of them, with commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=0, help="of every training; 0: see EPOCHS")
    parser.add_argument("--limit", type=int, default=0, help="examples of every part; 0: all")
    parser.add_argument("--jobs", type=int, default=8, help="parallel trainings")
    parser.add_argument("--only", choices=["quality", "speed"], help="one of the two")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    asked.uses = asked.uses.split(",")
    return asked


def main() -> None:
    asked = options()
    record, begin = Record(asked.record), time.perf_counter()
    plans: list[Any] = planned(asked)
    if asked.only != "speed":
        rows = trials.ran(record, "attention score", trial, jobs(asked, plans), asked.jobs)
        summarise(record, rows)
    if asked.only != "quality":
        measure_speed(record, asked, plans)
    record.line("attention score, all", seconds=round(time.perf_counter() - begin, 1))


if __name__ == "__main__":
    main()
