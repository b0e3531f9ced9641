"""ROUGE-L and CIDEr as the COCO caption scripts compute them, which E2E NLG reports too."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from weft.metrics.generation.ngrams import NGram, count_ngrams
from weft.metrics.generation.nist import MtevalBleu, Nist
from weft.metrics.generation.rouge import longest_common_subsequence
from weft.metrics.per_sentence import (
    CombinedMetric,
    SentenceMetric,
    as_reference_lists,
    mean_of_column,
)
from weft.metrics.sentence_counts import Statistic

CIDER_ORDER = 4  # of CIDEr
ROUGE_BETA = 1.2  # how much more recall weighs than precision in ROUGE-L
LENGTH_SIGMA = 6.0  # words of difference in length that a caption is forgiven

# Words as the Stanford tokenizer cuts English, punctuation left out.
_WORD = re.compile(
    r"(?:[^\W\d_]\.){2,}"  # abbreviations: u.k.
    r"|\d+(?:[,:]\d+)+(?:\.\d+)?"  # 1,000.5 and 10:30; 2.5, 20-25 and 5-star are words below
    r"|n't\b|'(?:s|re|ve|ll|d|m)\b"
    r"|[^\W_]+?(?=n't\b)"
    r"|[^\W_]+(?:[-'/.&][^\W_]+)*?(?='(?:s|re|ve|ll|d|m)\b)"
    r"|[^\W_]+(?:[-/.&'][^\W_]+)*"
    r"|[$£€¥%&#@*+=<>]"
)


def e2e_metrics() -> CombinedMetric:
    """The measures of the E2E NLG challenge but METEOR: `bleu`, `nist`, `rouge_l` and `cider`."""
    return CombinedMetric(MtevalBleu(), Nist(), CocoRouge(), Cider())


def tokenise_caption(text: str) -> list[str]:
    """Lower-case words without punctuation, near those of Stanford's PTB tokenizer."""
    return _WORD.findall(text.lower().replace("’", "'").replace("cannot", "can not"))


class CocoRouge(SentenceMetric):
    """The mean over texts of ROUGE-L with recall weighted 1.2, as `rouge_l`.

    Of several references the best precision and the best recall are taken, each on its own.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count texts, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            tokens, *others = map(tokenise_caption, (answer, *right))
            met = [len(longest_common_subsequence(other, tokens)) for other in others]
            precision = max(met) / max(1, len(tokens))
            recall = max(m / max(1, len(other)) for m, other in zip(met, others, strict=True))
            bottom = recall + ROUGE_BETA**2 * precision
            self.add_row([(1 + ROUGE_BETA**2) * precision * recall / bottom if bottom else 0.0])

    def statistics(self) -> Mapping[str, Statistic]:
        return {"rouge_l": mean_of_column(0)}


class Cider(SentenceMetric):
    """CIDEr (Vedantam et al. 2015) with clipped counts and the penalty on length, as `cider`.

    n-grams weigh less the more texts' references have them, so a text's number is known only when
    everything was added; resampling texts keeps these weights.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.texts: list[list[list[str]]] = []  # words of each answer, then of its references
        self.document_counts: Counter[NGram] = Counter()  # n-gram -> texts whose references have it

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count texts, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            words = [tokenise_caption(text) for text in (answer, *right)]
            self.texts.append(words)
            self.document_counts.update(
                {gram for one in words[1:] for n in _orders() for gram in count_ngrams(one, n)}
            )
            self.add_row([0.0])  # comes in `table`

    def merge(self, other: "Cider") -> None:
        super().merge(other)
        self.texts.extend(other.texts)
        self.document_counts.update(other.document_counts)

    def table(self) -> np.ndarray:
        """(n, 1): how like its references each text is."""
        rows = [self._score(own, others) for own, *others in self.texts]
        return np.array(rows, dtype=float).reshape(-1, 1)

    def statistics(self) -> Mapping[str, Statistic]:
        return {"cider": mean_of_column(0)}

    def _score(self, own: list[str], others: Sequence[list[str]]) -> float:
        mine = [self._tf_idf(own, n) for n in _orders()]
        total = 0.0
        for other in others:
            gap = max(0, len(own) - 1) - max(0, len(other) - 1)
            near = np.exp(-(gap**2) / (2 * LENGTH_SIGMA**2))
            total += near * sum(
                _cosine(a, self._tf_idf(other, n)) for n, a in zip(_orders(), mine, strict=True)
            )
        return 10 * total / CIDER_ORDER / len(others)

    def _tf_idf(self, words: list[str], n: int) -> dict[NGram, float]:
        """Each n-gram's count times log of (all texts / texts whose references have it)."""
        counts = count_ngrams(words, n)
        if not counts:
            return {}
        logs = np.log([max(1, self.document_counts[gram]) for gram in counts])
        weights = np.array(list(counts.values())) * (np.log(len(self.texts)) - logs)
        return dict(zip(counts, weights.tolist(), strict=True))


def _orders() -> range:
    return range(1, CIDER_ORDER + 1)


def _cosine(mine: Mapping[NGram, float], other: Mapping[NGram, float]) -> float:
    """The cosine where a shared n-gram weighs no more than in the reference."""
    sizes: list[float] = [
        sum(weight**2 for weight in each.values()) ** 0.5 for each in (mine, other)
    ]
    if not all(sizes):
        return 0.0
    shared = mine.keys() & other.keys()
    return sum(min(mine[gram], other[gram]) * other[gram] for gram in shared) / sizes[0] / sizes[1]
