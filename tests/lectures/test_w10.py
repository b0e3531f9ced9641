"""W10, multilingual vectors: argmin ‖X W − Y‖ over orthogonal W is U Vᵀ of XᵀY = U Σ Vᵀ."""

import numpy as np

from weft.vectors.align import Space, align, procrustes
from weft.vectors.store import Vectors

P, E = 31, 5


def rotation(seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(E, E)))[0]


def test_the_rotation_is_the_svd_of_the_cross_product():
    random = np.random.default_rng(3)
    x, y = random.normal(size=(P, E)), random.normal(size=(P, E))
    u, _, v = np.linalg.svd(x.T @ y)
    found = procrustes(x, y)
    np.testing.assert_allclose(found, u @ v, atol=1e-5)
    np.testing.assert_allclose(found @ found.T, np.eye(E), atol=1e-5)
    least = np.linalg.norm(x @ found - y)
    others = [np.linalg.norm(x @ rotation(seed) - y) for seed in range(200)]
    assert least < min(others)


def test_words_are_translated_by_the_nearest_neighbour_after_the_rotation():
    random = np.random.default_rng(5)
    x, turn = random.normal(size=(P, E)).astype(np.float32), rotation(7)
    source = Vectors([f"en{i}" for i in range(P)], x)
    target = Vectors([f"de{i}" for i in range(P)], (x @ turn).astype(np.float32))
    fit = align(source, target, [(f"en{i}", f"de{i}") for i in range(11)])
    np.testing.assert_allclose(fit.rotation, turn, atol=1e-5)
    ids, _ = Space(source, target, fit).rank(np.arange(P), 1, csls=False)
    mapped = x @ fit.rotation
    cosines = mapped @ target.matrix.T / np.linalg.norm(mapped, axis=1)[:, None]
    expected = (cosines / np.linalg.norm(target.matrix, axis=1)).argmax(1)
    assert ids[:, 0].tolist() == expected.tolist() == list(range(P))
