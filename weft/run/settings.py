"""The [train] section of a configuration, checked."""

import dataclasses
import math

from weft import registry
from weft.errors import UserError, unknown_name
from weft.predict.members import MAX_MEMBERS
from weft.protocols import Section
from weft.train.settings import Settings
from weft.train.trackers import TRACKERS

# The learning rate of a GPT trained from scratch: the wider a Transformer, the lower the rate at
# which Adam stays stable. Brown et al. (2020) take 6e-4 at 768, which lies on this curve, too.
RATE, RATE_WIDTH, RATE_POWER = 1e-3, 384, -0.75
HIGHEST_RATE = 3e-3  # of narrow ones
# The learning rate that fine-tunes a Transformer: 5e-5 at 768 and 2.8e-5 at 1024 lie in the range
# of Devlin et al. (2019); at 384 (MiniLM) 2e-4 is best on dev of TREC and banking77.
# 3e-4 is the highest of Turc et al. (2019), who fine-tune encoders down to a width of 128.
# Radford et al. (2018) fine-tune GPT, 768 wide, at 6.25e-5.
FINE_TUNING_RATE, FINE_TUNING_WIDTH, FINE_TUNING_POWER = 5e-5, 768, -2
HIGHEST_FINE_TUNING_RATE = 3e-4
FINE_TUNED = ("bert", "gpt")  # kinds of embedders


def read_settings(section: Section, model: Section) -> Settings:
    """Return the settings of a training of `model`, whose sections are filled in."""
    section = dict(section)
    if section.get("learning_rate") == "auto":
        section["learning_rate"] = _rate_for_width(model)
    settings = Settings(**registry.check(Settings, section, "[train]"))
    _check(settings)
    return settings


def _rate_for_width(model: Section) -> float:
    """Return the learning rate for the width of a GPT, or of the encoder that is fine-tuned."""
    decoder, embedder = model.get("decoder", {}), model.get("embedder", {})
    if decoder.get("kind") == "gpt":
        rate = RATE * (decoder["hidden"] / RATE_WIDTH) ** RATE_POWER
        return float(f"{min(rate, HIGHEST_RATE):.2g}")
    if isinstance(embedder, dict) and embedder.get("kind") in FINE_TUNED:
        rate = FINE_TUNING_RATE * (embedder["hidden"] / FINE_TUNING_WIDTH) ** FINE_TUNING_POWER
        return float(f"{min(rate, HIGHEST_FINE_TUNING_RATE):.2g}")
    raise UserError(
        "train.learning_rate = 'auto' is for a [decoder] of kind 'gpt' or a single [embedder] of "
        "kind 'bert' or 'gpt', whose width decides. Give a number, such as 0.001."
    )


def _check(settings: Settings) -> None:
    values = dataclasses.asdict(settings)
    for name in ("epochs", "batch_size", "max_tokens", "accumulate"):
        if values[name] < 1:
            raise UserError(f"train.{name} should be at least 1, got {values[name]}.")
    for name in settings.loggers:
        if name not in TRACKERS:
            raise unknown_name("logger", name, TRACKERS, "train.loggers")
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
