"""The training loop and its parts; `weft.train(config, folder)` runs a whole training."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.callable_module import make_callable
from weft.config import Config, as_config

if TYPE_CHECKING:
    from weft.run import RunResult, Splits
    from weft.text.tables.table import PathOrTable

__all__: list[str] = []  # help() shows the function once, as the module itself


def train(
    config: Config | str | Path | Mapping[str, Any],
    output: str | Path,
    *,
    train: "PathOrTable" = "",
    dev: "PathOrTable" = "",
    test: "PathOrTable" = "",
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

    The configuration is a recipe's name, a .toml or .json file, a dict of sections or a Config;
    `train`, `dev` and `test` are files or data in memory: rows, columns, data frames, Arrow tables,
    datasets. `changes` maps dotted names to settings. `output` gets config.toml, metrics.jsonl,
    log.txt, predictions.jsonl, checkpoints/ and model/; `resume` goes on with the run in it,
    `overwrite` replaces it. `on_evaluate` is called with the step and the dev metrics after every
    evaluation.
    Parts from outside Weft are imported only from packages in `trust`.

    The result has a `predictor`, `figures` (by split, then by metric) and the `record` of the run.

    Examples:
        >>> result = weft.train("cnn", "runs/cnn", train="reviews.tsv")
        >>> result.figures["dev"]["accuracy"]
        MetricValue(value=0.93, low=0.91, high=0.95, n=500)
        >>> result.predictor(["a fine film"])
        [Answer('positive', score=0.98)]
    """
    base = as_config(config)
    if changes:
        named = importlib.import_module("weft.text.tables.table").name_data(changes)
        base = base.with_values(named, "changes")
    result: RunResult = importlib.import_module("weft.run").train(
        base, output, train=train, dev=dev, test=test, splits=splits, device=device,
        resume=resume, overwrite=overwrite, quiet=quiet, on_evaluate=on_evaluate, trust=trust,
    )  # fmt: skip
    return result


make_callable(__name__, train)
