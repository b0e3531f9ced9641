"""Learning a Unigram vocabulary (Kudo 2018) so that the same text always gives the same pieces.

The trainer of the `tokenizers` library adds up in hash order, so two runs of it differ. This one
runs expectation-maximisation over the distinct words, all of them at once, in NumPy.

A lattice has one node for each place in each word, and one edge for each piece that fits there.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAX_WORD_TYPES = 100_000  # words that are learned from, most frequent first
MAX_WORD_CHARACTERS = (
    24  # longer words are learned from in parts; the product of 24 probabilities fits a float
)
MAX_PIECE_CHARACTERS = 16  # characters of the longest piece
SEEDS_PER_PIECE = 10  # candidates to start from, for each piece wanted
KEPT_FRACTION = 0.75  # of the candidates, in each round of pruning
_IMPOSSIBLE = -1e30  # log-probability of what cannot be; finite, so that 0 times it is 0
EM_PASSES = 2  # of expectation-maximisation between prunings


def train_unigram(
    counts: Counter[str], letters: Sequence[str], size: int
) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, likeliest first; every letter is one."""
    words = _training_words(counts, letters)
    pieces = _seed_pieces(words, letters, SEEDS_PER_PIECE * size)
    lattice = Lattice.build(list(words), pieces)
    parts = Lattice.build(pieces, pieces, proper=True)  # how a piece could be cut without itself
    weights = np.array(list(words.values()), dtype=np.float64)
    required = np.array([len(piece) == 1 for piece in pieces])
    alive = np.arange(len(pieces))  # seeds that are left
    expected = np.ones(len(pieces))
    while True:
        for _ in range(EM_PASSES):
            expected = lattice.expected_counts(_normalise(expected), weights)
        if len(pieces) <= size:
            break
        # What the likelihood loses, about, when a piece is replaced by its own best cut.
        score = np.log(_normalise(expected))
        loss = np.where(required, np.inf, expected * (score - parts.best(score)[alive]))
        order = np.argsort(-loss, kind="stable")  # ties keep the order of the seeds
        keep = np.sort(order[: max(size, int(KEPT_FRACTION * len(pieces)))])
        lattice, parts = lattice.keep(keep, len(pieces)), parts.keep(keep, len(pieces))
        pieces = [pieces[i] for i in keep]
        required, expected, alive = required[keep], expected[keep], alive[keep]
    scores = np.log(_normalise(expected)).round(6).tolist()
    return sorted(zip(pieces, scores, strict=True), key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class Lattice:
    """The ways to cut many words; nodes are numbered place by place, longest word first."""

    source: np.ndarray  # (edges,) node where a piece starts
    target: np.ndarray  # (edges,) node where it ends; edges are sorted by it
    piece: np.ndarray  # (edges,)
    levels: np.ndarray  # (places + 1,) first node of each place
    first: np.ndarray  # (words,) node of each word's beginning
    last: np.ndarray  # (words,) node of each word's end

    @classmethod
    def build(cls, words: Sequence[str], pieces: Sequence[str], proper: bool = False) -> "Lattice":
        """Every piece that fits in every word; `proper` leaves out those that are a whole word."""
        ids = {piece: i for i, piece in enumerate(pieces)}
        lengths = np.array([len(word) for word in words])
        order = np.argsort(-lengths, kind="stable")
        rank = np.empty(len(words), dtype=np.int64)
        rank[order] = np.arange(len(words))
        sizes = [int((lengths >= place).sum()) for place in range(lengths.max() + 1)]
        levels = np.concatenate([[0], np.cumsum(sizes)])
        starts = levels.tolist()
        edges = array("q")  # flat, since there are millions
        for word, row in zip(words, rank.tolist(), strict=True):
            whole = len(word)
            for start in range(whole):
                for end in range(start + 1, min(whole, start + MAX_PIECE_CHARACTERS) + 1):
                    piece = ids.get(word[start:end])
                    if piece is not None and not (proper and end - start == whole):
                        edges.extend((starts[end] + row, starts[start] + row, piece))
        target, source, piece_of = np.array(edges, dtype=np.int64).reshape(-1, 3).T
        by_target = np.argsort(target, kind="stable")
        ends = levels[lengths] + rank
        return cls(source[by_target], target[by_target], piece_of[by_target], levels, rank, ends)

    def keep(self, kept: np.ndarray, pieces: int) -> "Lattice":
        """Without the edges of pieces that were dropped."""
        new = np.full(pieces, -1)
        new[kept] = np.arange(len(kept))
        stays = new[self.piece] >= 0
        return Lattice(
            self.source[stays],
            self.target[stays],
            new[self.piece[stays]],
            self.levels,
            self.first,
            self.last,
        )

    def expected_counts(self, share: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the expected count of each piece over all segmentations of each word."""
        p = share[self.piece]  # (edges,)
        forward = self._sweep(self.source, self.target, p, self.first)
        backward = self._sweep(self.target, self.source, p, self.last, back=True)
        total = np.zeros(self.levels[-1])  # probability and count of the word, at every edge
        total[self.last] = weights / forward[self.last]
        scale = self._spread(total)
        used = forward[self.source] * p * backward[self.target] * scale[self.target]
        return np.bincount(self.piece, weights=used, minlength=len(share))

    def best(self, score: np.ndarray) -> np.ndarray:
        """The log-probability of the likeliest cut of each word."""
        best = np.full(self.levels[-1], _IMPOSSIBLE)
        best[self.first] = 0
        for low, high in self._blocks(self.target):
            reach = best[self.source[low:high]] + score[self.piece[low:high]]
            np.maximum.at(best, self.target[low:high], reach)
        scores: np.ndarray = best[self.last]
        return scores

    def _sweep(
        self,
        here: np.ndarray,
        there: np.ndarray,
        p: np.ndarray,
        begin: np.ndarray,
        back: bool = False,
    ) -> np.ndarray:
        """Sums of products of probabilities along all paths from `begin`, (nodes,)."""
        if back:
            order = np.argsort(there, kind="stable")
            here, there, p = here[order], there[order], p[order]
        mass = np.zeros(self.levels[-1])
        mass[begin] = 1
        blocks = self._blocks(there)
        for low, high in reversed(blocks) if back else blocks:
            base = there[low]
            gained = np.bincount(there[low:high] - base, weights=mass[here[low:high]] * p[low:high])
            mass[base : base + len(gained)] += gained
        return mass

    def _blocks(self, nodes: np.ndarray) -> list[tuple[int, int]]:
        """Ranges of edges whose (sorted) nodes lie at the same place."""
        cuts = np.searchsorted(nodes, self.levels)
        return [(a, b) for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True) if a < b]

    def _spread(self, at_end: np.ndarray) -> np.ndarray:
        """The value at each word's last node, at all nodes of the word."""
        per_word = np.zeros(len(self.first))
        per_word[self.first] = at_end[self.last]  # the first node of a word is also its rank
        sizes = np.diff(self.levels)
        return np.concatenate([per_word[:size] for size in sizes])


def _training_words(counts: Counter[str], letters: Sequence[str]) -> dict[str, int]:
    """Return frequent words with counts, split at unknown letters and at `MAX_WORD_CHARACTERS`."""
    known = re.compile(f"[{re.escape(''.join(letters))}]{{1,{MAX_WORD_CHARACTERS}}}")
    frequent = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:MAX_WORD_TYPES]
    words: dict[str, int] = dict.fromkeys(sorted(letters), 1)
    for word, count in frequent:
        for part in known.findall(word):
            words[part] = words.get(part, 0) + count
    return words


def _seed_pieces(words: dict[str, int], letters: Sequence[str], most: int) -> list[str]:
    """Letters, and the parts of words that save most characters."""
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word) - 1):
            for end in range(start + 2, min(len(word), start + MAX_PIECE_CHARACTERS) + 1):
                parts[word[start:end]] += count
    useful = [part for part, count in parts.items() if count > 1]
    useful.sort(key=lambda part: (-parts[part] * len(part), part))
    return [*sorted(letters), *useful[:most]]


def _normalise(expected: np.ndarray) -> np.ndarray:
    """Probabilities; a little is left to each piece, so that every word can still be cut."""
    floored = np.maximum(expected, 1e-3)
    probs: np.ndarray = floored / floored.sum()
    return probs
