"""Assignment: learn and apply byte-pair merges."""

from collections import Counter
from itertools import pairwise

import numpy as np

from weft.lab.assignments.assignment import Arguments, Assignment, Part

TEXT = r"""
Byte-pair encoding (Sennrich et al. 2016) begins with characters and merges the most frequent pair
of neighbours, again and again. The merges, in the order in which they were learned, are the
tokenizer.

Words come with their counts, `{"low": 5, "lower": 2}`. There is no mark for the end of a word. Of
pairs that are equally frequent, the smaller one (as Python compares tuples of texts) is merged
first.
"""


def count_pairs(words: dict[tuple[str, ...], int]) -> dict[tuple[str, str], int]:
    """Return how often each pair of neighbours occurs; words are tuples of pieces with counts."""
    pairs: Counter[tuple[str, str]] = Counter()
    for pieces, count in words.items():
        for pair in pairwise(pieces):
            pairs[pair] += count
    return dict(pairs)


def merge(pieces: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """Return the pieces with every occurrence of the pair joined, from left to right."""
    out: list[str] = []
    position = 0
    while position < len(pieces):
        if pieces[position : position + 2] == pair:
            out.append(pair[0] + pair[1])
            position += 2
        else:
            out.append(pieces[position])
            position += 1
    return tuple(out)


def learn_merges(counts: dict[str, int], merges: int) -> list[tuple[str, str]]:
    """Return the pairs in the order in which they are merged; fewer if no pair is left."""
    words = {tuple(word): count for word, count in counts.items()}
    found: list[tuple[str, str]] = []
    while len(found) < merges and (pairs := count_pairs(words)):
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        found.append(best)
        words = {merge(pieces, best): count for pieces, count in words.items()}
    return found


def tokenize(word: str, merges: list[tuple[str, str]]) -> list[str]:
    """Return the pieces of a word: all merges in the order in which they were learned."""
    pieces = tuple(word)
    for pair in merges:
        pieces = merge(pieces, pair)
    return list(pieces)


def _draw_word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list("abc"), int(rng.integers(1, 9))).tolist())


def _draw_counts(rng: np.random.Generator) -> dict[str, int]:
    return {_draw_word(rng): int(rng.integers(1, 6)) for _ in range(int(rng.integers(1, 7)))}


def _draw_pieces(rng: np.random.Generator) -> Arguments:
    return [{tuple(word): count for word, count in _draw_counts(rng).items()}]


def _draw_merge(rng: np.random.Generator) -> Arguments:
    return [tuple(_draw_word(rng)), (str(rng.choice(["a", "b"])), str(rng.choice(["a", "c"])))]


def _draw_learning(rng: np.random.Generator) -> Arguments:
    return [_draw_counts(rng), int(rng.integers(0, 9))]


def _draw_tokenizing(rng: np.random.Generator) -> Arguments:
    return [_draw_word(rng), learn_merges(_draw_counts(rng), 6)]


_COUNTS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
ASSIGNMENT = Assignment(
    "bpe-merges",
    "Byte-pair encoding",
    ("004",),
    TEXT,
    (
        Part(count_pairs, 2, _draw_pieces, ([{("l", "o", "w"): 5, ("l", "o"): 2}],)),
        Part(merge, 2, _draw_merge, ([("a", "a", "a"), ("a", "a")],)),
        Part(learn_merges, 4, _draw_learning, ([_COUNTS, 4],)),
        Part(tokenize, 2, _draw_tokenizing, (["lowest", learn_merges(_COUNTS, 8)],)),
    ),
    imports=(),
)
