"""How a comparison uses a time limit: what to train next, what to give up, what to keep back.

With `--minutes` the aim is as many recipes as possible whose trainings are complete. The policy:

1. Cheap first. Recipes start in the order of their cost: classic models, then networks from simple
   to deep. The first seed of a recipe measures what its other seeds will cost. They follow at once
   where all of them fit into the recipe's fair share of the time left; otherwise they wait until
   every recipe has had its first seed, and then those that are best on dev go first.
2. Nothing is begun that cannot end. A seed whose recipe is known to take longer than the time left
   is not started. A first seed is watched: once its pace shows that not even `MIN_COMPLETED` of its
   epochs will fit, it is stopped, and its time goes to others.
3. Only trainings that ended are ranked. One that ended by itself, after its last epoch or by early
   stopping, is complete. One that the limit ended is ranked if its learning-rate schedule came to
   its end (`train.minutes` sees to that) after at least `MIN_COMPLETED` of the epochs. Everything
   else is reported as "not enough time", never averaged in, and trained again when the same folder
   is given more time.
4. The limit is for everything: timing the models and writing the report have a reserve that grows
   with the recipes to be timed. When it is short, fewer texts are timed, the best recipes first.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

PROBE = 4.0  # seconds of updates after which the pace of a training is believed
SLACK = 0.9  # of MIN_COMPLETED: a projection below that is hopeless, not only bad luck
CAUTION = 1.5  # how much longer than the longest so far starting and measuring may take
SEED_CAUTION = 1.2  # how much longer than the longest so far another seed may take
UNKNOWN = 0.75  # of the time left for training, while nothing is known of starting and measuring
START_UP = 4.0  # seconds that a process takes to load a model, before any was measured
LATENCY = 10.0  # seconds of answering texts, one at a time and together, when there is time
TYPICAL = 3.0  # the same of most models: few need all the time that they are given
LATENCY_PART, REPORT_PART = 0.15, 0.06  # of the limit, at most
LEAST_REPORT, MOST_REPORT = 8.0, 60.0  # seconds


@dataclass
class Clock:
    """The time limit of a comparison; without minutes there is none."""

    minutes: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    started: float = field(default=-1.0)

    def __post_init__(self) -> None:
        if self.started < 0:
            self.started = self.now()

    @property
    def total(self) -> float:
        """Seconds that everything together may take."""
        return 60 * self.minutes if self.minutes else float("inf")

    @property
    def left(self) -> float:
        """Seconds until everything has to be over."""
        return self.started + self.total - self.now()

    @property
    def report(self) -> float:
        """Seconds kept for the report; 0 without a limit."""
        if not self.minutes:
            return 0.0
        least = min(LEAST_REPORT, self.total / 6)
        return min(max(REPORT_PART * self.total, least), MOST_REPORT)

    def latency(self, recipes: int) -> float:
        """Seconds of answering texts for each of so many recipes."""
        if not self.minutes:
            return LATENCY
        return min(max(LATENCY_PART / 2 * self.total / max(recipes, 1), 1.0), LATENCY)

    def reserve(self, recipes: int, start_up: float = START_UP) -> float:
        """Seconds kept for timing so many recipes and for the report."""
        if not self.minutes:
            return 0.0
        each = start_up + min(self.latency(recipes), TYPICAL)
        most = max(LATENCY_PART * self.total, min(2, recipes) * each)
        return min(min(recipes * each, most) + self.report, self.total / 2)
