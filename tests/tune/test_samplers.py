"""Which point comes next: the whole grid once, repeatable draws, and TPE that learns."""

import optuna
import pytest

from weft.errors import UserError
from weft.tune.samplers import check_sampler, distributions, propose
from weft.tune.space import Choices, Range

RATE = Range("train.learning_rate", 1e-4, 1e-1, log=True)
CELLS = Choices("encoder.cell", ("lstm", "gru", "elman"))
WIDTHS = Range("encoder.hidden", 3, 7, step=2, whole=True)


def run(sampler, dimensions, count, seed=1, score=lambda point: 0.0, first=None):
    """The points a search takes when the trials have these scores."""
    trials, points = [], []
    space = distributions(dimensions)
    for _ in range(count):
        point = propose(dimensions, sampler, seed, trials, first, True)
        if point is None:
            break
        points.append(point)
        given = {d.key: value for d, value in zip(dimensions, point, strict=True)}
        trials.append(optuna.create_trial(value=score(point), params=given, distributions=space))
    return points


def test_a_grid_takes_every_point_once_and_stops():
    points = run("grid", (CELLS, WIDTHS), 100)
    assert points == [(c, w) for c in ("lstm", "gru", "elman") for w in (3, 5, 7)]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_small_space_is_never_tried_twice(sampler):
    points = run(sampler, (CELLS, WIDTHS), 100)
    assert len(points) == len(set(points)) == 9


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_seed_decides(sampler):
    first, same, other = (run(sampler, (RATE, CELLS), 13, seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other
    assert len(set(first)) == 13
    assert all(1e-4 <= rate <= 1e-1 for rate, _ in first)


def test_the_configuration_as_it_came_is_tried_first():
    assert run("random", (RATE, CELLS), 2, first=(1e-3, "gru"))[0] == (1e-3, "gru")
    points = run("grid", (CELLS, WIDTHS), 100, first=("gru", 5))
    assert points[0] == ("gru", 5)
    assert len(points) == len(set(points)) == 9


def test_tpe_goes_where_it_is_good_and_random_does_not():
    def score(point):
        return -abs(point[0] - 0.02)

    def near(sampler):
        late = [run(sampler, (RATE,), 40, seed, score)[20:] for seed in (1, 2, 3)]
        return sum(0.01 < point[0] < 0.04 for points in late for point in points)

    assert near("tpe") > 2 * near("random")


def test_tpe_keeps_away_from_what_others_are_trying():
    space = distributions((RATE,))
    rates = [1e-4 * 1.5**i for i in range(13)]
    done = [
        optuna.create_trial(value=rate, params={RATE.key: rate}, distributions=space)
        for rate in rates
    ]

    def beside(rate):
        running = optuna.create_trial(
            state=optuna.trial.TrialState.RUNNING, params={RATE.key: rate}, distributions=space
        )
        return propose((RATE,), "tpe", 1, [*done, *[running] * 5], None, True)

    assert beside(1e-2) != beside(1e-4)


def test_a_grid_without_end_is_refused():
    with pytest.raises(UserError, match=r"'train.learning_rate' is the range 0.0001\.\.0.1 log"):
        check_sampler("grid", (CELLS, RATE))
    check_sampler("grid", (CELLS, WIDTHS))
    check_sampler("random", (CELLS, RATE))
    many = tuple(Range(f"a.b{i}", 1, 99, whole=True) for i in range(3))
    with pytest.raises(UserError, match="too large to go through"):
        check_sampler("grid", many)
