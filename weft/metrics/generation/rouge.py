"""ROUGE (Lin 2004): overlap of n-grams and longest common subsequences with a summary."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from weft.metrics.generation.ngrams import Tokens, count_ngrams
from weft.metrics.generation.stem import stem
from weft.metrics.per_sentence import SentenceMetric, as_reference_lists, mean_of_column
from weft.metrics.sentence_counts import Statistic

Score = tuple[float, float, float]  # precision, recall, F1

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
WORD_PATTERNS = {
    "rouge": re.compile(r"[a-z0-9]+"),
    "unicode": re.compile(r"[^\W_]+"),
    "none": re.compile(r"\S+"),
}


class Rouge(SentenceMetric):
    """The mean over texts of ROUGE-1, -2, -L and -Lsum as F1, equal to Google's `rouge-score`.

    Of several references the one with the best F1 counts, for each kind on its own. `rougeLsum`
    takes a line for a sentence, where `rougeL` takes the whole text for one. The words are runs
    of a–z and 0–9 as in the original script: for other alphabets say words="unicode", which keeps
    every letter, or "none" to split at white space and keep case. stem=True compares stems.
    `NAME_precision` and `NAME_recall` come with every kind.
    """

    def __init__(
        self, stem: bool = False, words: Literal["rouge", "unicode", "none"] = "rouge"
    ) -> None:
        super().__init__(3 * len(KINDS), stem, words)
        self.stem = stem
        self.words = words

    def add(self, predicted: Sequence[str], gold: Sequence[str | Sequence[str]]) -> None:
        """Count texts, each with its references."""
        for answer, right in zip(predicted, as_reference_lists(gold), strict=True):
            lines = self._lines(answer)
            scores = zip(*(_score_kinds(lines, self._lines(one)) for one in right), strict=True)
            best = [max(of_kind, key=lambda score: score[2]) for of_kind in scores]
            self.add_row([number for score in best for number in score])

    def statistics(self) -> Mapping[str, Statistic]:
        plain = {kind: mean_of_column(3 * i + 2) for i, kind in enumerate(KINDS)}
        precision = {f"{kind}_precision": mean_of_column(3 * i) for i, kind in enumerate(KINDS)}
        recall = {f"{kind}_recall": mean_of_column(3 * i + 1) for i, kind in enumerate(KINDS)}
        return {**plain, **precision, **recall}

    def _lines(self, text: str) -> list[list[str]]:
        """The words of each line."""
        text = text if self.words == "none" else text.lower()
        lines = [WORD_PATTERNS[self.words].findall(line) for line in text.split("\n")]
        if self.stem:  # of short words the original script leaves the ending alone
            lines = [[stem(word) if len(word) > 3 else word for word in line] for line in lines]
        return lines


def longest_common_subsequence(first: Tokens, second: Tokens) -> list[int]:
    """Positions in `first` of a longest common subsequence.

    Bit-parallel (Hyyrö 2004): after each word of `second`, bit i of the row is 0 where the longest
    subsequence of first[: i + 1] is longer than that of first[:i]. Of several longest ones it is
    that of the original script, found from the end.
    """
    positions: dict[str, int] = {}
    for i, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << i
    full = (1 << len(first)) - 1
    rows = [full]
    for word in second:
        met = rows[-1] & positions.get(word, 0)
        rows.append(((rows[-1] + met) | (rows[-1] - met)) & full)
    matched = []
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            matched.append(i)
        elif rows[j] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
    return matched[::-1]


def _score_kinds(answer: Sequence[list[str]], reference: Sequence[list[str]]) -> list[Score]:
    """Return the scores of each kind for the lines of a text and of one reference."""
    words, other = ([word for line in lines for word in line] for lines in (answer, reference))
    scores = []
    for n in (1, 2):
        mine, right = count_ngrams(words, n), count_ngrams(other, n)
        scores.append(_f1_score((mine & right).total(), mine.total(), right.total()))
    scores.append(_f1_score(len(longest_common_subsequence(other, words)), len(words), len(other)))
    scores.append(_f1_score(_count_union_matches(answer, reference), len(words), len(other)))
    return scores


def _count_union_matches(answer: Sequence[list[str]], reference: Sequence[list[str]]) -> int:
    """Words of the reference's lines that lie on a longest common subsequence with some line.

    As in version 1.5.5 of the script, no word counts more often than either text has it.
    """
    left = Counter(word for line in answer for word in line)
    hits = 0
    for line in reference:
        met = {i for other in answer for i in longest_common_subsequence(line, other)}
        for i in sorted(met):
            if left[line[i]] > 0:
                left[line[i]] -= 1
                hits += 1
    return hits


def _f1_score(right: int, predicted: int, true: int) -> Score:
    precision, recall = right / max(predicted, 1), right / max(true, 1)
    return precision, recall, 2 * right / max(predicted + true, 1)
