"""Scores of dependency trees as the CoNLL 2018 shared task defines them, for gold words.

Every word counts, punctuation too; of a relation only what stands before a ':' is compared.
"""

from collections.abc import Sequence

import numpy as np

from weft.errors import UserError
from weft.metrics.bootstrap import safe_divide
from weft.metrics.sentence_counts import SentenceCounts
from weft.metrics.value import MetricValue

# Relations of content words; the rest is function words and punctuation.
CONTENT_RELATIONS = frozenset(
    ("nsubj", "obj", "iobj", "csubj", "ccomp", "xcomp", "obl", "vocative", "expl", "dislocated")
    + ("advcl", "advmod", "discourse", "nmod", "appos", "nummod", "acl", "amod", "conj", "fixed")
    + ("flat", "compound", "list", "parataxis", "orphan", "goeswith", "reparandum", "root", "dep")
)

Arcs = tuple[Sequence[int] | np.ndarray, Sequence[str]]  # heads (0 the root) and relations


class AttachmentScores:
    """UAS, LAS, label accuracy and CLAS, with counts for each sentence.

    `uas`: the head is right; `las`: head and relation; `label`: the relation alone; `clas`: F1 of
    las over words whose relation, in gold and in prediction each, is one of content words.
    """

    WIDTH = 7  # words, heads right, both right, labels right, content gold, said, and both right

    def __init__(self) -> None:
        self.counts = SentenceCounts(self.WIDTH)

    def add(self, predicted: Sequence[Arcs], gold: Sequence[Arcs]) -> None:
        """Count sentences: heads and relations of every word, predicted and right."""
        assert len(predicted) == len(gold)
        for prediction, true in zip(predicted, gold, strict=True):
            self.counts.add(_count_sentence(prediction, true))

    def merge(self, other: "AttachmentScores") -> None:
        self.counts.merge(other.counts)

    @property
    def n(self) -> int:
        return self.counts.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        statistics = {
            "uas": lambda sums: safe_divide(sums[:, 1], sums[:, 0]),
            "las": lambda sums: safe_divide(sums[:, 2], sums[:, 0]),
            "label": lambda sums: safe_divide(sums[:, 3], sums[:, 0]),
            "clas": lambda sums: safe_divide(2 * sums[:, 6], sums[:, 4] + sums[:, 5]),
        }
        return self.counts.compute(statistics, resamples, seed, level)


def strip_subtype(relation: str) -> str:
    """A relation without its subtype: nsubj of nsubj:pass."""
    return relation.partition(":")[0]


def _count_sentence(predicted: Arcs, gold: Arcs) -> tuple[int, ...]:
    sizes = {len(part) for part in (*predicted, *gold)}
    if len(sizes) > 1:
        raise UserError(
            f"A sentence of {len(gold[0])} words is scored against one of {len(predicted[0])}. "
            "Parse the words of the gold file themselves."
        )
    head = np.asarray(predicted[0]) == np.asarray(gold[0])
    ours, theirs = (
        [strip_subtype(relation) for relation in part] for part in (predicted[1], gold[1])
    )
    label = np.array([a == b for a, b in zip(ours, theirs, strict=True)], dtype=bool)
    content = np.array([relation in CONTENT_RELATIONS for relation in theirs], dtype=bool)
    claimed = sum(relation in CONTENT_RELATIONS for relation in ours)
    both = head & label
    numbers = (len(head), head.sum(), both.sum(), label.sum(), content.sum(), claimed)
    return (*map(int, numbers), int((both & content).sum()))
