"""Metrics of paths against plain counting."""

import numpy as np
import pytest

from weft.metrics.classify import UNSEEN
from weft.metrics.hierarchy import HierarchicalMetric
from weft.text.label_tree import LabelTree, prefixes

ENTRIES = ("a > x", "a > y", "b", "b > z > w", "b > z > v", "c > u")


def test_levels_and_overlap_are_those_of_plain_counting():
    rng = np.random.default_rng(1)
    gold, predicted = rng.integers(0, len(ENTRIES), (2, 97))
    metric = HierarchicalMetric(LabelTree(ENTRIES).path_ids)
    metric.add(predicted[:40], gold[:40])
    rest = HierarchicalMetric(LabelTree(ENTRIES).path_ids)
    rest.add(predicted[40:], gold[40:])
    metric.merge(rest)
    values = metric.compute(resamples=20)
    paths = [prefixes(entry, " > ") for entry in ENTRIES]
    for level in (1, 2, 3):
        rows = [
            paths[p][:level] == paths[g][:level]
            for g, p in zip(gold, predicted, strict=True)
            if len(paths[g]) >= level
        ]
        assert values[f"accuracy_level_{level}"].value == pytest.approx(np.mean(rows))
    both = sum(len({*paths[g]} & {*paths[p]}) for g, p in zip(gold, predicted, strict=True))
    total = sum(len(paths[g]) + len(paths[p]) for g, p in zip(gold, predicted, strict=True))
    assert values["hierarchical_f1"].value == pytest.approx(2 * both / total)
    assert values["accuracy"].value == pytest.approx((gold == predicted).mean())


def test_a_label_never_seen_is_wrong_at_every_level():
    metric = HierarchicalMetric(LabelTree(ENTRIES).path_ids)
    metric.add(np.array([5, 1]), np.array([UNSEEN, 1]))
    values = metric.compute(resamples=0)
    assert values["accuracy_level_1"].value == values["accuracy_level_2"].value == 0.5
    assert values["hierarchical_f1"].value == 0.5
