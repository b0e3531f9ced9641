"""Does one command say what to use, and is what it says true?

    python bench/compare.py --data DATA --sets trec,banking77 --minutes 20 --folder SCRATCH

`weft compare TRAIN TEST` is run as a person would, with nothing but a time limit. Then the named
model is measured again by `weft evaluate` (the same to the digit?), and every recipe's model is
timed by a process that knows nothing of the report (within 15 % of the reported p50?).
DATA is a folder laid out as <task>/<data set>/… (see docs/benchmarks.md).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from record import Record, options

from weft.text.read import read
from weft.text.write import write

WEFT = [sys.executable, "-m", "weft"]
FILES = {
    "trec": ("trec/train.tsv", "trec/test.tsv"),
    "banking77": ("banking77/train.csv", "banking77/test.csv"),
    "imdb": ("imdb/train.tsv.xz", "imdb/test.tsv.xz"),
}
POLARITY = {"0": "negative", "1": "negative", "3": "positive", "4": "positive"}
STOPWATCH = """
import json, sys, time, weft
model = weft.load(sys.argv[1])
texts = [json.loads(line)["text"] for line in open(sys.argv[2], encoding="utf-8")][:200]
for text in texts[:20]:
    model([text])
took = []
for text in texts:
    started = time.perf_counter()
    model([text])
    took.append(time.perf_counter() - started)
print(1000 * sorted(took)[len(took) // 2])
"""


def files(name: str, root: Path, folder: Path) -> list[str]:
    """The training and the test file; SST-2 is the trees' roots without the neutral ones."""
    if name != "sst2":
        return [str(root / "classification" / path) for path in FILES[name]]
    out = []
    for part in ("train", "test"):
        path = folder / f"sst2_{part}.tsv"
        if not path.exists():
            trees = read(root / f"classification/sst/{part}.txt")
            kept = (replace(e, label=POLARITY[e.label]) for e in trees if e.label in POLARITY)
            write(kept, path)
        out.append(str(path))
    return out


def externally(model: Path, predictions: Path, repeats: int) -> float:
    """p50 in milliseconds, by a process of its own each time; the median of the repeats."""
    command = [sys.executable, "-c", STOPWATCH, str(model), str(predictions)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout]
    runs += [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for _ in range(repeats - 1)
    ]
    return statistics.median(map(float, runs))


def examine(name: str, arguments, root: Path, folder: Path, record: Record) -> None:
    out = folder / name
    given = files(name, root, folder)
    started = time.perf_counter()
    command = [*WEFT, "compare", *given, "-o", str(out), "--minutes", str(arguments.minutes)]
    subprocess.run([*command, *arguments.more.split()], check=True)
    minutes = (time.perf_counter() - started) / 60
    rows = json.loads((out / "leaderboard.json").read_text("utf-8"))
    report = out / "report.html"
    for row in rows:
        keep = ("recipe", "metric", "quality", "spread", "low", "high", "p", "error", "clipped")
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items() if k in keep}
        record.line("row", data=name, **shown, seeds=len(row["values"]))
    evaluated = subprocess.run(
        [*WEFT, "evaluate", str(out / "model"), given[1], "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    again = json.loads(evaluated.stdout)["accuracy"]["value"]
    kept = json.loads((out / "model" / "record.json").read_text("utf-8"))
    recorded = kept["figures"]["test"]["accuracy"]["value"]
    record.line(
        "one command",
        data=name,
        minutes=round(minutes, 1),
        limit=arguments.minutes,
        report_megabytes=round(report.stat().st_size / 1e6, 2),
        recorded=recorded,
        evaluated=again,
        same=again == recorded,
    )
    for row in rows:
        trials = sorted(out.glob(f"trials/{row['recipe']}-[0-9]*"))
        timed = [trial for trial in trials if (trial / "timing.json").is_file()]
        if row["error"] is None and timed:
            outside = externally(
                timed[0] / "model", timed[0] / "predictions.jsonl", arguments.repeats
            )
            record.line(
                "latency",
                data=name,
                recipe=row["recipe"],
                reported_ms=round(row["p50_ms"], 3),
                outside_ms=round(outside, 3),
                ratio=round(row["p50_ms"] / outside, 3),
            )


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA"))
    parser.add_argument("--sets", default="trec,banking77,sst2,imdb")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--folder", default="")
    parser.add_argument("--more", default="", help="further options of weft compare")
    arguments = parser.parse_args()
    if not arguments.data:
        sys.exit("Pass --data FOLDER or set WEFT_DATA.")
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="weft-compare-"))
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(arguments.record)
    for name in arguments.sets.split(","):
        examine(name, arguments, Path(arguments.data), folder, record)


if __name__ == "__main__":
    main()
