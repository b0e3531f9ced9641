"""Under-training and a loss that never decreases are detected."""

import pytest
import torch

import weft
from tests.fixtures import small
from tests.fixtures.classify_runs import settings
from weft.batch import Position
from weft.run import Splits
from weft.train.progress_checks import MIN_UPDATES, DevCurve, LossTracker
from weft.train.state import Progress


@pytest.mark.parametrize(
    ("metric", "values", "examples", "advice"),
    [
        ("accuracy", [0.2, 0.5, 0.7], 1000, "from 0.5 to 0.7 in the last of 3 epochs"),
        ("perplexity", [90.0, 60.0, 50.0], 10, "still falling at the end, from 60 to 50"),
        ("accuracy", [0.2, 0.69, 0.7], 1000, ""),  # by chance
        ("accuracy", [0.2, 0.5, 0.7], 9, ""),  # of nine, three more is nothing
        ("accuracy", [0.2, 0.8, 0.7], 1000, ""),
        ("accuracy", [0.2, 0.8, 1.0], 1000, ""),  # there is nothing more to win
        ("perplexity", [90.0, 50.0, 49.5], 1000, ""),
        ("perplexity", [90.0, 50.0, 60.0], 1000, ""),
    ],
)
def test_advice_follows_a_clear_gain_in_the_last_epoch(metric, values, examples, advice):
    curve = DevCurve(metric)
    for i, value in enumerate(values, 1):
        curve.add(i / 3, value)
    found = curve.undertraining_note(3, examples)
    assert advice in found
    assert bool(found) == bool(advice)
    assert not found or "train.epochs=6" in found


def test_the_gain_is_measured_against_the_epoch_before():
    curve = DevCurve("accuracy")
    for fraction, value in ((0.25, 0.3), (0.5, 0.4), (0.75, 0.59), (1.0, 0.6)):
        curve.add(fraction, value)
    assert "from 0.4 to 0.6" in curve.undertraining_note(2, 1000)


def test_one_epoch_and_unfinished_runs_get_no_advice():
    curve = DevCurve("accuracy")
    curve.add(0.5, 0.2)
    curve.add(0.9, 0.8)
    assert not curve.undertraining_note(2, 1000)
    curve.add(1.0, 0.9)
    assert not curve.undertraining_note(1, 1000)


def test_a_run_records_the_advice_also_after_resuming(tmp_path):
    """The dev curve survives a restart from a checkpoint."""
    whole = small.examples(560)
    parts = [whole[:140], whole[140:540], whole[540:]]
    splits = Splits(*(lambda part=part: iter(part) for part in parts))
    given = settings("bag", train__epochs=2, train__learning_rate=2e-3, train__patience=0)
    for resume in (False, True):
        out = weft.train(given, tmp_path / "run", splits=splits, quiet=True, resume=resume)
        (seen,) = [note for note in out.record["notes"] if "still" in note]
        assert seen.startswith("dev accuracy was still rising at the end, from 0.")
        assert out.record["rising"] == seen
    assert f"note: {seen}" in (tmp_path / "run" / "log.txt").read_text("utf-8")


def track(losses, skip=0):
    """Return the first and lowest loss of a run with one loss an update; `skip` are not seen."""
    tracker, n = LossTracker(), len(losses)
    for i, loss in enumerate(losses):
        if i >= skip:
            total = torch.tensor(3 * loss)
            tracker.add(Progress(i, Position(), (i + 1) / n, 0.1, 3, total, total, (), False))
    return tracker.first_and_lowest


def test_the_tracker_returns_the_first_and_the_lowest_loss():
    falling = [1.0] * 3 + [0.5] * 97 + [0.2] * 3 + [0.6] * 17  # 6 updates a part, 5 in the first
    first, lowest = track(falling)
    assert first == pytest.approx((3 * 1.0 + 2 * 0.5) / 5)
    assert 0.2 < lowest < 0.5
    assert track([0.7] * 120) == pytest.approx((0.7, 0.7))


def test_too_few_updates_return_nothing():
    assert track([0.7] * (MIN_UPDATES - 1)) is None
    assert track([0.7] * 120, skip=60) is None  # a resumed run
