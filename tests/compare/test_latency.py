"""Latency, with a clock that says what each prediction takes."""

import time
from types import SimpleNamespace

import pytest

from weft.compare.latency import (
    BATCH_TEXTS,
    MIN_TIMED_TEXTS,
    SINGLE_TEXTS,
    WARM_UP_TEXTS,
    measure_latency,
)


class Stub:
    """A predictor that writes five tokens for each text and notes how many texts came at once."""

    def __init__(self, kind):
        self.config, self.sizes = {"task": {"kind": kind}}, []

    def __call__(self, texts):
        self.sizes.append(len(texts))
        return [SimpleNamespace(scores=(0.5,) * 5) for _ in texts]


@pytest.fixture
def _half_a_second_each(monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now) * 0.5)


@pytest.mark.usefixtures("_half_a_second_each")
@pytest.mark.parametrize(("kind", "token_ms"), [("seq2seq", 100.0), ("classify", None)])
def test_each_text_each_token_and_many_at_once(kind, token_ms):
    predictor = Stub(kind)
    found = measure_latency(predictor, [f"text {i}" for i in range(50)], seconds=10.0)
    assert (found.p50_ms, found.p95_ms) == (500.0, 500.0)
    assert found.token_ms == token_ms
    warm = predictor.sizes.index(max(predictor.sizes)) - MIN_TIMED_TEXTS
    assert warm == 11  # until half of the seconds are over
    assert found.texts_per_second == predictor.sizes[-1] / 0.5
    assert MIN_TIMED_TEXTS <= predictor.sizes[-1] <= BATCH_TEXTS


@pytest.mark.usefixtures("_half_a_second_each")
def test_a_few_texts_are_timed_again_and_again():
    predictor = Stub("classify")
    measure_latency(predictor, ["a", "b", "c"], seconds=1.0)
    *single, together = predictor.sizes
    assert single == [1] * (2 + MIN_TIMED_TEXTS)  # two to warm up
    assert together == 3
    assert WARM_UP_TEXTS == MIN_TIMED_TEXTS == 20


def test_fast_predictions_are_timed_up_to_the_limit_of_texts(monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now) * 0.001)
    predictor = Stub("classify")
    measure_latency(predictor, [f"text {i}" for i in range(3000)], seconds=10.0)
    *single, together = predictor.sizes
    assert single == [1] * (WARM_UP_TEXTS + SINGLE_TEXTS)
    assert together == BATCH_TEXTS
