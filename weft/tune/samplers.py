"""Samplers: the next point is a function of the trials so far, so that a search can resume."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from weft.errors import UserError
from weft.tune.space import Choices, Dimension, Point, Range, grid

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

Sampler = Literal["tpe", "random", "grid"]
SAMPLERS: tuple[Sampler, ...] = ("tpe", "random", "grid")


def check_sampler(sampler: str, dimensions: Sequence[Dimension]) -> None:
    """Raise UserError if the sampler is a grid whose points cannot be counted."""
    if sampler != "grid" or grid(dimensions) is not None:
        return
    for dimension in dimensions:
        if dimension.points() is None:
            raise UserError(
                f"The grid has no end: '{dimension.key}' is the range {dimension}. List its "
                "values, give it a step, or use --sampler random."
            )
    raise UserError("The grid is too large to go through; use --sampler random or tpe.")


def propose(
    dimensions: Sequence[Dimension],
    sampler: Sampler,
    seed: int,
    trials: "Sequence[FrozenTrial]",
    first: Point | None,
    higher_is_better: bool,
) -> Point | None:
    """Return the next point, or None if the whole space was tried.

    `trials` are Optuna's, those under way included. The seed and their number decide the draw, not
    the state of a generator, so a search that was interrupted takes the points it would have taken.
    """
    tried = {tuple(t.params[d.key] for d in dimensions) for t in trials if t.params}
    points = grid(dimensions)
    if points is not None and len(tried) >= len(points):
        return None
    if first is not None and not trials:
        return first
    if sampler == "grid":
        assert points is not None
        return next(point for point in points if point not in tried)
    number = int(np.random.SeedSequence([abs(seed), len(trials)]).generate_state(1)[0])
    if sampler == "random" and points is not None:
        return _sample_untried(points, tried, number)
    point = _sample_with_optuna(dimensions, sampler, number, trials, higher_is_better)
    if points is not None and point in tried:
        return _sample_untried(points, tried, number)  # already trained
    return point


def distributions(dimensions: Sequence[Dimension]) -> "dict[str, BaseDistribution]":
    """Return the space as Optuna distributions."""
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    def each(dimension: Dimension) -> BaseDistribution:
        if isinstance(dimension, Choices):
            return CategoricalDistribution(dimension.names)
        assert isinstance(dimension, Range)
        low, high, log = dimension.low, dimension.high, dimension.log
        if points := dimension.points():
            high = points[-1]  # the last step that fits
        if dimension.whole:
            return IntDistribution(int(low), int(high), log=log, step=int(dimension.step or 1))
        return FloatDistribution(low, high, log=log, step=dimension.step)

    return {dimension.key: each(dimension) for dimension in dimensions}


def _sample_untried(points: Sequence[Point], tried: set[Point], number: int) -> Point:
    left = [point for point in points if point not in tried]
    return left[int(np.random.default_rng(number).integers(len(left)))]


def _sample_with_optuna(
    dimensions: Sequence[Dimension],
    sampler: Sampler,
    number: int,
    trials: "Sequence[FrozenTrial]",
    higher_is_better: bool,
) -> Point:
    """Sample from Optuna, on a copy so that the study holds only trained points."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        chosen: optuna.samplers.BaseSampler = optuna.samplers.RandomSampler(seed=number)
        if sampler == "tpe":
            # constant_liar: processes that search together keep away from each other's points.
            chosen = optuna.samplers.TPESampler(seed=number, constant_liar=True)
    copy = optuna.create_study(
        sampler=chosen, direction="maximize" if higher_is_better else "minimize"
    )
    copy.add_trials(list(trials))
    drawn = copy.ask(distributions(dimensions)).params
    return tuple(drawn[dimension.key] for dimension in dimensions)
