"""The time limit of a run: when to stop, and how many updates still fit."""

import time
from collections import deque

TIMED_UPDATES = 50  # the latest updates, which determine the pace
MIN_TIMED_UPDATES = 5  # with fewer there is no pace yet
TRIMMED_FRACTION = 0.1  # of the slowest, such as compiling, graph capture, checkpoints


class TimeBudget:
    """Counts from the end of set-up to `minutes` after the start of the run.

    `before` is the number of seconds a resumed run had trained already. Set-up counts against the
    limit, but it is not progress: the learning-rate schedule follows `updates_that_fit`.
    """

    def __init__(self, started: float, minutes: float, before: float = 0.0):
        self.training_started = time.perf_counter() - before
        self.end = started - before + 60 * minutes if minutes else float("inf")
        self.reserve = 0.0  # seconds of the last evaluation: the final one must fit
        self._updates: deque[float] = deque(maxlen=TIMED_UPDATES)  # seconds each
        self._last: float | None = None
        self._count, self._evaluation_seconds = (
            0,
            0.0,
        )

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return time.perf_counter() - self.training_started

    @property
    def fraction_used(self) -> float:
        """The fraction of the time used; above 1 after the limit."""
        now = time.perf_counter()
        return (
            (now - self.training_started) / (self.end - self.training_started)
            if self.end > self.training_started
            else 2.0
        )

    @property
    def seconds_left(self) -> float:
        """The seconds that remain; infinite without a limit."""
        return self.end - time.perf_counter()

    @property
    def is_over(self) -> bool:
        return time.perf_counter() + self.reserve > self.end

    def count_update(self) -> None:
        """Count an update. The first one is set-up, and not timed."""
        now = time.perf_counter()
        if self._last is not None:
            self._updates.append(now - self._last)
        self._last = now
        self._count += 1

    def count_evaluation(self, seconds: float) -> None:
        """Count the seconds of an evaluation since the last update."""
        self.reserve = max(seconds, 0.5 * self.reserve)
        self._evaluation_seconds += seconds
        self._last = time.perf_counter()

    def updates_that_fit(self) -> float:
        """Return how many more updates fit at the current pace; at least one."""
        if self.end == float("inf") or len(self._updates) < MIN_TIMED_UPDATES:
            return float("inf")
        timed = sorted(self._updates)
        timed = timed[: len(timed) - max(1, int(TRIMMED_FRACTION * len(timed)))]
        each = sum(timed) / len(timed) + self._evaluation_seconds / self._count
        left = self.end - self.reserve - time.perf_counter()
        return max(left / max(each, 1e-9), 1.0)
