"""Is the model that `weft compare --minutes M` recommends as good as what complete training finds?

    python bench/compare_budget.py --prepare --data DATA --folder SCRATCH
    python bench/compare_budget.py --folder SCRATCH --lanes 0-1,2-3,4-5 --record compare_budget

The first command writes SCRATCH/<set>/{train,test}.tsv: utterances of DailyDialog with their
dialogue act or their emotion, on which no default was tuned (DATA is laid out as
<task>/<data set>/…, see docs/benchmarks.md). Any other SCRATCH/<set>/{train,test}.tsv works, too.

The second runs `weft compare` without a time limit once for every set, over all cores of the lanes,
as the reference; then with every budget and other seeds in every repetition, each run alone on its
lane. One line a run: the wall-clock time, the recommended recipe, its quality in the reference, the
best of the reference, its standard deviation (over seeds; by bootstrap where there are none), and
whether the recommendation is within it. Finished runs are kept and not repeated, so that the script
can be stopped and started again; `--judge` only prints the lines of what is finished.
"""

import dataclasses
import gzip
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import Record, options

from weft.compare.leaderboard import Row, recommend, standard_deviation
from weft.text.example import Example
from weft.text.write import write

ACTS = ("inform", "question", "directive", "commissive")  # 1 to 4
EMOTIONS = ("none", "anger", "disgust", "fear", "happiness", "sadness", "surprise")  # 0 to 6
TRAIN_ROWS, TEST_ROWS = 4000, 3000
DONE = "run.json"
SEED_STEP = 10  # between the first seeds of two repetitions


def dialogues(folder: Path, part: str) -> Iterator[tuple[list[str], list[int], list[int]]]:
    """Yield the utterances of each dialogue with their acts and their emotions."""

    def lines(name: str) -> list[str]:
        with gzip.open(folder / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
            return [line.rstrip("\n") for line in file]

    if part == "en_1k":
        rows = zip(*map(lines, (part, f"{part}_action", f"{part}_emotion")), strict=True)
    else:
        fields = (line.split("\t") for line in lines(part))
        rows = ((text, acts, emotions) for text, _, acts, emotions in fields)
    for text, acts, emotions in rows:
        said = [one.strip() for one in text.removesuffix("__eou__").strip().split("__eou__")]
        labels = [list(map(int, one.split())) for one in (acts, emotions)]
        if len({len(said), *map(len, labels)}) == 1:  # a few have a label more or less
            yield said, *labels


def prepare(data: Path, folder: Path) -> None:
    """Write the two sets, a fixed sample each: train of en_1k and en_dev, test of en_test."""
    source = data / "dialogue" / "dailydialog"
    parts = {"train": ("en_1k", "en_dev", TRAIN_ROWS), "test": ("en_test", TEST_ROWS)}
    for split, (*names, rows) in parts.items():
        talks = (talk for name in names for talk in dialogues(source, name))
        found = [turn for talk in talks for turn in zip(*talk, strict=True)]
        found = random.Random(1).sample([turn for turn in found if turn[0]], rows)
        for task, column, labels in (("act", 1, ("", *ACTS)), ("emotion", 2, EMOTIONS)):
            path = folder / task / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            write((Example(turn[0], labels[turn[column]]) for turn in found), path)
            print(f"{path}: {rows} rows", file=sys.stderr)


def compare(files: list[str], output: Path, cores: str, more: list[str]) -> dict[str, Any]:
    """Run one comparison pinned to some cores, unless it is done, and note how long it took."""
    if (output / DONE).is_file():
        return json.loads((output / DONE).read_text("utf-8"))
    if output.name != "reference":  # half a run has used an unknown part of its time
        shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "weft", "compare", *files, "-o", str(output), *more]
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with open(output / "log.txt", "w", encoding="utf-8") as log:
        pinned = ["taskset", "-c", cores, *command]
        code = subprocess.run(pinned, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    found = {"seconds": round(time.perf_counter() - started, 1), "status": code}
    (output / DONE).write_text(json.dumps(found), "utf-8")
    return found


def leaderboard(output: Path) -> list[Row]:
    """Read the rows of a comparison."""
    names = {field.name for field in dataclasses.fields(Row)}
    rows = json.loads((output / "leaderboard.json").read_text("utf-8"))
    return [Row(**{key: value for key, value in row.items() if key in names}) for row in rows]


def judge(name: str, run: Path, reference: Path) -> dict[str, Any]:
    """Compare what a run recommends with the reference."""
    done = json.loads((run / DONE).read_text("utf-8"))
    budget, repetition = run.name.removeprefix("minutes-").split("-run-")
    line = {"set": name, "budget": float(budget), "repetition": int(repetition), **done}
    rows = leaderboard(run) if (run / "leaderboard.json").is_file() else []
    found = recommend(rows)
    statuses = [row.status for row in rows]
    line |= {
        "over_seconds": round(done["seconds"] - 60 * line["budget"], 1),
        "recommended": found.choice.recipe if found else None,
        "ranked": statuses.count("ranked"),
        "trainings": sum(len(row.values) for row in rows if row.status == "ranked"),
        "not_enough_time": statuses.count("not enough time"),
    }
    known = recommend(leaderboard(reference)) if (reference / DONE).is_file() else None
    if known is None or found is None:
        return line | {"within": None if known is None else False}
    qualities = {row.recipe: row.quality for row in leaderboard(reference)}
    quality, best = qualities.get(found.choice.recipe), known.best.quality
    sd = standard_deviation(known.best)
    sign = 1 if known.best.higher_is_better else -1
    return line | {
        "quality": round(quality, 4) if quality is not None else None,
        "best": known.best.recipe,
        "best_quality": round(best or 0.0, 4),
        "sd": round(sd, 4),
        "within": quality is not None and sign * (best - quality) <= sd + 1e-12,
    }


def run_all(arguments: Any, sets: list[str], folder: Path) -> None:
    """Run the references over all cores, then everything else, a run a lane at a time."""
    lanes = arguments.lanes.split(",")
    common = ["--device", "cpu", *arguments.more.split()]
    for name in sets:
        files = [str(folder / name / f"{part}.tsv") for part in ("train", "test")]
        if not arguments.reference:
            more = ["--minutes", "0", "--seeds", str(arguments.seeds), *common]
            compare(files, folder / name / "reference", arguments.lanes, more)
    jobs: queue.Queue[tuple[str, float, int]] = queue.Queue()
    budgets = sorted(map(float, arguments.budgets.split(",")), reverse=True)
    for budget in budgets:  # the longest first, so that lanes end together
        for repetition in range(arguments.first, arguments.first + arguments.repeats):
            for name in sets:
                jobs.put((name, budget, repetition))

    def work(lane: str) -> None:
        while True:
            try:
                name, budget, repetition = jobs.get_nowait()
            except queue.Empty:
                return
            files = [str(folder / name / f"{part}.tsv") for part in ("train", "test")]
            seed = f"train.seed={1 + SEED_STEP * repetition}"
            more = ["--minutes", f"{budget:g}", "--seeds", str(arguments.seeds), "--set", seed]
            output = folder / name / f"minutes-{budget:g}-run-{repetition}"
            compare(files, output, lane, [*more, *common])
            print(json.dumps(judge(name, output, reference_of(arguments, folder, name))))

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def reference_of(arguments: Any, folder: Path, name: str) -> Path:
    return Path(arguments.reference) / name if arguments.reference else folder / name / "reference"


def main() -> None:
    parser = options(__doc__, repeats=10)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--folder", required=True, help="holds the sets, and every run")
    parser.add_argument("--prepare", action="store_true", help="write the sets, and end")
    parser.add_argument("--judge", action="store_true", help="only print what is finished")
    parser.add_argument("--sets", default="act,emotion")
    parser.add_argument("--budgets", default="4,8,20", help="minutes, separated by commas")
    parser.add_argument("--lanes", default="0-1", help="cores of each lane, as taskset takes them")
    parser.add_argument("--first", type=int, default=1, help="first repetition; decides the seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--reference", default="", help="a folder with <set>/ of complete runs")
    parser.add_argument("--more", default="", help="further options of weft compare")
    arguments = parser.parse_args()
    folder, sets = Path(arguments.folder), arguments.sets.split(",")
    if arguments.prepare:
        if not arguments.data:
            sys.exit("Pass --data FOLDER or set WEFT_DATA.")
        prepare(Path(arguments.data), folder)
        return
    if not arguments.judge:
        run_all(arguments, sets, folder)
    record = Record(arguments.record)
    lines = []
    for name in sets:
        reference = reference_of(arguments, folder, name)
        for path in sorted((folder / name).glob(f"minutes-*/{DONE}")):
            lines.append(judge(name, path.parent, reference))
            record.line("run", **lines[-1])
        if (reference / DONE).is_file():
            for row in leaderboard(reference):
                keep = ("recipe", "quality", "spread", "train_seconds", "p50_ms")
                record.line("reference", set=name, **{key: getattr(row, key) for key in keep})
    for budget in sorted({line["budget"] for line in lines}):
        some = [line for line in lines if line["budget"] == budget]
        within = [line["within"] for line in some if line["within"] is not None]
        worst = max(line["over_seconds"] for line in some)
        record.line(
            "summary", budget=budget, runs=len(some), within=sum(within), judged=len(within),
            most_over_seconds=worst,
        )  # fmt: skip


if __name__ == "__main__":
    main()
