"""Is `weft train --recipe fasttext` on a million rows as fast as `fasttext supervised` in C++?

    python bench/scale_fasttext.py --rows 1000000 --folder SCRATCH --peers PYTHON_WITH_FASTTEXT

End to end on the file of bench/memory.py, in turn, with one thread each: read, learn the words,
train for 25 epochs, write a model. Both have 16 dimensions, words and word pairs in 2,000,000
buckets. Weft also holds out a tenth of the rows as dev, evaluates and calibrates on them.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memory import generate
from record import Record, interleaved, options, ratios, spread

BAR = 1.5
MEGABYTES_PER_ROW = 1.06e-4
PEER = """
import sys, fasttext
model = fasttext.train_supervised(
    input=sys.argv[1], dim=16, epoch=25, lr=0.1, wordNgrams=2, bucket=2000000, minCount=1, thread=1,
    verbose=0,
)
model.save_model(sys.argv[2])
"""


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = options(__doc__, repeats=2)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", help="where the files may lie; a temporary one")
    parser.add_argument("--peers", required=True, help="a Python that has the package fasttext")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    with tempfile.TemporaryDirectory(prefix="weft-scale-", dir=arguments.folder) as name:
        folder = Path(name)
        rows, labelled, run = folder / "rows.tsv", folder / "rows.ft", folder / "run"
        generate(rows, arguments.rows * MEGABYTES_PER_ROW, seed=1)
        with rows.open("r", encoding="utf-8") as source, labelled.open("w") as out:
            next(source)
            count = 0
            for line in source:
                label, _, text = line.partition("\t")
                out.write(f"__label__{label} {text}")
                count += 1

        def weft() -> float:
            shutil.rmtree(run, ignore_errors=True)
            command = [sys.executable, "-m", "weft", "train", "--recipe", "fasttext"]
            return seconds([*command, "--train", str(rows), "-o", str(run)])

        def peer() -> float:
            return seconds([arguments.peers, "-c", PEER, str(labelled), str(folder / "model.bin")])

        found = interleaved({"weft": weft, "fasttext": peer}, arguments.repeats, warm=0)
        record.line(
            "seconds of weft train --recipe fasttext over those of fasttext in C++",
            rows=count, megabytes=round(rows.stat().st_size / 1e6), bar=BAR,
            ratio=ratios(found["weft"], found["fasttext"]),
            **{way: spread(times, 1) for way, times in found.items()},
        )  # fmt: skip


if __name__ == "__main__":
    main()
