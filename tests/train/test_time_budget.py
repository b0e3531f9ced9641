"""The time limit of a training: how many updates still fit, and the rate that follows."""

import math

import pytest

from tests.fixtures.counted_graphs import model, pieces
from weft.runtime import select_runtime
from weft.tasks.language import LanguageModelling
from weft.train import time_budget
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState
from weft.train.time_budget import TimeBudget


@pytest.fixture
def now(monkeypatch):
    time = [100.0]
    monkeypatch.setattr(time_budget.time, "perf_counter", lambda: time[0])
    return time


def test_budget_starts_after_reading(now):
    found = TimeBudget(started=70.0, minutes=1.0)  # 30 of 60 seconds went to reading
    assert (found.fraction_used, found.is_over) == (0.0, False)
    now[0] = 115.0
    assert found.fraction_used == 0.5
    now[0] = 131.0
    assert found.is_over


def test_without_a_limit_it_is_never_late(now):
    found = TimeBudget(started=70.0, minutes=0.0)
    for _ in range(9):
        now[0] += 1e9
        found.count_update()
    assert (found.updates_that_fit(), found.is_over) == (math.inf, False)


def test_when_reading_took_all_of_it_one_update_is_made(now):
    assert TimeBudget(started=10.0, minutes=1.0).is_over


def test_a_training_that_is_taken_up_again_has_the_time_that_is_left(now):
    first = TimeBudget(started=100.0, minutes=1.0)
    now[0] = 142.0
    again = TimeBudget(started=142.0, minutes=1.0, before=first.seconds)
    assert again.fraction_used == first.fraction_used == pytest.approx(0.7)
    now[0] = 161.0
    assert again.is_over


def test_compiling_says_nothing_about_the_pace(now):
    """The first update compiles for 40 s, the fourth captures a graph for 3 s; others take 0.1."""
    found = TimeBudget(started=100.0, minutes=2.0)
    seconds = [40.0, 0.1, 0.1, 3.0, 0.1, 0.1]
    for each in seconds[:5]:
        now[0] += each
        found.count_update()
        assert found.updates_that_fit() == math.inf  # too few to tell
    now[0] += seconds[5]
    found.count_update()
    left = 120 - sum(seconds)
    assert found.updates_that_fit() == pytest.approx(left / 0.1)


def test_evaluations_take_their_time_and_the_last_one_must_fit(now):
    found = TimeBudget(started=100.0, minutes=1.0)
    for _ in range(10):
        now[0] += 1.0
        found.count_update()
    now[0] += 5.0
    found.count_evaluation(5.0)
    # 45 s are left, 5 of them for the last evaluation; an update takes 1 s and 0.5 of evaluating.
    assert found.updates_that_fit() == pytest.approx(40 / 1.5)
    now[0] = 100 + 56.0
    assert found.is_over


def rates(fits, **changes):
    net = model()
    settings = Settings(epochs=3, schedule="linear", learning_rate=0.01, **changes)
    updates = fit(
        TrainState.fresh(net, settings), LanguageModelling(window=7), pieces(), settings,
        select_runtime("cpu"),
        updates_that_fit=fits,
    )  # fmt: skip
    return [update.rate for update in updates]


def test_the_rate_comes_down_with_the_time():
    usual = rates(lambda: math.inf)
    left = iter([math.inf, math.inf, 4.0, 3.0, 2.0, 1.0, *[1.0] * 99])
    hurried = rates(lambda: next(left))
    assert hurried[:3] == usual[:3]
    steps = [hurried[i] - hurried[i + 1] for i in range(2, 5)]
    assert steps == pytest.approx([hurried[2] / 4] * 3)
    assert hurried[6] == pytest.approx(0.0, abs=1e-9)
    assert rates(lambda: 1e6) == usual  # enough time changes nothing
