"""The training loop and its parts; `weft.train(config, folder)` runs a whole training.

The folder and the function share a name, and importing one would hide the other: so the folder
itself is callable.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from weft.config import Config, as_config

if TYPE_CHECKING:
    from weft.run import RunResult, Splits


class _Verb(ModuleType):
    def __call__(
        self,
        config: Config | str | Path | Mapping[str, Any],
        output: str | Path,
        *,
        changes: Mapping[str, Any] = {},
        splits: "Splits | None" = None,
        device: str = "auto",
        resume: bool = False,
        overwrite: bool = False,
        quiet: bool = False,
        on_evaluate: Callable[[int, dict[str, float]], None] | None = None,
        trust: Sequence[str] = (),
    ) -> "RunResult":
        """Train a configuration into a run folder, evaluate it, and save the model.

        The configuration is a recipe's name, a .toml or .json file, a dict of sections or a
        Config; `changes` maps dotted names to settings: {"data.train": "reviews.tsv"}.
        `on_evaluate` is called with the step and the dev metrics after every evaluation.
        """
        base = as_config(config)
        base = base.with_values(changes, "changes") if changes else base
        result: RunResult = importlib.import_module("weft.run").train(
            base, output, splits=splits, device=device, resume=resume, overwrite=overwrite,
            quiet=quiet, on_evaluate=on_evaluate, trust=trust,
        )  # fmt: skip
        return result


sys.modules[__name__].__class__ = _Verb
