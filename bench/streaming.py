"""Does training on shards need more memory for more rows, and does it resume in the same order?

    python bench/streaming.py --rows 100000,1000000 --folder SCRATCH

The rows of bench/memory.py lie in ten compressed shards. A neural bag reads them for one epoch with
the same dev file. Another run on the fewest rows is killed halfway by SIGKILL and resumed: with the
same order of rows its weights are the same to the last byte.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow
from memory import PAIRS, generate, watched
from record import Record, options

SHARDS = 10
MEGABYTES_PER_ROW = 1.06e-4
BAR = 100  # MB


def write_shards(folder: Path, rows: int) -> None:
    """Write rows as shards compressed by Zstandard."""
    folder.mkdir(parents=True)
    whole = folder.parent / f"{folder.name}.tsv"
    generate(whole, rows * MEGABYTES_PER_ROW, seed=1)
    with whole.open("rb") as source:
        head = source.readline()
        for shard in range(SHARDS):
            with pyarrow.CompressedOutputStream(folder / f"part-{shard}.tsv.zst", "zstd") as out:
                out.write(head)
                for _ in range(rows // SHARDS):
                    out.write(source.readline())
    whole.unlink()


def command(folder: Path, run: Path, dev: Path) -> list[str]:
    """Return the command that trains on shards."""
    words = [sys.executable, "-m", "weft", "train", "--recipe", "bag", "-o", str(run)]
    words += ["--train", str(folder), "--dev", str(dev)]
    for setting in (*PAIRS, "train.save_every=200"):
        words += ["--set", setting]
    return words


def weights(run: Path) -> bytes:
    return (run / "model" / "weights.safetensors").read_bytes()


def kill_and_resume(words: list[str], run: Path) -> None:
    """Kill a run after some updates, and resume it."""
    child = subprocess.Popen(words)
    deadline = time.monotonic() + 600
    while not any((run / "checkpoints").glob("*.safetensors")) and child.poll() is None:
        if time.monotonic() > deadline:
            sys.exit("no checkpoint within ten minutes")
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    if child.wait() == 0:
        sys.exit("the run ended before it was killed")
    subprocess.run([*words, "--resume"], check=True)


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--folder", help="where shards and runs may lie; a temporary one")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    counts = sorted(map(int, arguments.rows.split(",")))
    with tempfile.TemporaryDirectory(prefix="weft-streaming-", dir=arguments.folder) as name:
        folder = Path(name)
        os.chdir(folder)
        dev = folder / "dev.tsv"
        generate(dev, 1, seed=2)
        peaks = []
        for rows in counts:
            write_shards(folder / f"shards{rows}", rows)
            run = folder / f"run{rows}"
            found = watched(command(folder / f"shards{rows}", run, dev), run / "log.txt")
            peaks.append(found["peak"])
            record.line(
                "memory of training on shards",
                rows=rows,
                peak_mb=round(found["peak"] / 2**20),
                seconds=round(found["seconds"]),
            )
        added = round((peaks[-1] - peaks[0]) / 2**20)
        record.line("memory of more rows", rows=counts, added_mb=added, bar_mb=BAR)
        killed = folder / "killed"
        kill_and_resume(command(folder / f"shards{counts[0]}", killed, dev), killed)
        same = weights(killed) == weights(folder / f"run{counts[0]}")
        record.line("order after a kill", rows=counts[0], same_bytes=same)


if __name__ == "__main__":
    main()
