"""Trainings that end too soon say so."""

import pytest

import weft
from tests.fixtures import small
from tests.run.test_train import settings
from weft.run import Splits
from weft.train.course import Course


@pytest.mark.parametrize(
    ("metric", "figures", "examples", "says"),
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
def test_the_last_epoch_was_clearly_the_best(metric, figures, examples, says):
    course = Course(metric)
    for i, figure in enumerate(figures, 1):
        course.add(i / 3, figure)
    found = course.rising(3, examples)
    assert says in found
    assert bool(found) == bool(says)
    assert not found or "train.epochs=6" in found


def test_it_compares_with_an_epoch_before_not_with_the_last_evaluation():
    course = Course("accuracy")
    for share, figure in ((0.25, 0.3), (0.5, 0.4), (0.75, 0.59), (1.0, 0.6)):
        course.add(share, figure)
    assert "from 0.4 to 0.6" in course.rising(2, 1000)


def test_nothing_is_said_of_one_epoch_or_of_a_training_that_was_stopped():
    course = Course("accuracy")
    course.add(0.5, 0.2)
    course.add(0.9, 0.8)
    assert not course.rising(2, 1000)
    course.add(1.0, 0.9)
    assert not course.rising(1, 1000)


def test_a_run_notes_it_and_one_that_goes_on_remembers(tmp_path):
    """The figures are kept where a training is taken up again."""
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
