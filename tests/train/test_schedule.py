"""Learning-rate schedules: their formulas, warm-up in updates, and a time limit that is short."""

import math

import pytest

from weft import config as configuration
from weft.errors import UserError
from weft.run.settings import read_settings
from weft.run.train import resolve_config
from weft.train.schedule import Schedule, scheduled_rate, warmup_fraction
from weft.train.settings import Settings


def test_schedules_follow_their_formulas():
    def at(share, **settings):
        return scheduled_rate(Settings(learning_rate=2.0, **settings), share)

    assert at(0.7) == 2.0
    assert at(0.05, warmup=0.1) == pytest.approx(1.0)
    assert at(0.55, warmup=0.1, schedule="linear") == pytest.approx(1.0)
    assert at(1.0, schedule="linear") == 0.0
    assert at(0.5, schedule="cosine") == pytest.approx(1.0)
    assert at(0.25, schedule="cosine") == pytest.approx(1 + math.cos(math.pi / 4))
    assert at(0.4, warmup=0.1, schedule="inverse-sqrt") == pytest.approx(1.0)


def test_warmup_has_a_floor_in_updates():
    settings = Settings(warmup=0.02, warmup_updates=100)
    assert warmup_fraction(settings, 1000) == pytest.approx(0.1)  # 100 updates, not 20
    assert warmup_fraction(settings, 100_000) == pytest.approx(0.02)
    assert warmup_fraction(settings, 40) == pytest.approx(0.25)  # a quarter of a short run
    assert warmup_fraction(Settings(warmup=0.02), 1000) == 0.02


def run(settings, planned, fits=lambda step: math.inf, updates=None):
    """The rates of a whole training; `fits` says how many more updates there is time for."""
    schedule, rates = Schedule(settings), []
    for step in range(planned if updates is None else updates):
        rates.append(schedule.next_rate(step, step / planned, planned - step, fits(step)))
    return rates


LINEAR = Settings(learning_rate=1.0, schedule="linear", warmup=0.02, warmup_updates=10)


def test_a_limit_that_is_long_enough_changes_no_bit():
    assert run(LINEAR, 300, lambda step: 300 - step) == run(LINEAR, 300)
    assert run(LINEAR, 300, lambda step: 1000.0) == run(LINEAR, 300)


def test_a_short_limit_gives_the_schedule_of_a_run_that_long():
    """The first updates have no pace yet: they count as if there were no limit."""
    short = run(LINEAR, 3000, lambda step: math.inf if step < 6 else 100 - step, updates=100)
    whole = run(LINEAR, 100)
    assert short[10] == pytest.approx(1.0, abs=0.02)  # warm-up took its ten updates
    assert max(abs(a - b) for a, b in zip(short[6:], whole[6:], strict=True)) < 0.02
    assert short[-1] < 0.02


def test_warmup_is_never_skipped_when_setup_took_most_of_the_time():
    """Compiling took 90 % of the limit: 50 updates fit, and the first ten of them warm up."""
    rates = run(LINEAR, 3000, lambda step: math.inf if step < 6 else 50 - step, updates=50)
    assert rates[0] == 0.0
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] > 0.95
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.03


def test_the_schedule_ends_with_the_time_when_the_machine_gets_slower():
    """At update 50, what had been 100 updates of time becomes 20."""
    rates = run(LINEAR, 1000, lambda step: 150 - step if step < 50 else 70 - step, updates=70)
    assert rates[-1] < 0.06
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_resumed_schedule_goes_on_where_it_stood():
    fits = [math.inf] * 6 + [60.0 - step for step in range(6, 60)]
    whole = run(LINEAR, 500, lambda step: fits[step], updates=60)
    first = Schedule(LINEAR)
    for step in range(31):
        first.next_rate(step, step / 500, 500 - step, fits[step])
    second = Schedule(LINEAR, first.decay_left)
    rest = [second.next_rate(s, s / 500, 500 - s, fits[s]) for s in range(31, 60)]
    assert rest == whole[31:]


def test_the_rate_of_a_gpt_follows_its_width():
    def of(**decoder):
        config = configuration.recipe("gpt").with_values(
            {f"decoder.{key}": value for key, value in decoder.items()}, "test"
        )
        return resolve_config(config)["train"]["learning_rate"]

    assert of() == 0.001
    assert of(hidden=768, heads=12) == 0.00059  # 6e-4 in GPT-3
    assert of(hidden=128, heads=4) == 0.0023
    assert of(hidden=32, heads=4) == 0.003
    given = configuration.recipe("gpt").with_values(
        {"decoder.hidden": 768, "train.learning_rate": 6e-4}, "test"
    )
    assert resolve_config(given)["train"]["learning_rate"] == 6e-4  # a number is taken as it is


@pytest.mark.parametrize(("width", "rate"), [(128, 3e-4), (384, 2e-4), (768, 5e-5), (1024, 2.8e-5)])
def test_the_rate_that_fine_tunes_a_bert_follows_its_width(width, rate):
    model = {"embedder": {"kind": "bert", "hidden": width}}
    assert read_settings({"learning_rate": "auto"}, model).learning_rate == rate
    assert read_settings({"learning_rate": 3e-5}, model).learning_rate == 3e-5


def test_only_gpt_and_bert_have_a_rate_of_their_own():
    config = configuration.recipe("cnn").with_values({"train.learning_rate": "auto"}, "test")
    with pytest.raises(UserError, match=r"'auto' is for a \[decoder\] of kind 'gpt' or"):
        resolve_config(config)


def test_language_models_warm_up_for_a_hundred_updates():
    for name in ("gpt", "elmo-pretrain"):
        assert resolve_config(configuration.recipe(name))["train"]["warmup_updates"] == 100
    assert resolve_config(configuration.recipe("gpt"))["train"]["beta2"] == 0.95
