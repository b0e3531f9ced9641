"""Compare an export with its model: both answer the same texts, one after the other, timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.jsonio import JsonObject
from weft.predict.golden import answer_exact
from weft.predict.predictor import Input, Predictor
from weft.tasks.task import Answer

MAX_DIFFERENCE = 1e-4  # of a score, in single precision
MIN_AGREEMENT = 0.995  # of answers, with quantised weights
TIMED_RUNS = 3


@dataclass(frozen=True)
class Parity:
    """The distance of the answers of an export from those of its model."""

    texts: int
    disagreements: int
    max_difference: float  # of the scores of a text
    model_per_second: float
    export_per_second: float
    quantised: bool = False
    first_disagreement: object = ""
    ties: int = 0  # other words or trees of the same probability

    @property
    def agreement(self) -> float:
        """The fraction of texts with equal answers."""
        return 1 - self.disagreements / self.texts if self.texts else 1.0

    @property
    def passes(self) -> bool:
        """True if the export may take the place of the model."""
        if self.quantised:
            return self.disagreements <= max(1, round((1 - MIN_AGREEMENT) * self.texts))
        return not self.disagreements and self.max_difference <= MAX_DIFFERENCE

    def to_json(self) -> JsonObject:
        """Return the contents of parity.json."""
        return {
            "texts": self.texts,
            "equal": self.texts - self.disagreements - self.ties,
            "ties": self.ties,
            "max_difference": self.max_difference,
            "model_texts_per_second": round(self.model_per_second, 1),
            "export_texts_per_second": round(self.export_per_second, 1),
        }


def compare_answers(model: Predictor, export: Predictor, inputs: Sequence[Input]) -> Parity:
    """Answer the texts with both, and compare values, structures and scores."""
    expected, found = answer_exact(model, inputs), answer_exact(export, inputs)
    wrong, ties, largest = [], 0, 0.0
    for text, before, now in zip(inputs, expected, found, strict=True):
        difference = score_difference(before, now)
        largest = max(largest, difference)
        if not equal_answers(before, now):
            tied = is_tie(before, now)
            ties += tied
            wrong += [] if tied else [text]
    quantised = getattr(getattr(export.engine, "info", None), "weights", "") == "int8"
    return Parity(
        len(inputs), len(wrong), largest, _speed(model, inputs), _speed(export, inputs),
        quantised, wrong[0] if wrong else "", ties,
    )  # fmt: skip


def equal_answers(before: Answer, now: Answer) -> bool:
    """Return True if two answers say the same; numbers may differ by the rounding of scores."""
    if isinstance(before.value, float):
        scale = max(1.0, abs(before.value))
        return bool(abs(before.value - now.value) <= MAX_DIFFERENCE * scale)
    if before.structure is not None and now.structure is not None:
        return _without_scores(before.structure) == _without_scores(now.structure)
    return bool(before.value == now.value)


def is_tie(before: Answer, now: Answer) -> bool:
    """Return True if both answers are about words, and word for word as probable as the other."""
    if before.structure is None or len(before.parts) != len(now.parts):
        return False
    pairs = zip(before.parts, now.parts, strict=True)
    gaps = [abs(a[2] - b[2]) for a, b in pairs] + [score_difference(before, now)]
    return max(gaps) <= MAX_DIFFERENCE


def _without_scores(structure: Any) -> JsonObject:
    """Return an annotation without probabilities."""
    saved: JsonObject = structure.to_json()
    return {name: one for name, one in saved.items() if not name.endswith(("score", "scores"))}


def score_difference(before: Answer, now: Answer) -> float:
    """Return the largest difference between the scores of two answers."""
    scores, others = (np.array(one.scores or (one.score,)) for one in (before, now))
    if scores.shape != others.shape:
        return float("inf")
    same = (scores == others) | (np.isnan(scores) & np.isnan(others))
    return float(np.abs(scores - others)[~same].max(initial=0.0))


def _speed(predictor: Predictor, inputs: Sequence[Input]) -> float:
    """Return the texts answered per second, the best of several runs."""
    if not inputs:
        return 0.0
    runs = [_seconds(lambda: answer_exact(predictor, inputs)) for _ in range(TIMED_RUNS)]
    return len(inputs) / min(runs)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return max(time.perf_counter() - start, 1e-9)
