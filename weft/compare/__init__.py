"""Compare recipes: `weft.compare(files)`; and the engine: plan, scheduler, trials, leaderboard.

The folder and the verb share a name, so the folder itself can be called, as in weft/train.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.compare.leaderboard import Row


class _Verb(ModuleType):
    def __call__(
        self,
        files: str | Sequence[str],
        output: str | Path = "",
        *,
        dev: str = "",
        task: str = "",
        recipes: Sequence[str] | None = None,
        pretrained: str = "",
        metric: str = "",
        seeds: int = 0,
        folds: int = 0,
        minutes: float = 30.0,
        workers: int = 0,
        ensemble: bool = False,
        changes: Mapping[str, Any] = {},
        device: str = "auto",
        overwrite: bool = False,
        quiet: bool = False,
        trust: Sequence[str] = (),
    ) -> "list[Row]":
        """Train every recipe with every seed, and write leaderboard.json, report.html and model/.

        Each trial runs in its own process. Finished trials are not repeated; a recipe that fails
        becomes a row with its error. `minutes` limits everything; recipes that do not fit are
        listed as "not enough time". With `pretrained`, a checkpoint, the recipes that fine-tune it
        are compared, too. `metric` is used for ranking and early stopping; default: the task's
        own. With `ensemble`, ensembles of the best recipe's seeds and of the best recipes are
        ranked, too. Parts from outside Weft are imported only from packages in `trust`.
        """
        rows: list[Row] = importlib.import_module("weft.report.compare").compare(
            files, output, dev=dev, task=task, recipes=recipes, pretrained=pretrained,
            metric=metric, seeds=seeds, folds=folds, minutes=minutes, workers=workers,
            ensemble=ensemble, changes=changes, device=device, overwrite=overwrite, quiet=quiet,
            trust=trust,
        )  # fmt: skip
        return rows


sys.modules[__name__].__class__ = _Verb
