"""Does a comparison scale? `weft compare --recipes tfidf,fasttext` on 100,000 and 1,000,000 rows.

    python bench/scale.py --rows 100000,1000000 --folder SCRATCH

The generated file is that of bench/memory.py. Time and peak memory are those of the command and
all its processes; training began when the first trial wrote its log, after the rows had been read,
split and checked.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from memory import generate
from record import Record, options


def resident(root: int) -> int:
    """Bytes that a process and all its descendants hold now."""
    children: dict[int, list[int]] = {}
    held: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "stat").read_text().rsplit(")", 1)[1].split()
            held[int(place.name)] = int((place / "statm").read_text().split()[1]) * page
        except (OSError, IndexError):
            continue
        children.setdefault(int(words[1]), []).append(int(place.name))
    total, open_ = 0, [root]
    while open_:
        process = open_.pop()
        total += held.get(process, 0)
        open_ += children.get(process, [])
    return total


def run(path: Path, out: Path, more: list[str]) -> dict:
    """One comparison, with its peak memory over all processes and the lines it said."""
    command = [sys.executable, "-m", "weft", "compare", str(path), "-o", str(out), "--minutes", "0"]
    command += ["--recipes", "tfidf,fasttext", *more]
    started = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    peak = [0]
    began: list[float] = []

    def look() -> None:
        while child.poll() is None:
            peak[0] = max(peak[0], resident(child.pid))
            if not began and any(out.glob("trials/*/log.txt")):
                began.append(round(time.perf_counter() - started, 1))
            time.sleep(0.2)

    watcher = threading.Thread(target=look)
    watcher.start()
    assert child.stderr is not None
    said = [(time.perf_counter() - started, line.rstrip()) for line in child.stderr]
    watcher.join()
    seconds = time.perf_counter() - started
    if child.returncode:
        sys.exit(f"weft compare ended with {child.returncode}: {said[-1:]}")
    return {"seconds": seconds, "peak": peak[0], "began": began[0] if began else None}


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--folder", default="")
    parser.add_argument("--seeds", default="1")
    arguments = parser.parse_args()
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="weft-scale-"))
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(arguments.record)
    took = {}
    for rows in map(int, arguments.rows.split(",")):
        path, out = folder / f"rows{rows}.tsv", folder / f"out{rows}"
        if not path.exists():
            generate(path, megabytes=rows * 1.05e-4, seed=1)
            lines = path.read_text("utf-8").splitlines(keepends=True)[: rows + 1]
            path.write_text("".join(lines), "utf-8")
            del lines
        shutil.rmtree(out, ignore_errors=True)
        found = run(path, out, ["--seeds", arguments.seeds])
        took[rows] = found["seconds"]
        board = json.loads((out / "leaderboard.json").read_text("utf-8"))
        record.line(
            "scale",
            rows=sum(1 for _ in open(path, encoding="utf-8")) - 1,
            megabytes=round(path.stat().st_size / 1e6),
            seconds=round(found["seconds"], 1),
            peak_gigabytes=round(found["peak"] / 1e9, 2),
            quality={r["recipe"]: round(r["quality"] or 0, 4) for r in board},
            train_seconds={r["recipe"]: round(r["train_seconds"] or 0, 1) for r in board},
            training_began=found["began"],
        )
    if len(took) > 1:
        small, large = min(took), max(took)
        record.line("scale ratio", rows=[small, large], ratio=round(took[large] / took[small], 2))


if __name__ == "__main__":
    main()
