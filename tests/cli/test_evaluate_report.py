"""weft evaluate --report and --errors of a classifier."""

import json
import random

import pytest
from sklearn.metrics import classification_report

from tests.fixtures.command import command, ok
from tests.fixtures.small import examples
from weft.report.analysis.classification import ClassificationErrors
from weft.tasks.task import Answer
from weft.text.example import Example

LABELS = ("anger", "joy", "optimism", "sadness")


@pytest.fixture(scope="module")
def wrong_file(tmp_path_factory):
    """The rows of the training file, every fifth with the other label."""
    path = tmp_path_factory.mktemp("data") / "test.tsv"
    rows = []
    for i, example in enumerate(examples()):
        other = {"positive": "negative", "negative": "positive"}[example.label]
        rows.append(f"{other if i % 5 == 0 else example.label}\t{example.text} <b>\n")
    path.write_text("".join(rows))
    return path


def test_figures_of_labels_are_those_of_scikit_learn():
    draw = random.Random(7)
    found = ClassificationErrors(keep=5)
    right, said = [], []
    for line in range(1, 212):
        right.append(draw.choice(LABELS))
        said.append(right[-1] if draw.random() < 0.6 else draw.choice(LABELS[1:]))
        score = draw.random()
        found.add(
            Example(f"text {line}", right[-1], file="a.tsv", line=line), Answer(said[-1], score)
        )
    expected = classification_report(right, said, output_dict=True, zero_division=0)
    ours = {**found.by_label(), **found.averages()}
    names = {"macro average": "macro avg", "weighted average": "weighted avg"}
    assert set(found.by_label()) == set(LABELS)
    for name, one in ours.items():
        theirs = expected[names.get(name, name)]
        assert one.precision == pytest.approx(theirs["precision"]), name
        assert one.recall == pytest.approx(theirs["recall"]), name
        assert one.f1 == pytest.approx(theirs["f1-score"]), name
        assert one.support == theirs["support"]
    assert found.wrong == sum(a != b for a, b in zip(right, said, strict=True))
    scores = [one.score for one in found.errors]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 5


def test_several_labels_count_for_each():
    found = ClassificationErrors(keep=3)
    found.add(Example("a", ("x", "y"), file="f", line=1), Answer(("y", "z"), 0.9))
    found.add(Example("b", ("x",), file="f", line=2), Answer(("x",), 0.8))
    found.add(Example("c", (), file="f", line=3), Answer(("x",), 0.7))
    expected = classification_report(
        [[1, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 1, 1], [1, 0, 0], [1, 0, 0]],
        target_names=["x", "y", "z"], output_dict=True, zero_division=0,
    )  # fmt: skip
    for name, one in found.by_label().items():
        assert one.f1 == pytest.approx(expected[name]["f1-score"])
        assert one.support == expected[name]["support"]
    assert not found.confusions
    assert [(one.label, one.predicted) for one in found.errors] == [
        ("x, y", "y, z"),
        ("(none)", "x"),
    ]


@pytest.mark.parametrize("recipe", ["bag", "tfidf"])
def test_a_page_and_the_terminal_show_labels_confusions_and_errors(
    recipe, shared, wrong_file, tmp_path
):
    page = tmp_path / "pages" / "report.html"
    model = shared / recipe
    done = ok("evaluate", model, wrong_file, "--report", page, "--errors", 4)
    text = page.read_text()
    predictions = tmp_path / "all.jsonl"
    ok("evaluate", model, wrong_file, "--predictions", predictions)
    rows = [json.loads(line) for line in predictions.read_text().splitlines()]
    wrong = sorted(
        (row["score"], f"{wrong_file}:{i}", row["text"])
        for i, row in enumerate(rows, 1)
        if row["label"] != row["value"]
    )
    assert wrong
    for _, where, error in wrong:  # every one is on the page
        assert f"{where}</small>" in text
        assert error.replace("<b>", "&lt;b&gt;") in text
    _, where, error = wrong[-1]  # the surest comes first
    assert text.index(where) < min(text.index(one[1] + "<") for one in wrong[:-1])
    assert done.out.index(where) < done.out.index(error)
    assert done.out.count(" sure  ") == min(4, len(wrong))
    report = classification_report(
        [row["label"] for row in rows], [row["value"] for row in rows],
        output_dict=True, zero_division=0,
    )  # fmt: skip
    for name, of in (
        ("positive", "positive"),
        ("negative", "negative"),
        ("macro average", "macro avg"),
        ("weighted average", "weighted avg"),
    ):
        figures = [f"{report[of][key]:.3f}" for key in ("precision", "recall", "f1-score")]
        figures.append(f"{report[of]['support']:.0f}")
        line = next(line for line in done.lines if line.startswith(name + " "))
        assert line.removeprefix(name).split() == figures
        assert "</td><td>".join(figures) in text
    assert '<table class="confusion">' in text
    mixed = sum(row["label"] == "positive" and row["value"] == "negative" for row in rows)
    if mixed:
        assert f">{mixed}</td>" in text


def test_json_stays_json(shared, wrong_file, tmp_path):
    page = tmp_path / "report.html"
    done = ok("evaluate", shared / "bag", wrong_file, "--report", page, "--json")
    assert set(json.loads(done.out)) >= {"accuracy", "macro_f1"}
    assert page.is_file()


def test_escape_sequences_do_not_reach_the_terminal(shared, tmp_path):
    data = tmp_path / "bad.tsv"
    data.write_text("negative\tthe plot was good \x1b[31m red\npositive\tthe plot was good\n")
    done = ok("evaluate", shared / "bag", data, "--errors", 3)
    assert "\x1b" not in done.out


def test_numbers_have_no_labels(tmp_path):
    data = tmp_path / "train.tsv"
    rows = [f"{i / 7}\tthe plot {'was good ' * (i % 5)}\n" for i in range(40)]
    data.write_text("".join(rows))
    ok("train", "--recipe", "tfidf", "--task", "regress", "--train", data, "-o", tmp_path / "run")
    done = command("evaluate", tmp_path / "run", data, "--report", tmp_path / "page.html")
    assert done.status == 2
    assert "--report lists wrong labels, tags, trees and texts, but this model predicts" in done.err
