"""Live traffic compared with the training texts of its model."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from weft.doctor.drift import Drift, Fingerprint, TextTraits, compare
from weft.tasks.task import Answer
from weft.text.example import Example, join_pair

WINDOW_TEXTS = 1000  # the last ones that were sampled
SAMPLE_SECONDS = 0.02  # between two samples, at least: measuring must not slow answers down
UPDATE_SECONDS = 5.0


class Traffic:
    """The last texts of a model, sampled, and how far they are from its training texts."""

    def __init__(self, fingerprint: Fingerprint, labels: Sequence[str]):
        self._fingerprint, self._labels = fingerprint, frozenset(labels)
        self._texts: deque[TextTraits] = deque(maxlen=WINDOW_TEXTS)
        self._sampled_at = 0.0
        self._changed = False
        self._updated_at = 0.0
        self._drift = compare(fingerprint, [])  # imports what it needs now: a third of a second

    def watch(self, inputs: Sequence[Any], answers: Sequence[Answer]) -> None:
        """Measure the first text of a request, unless another was measured just now."""
        now = time.monotonic()
        if not answers or now - self._sampled_at < SAMPLE_SECONDS:
            return
        self._sampled_at, self._changed = now, True
        answer, text = answers[0], _text_of(inputs[0])
        self._texts.append(
            self._fingerprint.measure(
                text, answer.coverage, answer.value, answer.score, self._labels
            )
        )

    def drift(self, *, fresh: bool = False) -> Drift:
        """Return the comparison, computed every few seconds unless it must be `fresh`."""
        now = time.monotonic()
        if self._changed and (fresh or now - self._updated_at > UPDATE_SECONDS):
            self._changed, self._updated_at = False, now
            self._drift = compare(self._fingerprint, list(self._texts))
        return self._drift


def _text_of(one: Any) -> str:
    if isinstance(one, str):
        return one
    if isinstance(one, Example):
        return one.full_text
    return join_pair(*one) if isinstance(one, tuple) else " ".join(map(str, one.values()))
