"""Bulk prediction of many rows: speed beside Predictor, memory, and the bytes after a kill.

python bench/bulk.py --rows 1000000
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from record import Record, options, ratios, spread

import weft
from weft.predict.bulk import predict_files
from weft.text.synthetic.corpora import generate_reviews
from weft.text.write import write

SPEED_ROWS = 30_000  # of the comparison with Predictor


def write_rows(path: Path, rows: int) -> None:
    """Write reviews again and again, each with a number of its own."""
    texts = [one.text for one in generate_reviews(size=2000)["train"]]
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            file.write(json.dumps({"id": i, "text": f"{texts[i % len(texts)]} {i % 97}"}) + "\n")


def run(model: Path, file: Path, output: Path, part: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start one worker; its peak memory will be in a file."""
    peak = output.with_name(f"{output.name}-{part.replace('/', '-')}.peak")
    code = (
        "import resource, sys; from weft.cli.main import app; app(sys.argv[2:], "
        "standalone_mode=False); open(sys.argv[1], 'w').write(str(resource.getrusage("
        "resource.RUSAGE_SELF).ru_maxrss))"
    )
    words = ["predict", str(model), str(file), "-o", str(output), "--part", part]
    command = [sys.executable, "-c", code, str(peak), *words]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL), peak


def predict_in_parts(
    model: Path, file: Path, output: Path, kill: bool = False
) -> tuple[float, float]:
    """Predict with two workers; return the seconds and the largest memory (MB) of a worker."""
    began = time.perf_counter()
    jobs = [run(model, file, output, f"{part}/2") for part in (1, 2)]
    if kill:
        while len(list(output.glob("*.jsonl"))) < 3:
            time.sleep(0.05)
        jobs[0][0].send_signal(signal.SIGKILL)
        jobs[0][0].wait()
        jobs[0] = run(model, file, output, "1/2")
    for job, _ in jobs:
        assert job.wait() == 0
    peaks = [int(peak.read_text()) / 1024 for _, peak in jobs]
    return time.perf_counter() - began, max(peaks)


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.jsonl")):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def compare_speed(record: Record, folder: Path, name: str, repeats: int) -> None:
    """Predict the same rows with Predictor and in bulk, in turn."""
    config = weft.recipe(name).with_values({"train.threads": 1}, "bench")
    result = weft.train(config, folder / name, train=str(folder / "train.tsv"), quiet=True)
    file = folder / "speed.jsonl"
    rows = [json.loads(line) for line in file.open()]
    direct, bulk = [], []
    for turn in range(repeats + 1):
        began = time.process_time()
        for _ in result.predictor.stream(row["text"] for row in rows):
            pass
        direct.append(time.process_time() - began)
        began = time.process_time()
        predict_files(result.predictor, [str(file)], folder / f"{name}-{turn}", quiet=True)
        bulk.append(time.process_time() - began)
    record.line(
        "CPU seconds of Predictor.stream over those of bulk prediction, reading and writing",
        recipe=name, rows=SPEED_ROWS, ratio=ratios(direct[1:], bulk[1:]),
        rows_per_second=spread([SPEED_ROWS / s for s in bulk[1:]], 0),
    )  # fmt: skip


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--recipes", default="bag,bilstm", help="the first also in two workers")
    args = parser.parse_args()
    record = Record(args.record)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(generate_reviews(size=2000)["train"], folder / "train.tsv")
        write_rows(folder / "speed.jsonl", SPEED_ROWS)
        for recipe in args.recipes.split(","):
            compare_speed(record, folder, recipe, args.repeats)
        model = folder / args.recipes.split(",")[0]
        peaks = {}
        for count in (args.rows // 10, args.rows):
            write_rows(folder / f"{count}.jsonl", count)
            seconds, peaks[count] = predict_in_parts(
                model, folder / f"{count}.jsonl", folder / f"out-{count}"
            )
            record.line("two workers", rows=count, seconds=round(seconds, 1),
                        peak_mb=round(peaks[count]))  # fmt: skip
        predict_in_parts(model, folder / f"{args.rows}.jsonl", folder / "killed", kill=True)
        one, other = (digest(folder / place) for place in (f"out-{args.rows}", "killed"))
        record.line("a worker killed: same bytes", rows=args.rows, same=one == other,
                    files=len(list((folder / "killed").glob("*.jsonl"))))  # fmt: skip


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
