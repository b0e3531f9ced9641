"""The page for answers at every word: each kind has its parts, its drawings and its words."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tests.fixtures.compare_pages import ALWAYS, Reader, page, trial
from tests.fixtures.drawn_answers import ALL, WRONG
from weft.report.analysis.disagreements import find_disagreements
from weft.report.analysis.model_analysis import analyse_model
from weft.report.analysis.predictions import read_predictions
from weft.report.pages.compare import render

GOLD = {s.kind: s for s in ALL}
SAID = {s.kind: s for s in WRONG}
UNTIL = {"confusion", "labels", "errors", "disagreements"}


def answers(folder: Path, rows) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [
        {"text": " ".join(said.words), "label": {}, "value": [], "score": 0.5,
         "structure": said.to_json(), "gold": gold.to_json()}
        for said, gold in rows
    ]  # fmt: skip
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("kind", GOLD)
def test_every_kind_has_its_parts(kind, tmp_path):
    right, wrong = (GOLD[kind], GOLD[kind]), (SAID[kind], GOLD[kind])
    trials = [
        (trial("good", answers(tmp_path / "good", [right, wrong, right])), None),
        (trial("poor", answers(tmp_path / "poor", [wrong, wrong, right])), None),
    ]
    for one, _ in trials:
        one.read_predictions = lambda folder=one.folder: (
            json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()
        )
    seen = analyse_model(trials[0][0])
    facts = dataclasses.replace(page().stats, kind=kind, words={"train": 31, "test": 11})
    made = dataclasses.replace(
        page(analysis=seen), stats=facts, disagreements=find_disagreements(trials, ["PRON", "VERB"])
    )
    text = render(made)
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert set(re.findall(r'<h2 id="([^"]*)"', text)) == ALWAYS | UNTIL
    assert {f"#{part}" for part in ALWAYS | UNTIL} <= set(reader.links)
    assert reader.outside == []
    assert "http" not in text
    assert "<saw>" not in text
    assert text.count(".drawing text {") == 1
    assert "3 test sentences, 1 of them with at least one error" in text
    assert "<b>8</b> train sentences of <b>31</b> words" in text
    (dispute,) = made.disagreements
    assert dispute.sides[0][:2] == ("good", 1.0)
    assert dispute.sides[1][1] < 1
    assert "Hardest sentences" in text
    assert "collapsed" not in text


def test_one_label_has_one_colour_on_the_whole_page(tmp_path):
    row = (SAID["tags"], GOLD["tags"])
    few = analyse_model(trial("a", answers(tmp_path / "a", [row])))
    other = dataclasses.replace(GOLD["tags"], tags=("A", "B", "C", "D"))
    more = analyse_model(trial("b", answers(tmp_path / "b", [row, (SAID["tags"], other)])))
    colour = re.compile(r'--own:var\((--c\d)\)">She<small>PRON')
    found = [colour.search(str(error.markup)) for error in more.errors]
    assert {match[1] for match in found if match} == {"--c5"}  # A B C D NOUN PRON PROPN VERB
    assert colour.search(str(few.errors[0].markup))[1] == "--c1"


def test_counts_of_words_are_not_counts_of_texts(tmp_path):
    found = read_predictions(
        answers(tmp_path / "a", [(SAID["tags"], GOLD["tags"])] * 3) / "predictions.jsonl"
    )
    assert (found.kind, found.n, found.wrong) == ("tags", 3, 3)
    assert found.confusions["VERB", "NOUN"] == 3
    assert found.confusions["PROPN", "PROPN"] == 6
    worst = {one.label: one for one in found.classes}
    assert worst["VERB"].figures.recall == 0
    assert worst["PROPN"].figures.support == 6
    assert found.calibration is None
    assert found.sample == ()


def test_the_hardest_come_first_and_long_pictures_last(tmp_path):
    arcs = GOLD["arcs"]
    half = dataclasses.replace(arcs, heads=(2, 0, 4, 2))
    all_wrong = dataclasses.replace(arcs, heads=(3, 1, 2, 0))
    size = 31
    long = dataclasses.replace(
        arcs, words=("w",) * size, tags=(), heads=(0, *range(1, size)), relations=("x",) * size
    )
    worse = dataclasses.replace(long, relations=("y",) * size)
    rows = [(half, arcs), (worse, long), (arcs, arcs), (all_wrong, arcs)]
    found = read_predictions(answers(tmp_path / "a", rows) / "predictions.jsonl")
    assert [said.value.heads for said in found.errors] == [
        all_wrong.heads, half.heads, worse.heads
    ]  # fmt: skip


def test_models_that_answer_whole_texts_have_no_disputes(tmp_path):
    one = trial("a", tmp_path)
    one.read_predictions = lambda: iter([{"text": "x", "label": "a", "value": "a"}])
    assert find_disagreements([(one, None), (one, None)]) == []
