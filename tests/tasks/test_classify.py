"""Labels in, numbers through, answers out: one label or several."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch.nn import functional as F

from weft.errors import UserError
from weft.metrics.thresholds import Goal, choose_threshold
from weft.registry import build, parts
from weft.tasks.classify import Classify, ClassSpace
from weft.text.example import CharSpans, Example, GoldAnswers


def examples(*labels, file: str = "train.csv") -> list[Example]:
    return [Example("text", label, file=file, line=i) for i, label in enumerate(labels, start=2)]


def batch(target: torch.Tensor) -> Any:
    """All that a loss looks at."""
    return SimpleNamespace(target=target, balance=None, row_weights=None)


def complaint(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    return str(caught.value)


def test_the_registry_finds_it_and_fills_in_its_options() -> None:
    assert isinstance(build("task", {"kind": "classify", "multi_label": True}), Classify)
    assert dict(parts("task")["classify"].options) == {
        "multi_label": "False",
        "label_smoothing": "0.0",
        "auxiliary": "0.0",
        "loss": "'cross-entropy'",
        "hierarchy": "False",
        "separator": "' > '",
        "ancestor_weight": "0.0",
        "threshold_for": "''",
        "positive": "''",
    }


def test_labels_are_sorted_and_numbers_by_value() -> None:
    task = Classify()
    assert task.space(examples("b", "a", "b", "C")).entries == ("C", "a", "b")
    assert task.space(examples("10", "9", "-1.5")).entries == ("-1.5", "9", "10")
    assert task.space(examples("10", "9", "x")).entries == ("10", "9", "x")
    assert task.space(examples("10", "nan", "9")).entries == ("10", "9", "nan")
    several = Classify(multi_label=True).space(examples(("b", "c"), (), "a"))
    assert several.entries == ("a", "b", "c")
    assert several.size == 3


def test_space_survives_json() -> None:
    space = ClassSpace(("a", "b"), 0.25)
    assert Classify().load_space(space.to_json()) == space


def test_one_class_only_names_the_class_and_the_fix() -> None:
    found = complaint(lambda: Classify().space(examples("spam", "spam")))
    assert found == (
        "train.csv: every example has the label 'spam'; a classifier needs at least two classes. "
        "Add examples of another class, or pass --label with another column."
    )


def test_no_labels_at_all_names_the_file_and_asks_for_the_column() -> None:
    found = complaint(lambda: Classify().space(examples(None, "", None)))
    assert found == (
        "train.csv: no example has a label. Pass --label with the column that holds the label."
    )
    assert complaint(lambda: Classify().space([])).startswith("input: there are no examples.")
    empty = complaint(lambda: Classify(multi_label=True).space(examples((), ())))
    assert empty == "train.csv: every example has an empty set of labels."


def test_a_missing_label_is_found_with_its_line() -> None:
    found = complaint(lambda: Classify().space(examples("a", None, "b")))
    assert found.startswith("train.csv:3: no label. Add it, remove the row")
    space = ClassSpace(("a", "b"))
    assert complaint(lambda: Classify().target(examples("")[0], space)).startswith(
        "train.csv:2: no"
    )


def test_several_labels_where_one_is_expected() -> None:
    found = complaint(lambda: Classify().space(examples("a", ("b", "c"))))
    assert found == (
        "train.csv:3: several labels ['b', 'c'] where one is expected. "
        "Pass --set task.multi_label=true to learn several labels a text."
    )


def test_span_labels_raise_user_error() -> None:
    found = complaint(lambda: Classify().space(examples("a", GoldAnswers(("x",), (0,)))))
    assert found.startswith("train.csv:3: the label is an answer that stands in a second text")
    assert "--recipe bidaf, or bert-span" in found
    found = complaint(lambda: Classify().space(examples("a", CharSpans(()))))
    assert found.startswith("train.csv:3: something is known of every word here")


def test_a_label_not_seen_in_training() -> None:
    space = ClassSpace(("negative", "positive"))
    found = complaint(
        lambda: Classify().target(Example("x", "postive", file="d.csv", line=7), space)
    )
    assert found == (
        "d.csv:7: label 'postive' was not seen in training. Did you mean 'positive'? "
        "Known: negative, positive. Correct it, add it to the training file, or pass "
        "--on-bad-row skip to leave such rows out."
    )
    many = ClassSpace(tuple(f"c{i:02}" for i in range(23)))
    found = complaint(lambda: Classify().target(Example("x", "zzz"), many))
    assert found.startswith("input: label 'zzz' was not seen in training. Known: c00, c01")
    assert "c19, … (3 more). Correct it, " in found


@pytest.mark.parametrize(
    "saved", [{}, {"entries": ["a", "a"], "threshold": 0.5}, {"entries": 3, "threshold": 0.5}]
)
def test_damaged_labels_are_refused(saved: dict) -> None:
    assert complaint(lambda: Classify().load_space(saved)).startswith(
        "The saved labels are damaged"
    )


def test_smoothing_out_of_range() -> None:
    assert "label_smoothing is 1.5" in complaint(lambda: Classify(label_smoothing=1.5))


def test_targets() -> None:
    space = ClassSpace(("a", "b", "c"))
    assert Classify().target(Example("x", "b"), space) == 1
    several = Classify(multi_label=True)
    np.testing.assert_array_equal(several.target(Example("x", ("c", "a")), space), [1, 0, 1])
    np.testing.assert_array_equal(several.target(Example("x", ()), space), [0, 0, 0])
    np.testing.assert_array_equal(several.target(Example("x", "b"), space), [0, 1, 0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_is_a_sum_over_texts(smoothing: float) -> None:
    torch.manual_seed(0)
    scores, target = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
    loss = Classify(label_smoothing=smoothing).loss(scores, batch(target))
    spread = torch.full((5, 3), smoothing / 3)
    spread[torch.arange(5), target] += 1 - smoothing
    torch.testing.assert_close(loss.total, -(spread * scores.log_softmax(-1)).sum())
    assert loss.count == 5

    wanted = torch.randint(0, 2, (5, 3))
    loss = Classify(multi_label=True, label_smoothing=smoothing).loss(scores, batch(wanted))
    soft = wanted * (1 - smoothing) + smoothing / 2
    chances = scores.sigmoid()
    expected = -(soft * chances.log() + (1 - soft) * (1 - chances).log()).sum()
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(
        loss.total, F.binary_cross_entropy_with_logits(scores, soft, reduction="sum")
    )
    assert loss.count == 5


def test_answers_are_softmax_probabilities_even_for_huge_scores() -> None:
    task, space = Classify(), ClassSpace(("a", "b", "c"))
    scores = np.array([[1.0, 3.0, 2.0], [1e4, -1e4, 0.0]], dtype=np.float32)
    first, second = task.answers(scores, space)
    wanted = torch.tensor(scores[0], dtype=torch.float64).softmax(-1)
    assert first.value == "b"
    assert first.score == pytest.approx(wanted[1].item(), abs=1e-12)
    assert first.scores == pytest.approx(wanted.tolist(), abs=1e-12)
    assert second.value == "a"
    assert second.score == 1.0
    np.testing.assert_array_equal(task.predict_targets(scores, space), [1, 0])


def test_several_answers_come_most_probable_first_and_may_be_none() -> None:
    task, space = Classify(multi_label=True), ClassSpace(("a", "b", "c"), threshold=0.4)
    scores = np.log(np.array([[0.5, 0.1, 0.9], [0.1, 0.2, 0.3]]))
    scores -= np.log1p(-np.exp(scores))  # logits of these probabilities
    first, second = task.answers(scores, space)
    assert first.value == ("c", "a")
    assert first.score == pytest.approx(0.5 * 0.9 * 0.9)
    assert second.value == ()
    assert second.score == pytest.approx(0.9 * 0.8 * 0.7)
    assert first.scores == pytest.approx((0.5, 0.1, 0.9))
    np.testing.assert_array_equal(task.predict_targets(scores, space), [[1, 0, 1], [0, 0, 0]])
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        assert task.answers(np.array([[1e4, -1e4, 0.0]]), space)[0].value == ("a", "c")


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), min_size=1, max_size=29))
def test_the_tuned_threshold_is_the_best_there_is(rows: list[tuple[int, bool]]) -> None:
    chances = np.array([step / 7 for step, _ in rows])
    right = np.array([yes for _, yes in rows])
    if not right.any():
        return

    def f1(threshold: float) -> float:
        return f1_score(right, chances >= threshold, zero_division=0)

    best = max(f1(cut) for cut in np.linspace(0, 1, 15))
    assert f1(choose_threshold(chances, right, Goal()).value) == pytest.approx(best)


def test_tuning_moves_the_threshold_only_for_several_labels() -> None:
    space = ClassSpace(("a", "b"))
    scores = np.array([[-1.0, -3.0], [-3.0, -1.0], [-1.0, -3.0]])
    targets = np.array([[1, 0], [0, 1], [1, 0]])
    task = Classify(multi_label=True)
    tuned = task.tune(scores, targets, space)
    assert tuned.threshold < 0.3
    assert tuned.entries == space.entries
    np.testing.assert_array_equal(task.predict_targets(scores, tuned), targets)
    assert task.tune(scores, 0 * targets, space) == space
    assert Classify().tune(scores, np.array([0, 1, 0]), space) == space


def test_measure_takes_predictions_and_targets() -> None:
    space = ClassSpace(("a", "b"))
    one, several = Classify(), Classify(multi_label=True)
    scores = np.array([[2.0, -1.0], [1.0, -2.0], [-1.0, 4.0]])
    measure = one.build_metric(space)
    measure.add(one.predict_targets(scores, space), np.array([0, 1, 1]))
    assert measure.compute()[one.metric].value == pytest.approx(2 / 3)
    measure = several.build_metric(space)
    measure.add(several.predict_targets(scores, space), np.array([[1, 0], [1, 1], [0, 1]]))
    assert measure.compute()[several.metric].value == pytest.approx(6 / 7)


def test_tasks_and_classic_models_need_no_torch() -> None:
    code = (
        "import sys, weft.classic.linear.tfidf, weft.tasks.classify, weft.tasks.regress; "
        "assert not {'torch', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
