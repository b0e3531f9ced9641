"""W7, fastText: a word is its character n-grams, so an unseen word has a vector, too."""

import numpy as np
import pytest

from weft.embed.subwords import Subwords
from weft.vectors.store import Vectors

WORDS, BUCKETS, E = ["where", "here"], 101, 5
TABLE = np.random.default_rng(3).normal(size=(len(WORDS) + BUCKETS, E)).astype(np.float32)


def bucket(gram):
    """FNV-1a of the n-gram's bytes, sign-extended as in fastText, modulo the buckets."""
    value = 2166136261
    for byte in gram.encode():
        value ^= byte if byte < 128 else byte - 256 + 2**32
        value = value * 16777619 % 2**32
    return len(WORDS) + value % BUCKETS


def grams(word, shortest=3, longest=6):
    marked = f"<{word}>"
    return [
        marked[i : i + n] for n in range(shortest, longest + 1) for i in range(len(marked) - n + 1)
    ]


def test_the_ngrams_of_where_are_the_papers():
    assert grams("where", 3, 3) == ["<wh", "whe", "her", "ere", "re>"]
    ours = Subwords(TABLE, len(WORDS), 3, 3).rows("where", 0)
    assert sorted(ours) == sorted([0, *map(bucket, grams("where", 3, 3))])


@pytest.mark.parametrize("word", ["where", "here"])
def test_a_known_word_is_the_mean_of_its_row_and_its_ngrams(word):
    rows = [WORDS.index(word), *map(bucket, grams(word))]
    found = Vectors(WORDS, None, subwords=Subwords(TABLE, len(WORDS)))[word]
    np.testing.assert_allclose(found, TABLE[rows].astype(float).mean(0), atol=1e-5)


@pytest.mark.parametrize("word", ["elsewhere", "naïveté"])
def test_an_unseen_word_is_made_of_its_ngrams_alone(word):
    found = Vectors(WORDS, None, subwords=Subwords(TABLE, len(WORDS)))[word]
    rows = [bucket(gram) for gram in grams(word)]
    np.testing.assert_allclose(found, TABLE[rows].astype(float).mean(0), atol=1e-5)
