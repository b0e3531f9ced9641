"""P7: one average over tasks as GLUE defines it, and the deck's ELMo table (deck 001)."""

import pytest

from weft.compare.suite import Score, average_scores, reduce_error, to_points

# Task, baseline, ELMo + baseline, increase absolute and relative, as on the slide.
ELMO = [
    ("SQuAD", 81.1, 85.8, 4.7, 24.9),
    ("SNLI", 88.0, 88.7, 0.7, 5.8),
    ("SRL", 81.4, 84.6, 3.2, 17.2),
    ("Coref", 67.2, 70.4, 3.2, 9.8),
    ("NER", 90.15, 92.22, 2.06, 21.0),
    ("SST-5", 51.4, 54.7, 3.3, 6.8),
]


@pytest.mark.parametrize(("task", "before", "after", "absolute", "relative"), ELMO)
def test_relative_increase_of_the_slide_is_the_error_reduction(
    task, before, after, absolute, relative
):
    assert after - before == pytest.approx(absolute, abs=0.011)
    assert 100 * reduce_error(before, after) == pytest.approx(relative, abs=0.06)


def test_average_is_over_tasks_and_its_deviation_over_restarts_of_the_suite():
    first, second = (
        Score("a", "r", ("accuracy",), (90.0, 92.0, 97.0)),
        Score("b", "r", ("f1",), (40.0, 44.0, 45.0)),
    )
    average = average_scores([first, second])
    assert average.mean == pytest.approx(((90 + 92 + 97) / 3 + (40 + 44 + 45) / 3) / 2)
    runs = [(90 + 40) / 2, (92 + 44) / 2, (97 + 45) / 2]
    mean = sum(runs) / 3
    deviation = (sum((run - mean) ** 2 for run in runs) / 2) ** 0.5
    assert average.deviation == pytest.approx(deviation)


def test_model_without_seeds_belongs_to_every_restart():
    average = average_scores([Score("a", "r", (), (50.0,)), Score("b", "r", (), (10.0, 30.0))])
    assert average.mean == pytest.approx(35)
    assert average.deviation == pytest.approx(abs(30 - 40) / 2**0.5)


def test_failed_task_leaves_no_average():
    assert average_scores([Score("a", "r", (), (50.0,)), Score("b", "r", error="x")]).mean is None


def test_correlations_and_fractions_count_in_points():
    assert to_points(0.5, "accuracy") == to_points(0.5, "matthews") == 50
    assert to_points(31.4, "bleu") == 31.4
