"""The learning-rate schedule: warm-up, then decay, over the updates that fit."""

import math
from dataclasses import dataclass

from weft.train.settings import Settings

MAX_WARMUP_FRACTION = 0.25  # of all updates, for `warmup_updates`


def scheduled_rate(settings: Settings, fraction: float, warmup: float | None = None) -> float:
    """Return the learning rate after `fraction` (0 … 1) of the updates.

    `warmup` is the fraction of warm-up updates; by default that of the settings.
    """
    warmup = settings.warmup if warmup is None else warmup
    if warmup > 0 and fraction < warmup:
        return settings.learning_rate * fraction / warmup
    left = (1 - fraction) / (1 - warmup) if warmup < 1 else 1.0
    return _decayed_rate(settings, left, warmup / fraction if warmup > 0 else 1.0)


def _decayed_rate(settings: Settings, left: float, warmed: float) -> float:
    """Return the rate with `left` (1 … 0) of the decay to come; `warmed` is warm-up/updates."""
    peak = settings.learning_rate
    match settings.schedule:
        case "linear":
            return peak * left
        case "cosine":
            return peak * 0.5 * (1 + math.cos(math.pi * (1 - left)))
        case "inverse-sqrt":
            return peak * math.sqrt(warmed)
        case _:
            return peak


def warmup_fraction(settings: Settings, updates: float) -> float:
    """Return the warm-up fraction of so many updates: 2 % of a short run would be too few."""
    floor = min(settings.warmup_updates, MAX_WARMUP_FRACTION * updates)
    return max(settings.warmup, floor / max(updates, 1.0))


@dataclass
class Schedule:
    """The learning rate, update by update.

    While all planned updates fit into the time limit, it depends only on how many are done. Once
    fewer fit, the rest of the decay is spread evenly over the updates that still fit: it ends when
    time does, however long set-up and compiling took. Warm-up is counted in updates and never
    skipped.
    """

    settings: Settings
    decay_left: float | None = None  # 1 … 0 if time is short; None: as planned

    def next_rate(self, step: int, fraction: float, planned: float, fit: float = math.inf) -> float:
        """Return the rate of the next update, and move on.

        `step` updates, `fraction` of the plan, are done; of the `planned` next ones `fit` fit
        into the time limit.
        """
        settings = self.settings
        warmup = warmup_fraction(settings, step + planned)
        if self.decay_left is None and fit >= planned:
            return scheduled_rate(settings, fraction, warmup)
        if self.decay_left is None:
            self.decay_left = min((1 - fraction) / (1 - warmup), 1.0)
        left = max(min(planned, fit), 1.0)
        warmup_updates = warmup_fraction(settings, step + left) * (step + left)
        if step < warmup_updates and self.decay_left == 1:
            return settings.learning_rate * step / warmup_updates
        now = _decayed_rate(
            settings, self.decay_left, min(warmup_updates / max(step, 1), 1.0) or 1.0
        )
        self.decay_left -= self.decay_left / left
        return now
