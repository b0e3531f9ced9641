"""Does an export answer like its model, and how fast? onnxruntime against our own torch path.

    python bench/export.py --runs RUN,RUN --repeats 5 --record export

Each model folder is exported whole and with int8 weights. 1,000 texts (synthetic reviews and made
up ones: empty, one word, emoji, other scripts, very long) go through model and export in batches of
1, 2, 33 and all at once. Speed is of 1,000 texts at once, all ways in turn, by the clock and in
seconds of CPU, which other work on the machine hardly changes. The first answer is of a fresh
process, imports included; the best of the repeats, since other work only adds to it. With --peer,
MiniLM of transformers in onnxruntime reads the texts, too: give a run with MiniLM.
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
from weft.export.runtime.session import num_threads
from weft.export.write import export_onnx
from weft.text.synthetic.reviews import generate_reviews

Encode = Callable[[Sequence[str]], None]
TEXTS = 1000
BATCHES = (1, 2, 33, TEXTS)
LONG = "good " * 2000
MADE_UP = ["", " ", "film", "😀", "😀 film 👍🏽 é", "中文 עברית नमस्ते", "\t\n", "a" * 3000, LONG]
FIRST = """
import sys, time
start = time.perf_counter()
import weft
weft.load(sys.argv[1])(["the soup was cold"])
print(time.perf_counter() - start, time.process_time(), "torch" in sys.modules)
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
    taken, cpu, torch = [], [], False
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", FIRST, str(folder)], capture_output=True, text=True, check=True
        )
        value, used, imported = done.stdout.split()[-3:]
        taken.append(float(value))
        cpu.append(float(used))
        torch = torch or imported == "True"
    return {"seconds": spread(taken), "cpu_seconds": spread(cpu), "torch": torch}


def measure(
    record: Record, folder: Path, weights: str, repeats: int, target: Path, peer: Encode | None
) -> None:
    """Export a model one way, and record everything about it."""
    model, inputs = predict.load(folder, device="cpu"), texts()
    about = {"model": folder.parent.name, "parameters": model.parameters, "weights": weights}
    taken = seconds(lambda: export_onnx(folder, target, int8=weights == "int8"))
    export = weft.load(target)
    size = sum(path.stat().st_size for path in target.glob("*.onnx"))
    record.line("export size", **about, bytes=size, seconds=round(taken, 2))
    record.line("export first answer", **about, **first_answer(target, repeats))
    runs: dict[str, Callable[[], object]] = {
        "torch": lambda: model(inputs), "export": lambda: export(inputs)
    }  # fmt: skip
    if peer is not None:
        runs["peer"] = lambda: peer(inputs)
    cpu: dict[str, list[float]] = {name: [] for name in runs}

    def timed(name: str) -> float:
        start = time.process_time()
        taken = seconds(runs[name])
        cpu[name].append(time.process_time() - start)
        return taken

    found = interleaved({name: lambda name=name: timed(name) for name in runs}, repeats)
    speed = {"export": spread(found["export"])}
    for name, key in (("torch", ""), ("peer", "_to_peer")):
        if name in runs:
            speed[f"ratio{key}"] = ratios(found[name], found["export"])
            speed[f"cpu_ratio{key}"] = ratios(cpu[name][1:], cpu["export"][1:])  # warm
    threads = num_threads()
    record.line("export speed", **about, texts=len(inputs), threads=threads, **speed)
    record.line("export agreement", **about, **agreement(model, export, inputs))
    parity = json.loads((target / "parity.json").read_text("utf-8"))
    record.line("export parity", **about | parity)


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--runs", required=True, help="run folders, by commas")
    parser.add_argument("--peer", action="store_true", help="transformers in onnxruntime, too")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    with tempfile.TemporaryDirectory() as traced:
        if arguments.peer:
            from transformers_onnx import make_peer

            peer = make_peer(Path(traced))
        else:
            peer = None
    for name in arguments.runs.split(","):
        folder = predict.predictor.model_folder(Path(name))
        for weights in ("float32", "int8"):
            with tempfile.TemporaryDirectory() as place:
                target = Path(place) / "export"
                measure(record, folder, weights, arguments.repeats, target, peer)


if __name__ == "__main__":
    main()
