"""Which row is best, which is named, and how they are written."""

import dataclasses
import re

import pytest

from weft.compare.format import format_metric, format_p_value, format_size, human_count
from weft.compare.leaderboard import (
    Row,
    build_notes,
    print_table,
    recommend,
    sort_rows,
    summarise_trials,
)
from weft.compare.trial import Result, Timing
from weft.report.charts import plots


def made(recipe: str, quality: float, p50: float, spread: float | None = 0.01, **more) -> Row:
    values = (quality,) if spread is None else (quality - spread, quality, quality + spread)
    return Row(
        recipe,
        "accuracy",
        quality,
        spread,
        more.pop("low", quality - 0.03),
        more.pop("high", quality + 0.03),
        values,
        train_seconds=12.34,
        p50_ms=p50,
        p95_ms=2 * p50,
        texts_per_second=1234.5,
        size_bytes=5_678_901,
        parameters=1_234_567,
        memory_bytes=876_543_210,
        p=0.0123,
        **more,
    )


ROWS = [
    made("bag", 0.70, 0.1),
    made("near", 0.893, 0.5),
    made("slow", 0.895, 9.0),
    made("best", 0.90, 2.0),
    Row("broken", error="no <good>"),
]


def test_best_first_and_failures_last():
    assert [r.recipe for r in sort_rows(ROWS)] == ["best", "slow", "near", "bag", "broken"]


def test_lower_is_better_for_an_error():
    rows = [
        made(name, quality, 1.0, higher_is_better=False)
        for name, quality in (("a", 5.0), ("b", 4.0))
    ]
    rows.insert(0, Row("broken", error="no"))
    assert [r.recipe for r in sort_rows(rows)] == ["b", "a", "broken"]


def test_the_cheapest_within_a_deviation_is_named():
    found = recommend(ROWS)
    assert found is not None
    assert (found.best.recipe, found.choice.recipe) == ("best", "near")
    assert found.text == (
        "Use near (accuracy 89.3, 0.50 ms per text): it is the fastest within one standard "
        "deviation (±1.0 over 3 seeds) of the best, best (90.0, 2.00 ms), and 4.0 times as fast."
    )


def test_the_deviation_is_that_of_the_best():
    rows = [made("best", 0.90, 2.0, spread=0.005), made("wide", 0.893, 0.5, spread=0.02)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "best"
    told = "no clearly faster model is within one standard deviation (±0.5 over 3 seeds)"
    assert told in found.text


def test_of_models_about_as_fast_the_better_one_is_named():
    """0.55 against 0.60 ms is no reason for a model that is half a point worse."""
    rows = [made("best", 0.900, 2.0), made("better", 0.897, 0.60), made("worse", 0.892, 0.55)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "better"
    rows[1] = made("better", 0.897, 0.70)
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "worse"


@pytest.mark.parametrize("spread", [None, 0.0])
def test_without_a_spread_the_bootstrap_gives_the_deviation(spread):
    deviation = 0.06 / (2 * 1.96)  # the interval is 6 points wide
    for gap, choice in ((0.99, "near"), (1.01, "best")):
        near = made("near", 0.90 - gap * deviation, 0.5, spread=None)
        found = recommend([made("best", 0.90, 2.0, spread=spread), near])
        assert found is not None
        assert found.choice.recipe == choice
        assert "deviation (±1.5, bootstrap over the test texts)" in found.text


def test_recommendation_mentions_folds():
    rows = [made("a", 0.9, 1.0, folds=3), made("b", 0.5, 0.5, folds=3)]
    found = recommend(rows)
    assert found is not None
    assert "over 3 folds" in found.text


def test_only_ranked_rows_are_named():
    rows = [Row("slow", short="no training could end", quality=0.99), made("a", 0.5, 1.0)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "a"
    assert [r.recipe for r in sort_rows([Row("broken", error="no"), *rows])] == [
        "a",
        "slow",
        "broken",
    ]
    assert [r.to_json()["status"] for r in rows] == ["not enough time", "ranked"]


def test_missing_seeds_use_the_median_deviation_of_the_others():
    # By bootstrap alone, ±1.5, one lucky seed would let a model win that is three deviations worse.
    alone = made("best", 0.90, 2.0, spread=None, late=2)
    rows = [alone, made("near", 0.8901, 0.5, spread=0.004), made("far", 0.7, 0.1, spread=0.003)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "best"
    assert "(±0.4, the median over recipes)" in found.text


def test_a_best_recipe_without_seeds_takes_the_deviation_of_the_others():
    # By bootstrap, ±1.5, a fast model 1.2 points worse would be recommended.
    best = made("best", 0.90, 2.0, spread=None)
    rows = [best, made("fast", 0.888, 0.5, spread=0.001), made("far", 0.8, 0.1, spread=0.009)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "best"
    assert "(±0.5, the median over recipes)" in found.text


def test_a_model_that_was_not_timed_is_not_the_cheapest():
    rows = [made("best", 0.90, 2.0), dataclasses.replace(made("near", 0.899, 1.0), p50_ms=None)]
    found = recommend(rows)
    assert found is not None
    assert found.choice.recipe == "best"
    untimed = recommend([dataclasses.replace(r, p50_ms=None) for r in rows])
    assert untimed is not None
    assert untimed.text.startswith("Use best: it is the best (accuracy 90.0). No time was")


def test_nothing_to_name():
    assert recommend([Row("broken", error="no")]) is None


def test_the_table_fits_a_hundred_columns(capsys):
    rows = [*ROWS, made("bilstm-attention", 1.0, 123.4), Row("long", error="word " * 50)]
    print_table(rows)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    order = [line.split()[0] for line in shown.splitlines()[1:6]]
    assert order == ["bilstm-attention", "best", "slow", "near", "bag"]
    assert "90.0 ± 1.0" in shown
    assert "12.3 s" in shown
    assert "5.7 MB" in shown
    assert "broken failed: no <good>" in shown
    assert "Use bilstm-attention: it is the best" in shown


def test_nothing_is_cut_off_where_the_table_is_full(capsys):
    figures = {"metric": "perplexity", "higher_is_better": False, "others": {"perplexity": 3.0}}
    full = dataclasses.replace(
        made("masked-bilstm", 33.55, 24.9), **figures, p=0.0001, token_ms=3.02,
        texts_per_second=17_303.0, size_bytes=371_000,
    )  # fmt: skip
    print_table([full, dataclasses.replace(full, recipe="nnlm", p=0.002)])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "371 kB" in shown


def test_a_row_sums_up_its_trials():
    def result(value: float, n: int, memory: int, **more) -> Result:
        figures = {"accuracy": {"value": value, "low": value - 0.1, "high": value + 0.1, "n": n}}
        return Result("", "accuracy", True, figures, 0.5, 2.0, memory, 7, 11, [], {}, **more)

    timing = Timing(5.0, 6.0, 7.0, 8)
    results = [
        result(0.5, 10, 100, collapsed="yes"),
        result(0.8, 20, 300, clipped="yes", completed=0.7, rising="it rose"),
    ]
    found = summarise_trials("cnn", results, timing, folds=2, late=1, seeds=["3", "7"])
    assert found.quality == pytest.approx(0.65)
    assert found.spread == pytest.approx(0.3 / 2**0.5)
    assert found.pooled == pytest.approx(0.7)
    assert (found.p50_ms, found.p95_ms, found.texts_per_second) == (5.0, 6.0, 7.0)
    assert (found.memory_bytes, found.answer_bytes) == (200, 8)
    assert (found.collapsed, found.clipped, found.rising, found.late) == (1, 1, 1, 1)
    assert (found.low, found.high) == (pytest.approx(0.55), pytest.approx(0.75))
    assert summarise_trials("cnn", results[:1], timing).spread is None
    told = build_notes([found])
    assert told[0].startswith(
        "cnn: 1 of 2 runs collapsed (seed 3); accuracy 65.0 ± 21.2 with them, 80.0 without."
    )
    assert (found.collapsed_seeds, found.kept_quality) == (("3",), 0.8)
    assert found.kept_spread is None  # one is left
    whole = summarise_trials("cnn", [result(0.5, 10, 100)] * 2, timing, seeds=["1", "2"])
    assert (whole.collapsed_seeds, whole.kept_quality) == ((), None)
    assert "the time limit shortened 1 of 2 runs (to 70% of their epochs)" in told[1]
    assert told[2:] == [
        "cnn: 1 of 2 runs are undertrained: it rose.",
        "cnn: only 2 of 3 runs finished; not enough time for the rest.",
    ]


def test_numbers_in_words():
    assert format_metric(0.9312, "accuracy") == "93.1"
    assert format_metric(0.9312, "pearson") == "0.931"
    assert [human_count(v) for v in (None, 9_999, 206_298, 1_518_006, 2.5e9)] == [
        "–",
        "9,999",
        "206 k",
        "1.52 M",
        "2.5 G",
    ]
    assert [format_p_value(p) for p in (None, 0.0001, 0.0123, 0.5)] == [
        "–",
        "<0.001",
        "0.012",
        "0.50",
    ]
    assert [format_size(v) for v in (7, 999, 1500, 56_000, 5_670_000, 2.5e9)] == [
        "7 B",
        "999 B",
        "1.5 kB",
        "56 kB",
        "5.7 MB",
        "2.5 GB",
    ]


def test_labels_of_the_scatter_do_not_overlap():
    names = ["a-long-name", "another-name", "third-name", "fourth-name", "fifth-name"]
    rows = [made(name, 1.0 - i / 1000, 0.7 + i / 100) for i, name in enumerate(names)]
    rows.append(made("far-away", 0.7, 0.01))  # makes the axis logarithmic
    found = recommend(rows)
    assert found is not None
    drawing = plots.plot_quality_vs_latency(rows, found)
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawing)[0])
    boxes = []
    for name in [*names, "far-away"]:
        x, y = map(
            float, re.findall(rf'x="([\d.]+)" y="([\d.]+)"[^>]*>{name}(?: 70.0 ↓)?<', drawing)[0]
        )
        boxes.append((x, y - 7, x + 5 * len(name), y))  # a little less than 9.5 px letters need
        assert x > 0
        assert x + 5 * len(name) < width
        assert 7 < y < height
    for i, (left, top, right, bottom) in enumerate(boxes):
        for x0, y0, x1, y1 in boxes[:i]:
            assert right <= x0 or x1 <= left or bottom <= y0 or y1 <= top


def test_a_long_name_takes_no_figure_away(capsys):
    print_table([made("tagger-bilstm-crf", 0.9, 2.0), made("tagger-transformer", 0.8, 123.0)])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "877 MB" in shown
    assert max(map(len, shown.splitlines())) <= 100
