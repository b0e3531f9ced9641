"""Shadow mode: a second model answers the same texts in idle time, and agreement is counted."""

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.serve.inputs import input_json
from weft.serve.metrics import ServeMetrics
from weft.storage import append_line
from weft.tasks.task import Answer

MAX_WAITING = 64  # requests; of more, the oldest are dropped: answers come first
MAX_LOGGED = 1000  # disagreements in the file


class Shadow:
    """A model that answers after another one, for comparison only."""

    def __init__(
        self, model: str, predictor: Predictor, metrics: ServeMetrics, log: Path | None = None
    ):
        self.model, self._predictor, self._metrics, self._log = model, predictor, metrics, log
        self._waiting: deque[tuple[Sequence[Any], Sequence[Answer]]] = deque(maxlen=MAX_WAITING)
        self._logged = 0

    def offer(self, inputs: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Remember a request and its answers. Called in the event loop."""
        self._waiting.append((inputs, answers))

    def run_one(self) -> bool:
        """Answer a request that waits; False if there is none. Called in the compute thread."""
        try:
            inputs, answers = self._waiting.popleft()
        except IndexError:
            return False
        try:
            others = self._predictor(inputs)
        except Exception as error:
            self._metrics.shadow.labels(self.model, "failed").inc(len(inputs))
            if not isinstance(error, UserError):
                self._metrics.report_failure(error)
            return True
        for one, answer, other in zip(inputs, answers, others, strict=True):
            agree = values_agree(answer.value, other.value)
            self._metrics.shadow.labels(self.model, "agree" if agree else "disagree").inc()
            if not agree:
                self._write(one, answer, other)
        return True

    def _write(self, one: Any, answer: Answer, other: Answer) -> None:
        """Add a disagreement to the file, as long as there are few."""
        if self._log is None or self._logged >= MAX_LOGGED:
            return
        self._logged += 1
        row = {
            "model": self.model,
            "input": input_json(one),
            "value": answer.value,
            "score": answer.score,
            "shadow_value": other.value,
            "shadow_score": other.score,
        }
        append_line(self._log, json.dumps(row, ensure_ascii=False))


def values_agree(value: object, other: object) -> bool:
    """Return True for the same label or text, or numbers that differ by less than 1 %."""
    if isinstance(value, float) and isinstance(other, float):
        return bool(np.isclose(value, other, rtol=0.01))
    return value == other
