"""One training and prediction of fastText's classifier by one system, in a process of its own.

Run by bench/supervised.py, with the Python that has fastText for the C++ one. Prints one JSON line:
seconds before training, of training and of predicting, and the accuracy.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]
PREFIX = "__label__"
ONE, ROUNDS = 1000, 3  # texts that are predicted alone; how often all are predicted


def lines(path: str) -> tuple[list[str], list[str]]:
    """The texts and their labels."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split(" ", 1) for line in file]
    return [text for _, text in rows], [label.removeprefix(PREFIX) for label, _ in rows]


def fasttext(job: Job) -> Job:
    """The C++ program; reading and training are one call there, so the first is timed alone."""
    import fasttext as library

    common = {
        "dim": job["width"], "wordNgrams": 2, "minCount": 1, "bucket": 2_000_000,
        "lr": job["rate"], "thread": job["threads"], "verbose": 0,
    }  # fmt: skip
    began = time.perf_counter()
    library.train_supervised(job["train"], epoch=0, **common)
    before = time.perf_counter() - began
    began = time.perf_counter()
    model = library.train_supervised(job["train"], epoch=job["epochs"], **common)
    trained = time.perf_counter() - began
    model.save_model(job["output"] + ".bin")

    def labels(texts: list[str]) -> list[str]:
        return [found[0].removeprefix(PREFIX) for found in model.predict(texts)[0]]

    return {"before": before, "train": trained - before, **predicted(labels, job), "twice": before}


def weft(job: Job) -> Job:
    """The same here."""
    from pathlib import Path

    import numpy as np

    from weft.classic.fasttext.classifier import FastText
    from weft.predict.classic import ClassicEngine
    from weft.predict.predictor import Predictor
    from weft.tasks.classify import Classify, ClassSpace

    began = time.perf_counter()
    texts, names = lines(job["train"])
    space = ClassSpace(tuple(sorted(set(names))))
    wanted = np.array([space.index[name] for name in names])
    model = FastText(
        width=job["width"], epochs=job["epochs"], learning_rate=job["rate"], threads=job["threads"]
    )
    marks = []

    def watch(progress: Any) -> bool:
        marks.append(time.perf_counter())
        return True

    model.fit(texts, wanted, Classify(), space, seed=job["seed"], watch=watch)
    Path(job["output"]).mkdir(exist_ok=True)
    model.save(Path(job["output"]))
    before, trained = marks[1] - began, marks[-1] - marks[1]

    def labels(texts: list[str]) -> list[str]:
        return [space.entries[i] for i in model.predict(texts).argmax(1)]

    found = {"before": before, "train": trained, **predicted(labels, job)}
    predictor = Predictor(ClassicEngine(model), Classify(), space, {})
    found["answers"] = seconds(lambda texts: [a.value for a in predictor(texts)], job)
    if hasattr(os, "sched_setaffinity"):  # threads are as many as there are processors
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        found["predict_alone"] = seconds(labels, job)
    return found


def seconds(labels: Callable[[list[str]], list[str]], job: Job) -> float:
    """The shortest time for all test texts."""
    texts, _ = lines(job["test"])
    labels(texts[:ONE])
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        labels(texts)
        found.append(time.perf_counter() - began)
    return min(found)


def predicted(labels: Callable[[list[str]], list[str]], job: Job) -> Job:
    """Seconds for all test texts, for one alone, and the share that is right."""
    texts, names = lines(job["test"])
    took, alone = seconds(labels, job), []
    for text in texts[:ONE]:
        began = time.perf_counter()
        labels([text])
        alone.append(time.perf_counter() - began)
    right = sum(a == b for a, b in zip(labels(texts), names, strict=True)) / len(texts)
    return {"predict": took, "one": statistics.median(alone), "accuracy": right}


def main() -> None:
    job = json.loads(sys.argv[1])
    print(json.dumps({"fasttext": fasttext, "weft": weft}[job["system"]](job)))


if __name__ == "__main__":
    main()
