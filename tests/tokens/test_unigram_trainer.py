"""The Unigram trainer against a slow, obvious version of the same sums."""

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest

from weft.tokens.unigram_trainer import Lattice, train_unigram

PIECES = ["a", "b", "c", "ab", "bc", "abc", "ca"]
SHARE = np.array([0.2, 0.1, 0.15, 0.25, 0.05, 0.12, 0.13])
WORDS = {"abcab": 3, "c": 5, "bca": 2, "abc": 7}


def cuts(word):
    """Every way to cut a word, by trying each gap."""
    for gaps in product([False, True], repeat=len(word) - 1):
        places = [0, *(i + 1 for i, gap in enumerate(gaps) if gap), len(word)]
        parts = [word[a:b] for a, b in pairwise(places)]
        if all(part in PIECES for part in parts):
            yield parts


def probability(parts):
    return math.prod(SHARE[PIECES.index(part)] for part in parts)


def test_expected_counts_equal_enumeration():
    slow = np.zeros(len(PIECES))
    for word, count in WORDS.items():
        total = sum(map(probability, cuts(word)))
        for parts in cuts(word):
            for part in parts:
                slow[PIECES.index(part)] += count * probability(parts) / total
    fast = Lattice.build(list(WORDS), PIECES).expected_counts(SHARE, np.array(list(WORDS.values())))
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


def test_best_cut_equals_enumeration():
    slow = [max(math.log(probability(parts)) for parts in cuts(word)) for word in WORDS]
    fast = Lattice.build(list(WORDS), PIECES).best(np.log(SHARE))
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


def test_best_cut_without_the_whole_word():
    fast = Lattice.build(["abc"], PIECES, proper=True).best(np.log(SHARE))
    slow = max(math.log(probability(parts)) for parts in cuts("abc") if len(parts) > 1)
    assert fast[0] == pytest.approx(slow)


def test_dropped_pieces_leave_the_lattice():
    kept = np.array([0, 1, 2, 4])
    small = Lattice.build(list(WORDS), PIECES).keep(kept, len(PIECES))
    again = Lattice.build(list(WORDS), [PIECES[i] for i in kept])
    share = SHARE[kept] / SHARE[kept].sum()
    weights = np.array(list(WORDS.values()))
    np.testing.assert_allclose(
        small.expected_counts(share, weights), again.expected_counts(share, weights)
    )


def test_frequent_words_become_pieces_and_every_letter_stays():
    counts = Counter({"the": 101, "then": 53, "other": 47, "zebra": 1})
    letters = sorted(set("".join(counts)))
    pieces = dict(train_unigram(counts, letters, len(letters) + 3))
    assert set(pieces) == {*letters, "the", "then", "other"}
    assert max(pieces, key=pieces.__getitem__) == "the"
    assert sum(map(math.exp, pieces.values())) == pytest.approx(1, abs=1e-4)


def test_rare_letters_and_long_words_are_no_obstacle():
    counts = Counter({"x" * 997: 2, "a§b": 3, "]^-\\": 1})
    pieces = dict(train_unigram(counts, ["x", "a", "b", "]", "^", "-", "\\"], 13))
    assert "§" not in "".join(pieces)
    assert len(pieces) == 13
