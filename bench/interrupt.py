"""Kill it and go on: SIGKILL during `weft compare`, run it again; is anything done twice?

    python bench/interrupt.py --kills 5

The comparison runs on the built-in reviews; it is killed at random times, then left to finish, and
its table is set beside that of a comparison that was never disturbed.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import Record, options

from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

SEEDS = 2


def command(folder: Path, out: Path, recipes: str) -> list[str]:
    files = [str(folder / f"{part}.tsv") for part in ("train", "test")]
    more = ["--recipes", recipes, "--seeds", str(SEEDS), "--set", "train.epochs=3"]
    return [
        *(sys.executable, "-m", "weft", "compare", *files, "-o", str(out)),
        *("--dev", str(folder / "dev.tsv"), "--minutes", "0", "--quiet", *more),
    ]


def stamps(out: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in out.glob("trials/*/result.json")}


def table(out: Path) -> list[tuple]:
    """What does not depend on how busy the machine was."""
    rows = json.loads((out / "leaderboard.json").read_text("utf-8"))
    return [(r["recipe"], r["values"], r["low"], r["high"], r["p"], r["size_bytes"]) for r in rows]


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipes", default="tfidf,fasttext,bag,cnn")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    chance = random.Random(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="weft-interrupt-"))
    for part, examples in generate_reviews().items():
        write(examples, folder / f"{part}.tsv")
    started = time.perf_counter()
    subprocess.run(command(folder, folder / "calm", arguments.recipes), check=True)
    whole = time.perf_counter() - started
    out, known, repeated, killed = folder / "killed", {}, 0, 0
    for _ in range(arguments.kills):
        process = subprocess.Popen(command(folder, out, arguments.recipes))
        try:
            process.wait(chance.uniform(0.1, 0.6) * whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        time.sleep(1.5)  # the trainings notice that nobody waits for them
        now = stamps(out)
        repeated += sum(now.get(name) != stamp for name, stamp in known.items())
        known = now
    subprocess.run(command(folder, out, arguments.recipes), check=True)
    now = stamps(out)
    repeated += sum(now.get(name) != stamp for name, stamp in known.items())
    record.line(
        "interruption",
        kills=killed,
        trials=len(now),
        finished_before_the_last_run=len(known),
        repeated=repeated,
        same_table=table(out) == table(folder / "calm"),
    )


if __name__ == "__main__":
    main()
