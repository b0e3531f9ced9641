"""Evaluation of word vectors: human similarity and analogies, with coverage.

V words   E width of a vector   Q analogies
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import unknown_name
from weft.metrics import MetricValue, RegressionMetric
from weft.metrics.bootstrap import draw_resamples, percentile_interval
from weft.vectors.benchmarks import Pairs, Questions
from weft.vectors.neighbours import Method, nearest, unit

if TYPE_CHECKING:
    from weft.vectors.store import Vectors

METHODS: dict[str, str] = {"add": "3CosAdd", "multiply": "3CosMul"}  # as they are written
COSINE_DIGITS = 7  # of a cosine of 32-bit numbers


@dataclass(frozen=True)
class Similarity:
    """Agreement with people on a list of word pairs, and how many pairs it rests on."""

    name: str
    pairs: int
    found: int  # both words have a vector
    composed: int  # of those, pairs with a word whose vector is made of sub-words
    spearman: MetricValue
    pearson: MetricValue

    @property
    def coverage(self) -> float:
        return self.found / self.pairs

    def to_json(self) -> dict[str, object]:
        return {
            "list": self.name,
            "kind": "similarity",
            "spearman": self.spearman.to_json(),
            "pearson": self.pearson.to_json(),
            "pairs": self.pairs,
            "found": self.found,
            "composed": self.composed,
            "coverage": self.coverage,
        }


@dataclass(frozen=True)
class Section:
    """Analogies of one kind: the share solved of those whose four words have vectors.

    Questions of a section share their words, so the interval is that of other questions about
    the same words; new words would vary more.
    """

    name: str
    questions: int
    found: int
    accuracy: MetricValue

    @property
    def coverage(self) -> float:
        return self.found / self.questions

    def to_json(self) -> dict[str, object]:
        return {
            "accuracy": self.accuracy.to_json(),
            "questions": self.questions,
            "found": self.found,
            "coverage": self.coverage,
        }


@dataclass(frozen=True)
class Analogies:
    """A list of analogies, all together, by kind where the list has two, and by section."""

    name: str
    method: Method
    total: Section
    kinds: tuple[Section, ...]  # semantic and syntactic
    sections: tuple[Section, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "list": self.name,
            "kind": "analogies",
            "method": self.method,
            **self.total.to_json(),
            "kinds": {one.name: one.to_json() for one in self.kinds},
            "sections": {one.name: one.to_json() for one in self.sections},
        }


def evaluate(
    vectors: Vectors,
    listed: Pairs | Questions,
    *,
    method: Method = "add",
    max_words: int = 0,
    fold: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> Similarity | Analogies:
    """Evaluate vectors on a list of either kind.

    `max_words` keeps only the first words, the most frequent in most files. With `fold`, words are
    the same in whatever case they are written, and the first spelling has the vector.
    """
    known = _Lookup(vectors, max_words, fold)
    if isinstance(listed, Pairs):
        return _similarity(known, listed, resamples, seed)
    if method not in METHODS:
        raise unknown_name("analogy method", method, METHODS)
    return _analogies(known, listed, method, resamples, seed)


class _Lookup:
    """The words that take part, and how they are looked up."""

    def __init__(self, vectors: Vectors, max_words: int, fold: bool) -> None:
        self.vectors, self.fold = vectors, fold
        words = vectors.words
        self.count = min(max_words or len(words), len(words))
        self.keys: list[str] = [self.key(words[i]) for i in range(self.count)]
        self.spellings: dict[str, list[int]] = {}  # key -> rows, the first one counts
        for i, key in enumerate(self.keys):
            self.spellings.setdefault(key, []).append(i)
        # An unknown word is composed in the case that the n-grams were learnt in.
        self.lower = fold and all(word == word.lower() for word in words[: self.count])

    def key(self, word: str) -> str:
        return word.casefold() if self.fold else word

    def row(self, word: str) -> int | None:
        found = self.spellings.get(self.key(word))
        return found[0] if found else None

    def hidden(self, questions: np.ndarray) -> list[list[int]]:
        """Every spelling of the words of each question (Q, 3), which are no answers to it."""
        return [
            [other for row in rows for other in self.spellings[self.keys[row]]]
            for rows in questions.tolist()
        ]

    def vector(self, word: str) -> tuple[np.ndarray | None, bool]:
        """The vector of a word, if there is one, and whether it had to be composed."""
        row = self.row(word)
        if row is not None:
            return np.asarray(self.vectors[self.vectors.words[row]], dtype=np.float64), False
        word = word.lower() if self.lower else word
        pieces = self.vectors.subwords
        # A known word is here only because it is outside the restriction.
        if pieces is None or word in self.vectors.index or not pieces.rows(word):
            return None, False
        return np.asarray(self.vectors[word], dtype=np.float64), True


def _similarity(known: _Lookup, listed: Pairs, resamples: int, seed: int) -> Similarity:
    scores, gold, composed = [], [], 0
    for one, two, score in listed.rows:
        (a, made_a), (b, made_b) = known.vector(one), known.vector(two)
        if a is None or b is None:
            continue
        size = float(np.linalg.norm(a) * np.linalg.norm(b))
        # Cosines that are equal to the precision of the vectors are ties, not dust.
        scores.append(round(float(a @ b) / size, COSINE_DIGITS) if size else 0.0)
        gold.append(score)
        composed += made_a or made_b
    measure = RegressionMetric()
    measure.add(np.array(scores), np.array(gold))
    figures = measure.compute(resamples, seed)
    counts = (len(listed.rows), len(scores), composed)
    return Similarity(listed.name, *counts, figures["spearman"], figures["pearson"])


def _analogies(
    known: _Lookup, listed: Questions, method: Method, resamples: int, seed: int
) -> Analogies:
    all_questions = [question for _, questions in listed.sections for question in questions]
    rows = [[known.row(word) for word in question] for question in all_questions]
    found = np.array([all(row is not None for row in four) for four in rows])
    ids = np.array([four for four, whole in zip(rows, found, strict=True) if whole], dtype=int)
    right = np.zeros(len(all_questions), dtype=bool)
    if len(ids):
        matrix, keys = known.vectors.matrix[: known.count], known.keys
        asking = unit(matrix[ids[:, :3]])  # (Q, 3, E)
        lengths = known.vectors.lengths[: known.count]
        answers, _ = nearest(matrix, lengths, asking, 1, known.hidden(ids[:, :3]), method)
        if answers.size:  # else there is no word that is not in a question
            right[found] = [
                keys[answer] == keys[gold]
                for answer, gold in zip(answers.ravel().tolist(), ids[:, 3].tolist(), strict=True)
            ]

    def section(name: str, which: np.ndarray) -> Section:
        solved = right[which & found]
        accuracy = _fraction(int(solved.sum()), len(solved), resamples, seed)
        return Section(name, int(which.sum()), len(solved), accuracy)

    names = np.repeat(*np.array([(i, len(q)) for i, (_, q) in enumerate(listed.sections)]).T)
    whole = np.ones(len(all_questions), dtype=bool)
    # Google's list calls its syntactic sections gram1 to gram9.
    grammar = np.array([name.startswith("gram") for name, _ in listed.sections])[names]
    kinds = (("semantic", ~grammar), ("syntactic", grammar))
    return Analogies(
        listed.name,
        method,
        section("all", whole),
        tuple(section(*kind) for kind in kinds) if 0 < grammar.sum() < len(all_questions) else (),
        tuple(section(name, names == i) for i, (name, _) in enumerate(listed.sections)),
    )


def _fraction(right: int, n: int, resamples: int, seed: int) -> MetricValue:
    """right/n with its interval."""
    if not n:
        return MetricValue(0.0, 0.0, 0.0, 0)
    counts = np.array([n - right, right])
    resampled = [block[:, 1] / n for block in draw_resamples(counts, resamples, seed)]
    return percentile_interval(right / n, np.concatenate([*resampled, np.zeros(0)]), n)
