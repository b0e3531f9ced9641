"""Verdicts: the test against scipy's, and for every experiment that each verdict can be reached."""

import numpy as np
import pytest
from scipy import optimize, stats

from weft.errors import UserError
from weft.lab.catalogue import (
    THEMES,
    experiment_names,
    find_experiments,
    load_experiment,
)
from weft.lab.experiment import Condition, Experiment, Measurements, Quantity, at, mean_of
from weft.lab.intervals import estimate

SEEDS = 5


def test_estimate_is_the_t_test_of_scipy():
    values = [0.31, 0.44, 0.38, 0.47, 0.29]
    found = estimate(values, 0.3, 0.05)
    reference = stats.ttest_1samp(values, 0.3, alternative="greater")
    low, high = stats.ttest_1samp(values, 0.3).confidence_interval(0.95)
    assert found.p == pytest.approx(reference.pvalue, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def test_extremes_of_many_seeds_are_left_out():
    """One failed run of ten does not change the verdict; three do. The interval is scipy's."""
    values = [0.95, 0.97, 0.93, 0.96, 0.99, 0.94, 0.98, 0.92, 0.97, 0.25]
    found = estimate(values, 0.8, 0.05)
    low, high = stats.mstats.trimmed_mean_ci(np.array(values), (0.2, 0.2), alpha=0.05)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert found.mean == pytest.approx(stats.trim_mean(values, 0.2), abs=1e-12)
    assert found.low > 0.8
    assert estimate([*values[3:], 0.25, 0.3, 0.3], 0.8, 0.05).low < 0.8
    few = values[-5:]  # too few to leave any out
    assert estimate(few, 0.8, 0.05).mean == pytest.approx(np.mean(few))


def test_one_seed_decides_nothing_and_equal_seeds_need_no_interval():
    assert estimate([9.0], 0, 0.05).low == -np.inf
    assert estimate([2.0, 2.0], 1, 0.05) == estimate([2.0, 2.0, 2.0], 1, 0.05)
    assert estimate([2.0, 2.0], 1, 0.05).p == 0


def test_quantities_are_linear():
    runs = {"a": {1: 5.0, 2: 7.0}, "b": {1: 1.0}}
    quantity = mean_of(at("a", 1), at("a", 2)) - 2 * at("b", 1)
    assert quantity.of(runs) == pytest.approx(4)
    assert str(at("a", 1) - at("b", 1)) == "a at 1 − b at 1"
    average = mean_of(at("a", 1), at("a", 2)) - at("b", 1)
    assert str(average) == "average of a at 1, 2 − b at 1"
    assert str((at("a", "x") - at("b", "x")).below(0.5)) == "a of x − b of x < 0.5"


def test_many_conditions_make_it_no_easier_to_refute():
    """One of five conditions misses its threshold at the level 0.05, but not at 0.05 / 5."""
    values = [0.0, -0.3, -0.6, -0.2, -0.45]
    runs = [{"a": {1: value}, "b": {1: 1.0}} for value in values]
    one = fictitious([at("a", 1).above(0)])
    many = fictitious([at("a", 1).above(0), *[at("b", 1).above(0)] * 4])
    assert one.judge(runs).outcome == "does not hold"
    assert many.judge(runs).outcome == "undecided"
    assert "lies between" in many.judge(runs).sentence


@pytest.mark.parametrize("name", experiment_names())
def test_every_verdict_can_be_reached_and_turned(name):
    """Within what can be measured, some results confirm the claim and some refute it."""
    experiment = load_experiment(name)
    good, bad = solve(experiment, 1), solve(experiment, -1)
    assert verdict(experiment, good) == "holds"
    assert verdict(experiment.opposite, good) == "does not hold"  # a planted wrong claim
    assert verdict(experiment, bad) == "does not hold"
    assert experiment.judge([good, good, bad]).outcome == "undecided"


@pytest.mark.parametrize("name", experiment_names())
def test_an_experiment_says_all_that_its_card_shows(name):
    experiment = load_experiment(name)
    assert experiment.theme in THEMES
    assert experiment.claim.endswith((".", "?"))
    assert experiment.seeds >= 3
    assert set(experiment.decks) <= {"000", "001", "002", "003", "004"}
    assert experiment.x
    assert experiment.y
    means = experiment.judge([solve(experiment, 1)] * 3)
    assert means.sentence.endswith(".")


def test_unknown_experiments_are_named():
    with pytest.raises(UserError, match=r"bag-ordr.*Did you mean 'bag-order'"):
        find_experiments(["bag-ordr"])
    assert [e.name for e in find_experiments(["bag-order", "order"])] == sorted(
        e.name for e in find_experiments(["order"])
    )


def fictitious(conditions: list[Condition]) -> Experiment:
    return Experiment(
        claim="A.", decks=(), why="", data="", measure=lambda seed: {},
        conditions=tuple(conditions), holds=lambda m: "Yes.", fails=lambda m: "No.",
        x="x", y="y", limits=(-10, 10),
    )  # fmt: skip


def solve(experiment: Experiment, sign: int) -> Measurements:
    """Return measurements, within the limits, that fulfil all conditions or none, by a margin."""
    quantities = [condition.quantity for condition in experiment.conditions]
    cells = sorted({(s, p) for q in quantities for _, s, p in q.terms}, key=str)
    low, high = experiment.limits
    if sign < 0:  # one that fails is enough
        quantities = quantities[:1]
    rows = [[-sign * factor(q, cell) for cell in cells] + [1.0] for q in quantities]
    bounds = [-sign * c.threshold for c in experiment.conditions[: len(quantities)]]
    best = optimize.linprog(
        [0.0] * len(cells) + [-1.0],
        A_ub=rows,
        b_ub=bounds,
        bounds=[(low, high)] * len(cells) + [(0, None)],
    )
    assert best.status == 0, experiment.conditions
    assert best.x[-1] > 1e-3, "no result within the limits would do"
    out = Measured(lambda: Measured(lambda: (low + high) / 2))
    for (series, point), value in zip(cells, best.x[:-1], strict=True):
        out[series][point] = float(value)
    return out


class Measured(dict):
    """Values that no condition names, but a sentence may."""

    def __init__(self, default):
        super().__init__()
        self.default = default

    def __missing__(self, key):
        return self.setdefault(key, self.default())


def factor(quantity: Quantity, cell: tuple[str, float | str]) -> float:
    return sum(f for f, series, point in quantity.terms if (series, point) == cell)


def verdict(experiment: Experiment, measurements: Measurements) -> str:
    return experiment.judge([measurements] * SEEDS).outcome
