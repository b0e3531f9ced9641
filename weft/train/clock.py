"""The time that a training may take, and how much of it is over."""

import time

EARLY = 0.1  # of the time: before that, a slow first update does not say that it will be short


class Clock:
    """Counts from where reading the data has ended to `minutes` after everything began.

    `before` are the seconds that a training which is taken up again had trained already.
    """

    def __init__(self, started: float, minutes: float, before: float = 0.0):
        self.begun = time.perf_counter() - before
        self.end = started - before + 60 * minutes if minutes else float("inf")

    @property
    def seconds(self) -> float:
        """How long it has trained."""
        return time.perf_counter() - self.begun

    @property
    def spent(self) -> float:
        """The share of the time that is over; above 1 when it is late."""
        now = time.perf_counter()
        return (now - self.begun) / (self.end - self.begun) if self.end > self.begun else 2.0

    @property
    def late(self) -> bool:
        return self.spent > 1

    def pace(self) -> float:
        """How far a training should be that has to end with the clock; it begins to count at 0."""
        return max(self.spent - EARLY, 0.0) / (1 - EARLY)
