"""Charts: what is drawn where, and that it follows the page's colours."""

import re

import numpy as np
import pytest

from weft.compare.leaderboard import Row, recommend
from weft.metrics.calibration import CalibrationBins
from weft.report.charts import histograms, plots


def made(recipe: str, quality: float, p50: float, **more) -> Row:
    more = {"higher_is_better": True, "size_bytes": 1000, **more}
    return Row(recipe, "accuracy", quality, 0.01, quality - 0.02, quality + 0.02,
               (quality,), p50_ms=p50, **more)  # fmt: skip


def test_the_front_holds_what_nothing_beats():
    rows = [made("slow", 0.9, 9.0), made("good", 0.9, 2.0), made("bad", 0.5, 3.0),
            made("fast", 0.6, 0.1), made("twin", 0.6, 0.1), made("worse", 0.55, 0.2)]  # fmt: skip
    assert [row.recipe for row in plots.pareto_front(rows)] == ["fast", "good"]
    errors = (("a", 5.0, 1.0), ("b", 4.0, 2.0), ("c", 6.0, 3.0))
    rows = [made(*error, higher_is_better=False) for error in errors]
    assert [row.recipe for row in plots.pareto_front(rows)] == ["a", "b"]


def test_the_front_is_as_good_as_trying_every_pair():
    draw = np.random.default_rng(3)
    rows = [made(str(i), q, t) for i, (q, t) in enumerate(draw.integers(1, 9, (53, 2)).tolist())]
    places = {(r.p50_ms, r.quality) for r in rows}
    slow = {
        (t, q)
        for t, q in places
        if not any((t2 <= t and q2 > q) or (t2 < t and q2 >= q) for t2, q2 in places)
    }
    assert {(r.p50_ms, r.quality) for r in plots.pareto_front(rows)} == slow


def test_areas_are_as_sizes():
    small, large = plots._radii([25_000_000, 100_000_000])
    assert (large / small) ** 2 == pytest.approx(4)
    assert plots._radii([1, 100_000_000])[0] == plots.MIN_RADIUS
    assert plots._radii([0, 0]) == [plots.MIN_RADIUS] * 2


def boxes(drawing: str, names: list[str]) -> list[tuple[float, float, float, float]]:
    out = []
    for name in names:
        x, y = map(float, re.findall(rf'x="([\d.]+)" y="([\d.]+)"[^>]*>{name}<', drawing)[0])
        out.append((x, y - 7, x + 5 * len(name), y))
    return out


def test_names_keep_clear_of_the_front_and_of_large_points():
    rows = [
        made("tfidf", 0.7, 0.1),
        made("huge", 0.9, 1.0, size_bytes=10**9),
        made("near", 0.89, 1.05),
    ]
    found = recommend(rows)
    assert found is not None
    drawing = plots.plot_quality_vs_latency(rows, found)
    left, top, right, bottom = boxes(drawing, ["tfidf"])[0]
    dashed = re.findall(r'd="M ([\d.]+) ([\d.]+) \s*L ([\d.]+) ([\d.]+)[^"]*"[^>]*dash', drawing)[0]
    x0, y0, x1, _ = map(float, dashed)
    assert not (left < x1 and x0 < right and top < y0 < bottom)
    for a, b in [("huge", "near")]:
        one, two = boxes(drawing, [a, b])
        assert one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]


def test_spread_over_seeds():
    own = [[(1.0, 0.5), (2.0, 0.7), (3.0, 0.8)], [(1.0, 0.4), (2.0, 0.9)]]
    grid, low, mean, high = plots.curve_spread(own)
    assert grid.tolist() == [1.0, 2.0]  # while both last
    assert low.tolist() == [0.4, 0.7]
    assert mean.tolist() == pytest.approx([0.45, 0.8])
    assert high.tolist() == [0.5, 0.9]


def test_evaluations_at_other_steps_are_joined():
    grid, low, _, high = plots.curve_spread([[(0.0, 0.0), (2.0, 1.0)], [(1.0, 0.5), (2.0, 0.5)]])
    assert grid.tolist() == [1.0, 2.0]
    assert low.tolist() == [0.5, 0.5]
    assert high.tolist() == [0.5, 1.0]


def test_all_panels_share_a_scale():
    own, others = [[(1.0, 0.2), (2.0, 0.3)]], [[(1.0, 0.1), (2.0, 0.9)]]
    ticks = [
        re.findall(
            r">([\d.]+)</text>", plots.plot_learning_curves(name, own, [], "accuracy", (0.1, 0.9))
        )
        for name in "ab"
    ]
    assert ticks[0] == ticks[1]
    assert "75" in ticks[0] or "80" in ticks[0]
    assert plots.plot_learning_curves("c", own * 2, others, "accuracy").count("PolyCollection") == 1


def calibrated() -> histograms.Calibration:
    bins = CalibrationBins()
    for i in range(101):
        bins.add(i / 100, i % 3 > 0)
    return bins.calibration()


PAIRS = np.random.default_rng(1).normal(size=(47, 2))
EDGES = (0.0, 0.5, 1.0)
DRAWN = {
    "reliability": lambda: histograms.plot_reliability(calibrated()),
    "against": lambda: histograms.plot_predicted_vs_gold(PAIRS),
    "residuals": lambda: histograms.plot_residuals(PAIRS),
    "words": lambda: histograms.plot_distributions(
        {"train": ((1, 2, 4, 8), (3, 5, 2))}, "words", True
    ),
    "number": lambda: histograms.plot_distributions(
        {"a": (EDGES, (3, 5)), "b": (EDGES, (0, 0))}, "number"
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_charts_are_in_the_page_s_colours_and_always_the_same(name):
    drawing = DRAWN[name]()
    assert drawing.startswith("<svg")
    assert "var(--" in drawing
    assert not re.findall(r"#[0-9a-f]{6}", drawing)
    assert "http" not in drawing
    assert drawing == DRAWN[name]()
    ids = re.findall(r' id="([^"]*)"', drawing)
    assert len(ids) == len(set(ids))


def test_a_constant_answer_can_be_drawn():
    same = np.ones((5, 2))
    assert "<svg" in histograms.plot_predicted_vs_gold(same)
    assert "<svg" in histograms.plot_residuals(same)


def test_a_point_at_the_top_is_drawn_whole():
    rows = [made("best", 1.0, 1.0, size_bytes=10**9), made("tfidf", 0.7, 0.1)]
    found = recommend(rows)
    assert found is not None
    discs = re.findall(
        r"<g[^>]*>\s*<use [^>]*fill-opacity: 0.28[^>]*/>",
        plots.plot_quality_vs_latency(rows, found),
    )
    assert len(discs) == 2
    assert not any("clip-path" in disc for disc in discs)
