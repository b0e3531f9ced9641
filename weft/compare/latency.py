"""Measure the latency of a trained model in the same way for every architecture."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.predict import Predictor
from weft.run.text_scores import TEXT_TASKS
from weft.tasks.task import Answer
from weft.text.example import Example

WARM_UP_TEXTS, SINGLE_TEXTS, BATCH_TEXTS = 20, 200, 2000  # texts
MIN_TIMED_TEXTS, MAX_SECONDS = (
    20,
    10.0,
)  # a slow model: at least so many texts, then up to so long


@dataclass(frozen=True)
class Latency:
    """Milliseconds per single text, and texts per second in batches."""

    p50_ms: float
    p95_ms: float
    texts_per_second: float
    token_ms: float | None = None  # of generation, one text at a time


def measure_latency(
    predictor: Predictor, texts: Sequence[str | Example], seconds: float = MAX_SECONDS
) -> Latency:
    """Warm up, then time single texts, then a batch; predictions are on the host when timed.

    Single texts take at most `seconds`, as does the batch, once MIN_TIMED_TEXTS are timed; the
    warm-up takes half of that.
    """
    assert texts, "no texts to time"
    warm = 0.0
    for text in texts[:WARM_UP_TEXTS]:
        warm += _time_predictions(predictor, [text])[0]
        if warm > seconds / 2:
            break
    single: list[float] = []
    tokens = 0
    while len(single) < SINGLE_TEXTS and (len(single) < MIN_TIMED_TEXTS or sum(single) < seconds):
        took, answers = _time_predictions(predictor, [texts[len(single) % len(texts)]])
        single.append(took)
        tokens += len(answers[0].scores)
    p50, p95 = np.percentile(single, [50, 95]) * 1000
    many = list(texts[: max(MIN_TIMED_TEXTS, min(BATCH_TEXTS, round(seconds / np.mean(single))))])
    together, _ = _time_predictions(predictor, many)
    writes = predictor.config["task"].get("kind") in TEXT_TASKS
    token_ms = 1000 * sum(single) / tokens if writes and tokens else None
    return Latency(float(p50), float(p95), len(many) / together, token_ms)


def _time_predictions(
    predictor: Predictor, texts: list[str | Example]
) -> tuple[float, list[Answer]]:
    started = time.perf_counter()
    answers = predictor(texts)
    return time.perf_counter() - started, answers
