"""Texts side by side: samples, differences, the best and the worst, and figures for people."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu

from tests.fixtures.compare_pages import EVIL, page, row
from weft.compare.format import format_metric, metric_name
from weft.compare.leaderboard import Row, format_row, recommend, secondary_metric, sort_rows
from weft.compare.significance import p_values
from weft.compare.trial import SplitSpec, Trial, _same_answer_note
from weft.config import from_sections
from weft.report.analysis.best_and_worst import BestAndWorst
from weft.report.analysis.best_and_worst import render_page as sampled_page
from weft.report.analysis.generation_samples import collect_samples, diff_markup, sentence_chrf
from weft.report.pages.compare import render
from weft.tasks.task import Answer
from weft.text.example import Example

RIGHT = ["one two three four", "five six seven eight", "nine ten one two", "three four five six"]


def trial(folder: Path, name: str, said, kind: str = "seq2seq", seed: int = 1) -> Trial:
    place = folder / f"{name}-{seed}"
    place.mkdir()
    rows = []
    for right, one in zip(RIGHT, said, strict=False):
        told = {"value": one} if kind == "seq2seq" else {"value": one, "tokens": 5}
        label = right if kind == "seq2seq" else None
        rows.append({"text": f"{EVIL} {right}", "label": label, "score": 0.5, **told})
    (place / "predictions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return Trial(
        name, seed, None, from_sections({"task": {"kind": kind}}, "t"), SplitSpec(""), place, ""
    )


def finished(*trials: Trial):
    return [(one, SimpleNamespace(notes=[], versions={})) for one in trials]


def test_sentence_scores_are_sacrebleus():
    said = ["one two tree four", "", "nine ten one two"]
    wanted = [sacrebleu.sentence_chrf(a, [b]).score for a, b in zip(said, RIGHT, strict=False)]
    assert sentence_chrf(said, RIGHT[:3]) == pytest.approx(wanted)


def test_words_that_the_reference_has_not_are_marked():
    assert diff_markup("one <b> three", "one two three") == (
        'one <mark class="off">&lt;b&gt;</mark> three'
    )
    assert "(empty)" in diff_markup("", "one")


def test_systems_are_shown_side_by_side_by_difference(tmp_path):
    good = trial(tmp_path, "good", RIGHT)
    poor = trial(tmp_path, "poor", [RIGHT[0], "five", "", RIGHT[3]])
    found = collect_samples(finished(good, poor), ["good", "poor"])
    assert (found.kind, found.recipes, found.n) == ("seq2seq", ("good", "poor"), 4)
    assert len(found.samples) == 4
    assert [side.recipe for side in found.samples[0].outputs] == ["good", "poor"]
    assert [one.reference for one in found.disagreements] == [RIGHT[2], RIGHT[1]]
    assert found.worst == ()  # of the first system, which is always right
    other = collect_samples(finished(good, poor), ["poor", "good"])
    assert [one.reference for one in other.worst] == [RIGHT[2], RIGHT[1]]
    assert other.worst[0].outputs[0].score < other.worst[1].outputs[0].score


def test_scored_texts_are_ranked_by_perplexity(tmp_path):
    a = trial(tmp_path, "a", [3.0, 4.0, 5.0, 6.0], "language")
    b = trial(tmp_path, "b", [3.0, 4.0, 50.0, 6.0], "language")
    found = collect_samples(finished(a, b), ["a", "b"])
    assert [one.text for one in found.disagreements] == [f"{EVIL} {RIGHT[2]}"]
    assert found.worst[0].text.endswith(RIGHT[3])
    assert p_values({"a": [a], "b": [b]}, "a", "perplexity")["b"] > 0.05  # one text of four


def test_answers_of_other_texts_are_not_compared(tmp_path):
    one, two = trial(tmp_path, "a", RIGHT), trial(tmp_path, "b", RIGHT[:3])
    assert collect_samples(finished(one, two), ["a", "b"]) is None
    assert p_values({"a": [one], "b": [two]}, "a", "bleu") == {}


def test_the_paired_test_is_of_the_corpus_figure(tmp_path):
    good = [trial(tmp_path, "good", RIGHT, seed=s) for s in (1, 2)]
    same = [trial(tmp_path, "same", RIGHT)]
    assert p_values({"good": good, "same": same}, "good", "bleu") == {"same": 1.0}


def test_same_answer_for_every_text_is_a_collapse_note(tmp_path):
    long = "die Zahl " * 30
    found = trial(tmp_path, "a", [long] * 4)
    told = _same_answer_note(found.read_predictions())
    assert "for 100% of the test texts" in told
    assert len(told) < 130


def test_figures_for_people():
    assert format_metric(23.456, "bleu") == "23.5"
    assert format_metric(0.0656, "exact_match") == "6.6"
    assert [format_metric(v, "perplexity") for v in (8.6841, 43.21, 182.36, 12345.6)] == [
        "8.684", "43.21", "182.4", "12,346",
    ]  # fmt: skip
    assert format_metric(1.2345, "bits_per_character") == "1.234"
    assert metric_name("rougeL") == "ROUGE-L"
    assert metric_name("accuracy") == "accuracy"


def low(recipe: str, quality: float, **more) -> Row:
    return dataclasses.replace(
        row(recipe, quality), metric="perplexity", higher_is_better=False, spread=0.5, **more
    )


def test_lower_is_better_turns_everything_round():
    rows = [low("b", 14.0), low("a", 9.0, p50_ms=3.0), low("c", 9.3)]
    assert [r.recipe for r in sort_rows(rows)] == ["a", "c", "b"]
    found = recommend(rows)
    assert (found.best.recipe, found.choice.recipe) == ("a", "c")
    assert "perplexity 9.300" in found.text
    html = render(page(rows=rows))
    assert "Lower and further left is better" in html
    assert "from the best model up to the margin" in html
    assert "<th data-up>perplexity</th>" in html


def test_the_page_shows_answers_and_more_figures(tmp_path):
    good, poor = trial(tmp_path, "good", RIGHT), trial(tmp_path, "poor", ["x", "", "y", "z"])
    found = collect_samples(finished(good, poor), ["good", "poor"])
    one = dataclasses.replace(
        row("good", 31.0), metric="bleu", others={"chrf": 55.0, "exact_match": 0.25}, token_ms=1.5
    )
    made = page(rows=[one], samples=found)
    made = dataclasses.replace(
        made, stats=dataclasses.replace(made.stats, writes="seq2seq", labels={})
    )
    html = render(made)
    assert "Outputs side by side" in html
    assert "Largest differences between systems" in html
    assert "<script>alert" not in html
    for head in ("BLEU", "chrF", "exact %", "ms/token"):
        assert f"{head}</th>" in html
    assert "p95 ms" not in html
    assert format_row(one, secondary_metric([one]))[6:8] == ["55.0", "1.50"]


def test_the_best_and_the_worst_are_kept_while_measuring():
    kept = BestAndWorst("seq2seq", keep=2)
    said = [RIGHT[0], "five six", "", "three four five nine"]
    for i, (right, one) in enumerate(zip(RIGHT, said, strict=True)):
        kept.add(Example(f"s{i}", right, "", "f", i + 1), Answer(one, 0.5))
    assert [one.where for one in kept.worst] == ["f:3", "f:2"]
    assert [one.where for one in kept.best] == ["f:1", "f:4"]
    kept.add(Example(EVIL, (RIGHT[0], RIGHT[1]), "", "f", 9), Answer(RIGHT[1], 0.5))
    assert kept.best[1].where == "f:9"  # the better of two references counts
    html = sampled_page(kept, {}, ["BLEU|nrefs:1"], model="m", file="f")
    assert "<script>alert" not in html
    assert "BLEU|nrefs:1" in html
    heard = BestAndWorst("language", keep=1)
    for value in (7.0, 3.0, 9.0):
        heard.add(Example(f"t{value}"), Answer(value, value))
    assert [heard.worst[0].text, heard.best[0].text] == ["t9.0", "t3.0"]
