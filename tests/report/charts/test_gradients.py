"""Charts of gradient health: every recipe is named once, and no name covers another."""

import re
from itertools import pairwise

import pytest

from weft.report.charts.gradients import _drop_gaps, plot_by_distance, plot_history, spread_apart
from weft.train.gradients.verdict import GradientHealth


def health(rate: float, level: str, step: int = 0, steps: int = 60) -> GradientHealth:
    curve = [(k, rate**k) for k in range(steps + 1)]
    return GradientHealth(step, {}, {"layer 1": curve, "input": curve}, "", level)


def heights(chart: str) -> dict[str, float]:
    """The vertical place of each text in the picture."""
    found = re.findall(r"<text[^>]*?translate\([\d.]+ ([\d.]+)\)[^>]*>([^<]+)</text>", chart)
    found += re.findall(r'<text[^>]*? y="([\d.]+)"[^>]*>([^<]+)</text>', chart)
    return {name: float(y) for y, name in found}


def test_each_recipe_has_its_line_and_name():
    levels = {"rnn": "bad", "lstm": "good", "gru": "warning", "<b>": "good"}
    rates = {"rnn": 0.6, "lstm": 0.99, "gru": 0.9, "<b>": 0.99}
    chart = plot_by_distance({name: health(rates[name], levels[name]) for name in levels})
    assert chart.startswith("<svg")
    assert "<b>" not in chart
    for name in ("rnn", "lstm", "gru", "&lt;b&gt;"):
        assert chart.count(f">{name}</text>") == 1
    assert "var(--accent)" in chart
    assert "var(--ink)" in chart
    assert not re.search(r"#0\d0\d0\d", chart)
    assert "http" not in chart


def test_names_of_equal_lines_do_not_cover_each_other():
    names = [f"recipe {i}" for i in range(12)]
    placed = heights(plot_by_distance({name: health(1.0, "good") for name in names}))
    rising = sorted(placed[name] for name in names)
    assert min(b - a for a, b in pairwise(rising)) > 9  # points


def test_nothing_to_draw_gives_nothing():
    assert plot_by_distance({}) == ""
    assert plot_by_distance({"bag": GradientHealth(0, {}, {}, "", "good")}) == ""
    assert plot_history([]) == ""


def test_a_gradient_of_zero_is_drawn_at_the_floor():
    curve = [(0, 1.0), (1, 0.0)]
    chart = plot_by_distance({"cnn": GradientHealth(0, {}, {"layer 1": curve}, "", "bad")})
    assert "nan" not in chart
    assert ">cnn</text>" in chart


def test_histories_follow_some_distances():
    chart = plot_history([health(0.9 + step / 1000, "good", step) for step in (10, 20, 30)])
    for name in ("7 steps", "15 steps", "30 steps", "60 steps"):
        assert f">{name}</text>" in chart
    assert ">3 steps</text>" not in chart


def test_names_are_moved_no_more_than_needed():
    assert spread_apart([0.1, 0.5], 0.2) == [0.1, 0.5]
    assert spread_apart([0.5, 0.5, 0.5], 0.2) == pytest.approx([0.5, 0.7, 0.9])
    assert spread_apart([0.9, 0.95, 1.0], 0.2) == pytest.approx([0.6, 0.8, 1.0])
    assert spread_apart([0.0] * 5, 0.5) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert spread_apart([], 0.2) == []


def test_steps_that_a_maximum_passed_over_are_not_drawn():
    curve = [(0, 1.0), (1, 0.0), (2, 0.5), (3, 0.0), (4, 0.0)]
    assert _drop_gaps(curve) == [(0, 1.0), (2, 0.5), (3, 0.0), (4, 0.0)]
