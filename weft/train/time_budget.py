"""The time limit of a training: when to stop, and how many updates still fit."""

import time
from collections import deque

TIMED_UPDATES = 50  # latest updates that the pace is read from
MIN_TIMED_UPDATES = 5  # of them, below which there is no pace yet
TRIMMED_FRACTION = 0.1  # of the slowest: compiling, capturing a CUDA graph, a checkpoint


class TimeBudget:
    """Counts from the end of set-up to `minutes` after everything began.

    `before` is the number of seconds a resumed training had trained already. Set-up takes its time
    from the limit, but it is no progress: the learning-rate schedule follows `updates_that_fit`.
    """

    def __init__(self, started: float, minutes: float, before: float = 0.0):
        self.begun = time.perf_counter() - before
        self.end = started - before + 60 * minutes if minutes else float("inf")
        self.reserve = 0.0  # seconds that the last evaluation took: the final one must fit, too
        self._updates: deque[float] = deque(maxlen=TIMED_UPDATES)  # seconds each
        self._last: float | None = None
        self._count, self._evaluation_seconds = (
            0,
            0.0,
        )  # updates so far; seconds of evaluations between them

    @property
    def seconds(self) -> float:
        """How long it has trained."""
        return time.perf_counter() - self.begun

    @property
    def spent(self) -> float:
        """The fraction of the time that is over; above 1 when it is late."""
        now = time.perf_counter()
        return (now - self.begun) / (self.end - self.begun) if self.end > self.begun else 2.0

    @property
    def left(self) -> float:
        """The seconds there are still, without end where there is no limit."""
        return self.end - time.perf_counter()

    @property
    def late(self) -> bool:
        return time.perf_counter() + self.reserve > self.end

    def count_update(self) -> None:
        """Note that an update has ended. The first one is set-up, and not timed."""
        now = time.perf_counter()
        if self._last is not None:
            self._updates.append(now - self._last)
        self._last = now
        self._count += 1

    def count_evaluation(self, seconds: float) -> None:
        """Note that an evaluation took so long since the last update ended."""
        self.reserve = max(seconds, 0.5 * self.reserve)
        self._evaluation_seconds += seconds
        self._last = time.perf_counter()

    def updates_that_fit(self) -> float:
        """How many more updates there is time for, by the pace of the latest; at least one."""
        if self.end == float("inf") or len(self._updates) < MIN_TIMED_UPDATES:
            return float("inf")
        known = sorted(self._updates)
        known = known[: len(known) - max(1, int(TRIMMED_FRACTION * len(known)))]
        each = sum(known) / len(known) + self._evaluation_seconds / self._count
        left = self.end - self.reserve - time.perf_counter()
        return max(left / max(each, 1e-9), 1.0)
