"""Detect runs that did not train: the loss never decreased, or dev was still improving at the end.

Under-training shows in the dev metric (`DevCurve`), collapse in the training loss (`LossTracker`).
"""

from dataclasses import dataclass, field

from torch import Tensor

from weft.metrics.value import lower_is_better
from weft.train.state import Progress

MIN_ABSOLUTE_GAIN = 0.01  # of metrics that rise, such as accuracy
MIN_RELATIVE_GAIN = 0.02  # of metrics that fall, such as perplexity
PARTS = 20  # of a run; the loss is averaged over each
MIN_UPDATES = 2 * PARTS  # fewer say nothing about the loss


@dataclass
class DevCurve:
    """The dev metric against the fraction of training completed."""

    metric: str
    points: list[tuple[float, float]] = field(default_factory=list)  # (fraction, value)

    def add(self, fraction: float, value: float) -> None:
        self.points.append((fraction, value))

    def undertraining_note(self, epochs: int, examples: int) -> str:
        """Return advice if the last epoch clearly improved the best value, else "".

        "Clearly" means by more than the metric may vary by chance on this many examples.
        Runs that did not finish get no advice.
        """
        if epochs < 2 or len(self.points) < 2 or self.points[-1][0] < 1:
            return ""
        (_, last), lower = self.points[-1], lower_is_better(self.metric)
        epoch_before = [value for done, value in self.points[:-1] if done <= 1 - 0.99 / epochs]
        earlier = [value for _, value in self.points[:-1]]
        if not epoch_before or last != (min if lower else max)([*earlier, last]):
            return ""
        before = epoch_before[-1]
        if lower:
            clear = before - last > MIN_RELATIVE_GAIN * before
        else:
            noise = max(examples, 1) ** -0.5
            clear = last < 1 and last - before > max(MIN_ABSOLUTE_GAIN, noise)
        if not clear:
            return ""
        direction = "falling" if lower else "rising"
        return (
            f"dev {self.metric} was still {direction} at the end, from {before:.4g} to {last:.4g} "
            f"in the last of {epochs} epochs: train longer (train.epochs={2 * epochs})"
        )


class LossTracker:
    """The mean training loss of each part of a run; sums stay on the device until the end."""

    def __init__(self) -> None:
        self.sums: list[Tensor | float] = [0.0] * PARTS
        self.counts: list[float] = [0] * PARTS
        self.updates = 0

    def add(self, progress: Progress) -> None:
        """Count an update."""
        part = min(int(progress.fraction * PARTS), PARTS - 1)
        self.sums[part] = self.sums[part] + progress.total
        self.counts[part] += progress.count
        self.updates += 1

    @property
    def first_and_lowest(self) -> tuple[float, float] | None:
        """The loss at the start and the lowest since; None after too few updates."""
        if self.updates < MIN_UPDATES or not self.counts[0]:
            return None
        means = [float(s) / n for s, n in zip(self.sums, self.counts, strict=True) if n]
        return (means[0], min(means[1:])) if len(means) > 1 else None
