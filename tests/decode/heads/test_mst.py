"""Best dependency trees against every tree there is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.tree_checks import is_tree
from weft.decode.heads import mst
from weft.decode.heads.mst import best_trees, projective_tree, spanning_tree
from weft.errors import UserError


def crosses(heads) -> bool:
    arcs = [sorted((word, head)) for word, head in enumerate(heads, 1) if head]
    return any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))


def covers_the_root(heads) -> bool:
    """An arc over the child of the root would cross the root's own arc."""
    root = list(heads).index(0) + 1
    return any(min(w, h) < root < max(w, h) for w, h in enumerate(heads, 1) if h)


ALL = {n: [h for h in itertools.product(range(n + 1), repeat=n) if is_tree(h)] for n in range(1, 6)}
PROJECTIVE = {
    n: [h for h in ALL[n] if not crosses(h) and not covers_the_root(h)] for n in range(1, 6)
}


def worth(scores, heads) -> float:
    return sum(scores[word, head] for word, head in enumerate(heads))


def test_the_enumeration_is_complete():
    """Cayley: n^(n-1) rooted trees; projective ones are known too (OEIS A006013)."""
    assert [len(ALL[n]) for n in ALL] == [1, 2, 9, 64, 625]
    assert [len(PROJECTIVE[n]) for n in PROJECTIVE] == [1, 2, 7, 30, 143]


def check(scores) -> None:
    n = len(scores)
    for find, space in ((spanning_tree, ALL[n]), (projective_tree, PROJECTIVE[n])):
        heads = find(scores)
        assert tuple(heads) in space
        assert worth(scores, heads) == pytest.approx(max(worth(scores, h) for h in space))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_best_of_all_trees(n):
    rng = np.random.default_rng(n)
    for _ in range(97):
        check(rng.normal(size=(n, n + 1)))
        check(rng.integers(-2, 3, (n, n + 1)).astype(float))  # many ties


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_strong_root_still_has_one_child(n):
    scores = np.random.default_rng(7).normal(size=(n, n + 1))
    scores[:, 0] += 1e6  # every word wants to be the child of the root
    check(scores)
    scores[:, 0] -= 2e9
    check(scores)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_random_scores_give_the_best_tree(data):
    n = data.draw(st.integers(1, 5))
    number = st.floats(-1e3, 1e3, width=32)
    row = st.lists(number, min_size=n + 1, max_size=n + 1)
    check(np.array(data.draw(st.lists(row, min_size=n, max_size=n))))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 9999), st.integers(1, 5), st.floats(0.1, 0.9))
def test_forbidden_arcs_are_taken_only_where_no_tree_avoids_them(seed, n, share):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n + 1))
    forbidden = rng.random(scores.shape) < share
    scores[forbidden] = -np.inf

    def order(heads):
        banned = sum(forbidden[word, head] for word, head in enumerate(heads))
        return -banned, worth(np.where(forbidden, 0, scores), heads)

    for find, space in ((spanning_tree, ALL[n]), (projective_tree, PROJECTIVE[n])):
        heads = find(scores)
        assert tuple(heads) in space
        assert order(heads) == pytest.approx(max(order(h) for h in space))


@pytest.mark.parametrize("find", [spanning_tree, projective_tree])
@pytest.mark.parametrize("n", [7, 131])
def test_awkward_scores_give_trees(find, n):
    rng = np.random.default_rng(n)
    cycles = np.full((n, n + 1), -9.0)
    for word in range(n):  # pairs that want each other most, then pairs of pairs, and so on
        for level in range(8):
            cycles[word, (word ^ (1 << level)) % n + 1] = -level
    cases = [np.zeros((n, n + 1)), np.full((n, n + 1), -np.inf), cycles, cycles * 1e30]
    cases.append(rng.normal(size=(n, n + 1)).astype(np.float32) * 1e30)
    for scores in cases:
        heads = find(scores)
        assert is_tree(heads)
        assert find is spanning_tree or not crosses(heads)


def test_against_networkx():
    networkx = pytest.importorskip("networkx")
    rng = np.random.default_rng(5)
    for n in (7, 13, 23):
        scores = rng.normal(size=(n, n + 1))
        best = -np.inf
        for root in range(1, n + 1):  # the best tree for each child of the root
            graph = networkx.DiGraph()
            graph.add_edge(0, root, weight=scores[root - 1, 0])
            for word, head in itertools.permutations(range(1, n + 1), 2):
                graph.add_edge(head, word, weight=scores[word - 1, head])
            found = networkx.maximum_spanning_arborescence(graph)
            best = max(best, found.size(weight="weight"))
        heads = spanning_tree(scores)
        assert is_tree(heads)
        assert worth(scores, heads) == pytest.approx(best)


def test_a_long_sentence_takes_no_cubic_time():
    heads = spanning_tree(np.random.default_rng(0).normal(size=(997, 998)))
    assert is_tree(heads)


@pytest.mark.parametrize("projective", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_batch_is_its_sentences(projective, threads):
    rng = np.random.default_rng(3)
    scores, lengths = rng.normal(size=(5, 7, 8)).astype(np.float32), np.array([7, 1, 0, 5, 3])
    heads = best_trees(scores, lengths, projective, threads)
    one = projective_tree if projective else spanning_tree
    for row, n in enumerate(lengths):
        np.testing.assert_array_equal(heads[row, :n], one(scores[row, :n, : n + 1]))
        assert (heads[row, n:] == -1).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers(value):
    scores = np.zeros((3, 7, 8))
    scores[1, 2, 0] = value
    for projective in (False, True):
        with pytest.raises(UserError, match=r"not finite .* diverged. Train again with a lower"):
            best_trees(scores, np.array([7, 7, 7]), projective, threads=2)


def test_too_long(monkeypatch):
    monkeypatch.setattr(mst, "MAX_PROJECTIVE_WORDS", 5)
    with pytest.raises(UserError, match=r"of 7 words is too long for projective trees .*limit 5\)"):
        projective_tree(np.zeros((7, 8)))
    monkeypatch.setattr(mst, "MAX_WORDS", 6)
    with pytest.raises(UserError, match=r"of 7 words is too long for dependency trees .*limit 6\)"):
        spanning_tree(np.zeros((7, 8)))
