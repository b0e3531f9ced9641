"""Compare recipes: `weft.compare(files)`; and the engine: plan, scheduler, trials, leaderboard."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.callable_module import make_callable

if TYPE_CHECKING:
    from weft.compare.leaderboard import Leaderboard
    from weft.text.tables.table import PathOrTable

__all__: list[str] = []  # help() shows the function once, as the module itself


def compare(
    files: "PathOrTable | Sequence[PathOrTable]",
    output: str | Path = "",
    *,
    dev: "PathOrTable" = "",
    task: str = "",
    recipes: Sequence[str] | None = None,
    pretrained: str = "",
    metric: str = "",
    seeds: int = 0,
    folds: int = 0,
    minutes: float = 30.0,
    workers: int = 0,
    on: str = "",
    needs: str = "",
    ensemble: bool = False,
    changes: Mapping[str, Any] = {},
    device: str = "auto",
    overwrite: bool = False,
    quiet: bool = False,
    trust: Sequence[str] = (),
) -> "Leaderboard":
    """Train every recipe with every seed, and write leaderboard.json, report.html and model/.

    `files` are a training file and optionally a test file, or data in memory, which are stored in
    `output`/data: each trial runs in its own process.
    Finished trials are not repeated; a recipe that fails becomes a row with its error. `minutes`
    limits everything; recipes that do not fit are listed as "not enough time". With `pretrained`,
    a checkpoint, the recipes that fine-tune it are compared, too. `metric` is used for ranking and
    early stopping; default: the task's own, or macro-F1 if classes are uneven: then the two best
    recipes are also trained with balanced classes. With `ensemble`, ensembles of the best recipe's
    seeds and of the best recipes are ranked, too. `on="ray:HOST:PORT"` runs the trials on a Ray
    cluster, where each `needs` for example "cpus=2,gpus=0.5". Parts from outside Weft are imported
    only from packages in `trust`.

    The leaderboard is a list of rows, best first: recipe, quality, interval, latency, size, error.

    Examples:
        >>> board = weft.compare(["train.tsv", "test.tsv"], "runs/compared", minutes=10)
        >>> board[0]
        Row(cnn: accuracy 0.9312 ± 0.0041, 3 trials)
        >>> model = weft.load("runs/compared/model")  # the recommended one
    """
    rows: Leaderboard = importlib.import_module("weft.report.compare").compare(
        files, output, dev=dev, task=task, recipes=recipes, pretrained=pretrained,
        metric=metric, seeds=seeds, folds=folds, minutes=minutes, workers=workers,
        on=on, needs=needs, ensemble=ensemble, changes=changes, device=device,
        overwrite=overwrite, quiet=quiet, trust=trust,
    )  # fmt: skip
    return rows


make_callable(__name__, compare)
