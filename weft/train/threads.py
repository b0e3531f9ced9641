"""Choose the number of threads for training on a CPU: the faster of one and all.

Threads that share a core with another process wait for each other at the end of every operation,
so two are often slower than one. The counts are compared where that costs at most 1 % of the rest
of the run, or a few percent of one that takes minutes. Other runs use one thread: choosing would
cost them more than it could gain.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

FIRST_INTERVAL, MAX_INTERVAL = 10.0, 600.0  # seconds between comparisons, doubled each time
MIN_MEASUREMENTS, MIN_SECONDS = 3, 0.5  # per count
MAX_SECONDS = 5.0  # of a comparison, once each count has a valid measurement
MAX_FRACTION = 0.01  # of the rest of the run, likewise
MAX_SLOWDOWN = 2.0  # of all threads: if they take longer than that, the comparison ends
# Comparing takes as long as this many batches with one thread: beside a busy process 1 + 5, as all
# threads may be 5 times as slow, otherwise at most 2 · (1 + MAX_SLOWDOWN).
MAX_COST_BATCHES = 6
# Few but slow updates, as in fine-tuning: all threads may save minutes, comparing takes seconds.
SLOW_RUN_SECONDS, MIN_SLOW_BATCHES = 60.0, 100
MAX_TIME_RATIO = 0.75  # more threads must take at most this much of the time of fewer


@dataclass(frozen=True)
class ThreadTiming:
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
    """Chooses the number of threads at the start of a run and at growing intervals.

    With fewer than two `counts` there is no choice. Without `again` they are compared once:
    compiled code is made for one count.
    """

    counts: Sequence[int]
    again: bool = True
    clock: Callable[[], float] = time.perf_counter
    interval: float = FIRST_INTERVAL
    after: float = field(default=float("-inf"))  # time of the next comparison

    def start(self) -> None:
        """Use the smallest count until a comparison finds another to be faster."""
        torch.set_num_threads(min(self.counts))

    def is_due(self, batches: float, batch_seconds: float = 0.0) -> bool:
        """Return True if a comparison is due and costs little of the next `batches`.

        Their number decides, so that a short run uses the same count every time; in a run of
        minutes also the time they take, `batch_seconds` each so far.
        """
        is_slow = batches * batch_seconds >= SLOW_RUN_SECONDS and batches >= MIN_SLOW_BATCHES
        is_cheap = MAX_FRACTION * batches >= MAX_COST_BATCHES or is_slow
        return len(self.counts) > 1 and is_cheap and self.clock() >= self.after

    def choose(self, works: Sequence[Callable[[], None]], batches: float) -> ThreadTiming:
        """Time the counts and set the fastest; `batches` are still to come.

        `works` do the work of a batch without changing the model; the counts take turns.
        """
        now = torch.get_num_threads()
        began = self.clock()
        seconds: dict[int, list[float]] = {count: [] for count in sorted(self.counts)}
        try:
            while not self._is_enough(seconds, self.clock() - began, batches):
                turn = min(map(len, seconds.values()))
                count = next(count for count, some in seconds.items() if len(some) == turn)
                torch.set_num_threads(count)
                start = self.clock()
                works[turn % len(works)]()
                seconds[count].append(self.clock() - start)
        finally:
            torch.set_num_threads(now)
        # The first of each starts threads and allocates memory: it counts only if there is no more.
        counted = {count: some[1:] or some for count, some in seconds.items()}
        timing = ThreadTiming({count: sum(some) / len(some) for count, some in counted.items()})
        torch.set_num_threads(timing.fastest())
        self.wait(self.clock() - began)
        return timing

    def wait(self, cost: float = 0.0) -> None:
        """Schedule the next comparison so that comparing stays a small fraction of the run."""
        self.interval = max(self.interval, cost / MAX_FRACTION)
        self.after = self.clock() + self.interval if self.again else float("inf")
        self.interval = min(2 * self.interval, max(MAX_INTERVAL, cost / MAX_FRACTION))

    def _is_enough(self, seconds: dict[int, list[float]], spent: float, batches: float) -> bool:
        one, *_, every = seconds.values()
        if every and min(every) > MAX_SLOWDOWN * min(one):
            return True
        counted = [some[1:] for some in seconds.values()]
        if not all(counted):
            return False
        means = [sum(some) / len(some) for some in counted]
        limit = min(MAX_SECONDS, MAX_FRACTION * batches * min(means))
        measured = all(
            len(some) >= MIN_MEASUREMENTS and sum(some) >= MIN_SECONDS for some in counted
        )
        return measured or spent + sum(means) > limit


def thread_counts(setting: int, on_cpu: bool) -> tuple[int, ...]:
    """Return the counts to choose from: the configured one, or one and all."""
    everything = torch.get_num_threads()
    if setting or everything == 1 or not on_cpu:
        return (everything,)
    return (1, everything)
