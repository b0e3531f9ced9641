"""How long a trained model takes to answer, measured in one way for every architecture."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.predict import Predictor
from weft.run.text_scores import TEXT_TASKS
from weft.tasks.task import Answer
from weft.text.example import Example

WARM_UP, SINGLE, TOGETHER = 20, 200, 2000  # texts
FEWEST, LONGEST = 20, 10.0  # a slow model answers at least so many texts, then for so many seconds


@dataclass(frozen=True)
class Latency:
    """Milliseconds for one text at a time, and texts a second when many come together."""

    p50_ms: float
    p95_ms: float
    texts_per_second: float
    token_ms: float | None = None  # where texts are written, of one text at a time


def latency(
    predictor: Predictor, texts: Sequence[str | Example], seconds: float = LONGEST
) -> Latency:
    """Warm up, then answer single texts, then many at once; answers are on the host when timed.

    Single texts take `seconds` at most, and so do those together, once FEWEST are timed; warming up
    takes half of that.
    """
    assert texts, "no texts to time"
    warm = 0.0
    for text in texts[:WARM_UP]:
        warm += _timed(predictor, [text])[0]
        if warm > seconds / 2:
            break
    single: list[float] = []
    tokens = 0
    while len(single) < SINGLE and (len(single) < FEWEST or sum(single) < seconds):
        seconds, answers = _timed(predictor, [texts[len(single) % len(texts)]])
        single.append(seconds)
        tokens += len(answers[0].scores)
    p50, p95 = np.percentile(single, [50, 95]) * 1000
    many = list(texts[: max(FEWEST, min(TOGETHER, round(seconds / np.mean(single))))])
    together, _ = _timed(predictor, many)
    writes = predictor.config["task"].get("kind") in TEXT_TASKS
    each = 1000 * sum(single) / tokens if writes and tokens else None
    return Latency(float(p50), float(p95), len(many) / together, each)


def _timed(predictor: Predictor, texts: list[str | Example]) -> tuple[float, list[Answer]]:
    started = time.perf_counter()
    answers = predictor(texts)
    return time.perf_counter() - started, answers
