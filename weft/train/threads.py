"""Choose the number of threads for training on a CPU: the faster of one and all.

Threads that share a core with another process wait for each other at the end of every operation,
so two are often slower than one. The counts are timed at the start and again at intervals.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

FIRST_INTERVAL, MAX_INTERVAL = 10.0, 600.0  # seconds between measurements, doubled each time
MIN_MEASUREMENTS, MIN_SECONDS = 3, 0.5  # per count
MAX_MEASURING_SECONDS = 5.0  # once each count has a valid measurement
MAX_MEASURING_FRACTION = 0.01  # of the run, likewise
SHORT_RUN_SECONDS = 10.0  # if one thread finishes by then, comparing counts does not pay
MAX_TIME_RATIO = 0.75  # more threads must take at most this much of the time of fewer


@dataclass(frozen=True)
class Timing:
    """Seconds per batch with each number of threads."""

    seconds: dict[int, float]

    def fastest(self) -> int:
        """Return the fastest count if it is clearly faster than the smallest one, else that one.

        A small gain is not worth it: beside another process two threads may win while they are
        timed and lose afterwards, and one thread never waits for the other.
        """
        best = min(self.seconds, key=lambda count: self.seconds[count])
        smallest = min(self.seconds)
        is_faster = self.seconds[best] < MAX_TIME_RATIO * self.seconds[smallest]
        return best if is_faster else smallest

    def __str__(self) -> str:
        return ", ".join(f"{1000 * s:.3g} ms with {n}" for n, s in self.seconds.items())


@dataclass
class ThreadChoice:
    """Chooses the number of threads at the start and at growing intervals.

    `counts` are compared; with fewer than two nothing is measured. Without `again` they are timed
    at the start only: compiled code is made for one count.
    """

    counts: Sequence[int]
    again: bool = True
    clock: Callable[[], float] = time.perf_counter
    interval: float = FIRST_INTERVAL
    after: float = field(default=float("-inf"))  # time of the next measurement

    @property
    def due(self) -> bool:
        return len(self.counts) > 1 and self.clock() >= self.after

    def choose(self, works: Sequence[Callable[[], None]], updates: float) -> Timing:
        """Time the counts and set the fastest; `updates` are still to come.

        `works` do the work of an update without changing the model; the counts take turns.
        """
        now = torch.get_num_threads()
        first = self.after == float("-inf")
        began = self.clock()
        seconds: dict[int, list[float]] = {count: [] for count in self.counts}
        try:
            if first and self._is_short(works, updates, seconds):
                seconds = {count: some for count, some in seconds.items() if some}
            while not self._is_enough(seconds, self.clock() - began, updates):
                turn = min(map(len, seconds.values()))
                fewest = [count for count, some in seconds.items() if len(some) == turn]
                for count in fewest if turn % 2 else reversed(fewest):
                    torch.set_num_threads(count)
                    start = self.clock()
                    works[turn % len(works)]()
                    seconds[count].append(self.clock() - start)
        finally:
            torch.set_num_threads(now)
        # The first of each is not counted: it starts threads and allocates memory.
        means = {count: sum(some[1:]) / len(some[1:]) for count, some in seconds.items()}
        timing = Timing(means)
        torch.set_num_threads(timing.fastest())
        self.wait(self.clock() - began)
        return timing

    def _is_short(
        self, works: Sequence[Callable[[], None]], updates: float, seconds: dict[int, list[float]]
    ) -> bool:
        """Time two batches with the smallest count; return True if the run will be short."""
        smallest = min(self.counts)
        torch.set_num_threads(smallest)
        for turn in range(2):
            start = self.clock()
            works[turn % len(works)]()
            seconds[smallest].append(self.clock() - start)
        return updates * seconds[smallest][-1] < SHORT_RUN_SECONDS

    def wait(self, cost: float = 0.0) -> None:
        """Schedule the next measurement so that measuring stays a small fraction of the run."""
        self.interval = max(self.interval, cost / MAX_MEASURING_FRACTION)
        self.after = self.clock() + self.interval if self.again else float("inf")
        self.interval = min(2 * self.interval, max(MAX_INTERVAL, cost / MAX_MEASURING_FRACTION))

    def _is_enough(self, seconds: dict[int, list[float]], spent: float, updates: float) -> bool:
        counted = [some[1:] for some in seconds.values()]
        if not all(counted):
            return False
        if len(counted) == 1:
            return True
        ahead = updates * min(sum(some) / len(some) for some in counted)
        measured = all(
            len(some) >= MIN_MEASUREMENTS and sum(some) >= MIN_SECONDS for some in counted
        )
        return measured or spent >= min(MAX_MEASURING_SECONDS, MAX_MEASURING_FRACTION * ahead)


def thread_counts(setting: int, on_cpu: bool) -> tuple[int, ...]:
    """Return the counts to choose from: the configured one, or one and all."""
    everything = torch.get_num_threads()
    if setting or everything == 1 or not on_cpu:
        return (everything,)
    return (1, everything)
