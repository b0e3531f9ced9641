"""Fit a head by logistic or ridge regression on the vectors of a frozen encoder."""

from typing import Any

import numpy as np
import torch

from weft.batch import TokenStore
from weft.classic.linear.regularisation import GRIDS, choose, fit_for
from weft.classic.linear.regularisation import scores as linear_scores
from weft.errors import UserError
from weft.inference.forward import collect_outputs
from weft.model import Model
from weft.run.context import RunContext
from weft.runtime import Runtime
from weft.tasks.regress import LabelScale
from weft.tasks.task import compute_metrics
from weft.train.logger import truncate_metrics

# Vectors of length one need a larger C than n-grams, of which a text has hundreds.
GRID = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


def fit_head(
    run: RunContext, runtime: Runtime, model: Model, train: TokenStore, dev: TokenStore | None
) -> None:
    """Compute the vector of every text once, fit the head on them and write its weights."""
    from threadpoolctl import threadpool_limits

    head: Any = model.head
    if any(p.requires_grad for n, p in model.named_parameters() if not n.startswith("head.")):
        raise UserError(
            "The head 'logistic' is fitted over vectors that do not learn. Set "
            "embedder.frozen=true, encoder.kind=none and a pool without weights, such as mean."
        )
    truncate_metrics(run.folder / "metrics.jsonl", -1)
    task, space, seed = run.task, run.space, run.settings.seed

    def compute_vectors(store: TokenStore, name: str) -> np.ndarray:
        run.logger.info(f"computing the vectors of {name}: {len(store):,} texts")
        return collect_outputs(model, store, runtime, lambda reading: reading.text_vector)

    vectors = compute_vectors(train, "train")
    held_out = None if dev is None else (compute_vectors(dev, "dev"), dev.targets)
    fit = fit_for("logistic", task, space, seed, run.settings.class_balance)
    with threadpool_limits(1):
        if head.C:
            (fitted,) = fit(vectors, train.targets, [head.C], train.row_weights)
        else:
            grid = GRIDS["ridge"] if isinstance(space, LabelScale) else GRID
            metric = run.settings.metric
            best = choose(
                fit, vectors, train.targets, held_out, grid, task, space, metric, train.row_weights
            )
            run.logger.info(str(best))
            fitted = best.weights
    weights, bias = (np.asarray(part, dtype=np.float32) for part in fitted)
    if weights.shape[1] < len(bias):  # two classes: the first is where the scale begins
        weights = np.concatenate([np.zeros_like(weights), weights], axis=1)
    with torch.no_grad():
        head.score.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights.T)))
        head.score.bias.copy_(torch.from_numpy(bias))
    if held_out is not None:
        metrics = compute_metrics(
            task, space, linear_scores(held_out[0], (weights, bias)), held_out[1]
        )
        values = {f"dev_{name}": value for name, value in metrics.items()}
        run.logger.event("evaluation", step=len(train), epoch=1, **values, best=True)
        if run.on_evaluate is not None:
            run.on_evaluate(len(train), metrics)
