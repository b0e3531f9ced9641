"""Alignment: the rotation against scipy, CSLS against its formula, translations that are known."""

import numpy as np
import pytest

from weft.errors import UserError
from weft.vectors import align as module
from weft.vectors import neighbours
from weft.vectors.align import Alignment, Space, align, identical, precision, procrustes
from weft.vectors.store import Vectors

E = 7
rng = np.random.default_rng(11)
ROTATION = np.linalg.qr(rng.normal(size=(E, E)))[0].astype(np.float32)


def turned(count: int = 101, noise: float = 0.0, shift: float = 0.0) -> tuple[Vectors, Vectors]:
    """Words a0, a1, … and their translations b0, b1, … which lie where a rotation puts them."""
    draw = np.random.default_rng(5)
    x = draw.normal(size=(count, E)).astype(np.float32)
    y = x @ ROTATION + noise * draw.normal(size=x.shape) + shift
    names = range(count)
    return (
        Vectors([f"a{i}" for i in names], x),
        Vectors([f"b{i}" for i in names], y.astype(np.float32)),
    )


def pairs(some: range) -> list[tuple[str, str]]:
    return [(f"a{i}", f"b{i}") for i in some]


def test_the_rotation_is_found_exactly():
    found = align(*turned(), pairs(range(13)))
    np.testing.assert_allclose(found.rotation, ROTATION, atol=1e-5)
    assert found.pairs == 13
    source, target = turned()
    np.testing.assert_allclose(found.apply(source.matrix), target.matrix, atol=1e-4)


def test_the_rotation_is_scipy_s():
    linalg = pytest.importorskip("scipy.linalg")
    x, y = rng.normal(size=(2, 23, E))
    found = procrustes(x, y)
    np.testing.assert_allclose(found, linalg.orthogonal_procrustes(x, y)[0], atol=1e-5)
    np.testing.assert_allclose(found @ found.T, np.eye(E), atol=1e-5)


def test_no_other_rotation_is_nearer():
    x, y = rng.normal(size=(2, 23, E))
    best = np.linalg.norm(x @ procrustes(x, y) - y)
    for _ in range(97):
        other = np.linalg.qr(rng.normal(size=(E, E)))[0]
        assert np.linalg.norm(x @ other - y) > best


def test_lengths_do_not_count_when_normalised():
    source, target = turned(noise=0.3)
    longer = source.matrix * rng.uniform(0.1, 9, (len(source), 1)).astype(np.float32)
    other = Vectors(source.words, longer)
    seed = pairs(range(31))
    a, b = (align(side, target, seed).rotation for side in (source, other))
    np.testing.assert_allclose(a, b, atol=1e-5)
    a, b = (align(side, target, seed, normalise=False).rotation for side in (source, other))
    assert np.abs(a - b).max() > 0.01


def test_centring_undoes_a_shift():
    source, target = turned(shift=2.0)
    found = align(source, target, pairs(range(29)), normalise=False, centre=True)
    np.testing.assert_allclose(found.rotation, ROTATION, atol=1e-4)
    np.testing.assert_allclose(found.apply(source.matrix), target.matrix, atol=1e-3)
    space = Space(source, target, found)
    assert precision(space, pairs(range(29, 101))).at[1].value == 1


def test_a_centred_map_of_unit_vectors_brings_the_means_together():
    source, target = turned(noise=0.2, shift=0.5)
    found = align(source, target, pairs(range(101)), centre=True)
    middle = neighbours.unit(target.matrix).mean(0)
    np.testing.assert_allclose(found.apply(source.matrix).mean(0), middle, atol=1e-5)


def slow_csls(x: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Conneau et al. (2018), equation 3, from the whole matrix."""
    x, y = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (x, y))
    cosines = x @ y.T
    to_target = np.sort(cosines, axis=1)[:, -k:].mean(1)
    to_source = np.sort(cosines, axis=0)[-k:].mean(0)
    return 2 * cosines - to_target[:, None] - to_source


def test_csls_is_its_formula(monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK_SCORES", 7 * 101)  # blocks: the matrix is never whole
    source, target = turned(noise=0.5)
    found = align(source, target, pairs(range(17)))
    space = Space(source, target, found)
    scores = slow_csls(found.apply(source.matrix), target.matrix, module.HUB_NEIGHBOURS)
    rows = np.array([3, 0, 88])
    ids, values = space.rank(rows, 5)
    np.testing.assert_array_equal(ids, np.argsort(-scores[rows], axis=1)[:, :5])
    np.testing.assert_allclose(values, -np.sort(-scores[rows], axis=1)[:, :5], atol=1e-5)
    named = space.translate(["a3"], k=2)[0]
    assert [word for word, _ in named] == [f"b{i}" for i in ids[0, :2]]
    there, back = scores.argmax(1), scores.argmax(0)
    mutual = [[i, there[i]] for i in range(101) if back[there[i]] == i]
    assert space.mutual().tolist() == mutual
    some = [[i, t] for i, t in mutual if i < 50 and t < 50]
    assert space.mutual(50).tolist() == some


def test_csls_gets_past_a_hub():
    """Words that share a direction, with a word that is nothing else: it is near to all."""
    source, target = turned(noise=0.8)
    common = 2 * np.ones(E, np.float32)
    moved = target.matrix + common @ ROTATION
    moved[0] = common @ ROTATION
    shifted, target = Vectors(source.words, source.matrix + common), Vectors(target.words, moved)
    space = Space(shifted, target, Alignment(ROTATION))
    test = pairs(range(40, 101))
    plain = precision(space, test, csls=False).at[1].value
    assert precision(space, test).at[1].value > plain + 0.03


def test_precision_counts_any_right_translation_and_what_is_missing():
    source, target = turned()
    space = Space(source, target, Alignment(ROTATION))
    test = [("a1", "b9"), ("a1", "b1"), ("a2", "b3"), ("a4", "gone"), ("new", "b5")]
    found = precision(space, test, at=(1, 101))
    assert (found.words, found.found, found.coverage) == (4, 2, 0.5)
    assert (found.at[1].value, found.at[101].value) == (0.5, 1.0)
    assert found.to_json()["precision@1"]["n"] == 2
    assert precision(space, [("x", "y")]).at[1].n == 0


def test_only_the_frequent_words_take_part():
    source, target = turned()
    space = Space(source, target, Alignment(ROTATION), max_words=50)
    found = precision(space, pairs(range(40, 60)))
    assert (found.words, found.found) == (20, 10)
    with pytest.raises(UserError, match="No vector for 'a60'"):
        space.translate(["a60"])


def test_refinement_repairs_a_poor_dictionary():
    source, target = turned(count=499, noise=0.1)
    wrong = [(f"a{i}", f"b{(i * 7) % 31}") for i in range(4)]
    seed = [*pairs(range(10)), *wrong]
    test = pairs(range(31, 499))
    first = align(source, target, seed)
    better = align(source, target, seed, refine=3)
    before, after = (precision(Space(source, target, f), test).at[1].value for f in (first, better))
    assert after > before
    assert len(better.rounds) == 4
    assert better.rounds[0].pairs == 14
    assert better.rounds[-1].nearness > better.rounds[0].nearness
    assert first.rounds == ()


def test_the_fit_that_is_nearest_is_kept(monkeypatch):
    """A round that makes things worse is not the answer."""
    source, target = turned(count=199, noise=0.05)
    monkeypatch.setattr(Space, "mutual", lambda self: np.array([[i, i + 1] for i in range(50)]))
    found = align(source, target, pairs(range(53)), refine=1)
    assert found.rounds[1].nearness < found.rounds[0].nearness
    assert found.pairs == 53
    assert precision(Space(source, target, found), pairs(range(53, 199))).at[1].value > 0.9


def test_identical_strings():
    one = Vectors(["x", "1789", "paris", "y"], rng.normal(size=(4, E)).astype(np.float32))
    two = Vectors(["paris", "z", "1789"], rng.normal(size=(3, E)).astype(np.float32))
    assert identical(one, two) == [("1789", "1789"), ("paris", "paris")]


def test_bad_input():
    source, target = turned()
    narrow = Vectors(["b0"], np.ones((1, 3), np.float32))
    with pytest.raises(UserError, match="width 7 cannot be turned onto vectors of width 3"):
        align(source, narrow, pairs(range(1)))
    with pytest.raises(UserError, match="No pairs of words to align with"):
        align(source, target, [])
    with pytest.raises(UserError, match=r"None of the 1 pairs .* 'b7' and 'a7'.* first in"):
        align(source, target, [("b7", "a7")])
    with pytest.raises(UserError, match="Did you mean 'a1'"):
        align(source, target, [("a1_", "b1")])
