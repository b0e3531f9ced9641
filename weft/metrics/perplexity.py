"""Language-model metrics: perplexity per word and per token, bits per character."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from weft.errors import UserError
from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric
from weft.metrics.sentence_counts import Statistic

MAX_NATS = 700.0  # nats: e to this is still a number


@dataclass(frozen=True)
class TextCost:
    """The cost of one text in nats, -ln p, and its number of tokens.

    `nats` and `tokens` are of the text without ends of sentence, which come on their own.
    `unknown` of the tokens, and `unknown_nats` of the nats, are of the token for unknown words.
    """

    nats: float
    tokens: int
    end_nats: float = 0.0
    ends: int = 0
    unknown_nats: float = 0.0
    unknown: int = 0


@dataclass(frozen=True)
class TextSize:
    """The length of the original text, independent of any tokenizer."""

    words: int
    characters: int


def count_text(text: str, words: Callable[[str], Sequence[str]] = str.split) -> TextSize:
    """The words and the characters of a text before any tokenizer or lower-casing.

    Words are what white space separates, or what `words` cuts: the same for all models that
    are to be compared. A line break at the end is left to `Cost.ends`.
    """
    text = text.rstrip("\r\n")
    return TextSize(len(words(text)), len(text))


class Perplexity(SentenceMetric):
    """The perplexity of texts under a language model, on a scale independent of its tokenizer.

    All nats of the test text are divided by the same count for every model: the words of the
    original text for `perplexity`, e to the nats a word, and its characters for
    `bits_per_character`. Only `token_perplexity`, e to the nats a token, is a matter of the
    tokenizer and must not be compared across them.

    With ends=True the end of a sentence is charged and counts as one word, one token and one
    character (the line break), as is usual for WikiText and in KenLM; with ends=False it is
    neither charged nor counted. A model with a token for unknown words pays too little for them:
    `unknown` is their share of the tokens, and `perplexity_known` leaves both out, as KenLM's
    "excluding OOVs". Both are there only if unknown words occurred. The interval is over texts.
    """

    def __init__(self, ends: bool = True) -> None:
        super().__init__(8, ends)
        self.ends = ends

    def add(self, predicted: Sequence[TextCost], gold: Sequence[TextSize]) -> None:
        """Count texts: what each cost, and how long it is."""
        for cost, length in zip(predicted, gold, strict=True):
            if not math.isfinite(cost.nats + cost.end_nats):
                raise UserError(
                    f"Text {self.n + 1} costs {cost.nats + cost.end_nats} nats: the model gives "
                    "something in it probability 0, or its weights are broken. Smooth the model, "
                    "or look at its training loss."
                )
            assert cost.unknown <= cost.tokens
            self.add_row([*astuple(cost), *astuple(length)])

    def statistics(self) -> Mapping[str, Statistic]:
        statistics: dict[str, Statistic] = {
            "perplexity": lambda sums: _exp_ratio(self._nats(sums), self._count(sums, 6)),
            "token_perplexity": lambda sums: _exp_ratio(self._nats(sums), self._count(sums, 1)),
            "bits_per_character": lambda sums: safe_divide(
                self._nats(sums) / math.log(2), self._count(sums, 7)
            ),
        }
        if any(row[5] for row in self.rows):
            statistics["unknown"] = lambda sums: safe_divide(sums[:, 5], sums[:, 1])
            statistics["perplexity_known"] = lambda sums: _exp_ratio(
                self._nats(sums) - sums[:, 4], self._count(sums, 6) - sums[:, 5]
            )
        return statistics

    def _nats(self, sums: np.ndarray) -> np.ndarray:
        nats: np.ndarray = sums[:, 0] + self.ends * sums[:, 2]
        return nats

    def _count(self, sums: np.ndarray, column: int) -> np.ndarray:
        count: np.ndarray = sums[:, column] + self.ends * sums[:, 3]
        return count


def _exp_ratio(nats: np.ndarray, count: np.ndarray) -> np.ndarray:
    """e to the nats for each of the count."""
    perplexity: np.ndarray = np.exp(np.minimum(safe_divide(nats, count), MAX_NATS))
    return perplexity
