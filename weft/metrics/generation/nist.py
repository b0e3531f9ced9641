"""NIST's measures of translation as the E2E challenge takes them: BLEU and NIST-5 of mteval-v13a.

R resamples   N orders
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from weft.metrics.bootstrap import safe_divide
from weft.metrics.generation.ngrams import (
    BLEU_ORDER,
    NGram,
    clip_ngrams,
    corpus_bleu,
    count_bleu_matches,
    count_ngrams,
    tokenise_mteval,
)
from weft.metrics.per_sentence import SentenceMetric, as_reference_lists
from weft.metrics.sentence_counts import Statistic

# Two thirds of the reference length cost half of the score (Doddington 2002).
BETA = -np.log(0.5) / np.log(1.5) ** 2


class MtevalBleu(SentenceMetric):
    """Corpus BLEU-4 in 0–100 by the rules of mteval-v13a, without case, any number of references.

    The brevity penalty takes for each sentence the reference closest in length, the shorter of two.
    sacrebleu's BLEU with lowercase=True is the same number.
    """

    def __init__(self, lowercase: bool = True) -> None:
        super().__init__(2 + 2 * BLEU_ORDER, lowercase)
        self.lowercase = lowercase

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count answers, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            tokens = [tokenise_mteval(text, self.lowercase) for text in (answer, *right)]
            self.add_row(count_bleu_matches(tokens[0], tokens[1:]))

    def statistics(self) -> Mapping[str, Statistic]:
        return {"bleu": corpus_bleu}


class Nist(SentenceMetric):
    """NIST (Doddington 2002): n-grams up to five that match, weighted by their information.

    The information of an n-gram is log2 of the count of its first n - 1 words in all references
    over its own count, so a sentence's numbers are known only when everything was added;
    resampling sentences keeps these weights. The length penalty compares with the mean reference
    length.
    """

    def __init__(self, lowercase: bool = True, order: int = 5) -> None:
        super().__init__(2 * order + 1, lowercase, order)
        self.lowercase = lowercase
        self.order = order
        self.hits: list[list[Counter[NGram]]] = []  # of each sentence, by order
        self.reference_counts: Counter[NGram] = (
            Counter()
        )  # n-grams of all references; () counts words

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count answers, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            answer_tokens, *others = (
                tokenise_mteval(text, self.lowercase) for text in (answer, *right)
            )
            orders = range(1, self.order + 1)
            self.hits.append([clip_ngrams(answer_tokens, others, n) for n in orders])
            for other in others:
                self.reference_counts[()] += len(other)
                for n in orders:
                    self.reference_counts.update(count_ngrams(other, n))
            sizes = [max(0, len(answer_tokens) - n) for n in range(self.order)]
            length = sum(map(len, others)) / len(others)
            self.add_row([*[0.0] * self.order, *sizes, length])  # the weights come in `table`

    def merge(self, other: "Nist") -> None:
        super().merge(other)
        self.hits.extend(other.hits)
        self.reference_counts.update(other.reference_counts)

    def table(self) -> np.ndarray:
        """(n, 2N + 1): weights of the matches and n-grams by order, mean reference length."""
        table = super().table()
        for row, hits in zip(table, self.hits, strict=True):
            row[: self.order] = [self._information(found) for found in hits]
        return table

    def statistics(self) -> Mapping[str, Statistic]:
        return {"nist": self._score}

    def _information(self, matches: Counter[NGram]) -> float:
        seen = self.reference_counts
        return sum(
            count * float(np.log2(seen[gram[:-1]] / seen[gram])) for gram, count in matches.items()
        )

    def _score(self, sums: np.ndarray) -> np.ndarray:
        information, sizes = sums[:, : self.order], sums[:, self.order : 2 * self.order]
        length_ratio = np.minimum(1.0, safe_divide(sizes[:, 0], sums[:, 2 * self.order]))
        penalty = np.exp(-BETA * np.log(np.where(length_ratio > 0, length_ratio, 1.0)) ** 2)
        return np.where(length_ratio > 0, penalty * safe_divide(information, sizes).sum(1), 0.0)
