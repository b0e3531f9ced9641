"""W11, queries: cosine, Euclidean distance, a − b + c, query expansion and the odd one out."""

import math

import numpy as np
import pytest

from weft.vectors.store import Vectors

V, E = 31, 7
WORDS = [f"w{i}" for i in range(V)]
MATRIX = np.random.default_rng(3).normal(size=(V, E)).astype(np.float32) * 3


def vectors():
    return Vectors(WORDS, MATRIX)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def ranked(score, without, reverse=True):
    pairs = [(word, score(row)) for word, row in zip(WORDS, MATRIX.astype(float), strict=True)]
    return sorted((p for p in pairs if p[0] not in without), key=lambda p: p[1], reverse=reverse)


def unit(x):
    return x / np.linalg.norm(x)


def check(found, expected):
    assert [word for word, _ in found] == [word for word, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], rtol=1e-5)


def test_neighbours_are_ranked_by_the_cosine():
    query = MATRIX[5].astype(float)
    check(vectors().neighbours("w5", 7), ranked(lambda row: cosine(query, row), {"w5"})[:7])


def test_neighbours_are_ranked_by_the_euclidean_distance():
    query = MATRIX[5].astype(float)
    expected = ranked(lambda row: distance(query, row), {"w5"}, reverse=False)[:7]
    check(vectors().neighbours("w5", 7, metric="euclidean"), expected)
    both = vectors().neighbour_lists(["w5", "w11"], 7, "euclidean")
    check(both[0], expected)
    middle = MATRIX[[5, 11]].astype(float).mean(0)
    expected = ranked(lambda row: distance(middle, row), {"w5", "w11"}, reverse=False)[:3]
    check(vectors().neighbours(["w5", "w11"], 3, metric="euclidean"), expected)


def test_the_two_metrics_disagree_about_vectors_of_different_length():
    words = Vectors(["a", "far", "near"], np.array([[1, 0], [9, 1], [0.5, 0.5]], np.float32))
    assert words.neighbours("a", 1)[0][0] == "far"
    assert words.neighbours("a", 1, metric="euclidean") == [("near", pytest.approx(0.5**0.5))]
    zero = Vectors(["a", "zero"], np.array([[3, 4], [0, 0]], np.float32))
    assert zero.neighbours("a", 1, metric="euclidean") == [("zero", 5.0)]


def test_distances_survive_many_blocks(monkeypatch):
    monkeypatch.setattr("weft.vectors.neighbours.BLOCK_SCORES", 5 * E)
    expected = ranked(lambda row: distance(MATRIX[5].astype(float), row), {"w5"}, reverse=False)
    check(vectors().neighbours("w5", 5, metric="euclidean"), expected[:5])


def test_an_analogy_is_the_word_nearest_to_b_minus_a_plus_c():
    a, b, c = (unit(MATRIX[i].astype(float)) for i in (2, 3, 5))
    expected = ranked(lambda row: cosine(b - a + c, row), {"w2", "w3", "w5"})[:5]
    check(vectors().analogy("w2", "w3", "w5", 5), expected)


def test_the_odd_one_out_is_gensims_doesnt_match():
    names = ["w2", "w3", "w5", "w7", "w11"]
    rows = [unit(MATRIX[WORDS.index(name)].astype(float)) for name in names]
    mean = unit(np.mean(rows, axis=0))
    scores = [(float(mean @ row), name) for name, row in zip(names, rows, strict=True)]
    assert vectors().odd(names) == min(scores)[1]
    central = [(name, score) for score, name in sorted(scores, reverse=True)]
    check(vectors().rank_by_centrality(names), central)


def test_a_query_is_expanded_by_the_neighbours_of_its_mean():
    mean = (unit(MATRIX[2].astype(float)) + unit(MATRIX[3].astype(float))) / 2
    near = ranked(lambda row: cosine(mean, row), {"w2", "w3"})[:5]
    check(vectors().expand(["w2", "w3"], 5), [("w2", 1.0), ("w3", 1.0), *near])
