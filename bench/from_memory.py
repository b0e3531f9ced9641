"""What does a table in memory cost, compared with a file of the same rows? One JSON line a figure.

    python bench/from_memory.py --limit 1000000 --repeats 3

Every measurement is a new process that holds the rows as a pandas DataFrame, and then reads,
checks or trains on (fastText, one epoch) either the DataFrame or the file: seconds of processor
time, and the peak of resident memory while it does so. Both hold the DataFrame, as whoever has one
does.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import pandas
from record import Record, options, ratios, spread

import weft
from weft.text.tables.spool import spool_table
from weft.text.tables.table import name_table

WORDS = 20_000
JOBS = ("read", "check", "spool", "train")
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def generate(count: int, seed: int = 1) -> pandas.DataFrame:
    """Return texts of 5 to 60 words, with one of ten labels each."""
    random_ = random.Random(seed)
    weights = [1 / rank for rank in range(1, WORDS + 1)]
    words = [f"w{number}" for number in range(WORDS)]
    stream = random_.choices(words, weights, k=33 * count)
    texts, start = [], 0
    for _ in range(count):
        stop = start + random_.randint(5, 60)
        texts.append(" ".join(stream[start % len(stream) : stop % len(stream) or None]) or "w0")
        start = stop
    return pandas.DataFrame({"text": texts, "label": [f"c{i * 7 % 10}" for i in range(count)]})


def measure(job: str, source: str, folder: Path) -> dict[str, float]:
    """Do one job on one source in this process."""
    frame = pandas.read_parquet(folder / "rows.parquet")
    data = frame if source == "memory" else str(folder / f"rows.{source}")
    RESET.write_text("5")  # the peak counts from here
    held, started = memory("VmRSS"), time.process_time()
    if job == "read":
        deque(weft.read(data), maxlen=0)
    elif job == "check":
        weft.check(data, near=False, quiet=True)
    elif job == "train":
        config = weft.recipe("fasttext").with_values({"classic.epochs": 1}, "bench")
        weft.train(config, folder / f"run-{source}", train=data, overwrite=True, quiet=True)
    else:
        spool_table(name_table(frame, "train"), folder / "spool")
    seconds = time.process_time() - started
    return {"seconds": seconds, "peak_mb": memory("VmHWM"), "held_mb": held, "rows": len(frame)}


def memory(name: str) -> float:
    """Return a figure of this process in megabytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def main() -> None:
    parser = options(__doc__, repeats=3)
    parser.add_argument("--limit", type=int, default=1_000_000, help="rows")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--sources", default="parquet,jsonl,csv", help="files to compare with")
    parser.add_argument("--measure", nargs=3, help="one job, for the script itself")
    given = parser.parse_args()
    if given.measure:
        job, source, folder = given.measure
        print(json.dumps(measure(job, source, Path(folder))))
        return
    record = Record(given.record)
    with tempfile.TemporaryDirectory() as folder:
        frame = generate(given.limit)
        frame.to_parquet(Path(folder) / "rows.parquet", index=False)
        frame.to_json(Path(folder) / "rows.jsonl", orient="records", lines=True)
        frame.to_csv(Path(folder) / "rows.csv", index=False)
        del frame
        for job in given.jobs.split(","):
            compare(job, given.sources.split(","), folder, given.repeats, record)


def compare(job: str, files: list[str], folder: str, repeats: int, record: Record) -> None:
    """Record a job on the DataFrame and on the files, which take turns."""
    sources = ["memory"] if job == "spool" else ["memory", *files]
    found: dict[str, list[dict[str, float]]] = {source: [] for source in sources}
    for turn in range(repeats):
        first = turn % len(sources)
        for source in sources[first:] + sources[:first]:
            command = [sys.executable, __file__, "--measure", job, source, folder]
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            found[source].append(json.loads(out))
    for source, runs in found.items():
        columns = {key: [run[key] for run in runs] for key in runs[0]}
        values = {
            key: spread(columns[key], 2 if key == "seconds" else 1)
            for key in ("seconds", "peak_mb")
        }
        if source != "memory":
            for key in ("seconds", "peak_mb"):
                base = [run[key] for run in found["memory"]]
                values[f"memory / file, {key}"] = ratios(base, columns[key])
        held = round(columns["held_mb"][0], 1)
        record.line(
            f"{job} from memory", source=source, rows=runs[0]["rows"], held_mb=held, **values
        )


if __name__ == "__main__":
    main()
