"""Search a configuration's settings: `weft.tune(config, folder)`; and random restarts of the best.

Like `weft.train`, this folder can be called.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.config import Config, as_config
from weft.tune.search import SearchCallback, TuneResult, ignore_message, ignore_trial, tune
from weft.tune.space import parse
from weft.tune.study import TrialRecord

__all__ = ["TrialRecord", "TuneResult", "parse", "tune"]


class _Verb(ModuleType):
    def __call__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        output: str | Path,
        *,
        changes: Mapping[str, Any] = {},
        search: Mapping[str, Any] = {},
        preset: str = "",
        sampler: str = "",
        trials: int = 0,
        minutes: float = 0.0,
        seeds: int = 3,
        prune: bool = True,
        workers: int = 1,
        device: str = "auto",
        overwrite: bool = False,
        on_trial: SearchCallback = ignore_trial,
        trust: Sequence[str] = (),
        on_message: Callable[[str], None] = ignore_message,
    ) -> TuneResult:
        """Search the settings of a configuration on dev, then train the best again with new seeds.

        The configuration is a recipe's name, a .toml or .json file, a dict of sections or a
        Config; `changes` are settings by their dotted names: {"data.train": "reviews.tsv"}.
        Called again with the same folder it goes on to `trials` in all.
        """
        base = as_config(config)
        base = base.with_values(changes, "changes") if changes else base
        return tune(
            base, output, search=search, preset=preset, sampler=sampler, trials=trials,
            minutes=minutes, seeds=seeds, prune=prune, workers=workers, device=device,
            overwrite=overwrite, on_trial=on_trial, trust=trust, on_message=on_message,
        )  # fmt: skip


sys.modules[__name__].__class__ = _Verb
