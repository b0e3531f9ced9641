"""One number with its interval, and what every measure can do."""

from dataclasses import dataclass
from typing import Any, Protocol

# Figures that are better the lower they are.
LOWER = frozenset(
    {"mse", "perplexity", "token_perplexity", "perplexity_known", "bits_per_character", "unknown"}
    | {"next_loss"}
    | {"backward_perplexity"}
)


@dataclass(frozen=True)
class Figure:
    """A value, the percentile interval around it, and how many examples it rests on."""

    value: float
    low: float
    high: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


class Measure(Protocol):
    """Counts that can be added up in pieces, in any order, on any number of processes."""

    def add(self, predicted: Any, gold: Any) -> None:
        """Count one batch of predicted and right answers, both as numbers: arrays, or a list."""

    def merge(self, other: Any) -> None:
        """Take in what another measure of the same kind has counted."""

    def figures(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Figure]:
        """Every figure by name, each with its bootstrap interval."""
