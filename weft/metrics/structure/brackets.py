"""Labelled bracket scores by the rules of evalb with the parameters COLLINS.prm.

Words tagged as punctuation or as a trace are taken out first, brackets left empty go with them,
TOP is not counted, a label ends at its first - or =, and ADVP equals PRT.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.metrics.bootstrap import safe_divide
from weft.metrics.sentence_counts import SentenceCounts
from weft.metrics.value import MetricValue

DELETED_LABELS = frozenset({"TOP", "-NONE-", ",", ":", "``", "''", "."})
EQUIVALENT_LABELS = {"PRT": "ADVP"}

Span = tuple[str, int, int]  # label, start, end: one bracket of the tree, chains written out


@dataclass(frozen=True)
class BracketedTree:
    """The brackets of one tree above the tags, and the tag of every word."""

    spans: Sequence[Span]
    tags: Sequence[str]


class BracketF1:
    """Precision, recall and F1 of labelled brackets, complete match and crossing brackets.

    `f1` pools all brackets, `unlabelled_f1` whatever their labels; `complete` is the share of
    sentences whose brackets are all right; `crossing` is the mean number of predicted brackets that
    cross a gold one, `no_crossing` the share of sentences without. As in evalb, sentences whose
    words differ once punctuation is out (the tags disagree on what it is) are `errors`, and those
    without any word left `skipped`; both are counted and left out.
    """

    WIDTH = 7  # gold brackets, said, right, complete, crossing, any crossing, right without labels

    def __init__(self) -> None:
        self.counts = SentenceCounts(self.WIDTH)
        self.errors = 0
        self.skipped = 0

    def add(self, predicted: Sequence[BracketedTree], gold: Sequence[BracketedTree]) -> None:
        """Count sentences: the brackets predicted and the right ones."""
        assert len(predicted) == len(gold)
        for tree, gold_tree in zip(predicted, gold, strict=True):
            kept = _find_kept_words(tree)
            if not kept.any():
                self.skipped += 1
            elif (
                len(tree.tags) != len(gold_tree.tags) or (kept != _find_kept_words(gold_tree)).any()
            ):
                self.errors += 1
            else:
                self.counts.add(
                    _count_sentence(_count_brackets(tree, kept), _count_brackets(gold_tree, kept))
                )

    def merge(self, other: "BracketF1") -> None:
        self.counts.merge(other.counts)
        self.errors += other.errors
        self.skipped += other.skipped

    @property
    def n(self) -> int:
        return self.counts.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        statistics = {
            "f1": lambda sums: safe_divide(2 * sums[:, 2], sums[:, 0] + sums[:, 1]),
            "unlabelled_f1": lambda sums: safe_divide(2 * sums[:, 6], sums[:, 0] + sums[:, 1]),
            "precision": lambda sums: safe_divide(sums[:, 2], sums[:, 1]),
            "recall": lambda sums: safe_divide(sums[:, 2], sums[:, 0]),
            "complete": lambda sums: safe_divide(sums[:, 3], sums[:, 7]),
            "crossing": lambda sums: safe_divide(sums[:, 4], sums[:, 7]),
            "no_crossing": lambda sums: safe_divide(sums[:, 7] - sums[:, 5], sums[:, 7]),
        }
        return self.counts.compute(statistics, resamples, seed, level)


def _find_kept_words(tree: BracketedTree) -> np.ndarray:
    return np.array([tag not in DELETED_LABELS for tag in tree.tags], dtype=bool)


def _count_brackets(tree: BracketedTree, kept: np.ndarray) -> Counter[Span]:
    """Count the brackets of a tree, with positions among the kept words."""
    position = np.concatenate([[0], np.cumsum(kept)]).tolist()
    brackets: Counter[Span] = Counter()
    for name, start, end in tree.spans:
        label = name.split("-")[0].split("=")[0]
        if position[start] < position[end] and label not in DELETED_LABELS:
            brackets[EQUIVALENT_LABELS.get(label, label), position[start], position[end]] += 1
    return brackets


def _count_sentence(predicted: Counter[Span], gold: Counter[Span]) -> tuple[int, ...]:
    right, crossing = (predicted & gold).total(), _count_crossing(predicted, gold)
    complete = right == predicted.total() == gold.total()
    bare = (_without_labels(predicted) & _without_labels(gold)).total()
    return (
        gold.total(), predicted.total(), right, int(complete), crossing, int(crossing > 0), bare,
    )  # fmt: skip


def _without_labels(brackets: Counter[Span]) -> Counter[tuple[int, int]]:
    """Count the brackets at each place, whatever their labels."""
    bare: Counter[tuple[int, int]] = Counter()
    for (_, start, end), count in brackets.items():
        bare[start, end] += count
    return bare


def _count_crossing(predicted: Counter[Span], gold: Counter[Span]) -> int:
    """Predicted brackets that overlap some gold one without either holding the other."""
    edges = np.array([(start, end) for _, start, end in gold], dtype=np.int64).reshape(-1, 2)
    starts, ends = edges.T
    crossing = 0
    for (_, start, end), count in predicted.items():
        before = (starts < start) & (start < ends) & (ends < end)
        after = (start < starts) & (starts < end) & (end < ends)
        crossing += count * bool((before | after).any())
    return crossing
