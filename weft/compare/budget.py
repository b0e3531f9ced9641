"""The time budget of a comparison: which run starts next, which is stopped, what is reserved.

With `--minutes` the aim is to complete the runs of as many recipes as possible. The policy:

1. Cheapest first. Recipes start in order of cost: classical models, then networks from simple to
   deep. The first seed of a recipe measures the cost of its other seeds. They follow at once if
   all of them fit into the recipe's fair share of the remaining time; otherwise they wait until
   every recipe has had its first seed, and then the recipes that are best on dev go first.
2. No run starts that cannot finish. A seed is not started if its recipe is known to take longer
   than the remaining time. A first seed is monitored: once its pace shows that not even
   `MIN_COMPLETED` of its epochs will fit, it is stopped and its time goes to other recipes.
3. Only finished runs are ranked. A run that ended after its last epoch or by early stopping is
   complete. A run ended by the limit is ranked if its learning-rate schedule reached its end
   (`train.minutes` ensures that) after at least `MIN_COMPLETED` of the epochs. All others are
   reported as "not enough time", never averaged in, and repeated when the same folder is given
   more time.
4. The limit covers everything: a reserve that grows with the number of recipes is kept for timing
   the models and writing the report. When it is short, fewer texts are timed, best recipes first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

MIN_PACE_SECONDS = 4.0  # seconds of updates before the pace of a run is trusted
HOPELESS_FRACTION = 0.9  # of MIN_COMPLETED: a projection below it is hopeless, not bad luck
OVERHEAD_SAFETY_FACTOR = 1.5  # start-up and evaluation may exceed the longest so far by
SEED_SAFETY_FACTOR = 1.2  # another seed may exceed the longest so far by
UNKNOWN_OVERHEAD_FRACTION = 0.75  # of the time left, for training, before overheads are measured
START_UP_SECONDS = 4.0  # to load a model in a new process, before any was measured
LATENCY_SECONDS = 10.0  # of timing a model, one text at a time and batched
TYPICAL_LATENCY_SECONDS = 3.0  # most models need less than they are given
LATENCY_FRACTION, REPORT_FRACTION = 0.15, 0.06  # of the limit, at most
MIN_REPORT_SECONDS, MAX_REPORT_SECONDS = 8.0, 60.0  # seconds


@dataclass
class Clock:
    """The time limit of a comparison; `minutes=0` means no limit."""

    minutes: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    started: float = field(default=-1.0)

    def __post_init__(self) -> None:
        if self.started < 0:
            self.started = self.now()

    @property
    def total(self) -> float:
        """The time limit in seconds."""
        return 60 * self.minutes if self.minutes else float("inf")

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self.started + self.total - self.now()

    @property
    def report(self) -> float:
        """Seconds reserved for the report; 0 without a limit."""
        if not self.minutes:
            return 0.0
        least = min(MIN_REPORT_SECONDS, self.total / 6)
        return min(max(REPORT_FRACTION * self.total, least), MAX_REPORT_SECONDS)

    def latency(self, recipes: int) -> float:
        """Return the seconds of timing for each of `recipes` models."""
        if not self.minutes:
            return LATENCY_SECONDS
        return min(max(LATENCY_FRACTION / 2 * self.total / max(recipes, 1), 1.0), LATENCY_SECONDS)

    def reserve(self, recipes: int, start_up: float = START_UP_SECONDS) -> float:
        """Return the seconds reserved for timing `recipes` models and writing the report."""
        if not self.minutes:
            return 0.0
        each = start_up + min(self.latency(recipes), TYPICAL_LATENCY_SECONDS)
        most = max(LATENCY_FRACTION * self.total, min(2, recipes) * each)
        return min(min(recipes * each, most) + self.report, self.total / 2)
