"""What does balancing uneven classes gain? CLINC150 and SST-2 thinned to 1:50, and TREC-50.

    python bench/imbalance.py --data DATA --device cuda --record imbalance

Every set is trained with each recipe, each way of `train.balance` and `--seeds` seeds, in parallel
processes. A seed also draws which examples stay: of CLINC150 the classes keep 100 down to 2 texts,
geometrically (the long tail of Cui et al. 2019); of SST-2 one positive sentence stays for fifty
negative ones; TREC-50 (fine labels, 1 to 240 as they come) has a tenth of train as dev. Dev is
thinned like train, test is not, so that macro-F1 on test rests on enough texts of every class.
Recipes are as they are, gamma is 2: nothing is chosen on test. One JSON line a run, then one for
each set, recipe and way: mean macro-F1, and the gain over no balancing with the 95 % interval of a
paired bootstrap over the test texts, of the mean over seeds. `chosen` is the way with the best dev
macro-F1 of a set and recipe, which may be none. Of SST-2, `threshold` is no balancing, but the
threshold with the best F1 on dev. Models are selected by macro-F1 on dev in all cases.
`bert-frozen` needs the checkpoint of `--pretrained`; it is left out if there is none.
`--limit N` takes N examples of each part, for a quick look.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import trials
from record import Record
from trials import Job, Parts

import weft
from weft.compare.gain import paired_gain
from weft.compare.trial import SplitSpec, Trial
from weft.config import with_pretrained
from weft.convert.locate import locate
from weft.errors import UserError
from weft.text.example import Example
from weft.text.read import Columns, read

THRESHOLD = "threshold"  # no balancing, but the threshold with the best F1 on dev; of two classes
WAYS = ("none", "weights", "sampling", "focal", THRESHOLD)
RATIO = 50
PRETRAINED = ("bert-frozen",)
DEV_SHARE = 0.1


def clinc150(root: Path, seed: int) -> Parts:
    saved = json.loads((root / "classification/clinc150/data_full.json").read_text("utf-8"))
    parts = {
        part: [Example(text, label) for text, label in saved[name]]
        for part, name in (("train", "train"), ("dev", "val"), ("test", "test"))
    }
    order = sorted({e.label for e in parts["train"]})
    random.Random(seed).shuffle(order)
    shares = {label: RATIO ** (-i / (len(order) - 1)) for i, label in enumerate(order)}
    return thin(parts, shares, seed)


def sst2(root: Path, seed: int) -> Parts:
    names = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}
    parts = {}
    for part in ("train", "dev", "test"):
        found = read(root / f"classification/sst/{part}.txt")
        parts[part] = [Example(e.text, names[e.label]) for e in found if e.label in names]
    counts = Counter(e.label for e in parts["train"])
    share = counts["negative"] / counts["positive"] / RATIO
    return thin(parts, {"negative": 1.0, "positive": share}, seed)


def trec50(root: Path, seed: int) -> Parts:
    columns = Columns(text=2, label=1)
    parts = {
        part: list(read(root / f"classification/trec/{part}.tsv", columns=columns))
        for part in ("train", "test")
    }
    known = {e.label for e in parts["train"]}
    parts["test"] = [e for e in parts["test"] if e.label in known]
    random.Random(seed).shuffle(parts["train"])
    cut = round(DEV_SHARE * len(parts["train"]))
    held, rest = parts["train"][:cut], parts["train"][cut:]
    learned = {e.label for e in rest}
    return {
        "train": rest + [e for e in held if e.label not in learned],
        "dev": [e for e in held if e.label in learned],
        "test": parts["test"],
    }


def thin(parts: Parts, shares: dict[str, float], seed: int) -> Parts:
    """Keep a share of each class in train and dev, at least two texts and one."""
    pick, out = random.Random(seed), dict(parts)
    for part, least in (("train", 2), ("dev", 1)):
        kept = []
        for label, share in shares.items():
            own = [e for e in parts[part] if e.label == label]
            kept += pick.sample(own, min(len(own), max(least, round(share * len(own)))))
        pick.shuffle(kept)
        out[part] = kept
    return out


SETS = {"clinc150": clinc150, "sst2": sst2, "trec50": trec50}


def load_parts(job: Job) -> Parts:
    parts = SETS[job["data"]](Path(job["root"]), job["seed"])
    if not job["limit"]:
        return parts
    parts = {part: found[: job["limit"]] for part, found in parts.items()}
    known = {e.label for e in parts["train"]}
    return {part: [e for e in found if e.label in known] for part, found in parts.items()}


def train(job: Job) -> Job:
    """Train one seed of one way."""
    keep = {key: job[key] for key in ("data", "recipe", "balance", "seed", "folder")}
    try:
        parts = load_parts(job)
        counts = Counter(e.label for e in parts["train"])
        config = trials.configured(job)
        if job["recipe"] in PRETRAINED:
            config = with_pretrained(config, job["pretrained"])
        way: Job = {"train.balance": job["balance"]}
        if job["balance"] == THRESHOLD:
            way = {"task.threshold_for": "f1"}
        config = config.with_values({**way, "train.metric": "macro_f1"}, "bench")
        folder = Path(job["folder"])
        result = weft.train(
            config, folder, splits=trials.splits(parts), quiet=True, device=job["device"]
        )
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        figures = result.figures
        return {
            **keep, "train": len(parts["train"]), "classes": len(counts),
            "largest": max(counts.values()), "smallest": min(counts.values()),
            "dev_macro_f1": round(figures["dev"]["macro_f1"].value, 5),
            "test_macro_f1": figures["test"]["macro_f1"].value,
            "test_accuracy": round(figures["test"]["accuracy"].value, 5),
            "seconds": round(result.record["seconds"], 1),
        }  # fmt: skip
    except Exception as error:  # one bad run must not lose the others
        return {**keep, "error": repr(error)[:500]}


def as_trial(row: Job) -> Trial:
    """A run folder as the paired test reads it: by its predictions on the test part."""
    folder = Path(row["folder"])
    return Trial("", row["seed"], None, weft.Config({}), SplitSpec(""), folder, "")


def summarise(job: Job) -> list[Job]:
    """The means of each way on one set and recipe, and their gains over none."""
    rows: dict[str, list[Job]] = job["rows"]
    dev = {way: statistics.mean(r["dev_macro_f1"] for r in found) for way, found in rows.items()}
    best = max(dev, key=dev.__getitem__)
    out = []
    for way, found in rows.items():
        values = [r["test_macro_f1"] for r in found]
        line: Job = {
            "data": job["data"], "recipe": job["recipe"], "balance": way, "n": len(values),
            "train": found[0]["train"], "classes": found[0]["classes"],
            "largest": found[0]["largest"], "smallest": found[0]["smallest"],
            "dev_macro_f1": round(dev[way], 4), "macro_f1": round(statistics.mean(values), 4),
            "sd": round(statistics.stdev(values), 4) if len(values) > 1 else None,
            "accuracy": round(statistics.mean(r["test_accuracy"] for r in found), 4),
            "seconds": round(statistics.mean(r["seconds"] for r in found), 1),
            "chosen": way == best,
        }  # fmt: skip
        if way != "none" and "none" in rows:
            sides = ([as_trial(r) for r in side] for side in (found, rows["none"]))
            gain = paired_gain(*sides, "macro_f1", statistics.mean(values))
            line["texts"] = gain.n if gain else None
            line["gain"] = (
                [round(x, 4) for x in (gain.value, gain.low, gain.high)] if gain else None
            )
        out.append(line)
    return out


def main() -> None:
    asked = options()
    record, begin = Record(asked.record), time.perf_counter()
    folder = Path(asked.output or tempfile.mkdtemp(prefix="weft-imbalance-"))
    recipes = asked.recipes.split(",")
    changes: Job = {"train.epochs": asked.epochs} if asked.epochs else {}
    if any(name in PRETRAINED for name in recipes):
        try:
            locate(asked.pretrained)
        except UserError as error:
            record.line("imbalance left out", recipes=list(PRETRAINED), reason=str(error))
            recipes = [name for name in recipes if name not in PRETRAINED]
    jobs = [
        {
            "data": name, "recipe": recipe, "balance": way, "seed": seed, "root": asked.data,
            "folder": str(folder / f"{name}-{recipe}-{way}-{seed}"), "limit": asked.limit,
            "threads": 1, "device": "cpu" if recipe == "tfidf" else asked.device,
            "pretrained": asked.pretrained, "changes": changes if recipe != "tfidf" else {},
        }
        for recipe in recipes
        for name in asked.sets.split(",")
        for way in WAYS
        if not (recipe == "tfidf" and way == "focal")  # which it refuses
        if not (name != "sst2" and way == THRESHOLD)
        for seed in range(1, asked.seeds + 1)
    ]  # fmt: skip
    jobs.sort(key=lambda job: (job["data"], job["recipe"]) != ("clinc150", "tfidf"))  # the longest
    groups: dict[tuple[str, str], dict[str, list[Job]]] = {}
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for row in pool.imap_unordered(train, jobs, chunksize=1):
            record.line("imbalance run", **{k: v for k, v in row.items() if k != "folder"})
            if "error" not in row:
                ways = groups.setdefault((row["data"], row["recipe"]), {})
                ways.setdefault(row["balance"], []).append(row)
        ready = [
            {
                "data": name, "recipe": recipe,
                "rows": {way: sorted(ways[way], key=lambda r: r["seed"]) for way in WAYS
                         if way in ways},
            }
            for (name, recipe), ways in sorted(groups.items())
        ]  # fmt: skip
        for lines in pool.imap(summarise, ready, chunksize=1):
            for line in lines:
                record.line("imbalance", **line)
    if not asked.output:
        shutil.rmtree(folder, ignore_errors=True)
    record.line("imbalance, all", seconds=round(time.perf_counter() - begin, 1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument(
        "-o", "--output", default="", help="folder for the runs; default: none kept"
    )
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--recipes", default="tfidf,cnn,bert-frozen")
    parser.add_argument("--pretrained", default="minilm")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="examples of every part; 0: all")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


if __name__ == "__main__":
    main()
