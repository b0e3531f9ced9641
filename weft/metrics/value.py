"""A metric value with its interval, and the interface of metrics."""

from dataclasses import dataclass
from typing import Any, Protocol

from weft.notebook import HtmlRepr

# The only list of metrics that improve as they fall; training, tuning and comparing all read it.
_LOWER_IS_BETTER = frozenset((
    *("mse", "next_loss", "crossing", "wer", "cer"),
    *("slot_error", "missing", "wrong", "added"),
    *("perplexity", "token_perplexity", "perplexity_known", "backward_perplexity"),
    *("pseudo_perplexity", "bits_per_character", "unknown"),
))  # fmt: skip


def lower_is_better(name: str) -> bool:
    """Return True if the metric of this name improves as it falls, such as an error rate."""
    return base_name(name) in _LOWER_IS_BETTER


def base_name(name: str) -> str:
    """Return the name of a metric without the number of a dimension: mse of mse_2."""
    base, _, number = name.rpartition("_")
    return base if base and number.isdecimal() else name


@dataclass(frozen=True)
class MetricValue:
    """A metric's value, its percentile interval, and the number of examples."""

    value: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


class MetricRepr(HtmlRepr):
    """The repr of a metric: its values, without intervals, and the number of examples."""

    def __repr__(self: "Metric") -> str:
        values = self.compute(resamples=0) if self.n else {}
        shown = ", ".join(f"{name} {one.value:.4f}" for name, one in values.items())
        return f"{type(self).__name__}({shown or 'nothing counted'}; n={self.n})"


class Metric(Protocol):
    """Counts that can be added up in pieces, in any order, on any number of processes."""

    def add(self, predicted: Any, gold: Any) -> None:
        """Count one batch of predictions and gold answers: arrays, or a list."""

    def merge(self, other: Any) -> None:
        """Add the counts of another metric of the same kind."""

    @property
    def n(self) -> int:
        """The number of examples counted so far."""

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        """Return every metric value by name, each with its bootstrap interval."""
