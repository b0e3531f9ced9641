"""Train what a configuration describes: `weft.train(config, folder)`; and the loop's own folder.

The folder and the verb have the same name, and importing one would hide the other: so the folder
itself can be called.
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
        """Train what a configuration describes into a run folder, measure it, and save the model.

        The configuration is a recipe's name, a .toml or .json file, a dict of sections or a
        Config; `changes` are settings by their dotted names: {"data.train": "reviews.tsv"}.
        `heard` is called with the step and the dev figures after every evaluation.
        """
        base = as_config(config)
        base = base.with_values(changes, "changes") if changes else base
        return importlib.import_module("weft.run").train(
            base, output, splits=splits, device=device, resume=resume, overwrite=overwrite,
            quiet=quiet, on_evaluate=on_evaluate, trust=trust,
        )  # fmt: skip


sys.modules[__name__].__class__ = _Verb
