"""Does an export answer like its model, and how fast? onnxruntime against our own torch path.

    python bench/export.py --runs RUN,RUN --repeats 5 --record export

Each model folder is exported whole and with int8 weights. 1,000 texts (synthetic reviews and made
up ones: empty, one word, emoji, other scripts, very long) go through model and export in batches of
1, 2, 33 and all at once. Speed is of 1,000 texts at once, both ways in turn. The first answer is of
a fresh process, imports included; the best of the repeats, since other work only adds to it.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from record import Record, interleaved, options, ratios, spread

import weft
from weft import predict
from weft.export.parity import equal_answers, score_difference
from weft.export.write import export_onnx
from weft.text.synthetic.reviews import generate_reviews

TEXTS = 1000
BATCHES = (1, 2, 33, TEXTS)
LONG = "good " * 2000
MADE_UP = ["", " ", "film", "😀", "😀 film 👍🏽 é", "中文 עברית नमस्ते", "\t\n", "a" * 3000, LONG]
FIRST = """
import sys, time
start = time.perf_counter()
import weft
weft.load(sys.argv[1])(["the soup was cold"])
print(time.perf_counter() - start, "torch" in sys.modules)
"""


def texts() -> list[str]:
    """Reviews, pieces of them of any length, and texts that no one writes."""
    draw = random.Random(7)
    reviews = [one.text for one in generate_reviews()["test"]]
    words = " ".join(reviews).split()
    ragged = [" ".join(draw.choices(words, k=draw.randrange(1, 60))) for _ in range(300)]
    whole = [*MADE_UP, *ragged, *reviews]
    draw.shuffle(whole)
    return whole[:TEXTS]


def agreement(model: weft.Predictor, export: weft.Predictor, inputs: Sequence[str]) -> dict:
    """The texts with equal answers in every batch, and the largest difference of a score."""
    expected, equal, largest = model(inputs), [True] * len(inputs), 0.0
    for size in BATCHES:
        some = inputs if size > 2 else inputs[:100]
        for at in range(0, len(some), size):
            for k, now in enumerate(export(some[at : at + size]), at):
                equal[k] = equal[k] and equal_answers(expected[k], now)
                largest = max(largest, score_difference(expected[k], now))
    return {"equal": sum(equal), "n": len(inputs), "max_difference": largest}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def first_answer(folder: Path, repeats: int) -> dict:
    """Seconds to the first answer of fresh processes, and whether they imported torch."""
    taken, torch = [], False
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", FIRST, str(folder)], capture_output=True, text=True, check=True
        )
        value, imported = done.stdout.split()[-2:]
        taken.append(float(value))
        torch = torch or imported == "True"
    return {"seconds": spread(taken), "torch": torch}


def measure(record: Record, folder: Path, weights: str, repeats: int, target: Path) -> None:
    """Export a model one way, and record everything about it."""
    model, inputs = predict.load(folder, device="cpu"), texts()
    about = {"model": folder.parent.name, "parameters": model.parameters, "weights": weights}
    taken = seconds(lambda: export_onnx(folder, target, int8=weights == "int8"))
    export = weft.load(target)
    size = sum(path.stat().st_size for path in target.glob("*.onnx"))
    record.line("export size", **about, bytes=size, seconds=round(taken, 2))
    record.line("export first answer", **about, **first_answer(target, repeats))
    ways = {
        "torch": lambda: seconds(lambda: model(inputs)),
        "export": lambda: seconds(lambda: export(inputs)),
    }
    found = interleaved(ways, repeats)
    gain, medians = ratios(found["torch"], found["export"]), spread(found["export"])
    record.line("export speed", **about, texts=len(inputs), ratio=gain, export=medians)
    record.line("export agreement", **about, **agreement(model, export, inputs))
    parity = json.loads((target / "parity.json").read_text("utf-8"))
    record.line("export parity", **about | parity)


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--runs", required=True, help="run folders, by commas")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    for name in arguments.runs.split(","):
        folder = predict.predictor.model_folder(Path(name))
        for weights in ("float32", "int8"):
            with tempfile.TemporaryDirectory() as place:
                target = Path(place) / "export"
                measure(record, folder, weights, arguments.repeats, target)


if __name__ == "__main__":
    main()
