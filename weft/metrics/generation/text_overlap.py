"""Metrics of generated text: BLEU and chrF by sacrebleu, exact match, token accuracy.

R resamples   N orders
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError, unknown_name
from weft.metrics.bootstrap import safe_divide
from weft.metrics.generation.ngrams import BLEU_ORDER, corpus_bleu
from weft.metrics.per_sentence import SentenceMetric, as_reference_lists, mean_of_column
from weft.metrics.sentence_counts import Statistic

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacreMetric

Gold = Sequence[str | Sequence[str]]  # of each answer its reference, or several


class Bleu(SentenceMetric):
    """Corpus BLEU in 0–100 exactly as sacrebleu computes it, with its `signature`.

    Give detokenised text. For the lower-cased tokenised BLEU of the Multi30k papers give tokenised
    text with lowercase=True and tokenize="none". The interval resamples sentences, and so their
    n-gram counts and lengths.
    """

    def __init__(self, lowercase: bool = False, tokenize: str = "13a", name: str = "bleu") -> None:
        super().__init__(2 + 2 * BLEU_ORDER, lowercase, tokenize)
        self.name = name  # of the figure
        kind = _sacrebleu().BLEU
        if tokenize not in kind.TOKENIZERS:
            raise unknown_name("BLEU tokenization", tokenize, kind.TOKENIZERS)
        try:
            # force: text that looks tokenised is the caller's choice, and no reason for a warning.
            self.metric = kind(lowercase=lowercase, tokenize=tokenize, force=True)
        except (ImportError, RuntimeError) as error:  # some tokenizers are packages of their own
            raise UserError(f"BLEU cannot tokenize with '{tokenize}': {error}") from error
        self.numbers: set[int] = set()  # of references

    def add(self, predicted: Sequence[str], gold: Gold) -> None:
        """Count answers, each with its references."""
        self.numbers |= _extract(self, predicted, gold)

    def merge(self, other: "Bleu") -> None:
        super().merge(other)
        self.numbers |= other.numbers

    @property
    def signature(self) -> str:
        """The signature that sacrebleu prints, for reproducing the score."""
        return "BLEU|" + _signature(self.metric, self.numbers)

    def statistics(self) -> Mapping[str, Statistic]:
        return {self.name: corpus_bleu}


class Chrf(SentenceMetric):
    """Character n-gram F-score in 0–100 exactly as sacrebleu computes it, with its `signature`.

    words=2 is chrF++ (Popović 2017). Of several references the best for the sentence counts.
    """

    CHARACTERS, BETA = 6, 2

    def __init__(self, lowercase: bool = False, words: int = 0) -> None:
        super().__init__(3 * (self.CHARACTERS + words), lowercase, words)
        kind = _sacrebleu().CHRF
        self.words = words
        self.metric = kind(self.CHARACTERS, words, self.BETA, lowercase=lowercase)
        self.numbers: set[int] = set()  # of references

    def add(self, predicted: Sequence[str], gold: Gold) -> None:
        """Count answers, each with its references."""
        self.numbers |= _extract(self, predicted, gold)

    def merge(self, other: "Chrf") -> None:
        super().merge(other)
        self.numbers |= other.numbers

    @property
    def signature(self) -> str:
        """The signature that sacrebleu prints, for reproducing the score."""
        return f"chrF{self.BETA}{'+' * self.words}|" + _signature(self.metric, self.numbers)

    def statistics(self) -> Mapping[str, Statistic]:
        return {"chrf": self._score}

    def _score(self, sums: np.ndarray) -> np.ndarray:
        """Precision and recall averaged over the orders that both sides have, then their F."""
        predicted, true, right = (sums[:, i:-1:3] for i in range(3))  # (R, N)
        both = (predicted > 0) & (true > 0)
        orders = both.sum(1)
        precision = safe_divide((safe_divide(right, predicted) * both).sum(1), orders)
        recall = safe_divide((safe_divide(right, true) * both).sum(1), orders)
        factor = self.BETA**2
        return 100 * safe_divide((1 + factor) * precision * recall, factor * precision + recall)


class ExactMatch(SentenceMetric):
    """The share of answers that equal one of their references, whatever the white space."""

    def __init__(self, lowercase: bool = False) -> None:
        super().__init__(1, lowercase)
        self.lowercase = lowercase

    def add(self, predicted: Sequence[str], gold: Gold) -> None:
        """Count answers, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            self.add_row([self._plain(answer) in map(self._plain, right)])

    def statistics(self) -> Mapping[str, Statistic]:
        return {"exact_match": mean_of_column(0)}

    def _plain(self, text: str) -> str:
        return " ".join((text.lower() if self.lowercase else text).split())


class TokenAccuracy(SentenceMetric):
    """The share of tokens that are right where the right ones before them were given.

    This judges a model under teacher forcing; the interval resamples sentences.
    """

    def __init__(self) -> None:
        super().__init__(2)  # right, tokens

    def add(self, predicted: Sequence[Sequence[int]], gold: Sequence[Sequence[int]]) -> None:
        """Count sentences as ids, padding cut off."""
        for answer, true in zip(predicted, gold, strict=True):
            right = sum(int(a == b) for a, b in zip(answer, true, strict=True))
            self.add_row([right, len(true)])

    def statistics(self) -> Mapping[str, Statistic]:
        return {"token_accuracy": lambda sums: safe_divide(sums[:, 0], sums[:, 1])}


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu.metrics
    except ImportError:
        raise UserError("BLEU and chrF need sacrebleu: pip install sacrebleu.") from None
    return sacrebleu.metrics


def _extract(metric: "Bleu | Chrf", predicted: Sequence[str], gold: Gold) -> set[int]:
    """Add the counts of each sentence; how many references there were."""
    listed = as_reference_lists(gold)
    for answer, right in zip(predicted, listed, strict=True):
        # What sacrebleu's own significance tests start from: its public scores hide these counts.
        counts = metric.metric._extract_corpus_statistics([answer], [[one] for one in right])
        metric.add_row(counts[0])
    return set(map(len, listed))


def _signature(metric: "SacreMetric", numbers: set[int]) -> str:
    metric.num_refs = next(iter(numbers)) if len(numbers) == 1 else -1  # -1: it varies
    return str(metric.get_signature())
