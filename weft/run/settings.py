"""The [train] section of a configuration, checked."""

import dataclasses
import math

from weft import registry
from weft.errors import UserError
from weft.predict.members import MAX_MEMBERS
from weft.protocols import Section
from weft.train.settings import Settings

# The learning rate of a GPT trained from scratch: the wider a Transformer, the lower the rate at
# which Adam stays stable. Brown et al. (2020) take 6e-4 at 768, which lies on this curve, too.
RATE, RATE_WIDTH, RATE_POWER = 1e-3, 384, -0.75
HIGHEST_RATE = 3e-3  # of narrow ones


def read_settings(section: Section, model: Section) -> Settings:
    """Return the settings of a training of `model`, whose sections are filled in."""
    section = dict(section)
    if section.get("learning_rate") == "auto":
        section["learning_rate"] = _rate_for_width(model)
    settings = Settings(**registry.check(Settings, section, "[train]"))
    _check(settings)
    return settings


def _rate_for_width(model: Section) -> float:
    decoder = model.get("decoder", {})
    if decoder.get("kind") != "gpt":
        raise UserError(
            "train.learning_rate = 'auto' is for a [decoder] of kind 'gpt', whose width decides. "
            "Give a number, such as 0.001."
        )
    rate = RATE * (decoder["hidden"] / RATE_WIDTH) ** RATE_POWER
    return float(f"{min(rate, HIGHEST_RATE):.2g}")


def _check(settings: Settings) -> None:
    values = dataclasses.asdict(settings)
    for name in ("epochs", "batch_size", "max_tokens", "accumulate"):
        if values[name] < 1:
            raise UserError(f"train.{name} should be at least 1, got {values[name]}.")
    for name, value in values.items():
        if name != "seed" and isinstance(value, (int, float)) and not 0 <= value < math.inf:
            raise UserError(f"train.{name} should be 0 or more, got {value}.")
    if not 1 <= settings.ensemble <= MAX_MEMBERS:
        raise UserError(f"train.ensemble goes from 1 to {MAX_MEMBERS}, got {settings.ensemble}.")
    if settings.init_scale == 0:
        raise UserError("train.init_scale should be above 0: equal weights never differ.")
    if settings.init == "default" and settings.init_scale != 1:
        raise UserError("train.init_scale needs train.init, such as xavier-uniform or normal.")
    for name in ("warmup", "ema_decay"):
        if values[name] >= 1:
            raise UserError(f"train.{name} is a fraction of the run, below 1; got {values[name]}.")
