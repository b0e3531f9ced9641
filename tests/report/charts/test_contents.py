"""Charts show their data: points, lines, bars and labels, read back from the SVG."""

from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.svg_chart import read_chart
from tests.fixtures.tune_results import tune_result
from weft.compare.leaderboard import Row, recommend
from weft.metrics.calibration import CalibrationBins
from weft.report.charts import gradients, heatmap, histograms, plots, tune
from weft.train.gradients.verdict import GradientHealth
from weft.tune.search import TuneResult
from weft.tune.space import make_dimensions
from weft.tune.study import Limits, SearchSpec, TrialRecord


def near(points):
    """Points as `pytest.approx` compares them: an SVG keeps six digits."""
    return [pytest.approx(point, rel=2e-3, abs=2e-3) for point in points]


def row(recipe: str, quality: float, p50: float, **more) -> Row:
    more = {"higher_is_better": True, "size_bytes": 1000, **more}
    metric = more.pop("metric", "accuracy")
    return Row(recipe, metric, quality, 0.01, quality - 0.03, quality + 0.03, (quality,),
               p50_ms=p50, **more)  # fmt: skip


def quality_chart(rows, **scales):
    found = recommend(rows)
    assert found is not None
    (panel,) = read_chart(plots.plot_quality_vs_latency(rows, found), **scales)
    return panel, found


def test_every_recipe_is_a_point_at_its_latency_and_quality():
    rows = [row("bag", 0.70, 1.0), row("lstm", 0.80, 2.0), row("bert", 0.82, 4.0)]
    panel, found = quality_chart(rows)
    small = [mark for mark in panel.markers if mark.opacity == 1.0]
    assert sorted(mark.points[0] for mark in small) == near([(1, 70), (2, 80), (4, 82)])
    (chosen,) = panel.of_colour(small, "accent")
    assert chosen == near([(found.choice.p50_ms, 100 * found.choice.quality)])
    assert {"bag", "lstm", "bert", "latency per text (ms, p50)", "accuracy (%)"} <= {*panel.texts}
    bars = [m.points for m in panel.lines if m.opacity == 0.55]
    assert sorted(bars) == [near([(x, y - 1), (x, y + 1)]) for x, y in ((1, 70), (2, 80), (4, 82))]
    (front,) = panel.of_colour(panel.lines, "muted")
    assert front == near([(1, 70), (2, 70), (2, 80), (4, 80), (4, 82)])


def test_the_band_is_the_margin_below_the_best():
    rows = [row("bag", 0.70, 1.0), row("bert", 0.82, 4.0)]
    panel, found = quality_chart(rows)
    (band,) = [bar for bar in panel.bars if bar.colour == "accent"]
    heights = [y for _, y in band.points]
    assert heights == near([82 - 100 * found.margin, 82])


def test_errors_have_the_band_above_the_best():
    rows = [row("a", 5.0, 1.0, metric="mse", higher_is_better=False),
            row("b", 4.0, 2.0, metric="mse", higher_is_better=False)]  # fmt: skip
    panel, found = quality_chart(rows)
    (band,) = [bar for bar in panel.bars if bar.colour == "accent"]
    assert [y for _, y in band.points] == near([4.0, 4.0 + found.margin])


def test_an_outlier_is_drawn_at_the_edge_with_its_value_in_the_name():
    rows = [row(f"r{i}", 0.80 + i / 100, 1.0 + i) for i in range(4)] + [row("bad", 0.1, 2.5)]
    panel, _ = quality_chart(rows)
    assert any(text.startswith("bad 10.0") and text.endswith("↓") for text in panel.texts)
    lowest = min(mark.points[0][1] for mark in panel.markers)
    assert lowest == pytest.approx(80 - 0.15 * 3, abs=0.01)


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([0.5, 0.6, 0.7, 0.8], (0.5, 0.8)),
        ([0.0, 9.0, 9.5, 10.0], (9.0, 10.0)),  # 1.0 is less than a quarter of 10
        ([0.0, 7.5, 9.5, 10.0], (0.0, 10.0)),  # exactly a quarter is not
        ([0.0, 9.9, 10.0], (0.0, 10.0)),  # of three nothing is left out
        ([0.0, 0.1, 9.0, 9.2, 9.4, 9.6, 9.8, 10.0], (9.0, 10.0)),
        ([], (0.0, 1.0)),
    ],
)
def test_the_range_without_outliers(values, kept):
    assert plots.range_without_outliers(values) == kept


def test_latencies_far_apart_are_on_a_logarithmic_axis():
    rows = [row("bag", 0.70, 1.0), row("bert", 0.82, 5.01)]
    panel, _ = quality_chart(rows, log_x=True)
    assert {"1", "2", "5"} <= panel.x_ticks.keys()
    places = sorted(mark.points[0][0] for mark in panel.markers if mark.opacity == 1.0)
    assert places == near([1.0, 5.01])
    panel, _ = quality_chart([row("bag", 0.70, 1.0), row("bert", 0.82, 5.0)])
    assert "3" in panel.x_ticks  # exactly five times is still linear


def test_learning_curves_have_every_run_their_mean_and_the_others():
    runs = [[(1.0, 0.2), (2.0, 0.3), (3.0, 0.8)], [(1.0, 0.1), (2.0, 0.4), (3.0, 0.6)]]
    others = [[(1.0, 0.5), (3.0, 0.7)]]
    (panel,) = read_chart(plots.plot_learning_curves("a", runs, others, "accuracy"))
    assert panel.of_colour(panel.lines, "muted") == [near([(1, 50), (3, 70)])]
    first, second, mean = panel.of_colour(panel.lines, "accent")
    assert first == near([(1, 20), (2, 30), (3, 80)])
    assert second == near([(1, 10), (2, 40), (3, 60)])
    assert mean == near([(1, 15), (2, 35), (3, 70)])
    assert "epochs" in panel.texts


def test_a_single_evaluation_is_a_dot():
    (panel,) = read_chart(plots.plot_learning_curves("a", [[(1.0, 0.2)]], [], "mse", (0.1, 0.3)))
    assert [mark.points[0][1] for mark in panel.markers] == near([0.2])


@pytest.mark.parametrize(("highest", "log"), [(44.0, False), (45.0, True)])
def test_perplexities_far_apart_are_on_a_logarithmic_axis(highest, log):
    curve = [(1.0, highest), (2.0, 10.0)]
    limits = (10.0, highest)
    drawn = plots.plot_learning_curves("a", [curve], [], "perplexity", limits)
    (panel,) = read_chart(drawn, log_y=log)
    assert ("15" in panel.y_ticks or "30" in panel.y_ticks) is not log
    assert panel.lines[-1].points == near(curve)


def test_the_reliability_diagram_shows_accuracy_confidence_and_counts():
    bins = CalibrationBins()
    for confidence, right in ((0.99, True), (0.97, True), (0.95, False), (0.55, False)):
        bins.add(confidence, right)
    found = bins.calibration()
    above, below = read_chart(histograms.plot_reliability(found))
    filled = [one for one in found.bins if one.count]
    assert [mark.points[0] for mark in above.markers] == near(
        [(100 * one.confidence, 100 * one.accuracy) for one in filled]
    )
    assert sorted(mark.points[0] for mark in above.markers) == near([(55, 0), (97, 200 / 3)])
    gaps = above.of_colour(above.lines, "accent")
    assert gaps == [near([(55, 55), (55, 0)]), near([(97, 97), (97, 200 / 3)])]
    heights = [bar.points[1][1] for bar in below.bars]
    assert heights == near([1, 3])
    assert {"confidence (%)", "texts"} <= {*below.texts}
    assert "accuracy (%)" in above.texts


def test_predictions_against_gold_are_points_with_a_diagonal():
    pairs = np.array([[1.0, 2.0], [3.0, 3.5], [6.0, 4.0]])
    (panel,) = read_chart(histograms.plot_predicted_vs_gold(pairs))
    assert panel.markers[0].points == near(pairs.tolist())
    assert panel.of_colour(panel.lines, "muted") == [near([(1, 1), (6, 6)])]
    assert panel.texts == ["gold", "predicted"]


def test_residuals_are_counted_around_zero_with_their_mean():
    pairs = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, -2.0], [0.0, 1.0]])
    (panel,) = read_chart(histograms.plot_residuals(pairs))
    filled = [bar.points for bar in panel.bars if bar.points[1][1] - bar.points[0][1] > 0.5]
    assert [top for _, (_, top) in filled] == near([1, 3])
    assert filled[0][0][0] == pytest.approx(-2.0, abs=0.02)
    mean = panel.of_colour(panel.lines, "accent")[0]
    assert mean[0][0] == pytest.approx(0.25, abs=0.01)


def test_distributions_are_percentages_by_split():
    made = {"train": ((0.0, 1.0, 2.0), (1, 3)), "test": ((0.0, 1.0, 2.0), (2, 2))}
    panels = read_chart(histograms.plot_distributions(made, "score"))
    heights = [[bar.points[1][1] for bar in panel.bars] for panel in panels]
    assert heights[0] == near([25, 75])
    assert [text for panel in panels for text in panel.texts if text in made] == ["train", "test"]


def test_gradients_are_lines_over_the_distance():
    curve = [(0, 1.0), (1, 0.1), (2, 0.01)]
    health = GradientHealth(0, {}, {"layer 1": curve, "input": curve}, "", "good")
    (panel,) = read_chart(gradients.plot_by_distance({"lstm": health}))
    xs = [x for x, _ in panel.lines[-1].points]
    ys = [y for _, y in panel.lines[-1].points]
    assert xs == near([0, 1, 2])
    assert ys[1] - ys[0] == pytest.approx(ys[2] - ys[1], rel=1e-3)  # pixels: tenths are equal steps
    assert "lstm" in panel.texts
    assert "too weak to learn from" in panel.texts


@pytest.fixture
def tuned():
    return tune_result()


def test_the_history_of_a_search_has_every_trial_and_the_best_so_far(tuned):
    (panel,) = read_chart(tune.plot_history(tuned))
    assert panel.of_colour(panel.markers, "accent") == [near([(4, 80)])]
    assert panel.of_colour(panel.markers, "ink") == [near([(1, 60), (5, 70)])]
    pruned, failed = panel.of_colour(panel.markers, "muted")
    assert pruned == near([(2, 30)])
    assert [x for x, _ in failed] == near([3])
    (best,) = panel.of_colour(panel.lines, "accent")
    corners = dict.fromkeys((round(x), round(y)) for x, y in best)
    assert list(corners) == [(1, 60), (4, 60), (4, 80), (5, 80)]
    assert {"trial", "accuracy (%)"} <= {*panel.texts}


def test_a_setting_is_drawn_against_the_metric(tuned):
    (panel,) = read_chart(tune.plot_setting(tuned, tuned.plan.dimensions[0], 1), log_x=True)
    assert panel.of_colour(panel.markers, "accent") == [near([(0.01, 80)])]
    assert panel.of_colour(panel.markers, "ink") == [near([(0.001, 60), (0.1, 70)])]


def test_choices_are_drawn_by_name(tuned):
    names = ("sgd", "a-very-long-choice")
    dimensions = make_dimensions({"train.optimiser": ["sgd", "adam"]}, tuned.plan.base)
    assert tune._truncate(names[1]) == "a-very-lon…"
    assert tune._truncate("x" * tune.MAX_LETTERS) == "x" * tune.MAX_LETTERS
    rows = tuple(
        TrialRecord(i + 1, "complete", v, {"train.optimiser": name})
        for i, (name, v) in enumerate((("sgd", 0.5), ("adam", 0.9)))
    )
    plan = SearchSpec(tuned.plan.base, dimensions, "accuracy", True, {})
    found = TuneResult(Path(), plan, Limits(), rows, rows[1], None, {}, {})
    (panel,) = read_chart(tune.plot_setting(found, dimensions[0], 1))
    assert [*panel.x_ticks] == ["sgd", "adam"]
    ((x, y),) = panel.of_colour(panel.markers, "accent")[0]
    assert x == pytest.approx(panel.x_ticks["adam"])
    assert y == pytest.approx(90, abs=0.1)


def test_curves_of_trials_end_where_they_were_pruned(tuned):
    (panel,) = read_chart(tune.plot_learning_curves(tuned))
    assert panel.of_colour(panel.lines, "accent") == [near([(1, 70), (2, 80)])]
    inks = panel.of_colour(panel.lines, "ink")
    assert inks == [near([(1, 50), (2, 60)]), near([(1, 60), (2, 70)])]
    crosses = panel.of_colour(panel.markers, "muted")
    assert crosses[-1] == near([(1, 30)])


def test_restarts_are_points_around_their_mean(tuned):
    (panel,) = read_chart(tune.plot_restarts(tuned))
    assert [*panel.y_ticks] == ["original", "tuned"]
    places = [mark.points[0][0] for mark in panel.markers if mark.colour == "accent"]
    assert places == near([70, 80, 90])
    band, mean = panel.of_colour(panel.lines, "accent")
    assert [x for x, _ in band] == near([70, 90])  # ± one deviation
    assert [x for x, _ in mean] == near([80, 80])
    assert "accuracy (%) on test" in panel.texts


def test_the_shade_of_a_cell_is_its_weight():
    drawn = heatmap.draw_cells(np.array([[0.0, 0.5], [1.0, 0.25]]))
    shades = {"0.50": "M1 0h1v1h-1z", "1.00": "M0 1h1v1h-1z", "0.25": "M1 1h1v1h-1z"}
    for opacity, d in shades.items():
        assert f'<path opacity="{opacity}" d="{d}"/>' in drawn
    assert drawn.count("<path") == 3  # nothing where there is no weight
    weights = np.array([[0.1, 0.7], [0.8, 0.2]])
    assert heatmap.describe_peak(weights, ["a", "b"]) == "“b” attends to “a” with 0.80"
    assert heatmap.describe_peak(weights, ["a", "b"], ["x", "y"]) == "“y” attends to “a” with 0.80"
    assert heatmap.truncate("x" * heatmap.MAX_LETTERS) == "x" * heatmap.MAX_LETTERS
    assert heatmap.truncate("x" * 13) == "x" * 11 + "…"


def test_grid_lines_are_where_values_are_read():
    curves = plots.plot_learning_curves("a", [[(1.0, 0.2), (3.0, 0.8)]], [], "accuracy", (0.0, 1.0))
    pairs = np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 4.0]])
    drawn = {
        curves: "y",
        histograms.plot_residuals(pairs): "y",
        histograms.plot_predicted_vs_gold(pairs): "xy",
        histograms.plot_distributions({"a": ((0.0, 1.0, 2.0), (1, 3))}, "score"): "y",
    }
    for chart, grid in drawn.items():
        assert [panel.grid for panel in read_chart(chart)] == [grid]


def test_more_dots_than_can_be_seen_are_thinned():
    pairs = np.stack([np.arange(histograms.MAX_DOTS + 1.0)] * 2, 1)
    (panel,) = read_chart(histograms.plot_predicted_vs_gold(pairs))
    assert len(panel.markers[0].points) == histograms.MAX_DOTS
    curve = [(float(i), 0.5) for i in range(plots.MAX_POINTS + 1)]
    (panel,) = read_chart(plots.plot_learning_curves("a", [curve], [], "accuracy", (0.0, 1.0)))
    assert len(panel.lines[-1].points) <= plots.MAX_POINTS
