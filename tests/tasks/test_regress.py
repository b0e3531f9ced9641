"""One number a text: the scale, the loss, the way back."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from weft import registry
from weft.errors import UserError
from weft.predict.preprocess import preprocess
from weft.tasks.regress import LabelScale, Regress
from weft.text.example import Example, SkipCounter


def examples(*labels) -> list[Example]:
    return [Example("x", label, file="sts.tsv", line=i) for i, label in enumerate(labels, start=1)]


def batch(target: torch.Tensor) -> Any:
    """All that a loss looks at."""
    return SimpleNamespace(target=target, row_weights=None)


def complaint(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=31))
def test_scale_equals_numpy(values: list[float]) -> None:
    if np.std(values) <= 1e-9 * max(1, np.abs(values).max()):
        return
    space = Regress().space(examples(*map(str, values)))
    assert space.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
    assert space.deviation == pytest.approx(np.std(values), rel=1e-6)


def test_scale_is_exact_far_from_zero() -> None:
    space = Regress().space(examples(1e9 + 1, 1e9 + 2, 1e9 + 3))
    assert space.deviation == pytest.approx(np.sqrt(2 / 3), rel=1e-9)


def test_targets_are_standardised_and_answers_come_back() -> None:
    task, space = Regress(), LabelScale(3.0, 2.0)
    assert task.target(Example("x", "7"), space) == 2.0
    assert task.target(Example("x", 1.0), space) == -1.0
    (answer,) = task.answers(np.array([[2.0]], dtype=np.float32), space)
    assert answer.value == answer.score == 7.0
    assert task.load_space(space.to_json()) == space
    assert task.tune(np.zeros((1, 1)), np.zeros(1), space) == space


def test_loss_is_the_plain_squared_error_summed() -> None:
    torch.manual_seed(0)
    scores, target = torch.randn(5, 1), torch.randn(5, dtype=torch.float64)
    loss = Regress().loss(scores, batch(target))
    wanted = F.mse_loss(scores[:, 0], target.float(), reduction="sum")
    torch.testing.assert_close(loss.total, wanted)
    assert loss.count == 5


def test_squared_error_is_in_the_users_unit() -> None:
    task, space = Regress(), LabelScale(10.0, 5.0)
    gold = np.array([task.target(e, space) for e in examples("5", "10", "20")])
    scores = np.array([[-1.0], [1.0], [2.0]])  # 5, 15, 20
    measure = task.build_metric(space)
    measure.add(task.predict_targets(scores, space), gold)
    found = measure.compute(resamples=0)
    assert found["mse"].value == pytest.approx(25 / 3)
    assert found[task.metric].value == pytest.approx(np.corrcoef([5, 15, 20], [5, 10, 20])[0, 1])


def test_several_numbers_where_one_is_expected() -> None:
    found = complaint(lambda: Regress().space(examples("1", ("1", "2"))))
    assert found.startswith("sts.tsv:2: 2 numbers ['1', '2'] where 1 is expected. Correct the row")


@pytest.mark.parametrize("label", ["good", "nan", "inf", float("inf")])
def test_labels_that_are_no_numbers(label) -> None:
    found = complaint(lambda: Regress().space(examples("1", label)))
    assert found.startswith(f"sts.tsv:2: label {label!r} is not a finite number")
    assert "--label" in found


@pytest.mark.parametrize("kind", ["regress", "pair-score"])
def test_a_row_without_a_number_can_be_left_out(kind) -> None:
    rows = [replace(e, other="b") for e in examples("1", "n/a", "2", None)]
    task, tally = registry.build("task", {"kind": kind}), SkipCounter()
    kept = [e.label for e in preprocess(rows, task, tally, "skip")]
    assert kept == ["1", "2", None]  # without a label it may still be asked
    assert tally.lines() == ["1 row the task cannot read skipped: sts.tsv:2"]
    found = complaint(lambda: list(preprocess(rows, task, SkipCounter())))
    assert found.startswith("sts.tsv:2: label 'n/a' is not a finite number. Correct it, or pass")
    assert "--on-bad-row skip" in found


def test_missing_and_constant_labels() -> None:
    assert complaint(lambda: Regress().space(examples(None, None))) == (
        "sts.tsv: no example has a label. Pass --label with the column that holds the number."
    )
    assert complaint(lambda: Regress().space(examples("1", "", "2"))).startswith(
        "sts.tsv:2: no num"
    )
    assert complaint(lambda: Regress().target(examples(None)[0], LabelScale(0, 1))).startswith(
        "sts.tsv:1"
    )
    constant = complaint(lambda: Regress().space(examples("0.1", "0.1", "0.1")))
    assert constant.startswith(
        "sts.tsv: every example has the label 0.1; there is nothing to learn"
    )
    assert "too large" in complaint(lambda: Regress().space(examples("1e308", "-1e308")))


@pytest.mark.parametrize("saved", [{}, {"mean": 0, "deviation": 0}, {"mean": "x", "deviation": 1}])
def test_a_damaged_scale_is_refused(saved: dict) -> None:
    assert complaint(lambda: Regress().load_space(saved)).startswith("The saved scale is damaged")
