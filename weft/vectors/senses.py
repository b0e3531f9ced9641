"""Word senses: the occurrences of a word clustered by their contexts, one vector per cluster.

An occurrence is the weighted mean of the vectors of the words around it; spherical k-means groups
these, and the mean direction of a group is the vector of a sense (Reisinger & Mooney 2010). Words
around weigh by their inverse sentence frequency (Huang et al. 2012), so that function words say
little.

V words   E width   n occurrences   K senses   S sentences
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from weft.errors import UserError
from weft.vectors.neighbours import unit
from weft.vectors.store import ScoredWords, Vectors

if TYPE_CHECKING:
    from weft.vectors.corpus import Corpus

Weighting = Literal["idf", "uniform"]
WEIGHTINGS: tuple[Weighting, ...] = ("idf", "uniform")
SENSE_MARK = "#"  # between a word and the number of its sense
SILHOUETTE_ROWS = 1000  # occurrences that choose the number of senses: it compares all with all
RESTARTS, MAX_ROUNDS = 8, 100  # of k-means
BLOCK_WORDS = 1 << 20  # running words at a time, when sentences are counted
NEIGHBOUR_WORDS = 10_000  # the most frequent words, among which a sense's neighbours are shown
FUNCTION_WORDS = 200  # the most frequent words, which `frequent_words` leaves out


@dataclass(frozen=True)
class Sense:
    """A cluster of occurrences: its name such as bank#1, its vector, size and typical contexts."""

    name: str
    vector: np.ndarray  # (E,), of length 1
    size: int
    contexts: tuple[str, ...] = ()  # the nearest to the vector first


@dataclass(frozen=True)
class WordSenses:
    """The senses of one word, the most frequent first, and the sense of each occurrence."""

    word: str
    senses: tuple[Sense, ...]
    positions: np.ndarray  # (n,) in the ids of the corpus
    labels: np.ndarray  # (n,) index of the sense
    silhouette: float  # mean of the clustering, from −1 to 1

    def assign(self, contexts: np.ndarray) -> np.ndarray:
        """(n,) the sense with the greatest cosine to each context vector (n, E)."""
        best: np.ndarray = (unit(contexts) @ np.stack([s.vector for s in self.senses]).T).argmax(1)
        return best


class ContextReader:
    """Reads the context vectors of words in a corpus."""

    def __init__(
        self,
        corpus: Corpus,
        vectors: Vectors,
        window: int = 10,
        weighting: Weighting = "idf",
    ):
        if window < 1:
            raise UserError(f"'window' should be at least 1, got {window}.")
        self.corpus, self.window, self.weighting = corpus, window, weighting
        self.index = {word: i for i, word in enumerate(corpus.words)}
        rows = np.array([vectors.index.get(word, -1) for word in corpus.words])
        self.known = rows >= 0
        if not self.known.any():
            raise UserError(
                f"No word of the text is in {vectors.place or 'the vectors'}. "
                "Are they of the same language, case and tokenizer?"
            )
        self.vectors = np.zeros((len(rows), vectors.width), np.float32)  # (V, E)
        self.vectors[self.known] = unit(vectors.matrix[rows[self.known]])

    @cached_property
    def weights(self) -> np.ndarray:
        """(V,) log(S / sentences with the word), or 1; 0 for words without a vector."""
        if self.weighting == "uniform":
            return self.known.astype(np.float32)
        frequency = sentence_frequencies(self.corpus)
        weights = np.log(len(self.corpus.ends) / np.maximum(frequency, 1))
        return np.asarray(weights * self.known, np.float32)

    def positions(self, word: str, limit: int, random: np.random.Generator) -> np.ndarray:
        """(n,) where a word stands in the ids; a random choice where it does more than `limit`."""
        if word not in self.index:
            raise UserError(f"The word '{word}' does not occur in the text.")
        found = np.flatnonzero(np.asarray(self.corpus.ids) == self.index[word])
        if limit and len(found) > limit:
            found = np.sort(random.choice(found, limit, replace=False))
        return found

    def read(self, positions: np.ndarray) -> np.ndarray:
        """(n, E) Σ weight · vector of the words within the window, brought to length 1.

        Other occurrences of the word itself do not count. Zeros where nothing is left.
        """
        ids, begins, ends = np.asarray(self.corpus.ids), *self._sentences(positions)
        total = np.zeros((len(positions), self.vectors.shape[1]), np.float32)  # (n, E)
        for offset in range(-self.window, self.window + 1):
            there = positions + offset
            inside = (there >= begins) & (there < ends)
            around = ids[np.where(inside, there, positions)]
            weights = self.weights[around] * (around != ids[positions])
            total += weights[:, None] * self.vectors[around]
        return unit(total)

    def show(self, position: int) -> str:
        """The words within the window of an occurrence."""
        (begin,), (end,) = self._sentences(np.array([position]))
        first, last = max(begin, position - self.window), min(end, position + self.window + 1)
        return " ".join(self.corpus.words[i] for i in np.asarray(self.corpus.ids[first:last]))

    def sense_neighbours(self, found: Sequence[WordSenses], k: int) -> dict[str, ScoredWords]:
        """The k words nearest to each sense by its name, among the most frequent words.

        A mean of many vectors is near to those of rare words, which say little about it.
        """
        rows = np.flatnonzero(self.known)[:NEIGHBOUR_WORDS]
        space = Vectors([self.corpus.words[i] for i in rows], self.vectors[rows])
        return {
            sense.name: space.neighbours(sense.vector, k, without=[one.word])
            if k
            else ScoredWords()
            for one in found
            for sense in one.senses
        }

    def _sentences(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Begin and end of the sentence of each position."""
        ends = np.asarray(self.corpus.ends)
        which = np.searchsorted(ends, positions, side="right")
        return np.where(which > 0, ends[which - 1], 0), ends[which]


def find_senses(
    reader: ContextReader,
    words: Sequence[str],
    count: int = 0,
    *,
    max_senses: int = 5,
    min_occurrences: int = 20,
    max_occurrences: int = 10_000,
    examples: int = 3,
    seed: int = 1,
    watch: Callable[[int], None] = lambda words: None,
) -> list[WordSenses]:
    """Cluster the occurrences of each word; `count` senses, or 0 to choose by the silhouette.

    The choice is between 2 and `max_senses`: the number with the greatest mean silhouette.
    """
    if count < 0 or max_senses < 2:
        raise UserError(
            "Senses should be 0 (to choose) or more, and max_senses 2 or more; got "
            f"{count} and {max_senses}."
        )
    found = []
    for word in words:
        random = np.random.Generator(np.random.PCG64(seed))
        positions = reader.positions(word, max_occurrences, random)
        contexts = reader.read(positions)
        used = contexts.any(axis=1)
        positions, contexts = positions[used], contexts[used]
        needed = max(min_occurrences, count)
        if len(positions) < needed:
            raise UserError(
                f"'{word}' occurs {len(positions)} times with known words around it; {needed} are "
                "needed. Add text, or lower --min-occurrences."
            )
        choices = [count] if count else list(range(2, min(max_senses, len(positions)) + 1))
        labels, quality = _best_clustering(contexts, choices, random)
        found.append(_describe(reader, word, positions, contexts, labels, quality, examples))
        watch(1)
    return found


def add_senses(vectors: Vectors, found: Sequence[WordSenses]) -> Vectors:
    """The vectors with those of the senses, such as bank#1, after the words.

    A sense's vector is as long as its word's, where that has one.
    """
    names, rows, sizes = [], [], []
    for one in found:
        known = one.word in vectors.index
        length = float(np.linalg.norm(vectors[one.word])) if known else 1.0
        for sense in one.senses:
            names.append(sense.name)
            rows.append(sense.vector * (length or 1.0))
            sizes.append(sense.size)
    matrix = np.concatenate([np.asarray(vectors.matrix), np.stack(rows)]).astype(np.float32)
    counts = None
    if vectors.counts is not None:
        counts = np.concatenate([np.asarray(vectors.counts), np.array(sizes, np.int64)])
    return Vectors([*vectors.words, *names], matrix, counts=counts, record=vectors.record)


def tagged_sentences(corpus: Corpus, found: Sequence[WordSenses]) -> Iterator[str]:
    """Yield the sentences with each clustered word replaced by its sense, such as bank#2.

    Vectors trained on them are those of Huang et al. (2012).
    """
    names = {
        int(position): one.senses[label].name
        for one in found
        for position, label in zip(one.positions, one.labels.tolist(), strict=True)
    }
    begin = 0
    for end in np.asarray(corpus.ends).tolist():
        ids = np.asarray(corpus.ids[begin:end]).tolist()
        yield " ".join(names.get(begin + i, corpus.words[word]) for i, word in enumerate(ids))
        begin = end


def frequent_words(corpus: Corpus, vectors: Vectors, count: int) -> list[str]:
    """The most frequent words that have letters and vectors; function words are left out."""
    content = (word for word in corpus.words[FUNCTION_WORDS:] if any(map(str.isalpha, word)))
    return list(itertools.islice((word for word in content if word in vectors.index), count))


def sentence_frequencies(corpus: Corpus) -> np.ndarray:
    """(V,) the number of sentences that hold each word."""
    ends, total = np.asarray(corpus.ends), np.zeros(len(corpus.words), np.int64)
    first = 0
    while first < len(ends):
        begin = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, begin + BLOCK_WORDS, side="right")))
        ids = np.asarray(corpus.ids[begin : int(ends[last - 1])], np.int64)
        sentences = np.searchsorted(ends, np.arange(begin, begin + len(ids)), side="right")
        pairs = np.unique(sentences * len(total) + ids)
        total += np.bincount(pairs % len(total), minlength=len(total))
        first = last
    return total


def spherical_kmeans(
    rows: np.ndarray, count: int, random: np.random.Generator, restarts: int = RESTARTS
) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) and unit centroids (K, E) with the greatest Σ cos(row, its centroid).

    The best of some starts by k-means++ (Dhillon & Modha 2001).
    """
    best, labels, centroids = -np.inf, np.zeros(len(rows), int), rows[:count]
    for _ in range(restarts):
        starts = _plus_plus(rows, count, random)
        found = _lloyd(rows, starts)
        total = float((rows * found[1][found[0]]).sum())
        if total > best + 1e-9:
            best, (labels, centroids) = total, found
    return labels, centroids


def silhouette(rows: np.ndarray, labels: np.ndarray) -> float:
    """Mean of (b − a) / max(a, b): distances 1 − cos within a cluster (a), to the next one (b).

    A row that is alone in its cluster counts 0 (Rousseeuw 1987).
    """
    count = int(labels.max()) + 1
    members = np.eye(count)[labels]  # (n, K)
    sizes = members.sum(0)
    sums = (1 - rows @ rows.T).clip(min=0).astype(np.float64) @ members  # (n, K)
    own = sizes[labels]
    within = sums[np.arange(len(rows)), labels] / np.maximum(own - 1, 1)
    means = sums / np.maximum(sizes, 1)
    means[:, sizes == 0] = np.inf
    means[np.arange(len(rows)), labels] = np.inf
    other = means.min(1)
    scores = (other - within) / np.maximum(np.maximum(other, within), 1e-12)
    return float(np.where((own > 1) & np.isfinite(other), scores, 0.0).mean())


def _best_clustering(
    contexts: np.ndarray, choices: Sequence[int], random: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Labels of the number of clusters with the greatest silhouette on some rows."""
    sample = np.arange(len(contexts))
    if len(sample) > SILHOUETTE_ROWS:
        sample = random.choice(sample, SILHOUETTE_ROWS, replace=False)
    best, quality = np.zeros(len(contexts), int), -np.inf
    for count in choices:
        labels, _ = spherical_kmeans(contexts, count, random)
        score = silhouette(contexts[sample], labels[sample]) if count > 1 else 0.0
        if score > quality:
            best, quality = labels, score
    return best, quality


def _describe(
    reader: ContextReader,
    word: str,
    positions: np.ndarray,
    contexts: np.ndarray,
    labels: np.ndarray,
    quality: float,
    examples: int,
) -> WordSenses:
    """The clusters as senses, the most frequent first."""
    kept = [c for c in range(int(labels.max()) + 1) if (labels == c).any()]
    order = sorted(kept, key=lambda c: (-int((labels == c).sum()), c))
    senses, renamed = [], np.zeros_like(labels)
    for number, cluster in enumerate(order):
        mine = np.flatnonzero(labels == cluster)
        renamed[mine] = number
        vector = unit(contexts[mine].mean(0))
        near = mine[np.argsort(-(contexts[mine] @ vector), kind="stable")][:examples]
        shown = tuple(reader.show(int(position)) for position in positions[near])
        senses.append(Sense(f"{word}{SENSE_MARK}{number + 1}", vector, len(mine), shown))
    return WordSenses(word, tuple(senses), positions, renamed, quality)


def _plus_plus(rows: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Starting centroids (K, E): each with a probability ∝ 1 − cos to the nearest so far."""
    chosen = [int(random.integers(len(rows)))]
    distance = np.full(len(rows), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, (1 - rows @ rows[chosen[-1]]).clip(min=0))
        total = distance.sum()
        probs = distance / total if total > 0 else np.full(len(rows), 1 / len(rows))
        chosen.append(int(random.choice(len(rows), p=probs)))
    return rows[chosen]


def _lloyd(rows: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Assign and average in turn until no row changes its cluster; an empty one stays put."""
    labels = np.full(len(rows), -1)
    for _ in range(MAX_ROUNDS):
        new = (rows @ centroids.T).argmax(1)
        if (new == labels).all():
            break
        labels = new
        sums = np.eye(len(centroids), dtype=np.float32)[labels].T @ rows  # (K, E)
        full = sums.any(axis=1)
        centroids = np.where(full[:, None], unit(sums), centroids)
    return labels, centroids
