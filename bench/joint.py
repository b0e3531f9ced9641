"""Is one model of intents and slots as good as two? Generated requests and CamRest676.

    python bench/joint.py --data DATA -o RUNS --device cuda --workers 16 --record joint

Every set is learned by three models with the same embedders and encoder: `joint-bilstm-crf`; its
encoder with max-pooling and a linear head for the intent; and `tagger-bilstm-crf` for the slots.
Each seed is a process. One JSON line a run, and one a set: intent accuracy, slot F1 and exact match
of the joint model, of the two others together, and the difference with the 95 % interval of a
paired bootstrap over the test sentences, scores averaged over seeds; and the seconds to answer the
test part, once by the joint model and once by each of the others. `--limit N` takes N training
sentences.

CamRest676 has dialogue acts, from which user turns get an intent: the requested slots
("request address phone"), "inform" where a value is new, else "other". Values of slots are tagged
where they stand in the turn, and no others; requests seen fewer than ten times are "request other".
"""

import argparse
import gzip
import json
import multiprocessing
import os
import re
import shutil
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import trials
from record import Record
from trials import Job, Parts

import weft
from weft.text.example import TAG_COLUMN, Example, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.synthetic.intents import generate_intents

KINDS = ("joint", "intent", "slots")
RECIPES = {
    "joint": "joint-bilstm-crf",
    "intent": "joint-bilstm-crf",
    "slots": "tagger-bilstm-crf",
}
# The same network for the intent alone.
INTENT_ALONE = {
    "task": {"kind": "classify"},
    "pool": {"kind": "max"},
    "head": {"kind": "linear", "dropout": 0.5},
    "train.metric": "accuracy",
}
SPELLINGS = {"centre": ("centre", "center"), "moderate": ("moderate", "moderately")}
MIN_REQUESTS = 10  # of one kind, to be an intent of its own
RESAMPLES = 2000
_WORD = re.compile(r"[\w']+|[^\w\s]")


def requests(root: Path) -> Parts:
    return generate_intents()


def camrest(root: Path) -> Parts:
    """User turns with an intent from their dialogue acts, and the values that stand in them."""
    with gzip.open(root / "dialogue/camrest676/dialogues.json.gz", "rt", encoding="utf-8") as file:
        dialogues = json.loads("".join(line for line in file if not line.startswith("#")))
    turns = [list(_turns(dialogue["dial"])) for dialogue in dialogues]
    counts = Counter(intent for dialogue in turns for _, _, intent in dialogue)
    fifth = len(turns) // 5
    split = {"train": turns[: 3 * fifth], "dev": turns[3 * fifth : 4 * fifth],
             "test": turns[4 * fifth :]}  # fmt: skip
    return {
        part: [
            _example(words, tags, intent if counts[intent] >= MIN_REQUESTS else "request other")
            for dialogue in found
            for words, tags, intent in dialogue
        ]
        for part, found in split.items()
    }


def _turns(turns: list[Any]):
    known: set[tuple[str, str]] = set()
    for turn in turns:
        acts = turn["usr"]["slu"]
        values = {tuple(s) for act in acts if act["act"] == "inform" for s in act["slots"]}
        wanted = sorted({s[1] for act in acts if act["act"] == "request" for s in act["slots"]})
        new, known = values - known, values
        intent = f"request {' '.join(wanted)}" if wanted else "inform" if new else "other"
        words = _WORD.findall(turn["usr"]["transcript"])
        if words:
            yield words, _locate(words, values), intent


def _locate(words: list[str], values: set[tuple[str, str]]) -> list[str]:
    """Tag the values where they stand in a turn."""
    lowered = [word.lower() for word in words]
    tags = ["O"] * len(words)
    for slot, value in sorted(values):
        for spelling in SPELLINGS.get(value, (value,)):
            parts = _WORD.findall(spelling.lower())
            for i in range(len(words) - len(parts) + 1):
                if parts and lowered[i : i + len(parts)] == parts and tags[i] == "O":
                    tags[i : i + len(parts)] = [f"B-{slot}", *[f"I-{slot}"] * (len(parts) - 1)]
    return tags


def _example(words: list[str], tags: list[str], intent: str) -> Example:
    label = WordAnnotations({TAG_COLUMN: tuple(tags)}, TAG_COLUMN, intent)
    spaced = tuple(words)
    return Example(" ".join(spaced), label, words=spaced, places=locate_spaced_words(spaced))


SETS = {"requests": requests, "camrest": camrest}


def train(job: Job) -> Job:
    """Train one model of one seed; its answers to the test part stay in the run folder."""
    keep = {key: job[key] for key in ("data", "kind", "seed")}
    folder = Path(job["folder"])
    try:
        shutil.rmtree(folder, ignore_errors=True)
        parts = SETS[job["data"]](Path(job["root"]))
        if job["limit"]:
            parts["train"] = parts["train"][: job["limit"]]
            known = {e.label.label for e in parts["train"]}
            parts = {p: [e for e in found if e.label.label in known] for p, found in parts.items()}
        found = weft.train(
            trials.configured(job), folder, splits=trials.splits(parts), quiet=True,
            device=job["device"],
        )  # fmt: skip
        begin = time.perf_counter()
        list(found.predictor.stream(parts["test"]))
        seconds = time.perf_counter() - begin
        figures = {
            f"{part}_{name}": round(100 * value.value, 3)
            for part, values in found.figures.items()
            for name, value in values.items()
            if name in ("exact_match", "intent_accuracy", "slot_f1", "accuracy", "f1")
        }
        return {**keep, **figures, "parameters": found.predictor.parameters,
                "seconds": found.record["seconds"], "test_seconds": round(seconds, 3)}  # fmt: skip
    except Exception as error:  # one bad run must not lose the others
        return {**keep, "error": repr(error)[:500]}


def counts(folder: Path) -> np.ndarray:
    """(n, 4): of each test sentence, whether the intent is right; spans right, predicted, gold."""
    rows = []
    for line in (folder / "predictions.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        if "structure" not in row:  # a classifier
            rows.append((float(row["value"] == row["label"]), 0, 0, 0))
            continue
        ours, gold = (
            {tuple(s) for s in row[side].get("spans", ())} for side in ("structure", "gold")
        )
        intent = row["structure"].get("label", "") == row["gold"].get("label", "")
        rows.append((float(intent), len(ours & gold), len(ours), len(gold)))
    return np.array(rows, float)


def together(intent: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The counts of two models as those of one."""
    return np.concatenate([intent[:, :1], slots[:, 1:]], axis=1)


def metrics(table: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of (..., n, 4) counts."""
    intent, right, predicted, gold = np.moveaxis(table, -1, 0)
    exact = intent * (right == predicted) * (right == gold)
    return {
        "intent_accuracy": 100 * intent.mean(-1),
        "slot_f1": 200 * right.sum(-1) / np.maximum((predicted + gold).sum(-1), 1),
        "exact_match": 100 * exact.mean(-1),
    }


def compare(joint: list[np.ndarray], two: list[np.ndarray]) -> Job:
    """Means over seeds, and the gain of one model over two with its interval."""
    rng, n = np.random.default_rng(0), len(joint[0])
    draws = rng.integers(0, n, (RESAMPLES, n))
    out: Job = {}
    for name in metrics(joint[0]):
        ours, theirs = ([float(metrics(t)[name]) for t in tables] for tables in (joint, two))
        gaps = [
            metrics(a[draws])[name] - metrics(b[draws])[name]
            for a, b in zip(joint, two, strict=True)
        ]
        resampled = np.mean(gaps, axis=0)
        low, high = np.quantile(resampled, [0.025, 0.975])
        gain = statistics.mean(ours) - statistics.mean(theirs)
        out[name] = {
            "joint": round(statistics.mean(ours), 2), "separate": round(statistics.mean(theirs), 2),
            "joint_sd": _deviation(ours), "separate_sd": _deviation(theirs),
            "gain": [round(float(x), 2) for x in (gain, low, high)],
        }  # fmt: skip
    return out


def _deviation(values: list[float]) -> float | None:
    return round(statistics.stdev(values), 2) if len(values) > 1 else None


def main() -> None:
    asked = options()
    root, record, begin = Path(asked.output), Record(asked.record), time.perf_counter()
    root.mkdir(parents=True, exist_ok=True)
    jobs = []
    for name in asked.sets.split(","):
        for seed in range(1, asked.seeds + 1):
            for kind in KINDS:
                changes = dict(INTENT_ALONE) if kind == "intent" else {}
                if kind == "joint" and asked.intent_weight:
                    changes["task.intent_weight"] = asked.intent_weight
                if asked.epochs:
                    changes["train.epochs"] = asked.epochs
                jobs.append({
                    "root": asked.data, "device": asked.device, "threads": asked.threads,
                    "limit": asked.limit, "data": name, "kind": kind, "recipe": RECIPES[kind],
                    "seed": seed, "changes": changes, "folder": str(root / f"{name}-{kind}-{seed}"),
                })  # fmt: skip
    rows = trials.ran(record, "joint", train, jobs, asked.workers)
    for name in asked.sets.split(","):
        mine = [row for row in rows if row["data"] == name]
        if any("error" in row for row in mine):
            continue
        tables = {
            kind: [counts(root / f"{name}-{kind}-{seed}") for seed in range(1, asked.seeds + 1)]
            for kind in KINDS
        }
        two = [together(a, b) for a, b in zip(tables["intent"], tables["slots"], strict=True)]
        seconds = {
            kind: round(statistics.mean(r["test_seconds"] for r in mine if r["kind"] == kind), 3)
            for kind in KINDS
        }
        sizes = {kind: next(r["parameters"] for r in mine if r["kind"] == kind) for kind in KINDS}
        found = compare(tables["joint"], two)
        about = {"n": asked.seeds, "sentences": len(two[0]), "test_seconds": seconds}
        record.line("joint", data=name, **about, **found, parameters=sizes)
    record.line("joint, all", seconds=round(time.perf_counter() - begin, 1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("-o", "--output", default="runs/joint", help="folder for the runs")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="training sentences; 0: all")
    parser.add_argument("--intent-weight", type=float, default=0, help="0: the recipe's own")
    parser.add_argument("--workers", type=int, default=min(16, multiprocessing.cpu_count()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


if __name__ == "__main__":
    main()
