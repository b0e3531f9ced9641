"""Rows of numbers against resampling by hand; several measures together; paired comparison."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.metrics import MetricValue, paired_bootstrap
from weft.metrics.bootstrap import safe_divide
from weft.metrics.generation.text_overlap import ExactMatch, TokenAccuracy
from weft.metrics.per_sentence import (
    CombinedMetric,
    SentenceMetric,
    as_reference_lists,
    compare_paired,
    mean_of_column,
)


class Shares(SentenceMetric):
    """A ratio of two sums, as most corpus measures are."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(2, scale)

    def add(self, predicted, gold) -> None:
        for row in zip(predicted, gold, strict=True):
            self.add_row(row)

    def statistics(self):
        return {"share": lambda sums: safe_divide(sums[:, 0], sums[:, 1]), "top": mean_of_column(0)}


def shares(seed: int, n: int = 61) -> Shares:
    rng = np.random.default_rng(seed)
    bottom = rng.integers(1, 11, n)
    measure = Shares()
    measure.add((rng.random(n) * bottom).tolist(), bottom.tolist())
    return measure


def resampled(statistic, *tables: np.ndarray, resamples: int = 4000) -> np.ndarray:
    rng = np.random.default_rng(23)
    picks = (rng.integers(0, len(tables[0]), len(tables[0])) for _ in range(resamples))
    return np.array([statistic(*(table[pick] for table in tables)) for pick in picks])


def share(table: np.ndarray) -> float:
    return table[:, 0].sum() / table[:, 1].sum()


def test_interval_is_that_of_resampled_sentences() -> None:
    measure = shares(0)
    figure = measure.compute(resamples=4000)["share"]
    low, high = np.quantile(resampled(share, measure.table()), [0.025, 0.975])
    slack = 0.1 * (high - low)
    assert figure.value == pytest.approx(share(measure.table()))
    assert (figure.low, figure.high) == pytest.approx((low, high), abs=slack)
    assert figure.n == 61


def test_order_and_pieces_do_not_matter() -> None:
    whole, parts = shares(1), Shares()
    for row in reversed(whole.rows):
        part = Shares()
        part.add_row(row)
        parts.merge(part)
    assert parts.compute(resamples=31) == whole.compute(resamples=31)


def test_other_settings_are_not_merged() -> None:
    with pytest.raises(AssertionError):
        Shares(2.0).merge(Shares(3.0))


def test_nothing_counted_gives_zeros() -> None:
    assert Shares().compute() == {
        "share": MetricValue(0.0, 0.0, 0.0, 0),
        "top": MetricValue(0.0, 0.0, 0.0, 0),
    }
    assert compare_paired(Shares(), Shares(), "share").p == 1


def test_together_gives_what_each_gives() -> None:
    said, gold = ["a b", "c", "d e"], ["a b", ["x", "c "], "f"]
    both, exact, lower = CombinedMetric(ExactMatch(), Shares()), ExactMatch(), Shares()
    assert both.width == 3
    both.metrics[0].add(said, gold)
    both.metrics[1].add([1, 2, 3], [7, 5, 3])
    exact.add(said, gold)
    lower.add([1, 2, 3], [7, 5, 3])
    found = both.compute(resamples=0)
    assert found == {**exact.compute(resamples=0), **lower.compute(resamples=0)}
    assert found["exact_match"].value == pytest.approx(2 / 3)
    assert found["share"].value == pytest.approx(6 / 15)


def test_together_adds_merges_and_refuses_two_of_a_name() -> None:
    first, second = (CombinedMetric(ExactMatch()) for _ in range(2))
    first.add(["a"], ["a"])
    second.add(["b", "c"], ["a", "c"])
    first.merge(second)
    assert first.n == 3
    assert first.compute()["exact_match"].value == pytest.approx(2 / 3)
    with pytest.raises(AssertionError, match="two measures have a figure 'exact_match'"):
        CombinedMetric(ExactMatch(), ExactMatch(lowercase=True)).statistics()


def test_comparison_of_means_is_the_paired_test() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random(53), rng.random(53) - 0.05
    first, second = Shares(), Shares()
    first.add(a.tolist(), [1] * 53)
    second.add(b.tolist(), [1] * 53)
    found = compare_paired(first, second, "top")
    assert found.p == pytest.approx(paired_bootstrap(a, b), abs=0.02)
    assert found.difference.value == pytest.approx(a.mean() - b.mean())
    assert (found.first, found.second) == pytest.approx((a.mean(), b.mean()))


def test_comparison_of_ratios_resamples_both_systems_together() -> None:
    first, second = shares(3), shares(4)
    found = compare_paired(first, second, "share", resamples=4000)
    gaps = resampled(lambda a, b: share(a) - share(b), first.table(), second.table())
    gap = share(first.table()) - share(second.table())
    low, high = np.quantile(gaps, [0.025, 0.975])
    assert found.p == pytest.approx((np.abs(gaps - gap) >= abs(gap)).mean(), abs=0.03)
    slack = 0.1 * (high - low)
    assert (found.difference.low, found.difference.high) == pytest.approx((low, high), abs=slack)


def test_equal_systems_differ_by_chance_and_better_ones_do_not() -> None:
    first, better = shares(6), Shares()
    better.add([row[0] + 0.3 for row in first.rows], [row[1] for row in first.rows])
    assert compare_paired(first, shares(6), "share", resamples=101).p == 1
    assert compare_paired(first, better, "share", resamples=101).p == pytest.approx(1 / 102)


def test_incomparable_scores_raise_user_error() -> None:
    with pytest.raises(UserError, match="one has 61 answers, the other 7"):
        compare_paired(shares(0), shares(0, n=7), "share")
    with pytest.raises(UserError, match=r"Unknown figure 'shar'\. Did you mean 'share'\?"):
        compare_paired(shares(0), shares(1), "shar")


def test_a_string_is_one_reference() -> None:
    assert as_reference_lists(["ab", ["c", "d"]]) == [["ab"], ["c", "d"]]
    with pytest.raises(UserError, match="Answer 2 has no reference"):
        as_reference_lists(["ab", []])


def test_tokens_are_counted_over_all_sentences() -> None:
    measure = TokenAccuracy()
    measure.add([[5, 6, 7], np.array([1])], [[5, 6, 8], np.array([2])])
    assert measure.compute()["token_accuracy"].value == pytest.approx(2 / 4)
    assert measure.n == 2


def test_exact_match_can_ignore_case_and_white_space() -> None:
    for lowercase, value in ((False, 1 / 3), (True, 2 / 3)):
        measure = ExactMatch(lowercase)
        measure.add([" a  b", "A b", "a"], ["a b", ["c", "a b"], "ab"])
        assert measure.compute()["exact_match"].value == pytest.approx(value)
