"""Vectors: words with their vectors, saved in files and queried.

V words   E width
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from weft.embed.subwords import Subwords
from weft.embed.vector_files.table import Duplicates, not_finite_error
from weft.embed.vector_files.text import read_table
from weft.errors import UserError, unknown_name
from weft.notebook import HtmlRepr
from weft.registry import check_types
from weft.vectors.neighbours import METRICS, Approximate, Method, Metric, nearest, norms, unit

_NONE_NEAR = " Vectors with sub-words (method fasttext) have one for any word."
_COMPARED = 50_000  # words looked at for a near miss where rapidfuzz is not installed


class ScoredWords(list[tuple[str, float]], HtmlRepr):
    """Words with cosines or distances, best first."""


class Vectors:
    """Words and their vectors, possibly memory-mapped; with sub-words no word is unknown.

    With `subwords` the matrix may be None: it is then composed when all of it is first needed.
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: np.ndarray | None,
        *,
        counts: np.ndarray | None = None,
        subwords: Subwords | None = None,
        output: np.ndarray | None = None,
        record: Mapping[str, Any] | None = None,
    ):
        self.words = words
        self.index = {word: row for row, word in enumerate(words)}
        self.counts = counts  # (V,) how often each was seen
        self.subwords = subwords
        self.output = output  # (V, E) context vectors, where they were kept
        self.record: Mapping[str, Any] = record or {}  # what training or a file noted
        self.place = ""  # the file they were loaded from, for messages
        self._matrix = matrix
        self._check()

    def _check(self) -> None:
        matrix, words = self._matrix, self.words
        if len(self.index) != len(words):
            row, word = next((i, w) for i, w in enumerate(words) if self.index[w] != i)
            again = self.index[word]
            raise UserError(
                f"The word '{word}' twice, rows {row + 1} and {again + 1}. Keep one of them."
            )
        if matrix is None and self.subwords is None:
            raise UserError("Word vectors need a matrix, or sub-words to compose it from.")
        if matrix is not None and (matrix.ndim != 2 or len(matrix) != len(words)):
            raise UserError(
                f"{len(words)} words, but a matrix of shape {matrix.shape}. "
                "It should have a row a word."
            )
        if self.subwords is not None and self.subwords.table.shape[1] != self.width:
            raise UserError(
                f"Sub-words of width {self.subwords.table.shape[1]}, but vectors of {self.width}."
            )
        if self.counts is not None and len(self.counts) != len(words):
            raise UserError(f"{len(words)} words, but {len(self.counts)} counts.")
        if matrix is not None and not isinstance(matrix, np.memmap):
            bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
            if len(bad):
                raise not_finite_error(words[bad[0]], int(bad[0]))

    @classmethod
    @check_types
    def load(
        cls, path: str | Path, *, mmap: bool = True, duplicates: Duplicates = "error"
    ) -> Vectors:
        """Open a file of word vectors of any known format, recognised by its content."""
        table = read_table(path, mmap=mmap, duplicates=duplicates)
        found = cls(
            table.words,
            table.matrix,
            counts=table.counts,
            subwords=table.subwords,
            output=table.output,
            record=table.record,
        )
        found.place = str(path)
        return found

    def save(self, path: str | Path, format: str = "") -> None:
        """Write a file in the format that its ending says, or that is named."""
        from weft.vectors.files import write_vectors

        write_vectors(self, path, format)

    @property
    def matrix(self) -> np.ndarray:
        """All vectors, (V, E) float32."""
        if self._matrix is None:
            assert self.subwords is not None
            self._matrix = self.subwords.compose(self.words)
        return self._matrix

    @property
    def width(self) -> int:
        if self._matrix is not None:
            return int(self._matrix.shape[1])
        assert self.subwords is not None
        return int(self.subwords.table.shape[1])

    @cached_property
    def lengths(self) -> np.ndarray:
        """The length of each vector, (V,); 1 where the vector is zero."""
        return norms(self.matrix, self.words, self.place)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        more = ", with sub-words" if self.subwords else ""
        return f"Vectors({len(self)} words × {self.width}{more})"

    def __contains__(self, word: object) -> bool:
        """Return True if the word is in the vocabulary; subwords give vectors to others, too."""
        return word in self.index

    def __getitem__(self, word: str) -> np.ndarray:
        """The vector of a word, (E,); composed of its n-grams where it is not in the vocabulary."""
        row = self.index.get(word)
        if row is None and not self._can_compose(word):
            raise self.unknown_word(word)
        if row is None or self._matrix is None:
            assert self.subwords is not None
            found = self.subwords.vector(word, row)
        else:
            found = np.array(self._matrix[row], np.float32)
        if not np.isfinite(found).all():
            raise not_finite_error(word, -1 if row is None else row, self.place)
        return found

    def _can_compose(self, word: str) -> bool:
        """Return True if an out-of-vocabulary word has n-grams to build a vector from."""
        return self.subwords is not None and bool(self.subwords.rows(word))

    def unknown_word(self, word: str) -> UserError:
        """The error for a word without a vector, with what is written much the same."""
        near = self.similar_spellings(word)
        quoted = [f"'{one}'" for one in near]
        hint = " or ".join([", ".join(quoted[:-1]), quoted[-1]] if near[1:] else quoted)
        advice = f" Did you mean {hint}?" if near else "" if self.subwords else _NONE_NEAR
        known = f"the {len(self):,} words of {self.place}" if self.place else f"{len(self):,} words"
        return UserError(f"No vector for '{word}' among {known}.{advice}")

    def similar_spellings(self, word: str, k: int = 3) -> list[str]:
        """Known words that are written much like this one."""
        cased = [w for w in (word.lower(), word.capitalize(), word.upper()) if w in self.index]
        try:
            from rapidfuzz import process
            from rapidfuzz.distance import Indel

            close = process.extract(
                word, self.words, scorer=Indel.normalized_similarity, limit=k, score_cutoff=0.7
            )
            found = [name for name, _, _ in close]
        except ImportError:
            import difflib

            found = difflib.get_close_matches(word, list(self.words[:_COMPARED]), n=k)
        return list(dict.fromkeys([*cased, *found]))[:k]

    def neighbours(
        self,
        query: str | np.ndarray | Sequence[str],
        k: int = 10,
        without: Iterable[str] = (),
        approximate: bool = False,
        metric: Metric = "cosine",
    ) -> ScoredWords:
        """The k words nearest to a word, a vector, or the mean of some words.

        Query words are not among the answers, nor those of `without`. The mean is that of vectors
        of length 1 for cosines, and of the vectors themselves for Euclidean distances.
        """
        vector, asking = self._query(query, _check_metric(metric))
        gone = [self.index[w] for w in {*asking, *without} if w in self.index]
        if approximate:
            if metric != "cosine":
                raise UserError("Approximate neighbours are by cosine. Remove one of the two.")
            ids, scores = self.graph.nearest(vector, k, gone)
            return self._with_words(ids, scores)
        ids, scores = nearest(self.matrix, self.lengths, vector[None], k, [gone], metric)
        return self._with_words(ids[0], scores[0], metric)

    def neighbour_lists(
        self, words: Sequence[str], k: int = 10, metric: Metric = "cosine"
    ) -> list[ScoredWords]:
        """The neighbours of each word, in one pass over the matrix."""
        if not len(words):
            return []
        queries = np.stack([self[word] for word in words])
        if _check_metric(metric) == "cosine":
            queries = unit(queries)
        gone = [[self.index[word]] if word in self.index else [] for word in words]
        ids, scores = nearest(self.matrix, self.lengths, queries, k, gone, metric)
        return [self._with_words(*pair, metric) for pair in zip(ids, scores, strict=True)]

    @cached_property
    def graph(self) -> Approximate:
        """The graph of approximate neighbours, built on first use."""
        return Approximate.build(self.matrix)

    def _query(
        self, query: str | np.ndarray | Sequence[str], metric: Metric = "cosine"
    ) -> tuple[np.ndarray, Sequence[str]]:
        """A vector, for cosines of length 1, and the words it comes from."""
        if isinstance(query, np.ndarray):
            if query.shape != (self.width,):
                raise UserError(
                    f"A query of shape {query.shape}, but the vectors are {self.width} wide."
                )
            return unit(query) if metric == "cosine" else query, ()
        asking = [query] if isinstance(query, str) else list(query)
        if not asking:
            raise UserError("No words to look for. Give one or more.")
        vectors = np.stack([self[word] for word in asking])  # (n, E)
        if metric == "euclidean":
            return vectors.mean(axis=0), asking
        return unit(unit(vectors).mean(axis=0)), asking

    def _with_words(
        self, ids: np.ndarray, scores: np.ndarray, metric: str = "cosine"
    ) -> ScoredWords:
        sign = -1.0 if metric == "euclidean" else 1.0
        pairs = zip(ids.tolist(), scores.tolist(), strict=True)
        return ScoredWords((self.words[i], sign * score) for i, score in pairs if score > -np.inf)

    def analogy(self, a: str, b: str, c: str, k: int = 1, method: Method = "add") -> ScoredWords:
        """a is to b as c is to …: by 3CosAdd or 3CosMul (Levy & Goldberg 2014).

        None of the three words is an answer.
        """
        if method not in ("add", "multiply"):
            raise UserError(f"Unknown method '{method}' of analogy. Known: add, multiply.")
        query = unit(np.stack([self[word] for word in (a, b, c)]))[None]  # (1, 3, E)
        gone = [self.index[word] for word in {a, b, c} if word in self.index]
        ids, scores = nearest(self.matrix, self.lengths, query, k, [gone], method)
        return self._with_words(ids[0], scores[0])

    def odd(self, words: Sequence[str]) -> str:
        """The word that fits the others least: the lowest cosine with the mean of all."""
        return self.rank_by_centrality(words)[-1][0]

    def rank_by_centrality(self, words: Sequence[str]) -> ScoredWords:
        """Words with their cosine to the mean of all, the most central first, the odd one last."""
        if len(words) < 3:
            raise UserError(f"The odd one out of {len(words)} words: give three or more.")
        vectors = unit(np.stack([self[word] for word in words]))  # (n, E)
        cosines = vectors @ unit(vectors.mean(axis=0))  # (n,)
        # Of equals the first is the odd one, so it comes last.
        order = np.argsort(cosines, kind="stable")[::-1]
        return ScoredWords((words[i], float(cosines[i])) for i in order.tolist())

    def expand(self, words: Sequence[str], k: int = 10) -> ScoredWords:
        """A query and k words near the middle of it, each with its weight (Kuzi et al. 2016).

        The query's own words come first and weigh 1; those without a vector do not steer.
        """
        known = [word for word in words if word in self.index or self._can_compose(word)]
        if not known:
            raise self.unknown_word(words[0]) if len(words) else UserError("No words to expand.")
        query = [(word, 1.0) for word in words]
        return ScoredWords([*query, *self.neighbours(known, k, without=words)])

    @overload
    def similarity(self, a: str, b: str) -> float: ...
    @overload
    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> float: ...
    def similarity(self, a: str | Sequence[str], b: str | Sequence[str]) -> float:
        """The cosine of two words; of two sentences, where one is a list or has spaces in it."""
        first, second = unit(self._meaning(a)), unit(self._meaning(b))
        return float(first @ second)

    def _meaning(self, text: str | Sequence[str]) -> np.ndarray:
        if isinstance(text, str) and (text in self.index or not any(map(str.isspace, text))):
            return self[text]
        return self.sentence(text)

    def sentence(self, text: str | Sequence[str]) -> np.ndarray:
        """The mean of the words' vectors brought to length 1, (E,), as in fastText.

        A text is cut into words as the `word` tokenizer does. A word that is known only in small
        letters is taken so; one without a vector is left out, and of none the mean is zero.
        """
        cut = _cut(text) if isinstance(text, str) else text
        known = [self._spelling(word) for word in cut]
        vectors = [unit(self[word]) for word in known if word is not None]
        vectors = [vector for vector in vectors if vector.any()]
        if not vectors:
            return np.zeros(self.width, np.float32)
        return np.asarray(np.mean(vectors, axis=0, dtype=np.float32))

    def _spelling(self, word: str) -> str | None:
        for form in (word, word.lower()):
            if form in self.index:
                return form
        return word if self._can_compose(word) else None


def _check_metric(metric: Metric) -> Metric:
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    return metric


def _cut(text: str) -> list[str]:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    from weft.tokens import word_pattern

    words = Split(Regex(word_pattern.word_regex()), "removed", invert=True)
    return [word for word, _ in words.pre_tokenize_str(text)]
