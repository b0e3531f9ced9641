"""What does an ensemble of seeds gain? TREC, SST-2, EWT tags and Multi30k, with paired intervals.

    python bench/ensembles.py --data DATA -o RUNS --device cuda --record ensembles
    python bench/ensembles.py --data DATA -o RUNS --runs BAHDANAU --device cuda --record ensembles

Every set is trained with `--seeds` seeds, one process each, in parallel; RUNS/SET-SEED are run
folders, and a finished one is not trained again. `--runs FOLDER` takes translators that
`bench/bahdanau.py -o FOLDER` has trained (`--pattern`) instead of training them. Then the seeds of
each set are joined by `weft.ensemble`, loaded again (which replays recorded answers), measured by
`weft.evaluate` on the test part, and explained. One JSON line a run, one a set: mean and standard
deviation of the single models, the ensemble, and its gain over them with the 95 % interval of a
paired bootstrap over the test examples, scores of single models averaged over seeds.
`--limit N` takes N training examples, for a quick look.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from itertools import islice
from pathlib import Path

import generation
import quality
import tagging
import trials
from record import Record
from trials import Job, Parts

import weft
from weft.compare.gain import paired_gain
from weft.compare.trial import SplitSpec, Trial
from weft.explain.run import run_explain
from weft.run import Splits

# By set: recipe, settings, and the figure of the tables.
SETS: dict[str, tuple[str, Job, str]] = {
    "trec": ("cnn", {}, "accuracy"),
    "sst2": ("cnn", {"train.epochs": 5}, "accuracy"),
    "ewt": ("tagger-bilstm", {"train.epochs": 12}, "upos"),
    "multi30k": (
        "seq2seq-attention",
        {
            "train.epochs": 12,
            "train.batch_size": 128,
            "train.learning_rate": 0.003,
            "train.patience": 4,
            "train.minutes": 5.0,
        },
        "bleu",
    ),
}
EXPLAINED = 24  # test examples whose explanations are measured
DEV_SHARE = 0.1


def load_parts(name: str, root: Path, limit: int) -> tuple[Parts, Job]:
    """The parts of a set, and the settings that it needs."""
    own: Job = {}
    if name == "multi30k":
        parts, own = generation.loaded("multi30k-de", root)
    elif name == "ewt":
        parts, own = tagging.SETS["ewt"](root), {"task.columns": ["upos"]}
    else:
        splits = quality.splits(name, root, None, DEV_SHARE)
        parts = {"train": list(splits.train()), "dev": list(splits.dev()),
                 "test": list(splits.test())}  # fmt: skip
    if limit:
        parts = {part: list(islice(found, limit)) for part, found in parts.items()}
    return parts, own


def train(job: Job) -> Job:
    """Train one seed, unless it is there."""
    keep = {key: job[key] for key in ("data", "recipe", "seed")}
    folder = Path(job["folder"])
    try:
        if not (folder / "model" / "model.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            parts, own = load_parts(job["data"], Path(job["root"]), job["limit"])
            config = trials.configured({**job, "changes": {**own, **job["changes"]}})
            splits: Splits = trials.splits(parts)
            weft.train(config, folder, splits=splits, quiet=True, device=job["device"])
        record = json.loads((folder / "model" / "record.json").read_text("utf-8"))
        value = record["figures"]["test"][job["metric"]]["value"]
        return {**keep, "metric": job["metric"], "test": value, "seconds": record["seconds"]}
    except Exception as error:  # one bad run must not lose the others
        return {**keep, "error": repr(error)[:500]}


def join(job: Job) -> Job:
    """Join the runs of a set, and measure and explain the ensemble."""
    name, folders = job["data"], [Path(folder) for folder in job["folders"]]
    try:
        target = Path(job["folder"])
        shutil.rmtree(target, ignore_errors=True)
        weft.ensemble(folders, target / "model", device=job["device"])
        begin = time.perf_counter()
        predictor = weft.load(target / "model", device=job["device"])  # replays recorded answers
        loading = time.perf_counter() - begin
        parts, _ = load_parts(name, Path(job["root"]), job["limit"])
        begin = time.perf_counter()
        with open(target / "predictions.jsonl", "w", encoding="utf-8") as file:
            metric = weft.evaluate(predictor, parts["test"], predictions=file)
        seconds = time.perf_counter() - begin
        value = metric.compute()[job["metric"]]
        singles = [test_metric(folder, job["metric"]) for folder in folders]
        gain = paired_gain(
            [as_trial(target, predictor.config)],
            [as_trial(folder, predictor.config) for folder in folders],
            job["metric"],
            value.value,
        )
        digits = 3 if job["metric"] == "bleu" else 5
        return {
            "data": name, "recipe": job["recipe"], "metric": job["metric"], "n": len(folders),
            "texts": value.n,
            "single": round(statistics.mean(singles), digits),
            "sd": round(statistics.stdev(singles), digits) if len(singles) > 1 else None,
            "singles": [round(one, digits) for one in singles],
            "ensemble": round(value.value, digits),
            "gain": None if gain is None else [
                round(number, digits) for number in (gain.value, gain.low, gain.high)
            ],
            "parameters": predictor.parameters, "load_seconds": round(loading, 2),
            "test_seconds": round(seconds, 2), **explained(predictor, parts, name),
        }  # fmt: skip
    except Exception as error:
        return {"data": name, "error": repr(error)[:500]}


def test_metric(folder: Path, metric: str) -> float:
    record = json.loads((folder / "model" / "record.json").read_text("utf-8"))
    value: float = record["figures"]["test"][metric]["value"]
    return value


def as_trial(folder: Path, config: Job) -> Trial:
    """A run folder as the paired test reads it: by its predictions on the test part."""
    return Trial("", 1, None, weft.Config({"task": config["task"]}), SplitSpec(""), folder, "")


def explained(predictor: weft.Predictor, parts: Parts, name: str) -> Job:
    """The gain of each method's word order over a random one, on a few test examples."""
    examples = parts["test"][: EXPLAINED if name != "multi30k" else EXPLAINED // 4]
    run = run_explain(predictor, examples)
    return {"aopc_gain": {method: round(f.gain.value, 4) for method, f in run.faithfulness.items()}}


def main() -> None:
    asked = options()
    root, record, begin = Path(asked.output), Record(asked.record), time.perf_counter()
    root.mkdir(parents=True, exist_ok=True)
    own = {"root": asked.data, "device": asked.device, "threads": asked.threads}
    own |= {"limit": asked.limit}
    names = asked.sets.split(",")
    reused = sorted(Path(asked.runs).glob(asked.pattern)) if asked.runs else []
    jobs, joins = [], []
    for name in names:
        recipe, changes, metric = SETS[name]
        if asked.epochs:
            changes = {**changes, "train.epochs": asked.epochs}
        about = {**own, "data": name, "recipe": recipe, "metric": metric, "changes": changes}
        if name == "multi30k" and reused:
            folders = reused[: asked.seeds]
            about["recipe"] = asked.pattern
        else:
            seeds = range(1, asked.seeds + 1)
            folders = [root / f"{name}-{seed}" for seed in seeds]
            jobs += [{**about, "seed": seed, "folder": str(folder)}
                     for seed, folder in zip(seeds, folders, strict=True)]  # fmt: skip
        target = str(root / f"{name}-ensemble")
        joins.append({**about, "folders": [str(f) for f in folders], "folder": target})
    jobs.sort(key=lambda job: job["data"] != "multi30k")  # the longest first
    with multiprocessing.get_context("spawn").Pool(asked.workers, maxtasksperchild=1) as pool:
        failed = set()
        for row in pool.imap_unordered(train, jobs, chunksize=1):
            failed |= {row["data"]} if "error" in row else set()
            record.line("ensembles run", **row)
        ready = [job for job in joins if job["data"] not in failed]
        for row in pool.imap_unordered(join, ready, chunksize=1):
            record.line("ensembles", **row)
    record.line("ensembles, all", seconds=round(time.perf_counter() - begin, 1))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("-o", "--output", default="runs/ensembles", help="folder for the runs")
    parser.add_argument("--runs", default="", help="run folders of bench/bahdanau.py")
    parser.add_argument("--pattern", default="bahdanau-*", help="which of them are joined")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--limit", type=int, default=0, help="examples of every part; 0: all")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--record", default="", help="keep the figures as results/NAME.jsonl")
    asked = parser.parse_args()
    if not asked.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    return asked


if __name__ == "__main__":
    main()
