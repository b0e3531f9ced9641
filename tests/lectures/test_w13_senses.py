"""W13, senses: c = Σ idf(w) v(w) of the words around; sense = argmax_k cos(c, μ_k), μ_k = mean."""

import math

import numpy as np

from weft.vectors.corpus import Corpus
from weft.vectors.senses import ContextReader, find_senses
from weft.vectors.store import Vectors

WORDS = ("bank", "loan", "debt", "river", "boat", "the", "old")
SENTENCES = [
    ["the", "bank", "loan", "debt"],
    ["river", "bank", "boat"],
    ["debt", "the", "bank", "loan", "loan"],
    ["boat", "the", "river", "bank"],
    ["old", "bank", "debt", "the"],
    ["the", "river", "boat", "bank", "the"],
    ["the", "old", "the"],
]
MATRIX = np.random.default_rng(7).normal(size=(len(WORDS), 5)).astype(np.float32)
WINDOW = 3


def make_corpus():
    ids = np.array([WORDS.index(word) for line in SENTENCES for word in line], np.int32)
    ends = np.cumsum([len(line) for line in SENTENCES])
    return Corpus(WORDS, np.bincount(ids, minlength=len(WORDS)), ids, ends, len(ids))


def context(line):
    """The context vector of the word `bank` in a sentence, term by term."""
    here, total = line.index("bank"), np.zeros(5)
    for there, word in enumerate(line):
        if there != here and abs(there - here) <= WINDOW:
            idf = math.log(len(SENTENCES) / sum(word in other for other in SENTENCES))
            vector = MATRIX[WORDS.index(word)].astype(float)
            total += idf * vector / np.linalg.norm(vector)
    return total / np.linalg.norm(total)


def test_senses_are_the_means_of_clustered_contexts():
    reader = ContextReader(make_corpus(), Vectors(WORDS, MATRIX), WINDOW)
    (found,) = find_senses(reader, ["bank"], 2, min_occurrences=3)
    contexts = np.array([context(line) for line in SENTENCES[:-1]])
    np.testing.assert_allclose(reader.read(found.positions), contexts, atol=1e-5)
    means = []
    for k, sense in enumerate(found.senses):
        mean = contexts[found.labels == k].mean(0)
        means.append(mean / np.linalg.norm(mean))
        np.testing.assert_allclose(sense.vector, means[k], atol=1e-5)
    nearest = [max(range(2), key=lambda k: float(row @ means[k])) for row in contexts]
    assert found.labels.tolist() == nearest  # no occurrence is nearer to the other sense
    assert len(set(nearest)) == 2
