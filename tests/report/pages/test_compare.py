"""The page: every part is there for every kind of answer, safe, and whole without a network."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.compare_pages import ALWAYS, EVIL, Reader, page, row, trial
from tests.fixtures.small import SMALL, splits
from weft import config, run
from weft.compare.leaderboard import Row, sort_rows
from weft.errors import UserError
from weft.report import html
from weft.report.analysis import model_analysis as looking
from weft.report.analysis.model_analysis import ExplainedError, ModelAnalysis, analyse_model
from weft.report.analysis.predictions import read_predictions
from weft.report.analysis.projection import build_projection
from weft.report.pages.compare import _error_bars, render


def seen(tmp_path: Path, rows: list[tuple[Any, Any, float]]) -> ModelAnalysis:
    """A look at answers that nobody trained for."""
    path = tmp_path / "predictions.jsonl"
    lines = [{"text": f"{EVIL} {i}", "label": a, "value": b, "score": s}
             for i, (a, b, s) in enumerate(rows)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read_predictions(path)
    vectors = [[float(i), float(i * i)] for i in range(len(found.sample))]
    errors = tuple(ExplainedError(said, html.break_label(said.text)) for said in found.errors)
    picture = build_projection(found.sample, vectors, ("pca",))  # type: ignore[arg-type]
    return ModelAnalysis(
        "cnn", "cnn seed 1", found, errors, "occlusion", picture, ("A note of the look.",)
    )


CLASSES = [("a", "a", 0.9)] * 7 + [("a", EVIL, 0.8), (EVIL, "a", 0.7), (EVIL, EVIL, 0.6)]
MANY = [(f"label_{i % 40}", f"label_{i % 40 if i % 7 else (i + 1) % 40}", 0.5) for i in range(280)]
SETS = [(["x", EVIL], ["x"], 0.5), (["x"], ["x"], 0.6), ([], ["x"], 0.6), (["x"], [], 0.6)]
NUMBERS = [(float(i), i + (i % 3) / 2, 0.0) for i in range(11)]
PARTS = {
    "classes": (CLASSES, {"confusion", "labels", "calibration", "coverage", "errors", "texts"}),
    "many classes": (MANY, {"confusion", "labels", "calibration", "coverage", "errors", "texts"}),
    "sets": (SETS, {"labels", "coverage", "errors", "texts"}),
    "numbers": (NUMBERS, {"numbers", "errors", "texts"}),
    "all right": (CLASSES[:7], {"confusion", "labels", "calibration", "coverage", "texts"}),
}


@pytest.mark.parametrize("kind", PARTS)
def test_every_kind_of_answer_has_its_parts(kind, tmp_path):
    rows, wanted = PARTS[kind]
    text = render(page(analysis=seen(tmp_path, rows)))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert set(re.findall(r'<h2 id="([^"]*)"', text)) == ALWAYS | wanted
    assert {f"#{part}" for part in ALWAYS | wanted} <= set(reader.links)  # the index leads to each
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert reader.outside == []
    assert "http" not in text
    assert "<script>alert" not in text
    assert "A note of the look." in text
    assert len(text) < 1_500_000


def test_a_whole_matrix_or_its_corner(tmp_path):
    text = render(page(analysis=seen(tmp_path, CLASSES)))
    matrix = text.split('<table class="confusion">')[1].split("</table>")[0]
    cells = re.findall(r'<td class="([^"]*)" style="--s:([\d.]+)">([\d,]+)</td>', matrix)
    assert cells == [
        ("right", "0.50", "1"),
        ("", "0.50", "1"),
        ("", "0.12", "1"),
        ("right", "0.88", "7"),
    ]
    assert "Most confused labels" not in text
    text = render(page(analysis=seen(tmp_path, MANY)))
    assert "Most confused labels" in text
    assert "<span>other</span>" in text
    assert "show all 40 labels" in text  # folded away beyond 30


def test_calibration_in_words(tmp_path):
    def told(chance: float) -> str:
        rows = [("a", "a", chance), ("a", "b", chance)] * 5
        return render(page(analysis=seen(tmp_path, rows)))

    assert "the model is <b>overconfident</b>" in told(0.9)
    assert "Expected calibration error (ECE): <b>40.0&nbsp;%</b>" in told(0.9)
    assert "the model is <b>underconfident</b>" in told(0.2)
    assert "the model is well calibrated on average" in told(0.5)


def test_without_a_look_the_page_is_smaller():
    text = render(page())
    assert set(re.findall(r'<h2 id="([^"]*)"', text)) == ALWAYS
    assert "weft predict out/model texts.txt\nweft evaluate out/model b.tsv\nweft explain" in text


def test_leaderboard_shows_failures():
    rows = [
        row("best", 0.9),
        row("stuck", 0.5, p=0.0002, collapsed=2, memory_bytes=5_000_000),
        row("short", 0.6, p=0.25, clipped=1, completed=(1.0, 0.62), rising=3),
        Row("broken", error="no <good>"),
    ]
    text = render(page(rows=rows))
    assert "2 of 3 collapsed" in text
    assert "1 shortened (to 62 % of the epochs)" in text
    assert "3 undertrained" in text
    assert "&lt; 0.001" in text
    assert ">0.250<" in text
    assert ">best</td>" in text
    assert "5.0 MB" in text
    assert "no &lt;good&gt;" in text
    lone = render(page(rows=[row("best", 0.9), Row("broken", error="no")]))
    assert "data-up>p</th>" not in lone  # no column for what is not known
    assert "memory" not in lone.split("</thead>")[0].split("<thead>")[1]


def test_gradients_and_the_doctor_have_their_places():
    from weft.train.gradients.verdict import GradientHealth

    curve = [(0, 1.0), (5, 0.1), (10, 0.01)]
    health = GradientHealth(3, {}, {"encoder": curve, "input": curve}, f"It falls. {EVIL}", "bad")
    text = render(page(gradient_health={"cnn": health}))
    assert 'id="gradients"' in text
    assert '<span class="level bad"></span>It falls. &lt;script&gt;' in text


def test_numbers_in_the_data_are_drawn():
    facts = dataclasses.replace(page().stats, numeric=True, labels={"1.5": {"train": 3}, "x": {}})
    text = render(dataclasses.replace(page(), stats=facts))
    assert "Gold numbers" in text


def test_a_name_breaks_at_its_joints():
    assert html.break_label("a_b/c") == "<bdi>a_<wbr>b/<wbr>c</bdi>"
    assert html.break_label("<&'>") == "<bdi>&lt;&amp;&#39;&gt;</bdi>"


@pytest.fixture(scope="module", params=["tfidf", "bag"])
def trained(request, tmp_path_factory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    changes = {k: v for k, v in SMALL.items() if request.param != "tfidf" or k == "train.epochs"}
    recipe = config.recipe(request.param).with_values(changes, "test")
    run.train(recipe, folder / "run", splits=splits(), device="cpu", quiet=True)
    return trial(request.param, folder / "run")


def test_a_look_at_a_trained_model(trained):
    found = analyse_model(trained, device="cpu", limit=7)
    lines = (trained.folder / "predictions.jsonl").read_text().splitlines()
    assert found.predictions.n == len(lines) == 8
    assert found.projection is not None
    assert list(found.projection.layouts) == ["pca", "t-sne"]
    assert len(found.projection.predictions) == 7
    assert found.notes == ()
    assert "7 of 8 test texts" in found.projection.caption
    assert ("tf-idf" in found.projection.caption) == (trained.recipe == "tfidf")
    assert len(found.errors) == found.predictions.wrong
    assert bool(found.method) == bool(found.errors)
    assert "Sentence vectors</h2>" in render(page(analysis=found))


def test_errors_are_explained(trained):
    path = trained.folder / "predictions.jsonl"
    before = path.read_text()
    rows = [json.loads(line) for line in before.splitlines()]
    for line in rows:
        line["label"] = "negative" if line["value"] == "positive" else "positive"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    try:
        found = analyse_model(trained, device="cpu", projections=("pca",))
    finally:
        path.write_text(before)
    assert len(found.errors) == 8
    assert found.method
    for error in found.errors:
        shown = re.sub(r"<[^>]*>", "", str(error.markup))
        assert shown.split() == error.prediction.text.split()


def test_unavailable_analysis_is_noted(trained, monkeypatch):
    def refuse(*given: Any) -> Any:
        raise UserError("not possible.")

    monkeypatch.setattr(looking, "_highlight", refuse)
    monkeypatch.setattr(looking, "sentence_vectors", refuse)
    found = analyse_model(trained, device="cpu")
    assert found.notes == (
        "Errors without explanations: not possible.",
        "No projection of the texts: not possible.",
    )
    assert found.projection is None
    assert found.method == ""


def test_an_outlier_does_not_squash_the_others():
    rows = [row(f"r{i}", 0.70 + i / 100) for i in range(7)]
    rows.append(row("lost", 0.092))
    bars = _error_bars(sort_rows(rows))
    means = [bar["mean"] for bar in bars if bar is not None]
    assert means[0] - means[6] > 30  # of 120 pixels; with the outlier on the scale, 10
    assert [bar["outlier"] for bar in bars if bar is not None] == [False] * 7 + [True]
    text = render(page(rows=rows))
    assert "lost 9.2 ↓<" in text  # in the chart, at its edge
    few = [row("a", 0.9), row("b", 0.3)]  # of two, neither is the bulk
    assert "0 ↓<" not in render(page(rows=few))


def test_flags_wrap_under_the_name_and_learning_curves_fold():
    text = render(page(rows=[row("cnn", 0.9, late=2), row("bag", 0.8)]))
    assert re.search(r"\.board \.tag \{ display: block;[^}]*white-space: normal", text)
    head = re.search(r"<thead>(.*?)</thead>", text, re.S)
    assert head is not None
    assert re.findall(r"<th[^>]*>([^<]*)</th>", head[1])[:2] == ["recipe", "accuracy %"]
    assert '<details class="curves">' in text


@pytest.mark.parametrize(("higher", "words"), [(True, "Higher and"), (False, "Lower and")])
def test_the_page_says_which_end_is_better(higher, words):
    rows = [dataclasses.replace(one, higher_is_better=higher) for one in page().rows]
    text = render(dataclasses.replace(page(), rows=rows))
    assert f"{words} further left is better" in text
    assert ("the best model up to" in text) is not higher
