"""The store: neighbours against a full sort, analogies against the papers, words by spelling."""

import builtins
import sys

import numpy as np
import pytest

import weft
from weft.embed.subwords import Subwords
from weft.errors import UserError
from weft.vectors import neighbours
from weft.vectors.neighbours import nearest, norms, unit
from weft.vectors.store import Vectors

WORDS = ["king", "queen", "man", "woman", "Paris", "paris", "apple", "pear", "plum", "fig", "york"]
MATRIX = np.random.default_rng(7).normal(size=(11, 5)).astype(np.float32) * np.float32(3)


@pytest.fixture
def vectors():
    return Vectors(WORDS, MATRIX.copy())


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


def ranked(scores, without):
    """The obvious version: score every word, sort them all."""
    left = [(word, score) for word, score in scores if word not in without]
    return sorted(left, key=lambda pair: -pair[1])


def same(found, expected):
    assert [word for word, _ in found] == [word for word, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], atol=1e-6)


def test_public_name():
    assert weft.Vectors is Vectors


def test_a_word_and_its_vector(vectors):
    np.testing.assert_array_equal(vectors["pear"], MATRIX[7])
    assert "pear" in vectors
    assert "peer" not in vectors
    assert (len(vectors), vectors.width, vectors.index["man"]) == (11, 5, 2)
    assert repr(vectors) == "Vectors(11 words × 5)"
    vectors["pear"][0] = 99  # a copy
    assert vectors["pear"][0] == MATRIX[7, 0]


@pytest.mark.parametrize("block", [1, 40, neighbours.BLOCK_SCORES])
@pytest.mark.parametrize("k", [1, 4, 99])
def test_neighbours_are_those_of_a_full_sort(vectors, monkeypatch, block, k):
    monkeypatch.setattr(neighbours, "BLOCK_SCORES", block)
    scores = [(w, cosine(MATRIX[0], MATRIX[i])) for i, w in enumerate(WORDS)]
    same(vectors.neighbours("king", k), ranked(scores, ["king"])[:k])
    same(vectors.neighbours("king", k, ["fig"]), ranked(scores, ["king", "fig"])[:k])
    same(vectors.neighbours(MATRIX[0] * 2, k), ranked(scores, [])[:k])
    lists = vectors.neighbour_lists(["pear", "king"], k)
    same(lists[1], ranked(scores, ["king"])[:k])
    same(lists[0], vectors.neighbours("pear", k))


def test_neighbours_of_several_words_are_those_of_their_middle(vectors):
    middle = unit(MATRIX[0]) + unit(MATRIX[1])
    scores = [(w, cosine(middle, MATRIX[i])) for i, w in enumerate(WORDS)]
    same(vectors.neighbours(["king", "queen"], 3), ranked(scores, ["king", "queen"])[:3])


def test_more_queries_than_one_round(vectors):
    queries = unit(np.random.default_rng(1).normal(size=(1031, 5)).astype(np.float32))
    ids, scores = nearest(MATRIX, norms(MATRIX, WORDS), queries, 2)
    full = queries @ unit(MATRIX).T
    np.testing.assert_array_equal(ids, np.argsort(-full, axis=1)[:, :2])
    np.testing.assert_allclose(scores, -np.sort(-full, axis=1)[:, :2], atol=1e-6)


def test_analogies_by_adding_and_multiplying(vectors):
    """Levy & Goldberg (2014), equations 3 and 5, word by word."""
    a, b, c = MATRIX[2], MATRIX[0], MATRIX[3]  # man : king = woman : ?
    asked = ["man", "king", "woman"]
    target = unit(b) - unit(a) + unit(c)
    added = [(w, cosine(v, target)) for w, v in zip(WORDS, MATRIX, strict=True)]
    same(vectors.analogy("man", "king", "woman", 5), ranked(added, asked)[:5])

    def share(v, x):
        return (cosine(v, x) + 1) / 2

    product = [
        (w, share(v, b) * share(v, c) / (share(v, a) + 0.001))
        for w, v in zip(WORDS, MATRIX, strict=True)
    ]
    same(vectors.analogy("man", "king", "woman", 5, "multiply"), ranked(product, asked)[:5])
    with pytest.raises(UserError, match="Unknown method 'mul' of analogy"):
        vectors.analogy("man", "king", "woman", method="mul")


def test_nothing_left_to_answer():
    three = Vectors(["a", "b", "c"], MATRIX[:3])
    assert three.analogy("a", "b", "c") == []
    assert three.neighbours("a", 5, without=["b"]) == [
        ("c", pytest.approx(cosine(*MATRIX[[0, 2]])))
    ]


def test_zero_vectors_are_near_to_nothing():
    matrix = np.array([[1, 0], [0, 0], [1, 1], [-1, 0]], np.float32)
    vectors = Vectors(["a", "zero", "b", "c"], matrix)
    assert vectors.neighbours("a") == [("b", pytest.approx(0.5**0.5)), ("zero", 0), ("c", -1)]
    assert [score for _, score in vectors.neighbours("zero")] == [0, 0, 0]


def test_huge_and_tiny_numbers_keep_their_direction():
    matrix = np.array([[3e38, 3e38], [1e-38, 1e-38], [1, 0]], np.float32)
    lengths = norms(matrix[:2] / np.float32(4), ["a", "b"])
    assert np.isfinite(lengths).all()
    assert (lengths > 0).all()
    assert unit(matrix)[1] == pytest.approx([0.5**0.5] * 2)


def test_odd_one_out():
    matrix = np.array([[1, 0.1], [1, 0], [0, 1], [1, 0.2]], np.float32)
    vectors = Vectors(["a", "b", "odd", "c"], matrix)
    assert vectors.odd(["a", "b", "odd", "c"]) == "odd"
    with pytest.raises(UserError, match="odd one out of 2 words: give three"):
        vectors.odd(["a", "b"])


def test_a_query_grows(vectors):
    grown = vectors.expand(["apple", "unheard"], 2)
    assert grown[:2] == [("apple", 1.0), ("unheard", 1.0)]
    same(grown[2:], vectors.neighbours("apple", 2))
    with pytest.raises(UserError, match="No vector for 'unheard'"):
        vectors.expand(["unheard"])
    with pytest.raises(UserError, match="No words to expand"):
        vectors.expand([])


def test_words_and_sentences_are_compared(vectors):
    assert vectors.similarity("king", "queen") == pytest.approx(cosine(MATRIX[0], MATRIX[1]))
    first = (unit(MATRIX[0]) + unit(MATRIX[5])) / 2
    np.testing.assert_allclose(vectors.sentence("King, paris!"), first, atol=1e-6)
    np.testing.assert_allclose(vectors.sentence(["king", "paris"]), first, atol=1e-6)
    assert vectors.similarity("the King of paris", "pear") == pytest.approx(
        cosine(first, MATRIX[7]), abs=1e-6
    )
    assert vectors.sentence("nothing known").tolist() == [0] * 5
    assert vectors.similarity("nothing known", "pear") == 0


def test_unknown_words_have_near_misses(vectors, monkeypatch):
    message = "No vector for 'qeen' among 11 words. Did you mean 'queen'?"
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        vectors["qeen"]
    with pytest.raises(UserError, match=r"Did you mean 'paris' or 'Paris'\?"):
        vectors.neighbours("PARIS")
    with pytest.raises(UserError, match=r"No vector for 'xyzzy' among 11 words\. Vectors with sub"):
        vectors.similarity("king", "xyzzy")
    plain = builtins.__import__

    def without_rapidfuzz(name, *more, **named):
        if name.startswith("rapidfuzz"):
            raise ImportError(name)
        return plain(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without_rapidfuzz)
    assert str(vectors.unknown_word("qeen")) == message


def test_subwords_leave_no_word_unknown():
    table = np.random.default_rng(2).normal(size=(11 + 17, 5)).astype(np.float32)
    made = Vectors(WORDS, None, subwords=Subwords(table, 11, 3, 4))
    rows = made.subwords.rows("qeen")
    np.testing.assert_allclose(made["qeen"], table[rows].mean(axis=0), atol=1e-6)
    assert "qeen" not in made
    assert made.width == 5
    assert "with sub-words" in repr(made)
    found = made.neighbours("qeen", 3)
    scores = [(w, cosine(made["qeen"], made[w])) for w in WORDS]
    same(found, ranked(scores, [])[:3])
    np.testing.assert_allclose(made["queen"], made.matrix[1], atol=1e-6)
    long = Vectors(WORDS, None, subwords=Subwords(table, 11, 5, 6))
    with pytest.raises(UserError, match="No vector for 'an'"):
        long["an"]  # <an> is shorter than the shortest n-gram


NAN = MATRIX.copy()
NAN[3, 2] = np.nan
WRONG = {
    "twice": (lambda: Vectors(["a", "b", "a"], MATRIX[:3]), "'a' twice, rows 1 and 3"),
    "rows": (lambda: Vectors(["a"], MATRIX), r"1 words, but a matrix of shape \(11, 5\)"),
    "axes": (lambda: Vectors(["a"], MATRIX[0]), r"shape \(5,\).*a row a word"),
    "nan": (lambda: Vectors(WORDS, NAN), r"'woman' \(row 4\) has a number that is not finite"),
    "counts": (lambda: Vectors(WORDS, MATRIX, counts=np.ones(3)), "11 words, but 3 counts"),
    "nothing": (lambda: Vectors(WORDS, None), "need a matrix, or sub-words"),
    "width": (
        lambda: Vectors(WORDS, MATRIX, subwords=Subwords(MATRIX[:, :3], 11)),
        "Sub-words of width 3, but vectors of 5",
    ),
    "query": (lambda: Vectors(WORDS, MATRIX).neighbours(MATRIX[0, :3]), r"shape \(3,\).*5 wide"),
    "no query": (lambda: Vectors(WORDS, MATRIX).neighbours([]), "No words to look for"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_vectors_raise_user_error(case):
    make, message = WRONG[case]
    with pytest.raises(UserError, match=message):
        make()


def test_numbers_that_are_none_are_found_when_a_mapped_row_is_used(tmp_path):
    np.save(tmp_path / "v.npy", NAN)
    (tmp_path / "v.words").write_text("\n".join(WORDS))
    mapped = Vectors.load(tmp_path / "v.npy")
    assert np.isfinite(mapped["king"]).all()
    for use in (lambda: mapped["woman"], lambda: mapped.neighbours("king")):
        with pytest.raises(UserError, match=r"'woman' \(row 4\)"):
            use()


def test_approximate_neighbours_name_what_is_missing(vectors, monkeypatch):
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(UserError, match=r"need usearch: pip install 'weft\[ann\]'"):
        vectors.neighbours("king", approximate=True)


def test_approximate_neighbours_find_nearly_all(tmp_path):
    pytest.importorskip("usearch")
    matrix = np.random.default_rng(3).normal(size=(2003, 17)).astype(np.float32)
    vectors = Vectors([f"w{i}" for i in range(2003)], matrix)
    exact = [dict(vectors.neighbours(f"w{i}", 10)) for i in range(50)]
    found = [dict(vectors.neighbours(f"w{i}", 10, approximate=True)) for i in range(50)]
    shared = [len(a.keys() & b.keys()) for a, b in zip(exact, found, strict=True)]
    assert sum(shared) / 500 > 0.9
    for a, b in zip(exact, found, strict=True):
        assert all(b[word] == pytest.approx(a[word], abs=1e-4) for word in a.keys() & b.keys())
    vectors.graph.save(str(tmp_path / "g"))
    again = neighbours.Approximate.open(str(tmp_path / "g"), 2003, 17)
    assert again.nearest(unit(matrix[0]), 3)[0][0] == 0
    with pytest.raises(UserError, match="2003 vectors of width 17, but there are 5"):
        neighbours.Approximate.open(str(tmp_path / "g"), 5, 17)
