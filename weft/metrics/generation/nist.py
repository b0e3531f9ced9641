"""NIST's measures of translation as the E2E challenge takes them: BLEU and NIST-5 of mteval-v13a.

R resamples   N orders
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from weft.metrics.bootstrap import ratio
from weft.metrics.generation.ngrams import (
    ORDER,
    Gram,
    bleu,
    bleu_row,
    clipped,
    grams,
    mteval_tokens,
)
from weft.metrics.per_sentence import SentenceMeasure, references
from weft.metrics.sentence_counts import Statistic

# Two thirds of the reference length cost half of the score (Doddington 2002).
BETA = -np.log(0.5) / np.log(1.5) ** 2


class MtevalBleu(SentenceMeasure):
    """Corpus BLEU-4 in 0–100 by the rules of mteval-v13a, without case, any number of references.

    The brevity penalty takes for each sentence the reference closest in length, the shorter of two.
    sacrebleu's BLEU with lowercase=True is the same number.
    """

    def __init__(self, lowercase: bool = True) -> None:
        super().__init__(2 + 2 * ORDER, lowercase)
        self.lowercase = lowercase

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count answers, each with its references."""
        for said, right in zip(predicted, references(gold), strict=True):
            tokens = [mteval_tokens(text, self.lowercase) for text in (said, *right)]
            self.add_row(bleu_row(tokens[0], tokens[1:]))

    def statistics(self) -> Mapping[str, Statistic]:
        return {"bleu": bleu}


class Nist(SentenceMeasure):
    """NIST (Doddington 2002): n-grams up to five that match, weighted by what they tell.

    What an n-gram tells is log2 of how often its first n - 1 words occur in all references over how
    often it does, so a sentence's numbers are known only when everything was added; resampling
    sentences keeps these weights. The length penalty compares with the mean reference length.
    """

    def __init__(self, lowercase: bool = True, order: int = 5) -> None:
        super().__init__(2 * order + 1, lowercase, order)
        self.lowercase = lowercase
        self.order = order
        self.hits: list[list[Counter[Gram]]] = []  # of each sentence, by order
        self.seen: Counter[Gram] = Counter()  # n-grams of all references; () counts words

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count answers, each with its references."""
        for said, right in zip(predicted, references(gold), strict=True):
            own, *others = (mteval_tokens(text, self.lowercase) for text in (said, *right))
            orders = range(1, self.order + 1)
            self.hits.append([clipped(own, others, n) for n in orders])
            for other in others:
                self.seen[()] += len(other)
                for n in orders:
                    self.seen.update(grams(other, n))
            sizes = [max(0, len(own) - n) for n in range(self.order)]
            length = sum(map(len, others)) / len(others)
            self.add_row([*[0.0] * self.order, *sizes, length])  # the weights come in `table`

    def merge(self, other: "Nist") -> None:
        super().merge(other)
        self.hits.extend(other.hits)
        self.seen.update(other.seen)

    def table(self) -> np.ndarray:
        """(n, 2N + 1): weights of the matches and n-grams by order, mean reference length."""
        table = super().table()
        for row, hits in zip(table, self.hits, strict=True):
            row[: self.order] = [self._told(found) for found in hits]
        return table

    def statistics(self) -> Mapping[str, Statistic]:
        return {"nist": self._score}

    def _told(self, found: Counter[Gram]) -> float:
        seen = self.seen
        return sum(
            count * float(np.log2(seen[gram[:-1]] / seen[gram])) for gram, count in found.items()
        )

    def _score(self, sums: np.ndarray) -> np.ndarray:
        told, sizes = sums[:, : self.order], sums[:, self.order : 2 * self.order]
        share = np.minimum(1.0, ratio(sizes[:, 0], sums[:, 2 * self.order]))
        penalty = np.exp(-BETA * np.log(np.where(share > 0, share, 1.0)) ** 2)
        return np.where(share > 0, penalty * ratio(told, sizes).sum(1), 0.0)
