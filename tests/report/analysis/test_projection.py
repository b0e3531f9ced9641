"""Pictures of sentence vectors: the methods, the colours, and that no text breaks the page."""

import json
import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from weft.errors import UserError
from weft.report.analysis import projection
from weft.report.analysis.predictions import Prediction

CLOUDS = np.repeat(np.random.default_rng(5).normal(size=(3, 61)) * 3, 17, axis=0)
VECTORS = CLOUDS + np.random.default_rng(7).normal(size=CLOUDS.shape)


def said(count: int, labels: int = 3) -> list[Prediction]:
    gold = [i % labels for i in range(count)]
    return [
        Prediction(f"text {i}", f"label {n}", f"label {n if i % 5 else 0}", 0.75)
        for i, n in enumerate(gold)
    ]


def test_pca_equals_scikit_learn():
    found = projection.project(VECTORS, "pca")
    wanted = PCA(2, svd_solver="full").fit_transform(VECTORS)
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), atol=1e-8)
    # The sign does not hang on the order of the texts.
    turned = projection.project(VECTORS[::-1], "pca")[::-1]
    np.testing.assert_allclose(found, turned, atol=1e-8)


def test_tsne_keeps_neighbours_and_repeats_with_its_seed():
    found = projection.project(VECTORS, "t-sne", seed=3)
    assert found.shape == (51, 2)
    assert trustworthiness(VECTORS, found, n_neighbors=5) > 0.9
    middles = found.reshape(3, 17, 2).mean(1)
    width = np.linalg.norm(found.reshape(3, 17, 2) - middles[:, None], axis=2).mean()
    assert np.linalg.norm(middles[0] - middles[1]) > 2 * width
    np.testing.assert_array_equal(found, projection.project(VECTORS, "t-sne", seed=3))


@pytest.mark.usefixtures("interpreted_umap")
def test_umap_keeps_neighbours_and_repeats_with_its_seed():
    vectors = VECTORS[::2]
    found = projection.project(vectors, "umap", seed=3)
    assert trustworthiness(vectors, found, n_neighbors=5) > 0.9
    np.testing.assert_array_equal(found, projection.project(vectors, "umap", seed=3))


def test_missing_umap_learn_is_noted_and_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    found = projection.build_projection(said(51), VECTORS, ("pca", "umap"))
    assert list(found.layouts) == ["pca"]
    assert found.notes == ("UMAP needs umap-learn: pip install 'weft[umap]'.",)
    assert "pip install &#39;weft[umap]&#39;" in projection.render_section(found)


@pytest.mark.parametrize(
    ("vectors", "method", "message"),
    [
        (VECTORS, "mds", "Unknown projection 'mds'. Known: pca, t-sne, umap"),
        (VECTORS[:3], "t-sne", "t-SNE needs at least 4 vectors, got 3; PCA keeps all"),
        (np.full((7, 3), np.nan), "pca", "not finite"),
    ],
)
def test_invalid_vectors_or_method_raise_user_error(vectors, method, message):
    with pytest.raises(UserError, match=message):
        projection.project(vectors, method)


@pytest.mark.parametrize("method", ["pca", "t-sne"])
@pytest.mark.parametrize("shape", [(7, 3), (1, 3), (0, 3)])
def test_equal_vectors_are_drawn_at_one_point(method, shape):
    assert projection.project(np.full(shape, 0.1), method).tolist() == [[0, 0]] * shape[0]


def test_one_dimensional_vectors_are_drawn_on_a_line():
    found = projection.project(np.arange(7.0)[:, None], "pca")
    assert found.shape == (7, 2)
    assert not found[:, 1].any()


def test_frame_keeps_proportions():
    points = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    found = projection.scale_to_frame(points)
    assert found.min() >= projection.MARGIN
    assert found[:, 0].max() <= projection.WIDTH - projection.MARGIN
    assert found[:, 1].max() <= projection.HEIGHT - projection.MARGIN
    sides = np.linalg.norm(found[[1, 2, 2]] - found[[0, 0, 1]], axis=1)
    np.testing.assert_allclose(sides / sides[0], [1, 4 / 3, 5 / 3], atol=0.01)


def test_texts_are_escaped_in_html_and_json():
    bad = "</script><script>alert(1)</script><!-- \u2028 &amp; ' \" \\ 😀 عربي"
    rows = [Prediction(bad, "<b>", "</script>", 0.5), *said(6)]
    page = str(projection.render_section(projection.build_projection(rows, VECTORS[:7], ("pca",))))
    assert "alert(1)</script>" not in page
    assert "<b>" not in re.sub(r"<b>\d+</b>", "", page)
    assert "\u2028" not in page
    inside = page.split('<script type="application/json">')[1].split("</script>")[0]
    assert "<" not in inside
    data = json.loads(inside)
    i = data["labels"].index("<b>")
    assert data["texts"][i] == bad
    assert data["answers"][i] == "</script>"
    assert data["scores"][i] == 0.5


def test_errors_are_drawn_last_and_rare_labels_are_grey():
    rows = said(51, labels=13)
    page = str(projection.render_section(projection.build_projection(rows, VECTORS, ("pca",))))
    dots = re.findall(r'<circle cx="\d+" cy="\d+" r="5" class="([^"]*)"/>', page)[:51]
    assert [" w" in kind for kind in dots] == sorted(" w" in kind for kind in dots)
    assert sum(" w" in kind for kind in dots) == sum(not s.is_correct for s in rows)
    legend = re.findall(r"<bdi>([^<]*)</bdi></span> <b>([\d,]+)</b>", page)
    assert legend[-1][0] == "3 other labels"
    assert len(legend) == 11
    assert sum(int(count) for _, count in legend) == 51
    greys = sum(kind.split()[0] == "g10" for kind in dots)
    assert greys == int(legend[-1][1])


def test_labels_with_most_errors_get_colours():
    names = [f"l{i % 20}" for i in range(60)]
    rows = [Prediction("t", name, "wrong" if name == "l19" else name, 1.0) for name in names]
    _, keys = projection._assign_groups(rows, [not s.is_correct for s in rows], "classes")
    assert "l19" in [key.name for key in keys]


def test_numeric_labels_are_coloured_by_range():
    values = np.arange(20.0)
    rows = [Prediction("t", v, v + (5.0 if v == 3 else 0.1), 0.0) for v in values.tolist()]
    wrong = projection._find_errors(rows, "numbers")
    assert [i for i, bad in enumerate(wrong) if bad] == [3]
    groups, keys = projection._assign_groups(rows, wrong, "numbers")
    assert groups == sorted(groups)
    assert [key.count for key in keys] == [4] * 5
    assert keys[0].name == "0 to 3.8"
    groups, keys = projection._assign_groups(rows[:1] * 3, [False] * 3, "numbers")
    assert (groups, [k.count for k in keys]) == ([0, 0, 0], [3])


def test_multiple_and_missing_labels_are_named():
    rows = [
        Prediction("t", (), (), 0.5),
        Prediction("t", ("x",), ("y",), 0.5),
        Prediction("t", ("x", "y"), (), 0.5),
    ]
    found = projection.build_projection(rows, VECTORS[:3], ("pca",))
    page = str(projection.render_section(found))
    assert {"no label", "x", "2 labels"} <= set(re.findall(r"<bdi>([^<]*)</bdi>", page))
    assert '"answers":["none","y","none"]' in page


def test_empty_projection_renders_nothing():
    assert projection.render_section(projection.Projection((), {})) == ""


def test_umap_is_a_default_from_400_texts():
    assert projection.default_methods(399) == ("pca", "t-sne")
    assert projection.default_methods(400) == (
        ("pca", "t-sne", "umap") if find_spec("umap") else ("pca", "t-sne")
    )
