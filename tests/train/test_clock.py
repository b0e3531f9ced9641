"""A training that has only so much time: how far it should be, and the rate that follows."""

import pytest

from tests.train.test_faster import model, pieces
from weft.tasks.language import Language
from weft.train import clock
from weft.train.clock import Clock
from weft.train.loop import Trainee, fit
from weft.train.runtime import on
from weft.train.settings import Settings


@pytest.fixture
def now(monkeypatch):
    time = [100.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: time[0])
    return time


def test_what_reading_has_left_is_the_whole(now):
    found = Clock(started=70.0, minutes=1.0)  # 30 of 60 seconds went to reading
    assert (found.spent, found.late, found.pace()) == (0.0, False, 0.0)
    now[0] = 102.0
    assert found.pace() == 0.0  # too early to tell
    now[0] = 115.0
    assert found.spent == 0.5
    assert found.pace() == pytest.approx(0.4 / 0.9)  # from 0 on, or the rate would jump
    now[0] = 103.001
    assert 0 < found.pace() < 0.001
    now[0] = 115.0
    now[0] = 131.0
    assert found.late


def test_without_a_limit_it_is_never_late(now):
    found = Clock(started=70.0, minutes=0.0)
    now[0] = 1e9
    assert (found.pace(), found.late) == (0.0, False)


def test_when_reading_took_all_of_it_one_update_is_made(now):
    assert Clock(started=10.0, minutes=1.0).late


def test_a_training_that_is_taken_up_again_has_the_time_that_is_left(now):
    first = Clock(started=100.0, minutes=1.0)
    now[0] = 142.0
    again = Clock(started=142.0, minutes=1.0, before=first.seconds)
    assert again.spent == first.spent == pytest.approx(0.7)
    now[0] = 161.0
    assert again.late


def rates(pace):
    net = model()
    settings = Settings(epochs=3, schedule="linear", learning_rate=0.01)
    task = Language(window=7)
    return [
        update.rate
        for update in fit(
            Trainee.fresh(net, settings), task, pieces(), settings, on("cpu"), pace=pace
        )
    ]


def test_the_rate_comes_down_with_the_clock():
    usual, done = rates(lambda: 0.0), iter([0.0, 0.0, 0.5, 0.9, *[1.0] * 99])
    hurried = rates(lambda: next(done))
    assert hurried[:2] == usual[:2]
    assert hurried[2:5] == pytest.approx([0.005, 0.001, 0.0])
    assert rates(lambda: 0.01)[5:] == usual[5:]  # who is ahead of the clock does not look at it
