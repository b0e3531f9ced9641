"""Coreference: MUC, B³, CEAF-e, LEA and their average, as in the scorer of CoNLL-2012.

K gold chains   S predicted chains
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.metrics.bootstrap import safe_divide
from weft.metrics.sentence_counts import SentenceCounts, Statistic
from weft.metrics.value import MetricValue
from weft.text.annotation.frames import Coreference

WordSpan = tuple[int, int]  # words from, up to
Chain = tuple[WordSpan, ...]
# Predicted and gold terms of one document: numerator and denominator of precision, then of recall.
Terms = tuple[float, float, float, float]


def collect_chains(annotation: Coreference) -> list[Chain]:
    """Return the distinct mentions of each entity, singletons included.

    A span that two entities claim belongs to the first, as in the official scorer.
    """
    seen: set[WordSpan] = set()
    chains: dict[str, list[WordSpan]] = {}
    for label, start, end in annotation.mentions:
        if (start, end) not in seen:
            seen.add((start, end))
            chains.setdefault(label, []).append((start, end))
    return [tuple(chain) for chain in chains.values()]


def _index(chains: Sequence[Chain]) -> dict[WordSpan, int]:
    """Return the number of the chain of each mention."""
    return {mention: number for number, chain in enumerate(chains) for mention in chain}


def _muc_terms(chains: Sequence[Chain], others: Mapping[WordSpan, int]) -> tuple[float, float]:
    """Count the links of chains, and those that the other side has (Vilain et al. 1995).

    A chain that the other side splits into p parts keeps |chain| - p links.
    """
    kept = total = 0
    for chain in chains:
        found = [others[mention] for mention in chain if mention in others]
        parts = len(set(found)) + len(chain) - len(found)
        kept, total = kept + len(chain) - parts, total + len(chain) - 1
    return kept, total


def _b_cubed_terms(chains: Sequence[Chain], others: Mapping[WordSpan, int]) -> tuple[float, float]:
    """Sum, over mentions, the fraction of their chain that the other side has with them (Bagga
    and Baldwin 1998)."""
    kept, total = 0.0, 0
    for chain in chains:
        shared = Counter(others[mention] for mention in chain if mention in others)
        kept += sum(count**2 for count in shared.values()) / len(chain)
        total += len(chain)
    return kept, total


def _lea_terms(
    chains: Sequence[Chain], others: Mapping[WordSpan, int], other_sizes: Sequence[int]
) -> tuple[float, float]:
    """Sum the resolved fraction of the links of each chain, weighted by its mentions (Moosavi and
    Strube 2016); a singleton links to itself."""
    kept, total = 0.0, 0
    for chain in chains:
        found = Counter(others[mention] for mention in chain if mention in others)
        if len(chain) == 1:
            kept += sum(other_sizes[number] == 1 for number in found)
        else:
            links = sum(count * (count - 1) for count in found.values())
            kept += links / (len(chain) - 1)
        total += len(chain)
    return kept, total


def _ceaf_similarity(predicted: Sequence[Chain], gold: Sequence[Chain]) -> float:
    """Return the sum of φ₄ = 2 |K ∩ S| / (|K| + |S|) over the best alignment (Luo 2005)."""
    if not predicted or not gold:
        return 0.0
    from scipy.optimize import linear_sum_assignment

    ours = _index(predicted)
    scores = np.zeros((len(gold), len(predicted)))  # (K, S)
    for row, chain in enumerate(gold):
        for number, shared in Counter(ours[m] for m in chain if m in ours).items():
            scores[row, number] = 2 * shared / (len(chain) + len(predicted[number]))
    return float(scores[linear_sum_assignment(scores, maximize=True)].sum())


def count_document(predicted: Sequence[Chain], gold: Sequence[Chain]) -> tuple[Terms, ...]:
    """Return the terms of mentions, MUC, B³, CEAF-e and LEA."""
    ours, theirs = _index(predicted), _index(gold)
    right = len(ours.keys() & theirs.keys())
    similarity = _ceaf_similarity(predicted, gold)
    sizes, gold_sizes = ([len(chain) for chain in chains] for chains in (predicted, gold))
    return (
        (right, len(ours), right, len(theirs)),
        (*_muc_terms(predicted, theirs), *_muc_terms(gold, ours)),
        (*_b_cubed_terms(predicted, theirs), *_b_cubed_terms(gold, ours)),
        (similarity, len(predicted), similarity, len(gold)),
        (*_lea_terms(predicted, theirs, gold_sizes), *_lea_terms(gold, ours, sizes)),
    )


class CoreferenceScores:
    """F1 of MUC, B³, CEAF-e and LEA; `conll` is the mean of the first three.

    Numerators and denominators are summed over documents. Singletons count where either side has
    them. Intervals are over documents.
    """

    NAMES = ("mention", "muc", "b_cubed", "ceaf_e", "lea")
    WIDTH = 4 * len(NAMES)

    def __init__(self) -> None:
        self.counts = SentenceCounts(self.WIDTH)

    def add(self, predicted: Sequence[Coreference], gold: Sequence[Coreference]) -> None:
        """Count the chains of some documents."""
        for ours, theirs in zip(predicted, gold, strict=True):
            terms = count_document(collect_chains(ours), collect_chains(theirs))
            self.counts.add(tuple(value for own in terms for value in own))

    def merge(self, other: "CoreferenceScores") -> None:
        self.counts.merge(other.counts)

    @property
    def n(self) -> int:
        return self.counts.n

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        f1 = {name: _f1(4 * k) for k, name in enumerate(self.NAMES)}
        averaged = [f1[name] for name in ("muc", "b_cubed", "ceaf_e")]
        statistics: dict[str, Statistic] = {"conll": lambda sums: _mean(averaged, sums)}
        for k, name in enumerate(self.NAMES):
            statistics[f"{name}_f1"] = f1[name]
            statistics[f"{name}_precision"] = _ratio(4 * k)
            statistics[f"{name}_recall"] = _ratio(4 * k + 2)
        return self.counts.compute(statistics, resamples, seed, level)


def _ratio(first: int) -> Statistic:
    return lambda sums: safe_divide(sums[:, first], sums[:, first + 1])


def _f1(first: int) -> Statistic:
    """Return F1 from the columns of both numerators and denominators."""

    def compute(sums: np.ndarray) -> np.ndarray:
        precision, recall = _ratio(first)(sums), _ratio(first + 2)(sums)
        return safe_divide(2 * precision * recall, precision + recall)

    return compute


def _mean(statistics: Sequence[Callable[[np.ndarray], np.ndarray]], sums: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.mean([one(sums) for one in statistics], axis=0)
    return values
