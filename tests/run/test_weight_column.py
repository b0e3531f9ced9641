"""A column of weights: read from every kind of table, checked, and used in training alone."""

import json

import numpy as np
import pytest

import weft
from tests.fixtures import small
from tests.fixtures.command import fails, ok
from weft.errors import UserError
from weft.text.read import Columns, read
from weft.text.tables.table import name_table

ROWS = [
    {"text": "a good film", "label": "yes", "w": 2},
    {"text": "a bad film", "label": "no", "w": 0.5},
    {"text": "a lost film", "label": "no", "w": 0},
    {"text": "a film", "label": "yes", "w": 1},
]
EXPECTED = [("a good film", 2.0), ("a bad film", 0.5), ("a film", 1.0)]


def write(folder, kind, rows=ROWS):
    path = folder / f"train.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    elif kind == "parquet":
        pyarrow, parquet = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet"))
        columns = {"text": str, "label": str, "w": float}
        table = {name: [kind(row[name]) for row in rows] for name, kind in columns.items()}
        parquet.write_table(pyarrow.table(table), path)
    else:
        mark = "\t" if kind == "tsv" else ","
        lines = [mark.join(map(str, row.values())) for row in rows]
        path.write_text("\n".join([mark.join(rows[0]), *lines]) + "\n", "utf-8")
    return path


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet"])
def test_weights_of_files(tmp_path, kind):
    examples = read(write(tmp_path, kind), columns=Columns("text", "label", weight="w"))
    assert [(e.text, e.weight) for e in examples] == EXPECTED  # weight 0 leaves the row out
    plain = read(write(tmp_path, kind), columns=Columns("text", "label"))
    assert {e.weight for e in plain} == {1.0}


def test_weights_of_rows_in_memory_and_of_words():
    examples = read(name_table(ROWS, "rows"), columns=Columns("text", "label", weight="w"))
    assert [(e.text, e.weight) for e in examples] == EXPECTED
    words = [{"tokens": ["a", "film"], "tags": ["D", "N"], "w": w} for w in (2, 0, 1)]
    tagged = read(name_table(words, "rows"), columns=Columns("tokens", "tags", weight="w"))
    assert [e.weight for e in tagged] == [2.0, 1.0]


def test_a_weight_column_is_no_candidate_for_the_label(tmp_path):
    path = write(tmp_path, "tsv", [{"text": r["text"], "y": r["label"], "w": r["w"]} for r in ROWS])
    examples = list(read(path, columns=Columns(weight="w")))
    assert [e.label for e in examples] == ["yes", "no", "yes"]


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
@pytest.mark.parametrize("bad", ["heavy", -1, "nan", "inf", ""])
def test_bad_weights_name_the_row(tmp_path, kind, bad):
    path = write(tmp_path, kind, [*ROWS, {"text": "a plot", "label": "no", "w": bad}])
    line = 5 if kind == "jsonl" else 6
    columns = Columns("text", "label", weight="w")
    message = rf"{path.name}:{line}: the weight should be a number of 0 or more, found"
    with pytest.raises(UserError, match=message):
        list(read(path, columns=columns))
    kept = list(read(path, columns=columns, on_bad_row="skip"))
    assert [(e.text, e.weight) for e in kept] == EXPECTED


def test_training_by_the_command_uses_the_column(tmp_path):
    heavy = tmp_path / "heavy.tsv"
    rows = [("weight", "label", "text")]
    rows += [(5 if e.label == "positive" else 1, e.label, e.text) for e in small.examples()]
    heavy.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), "utf-8")
    plain = tmp_path / "plain.tsv"
    plain.write_text("".join("\t".join(row[1:]) + "\n" for row in rows), "utf-8")
    shared = ("--recipe", "tfidf", "--set", "classic.C=1.0")
    ok("train", *shared, "--train", heavy, "--weight", "weight", "-o", tmp_path / "a")
    ok("train", *shared, "--train", plain, "-o", tmp_path / "b")
    texts = ["the film was fine", "the plot"]
    weighted, alike = (weft.load(tmp_path / name)(texts) for name in ("a", "b"))
    for ours, theirs in zip(weighted, alike, strict=True):
        assert ours.scores[1] > theirs.scores[1] + 0.05  # the heavier label
    assert "weight: column 'weight'" in (tmp_path / "a" / "log.txt").read_text("utf-8")
    # Files without the column are measured and answered as ever.
    ok("evaluate", tmp_path / "a", plain)


def test_a_neural_run_weighs_its_rows(tmp_path):
    config = weft.recipe("bag").with_values(small.SMALL, "test")
    rows = [{"text": e.text, "label": e.label} for e in small.examples()]
    weights = np.array([1.0 + i % 3 for i in range(len(rows))])

    def losses(name, rows, **settings):
        config_ = config.with_values({"train.epochs": 1, "data.dev_fraction": 0.0, **settings}, "")
        weft.train(config_, tmp_path / name, train=rows, quiet=True)
        lines = (tmp_path / name / "metrics.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]

    weighted = [{**row, "w": w} for row, w in zip(rows, weights, strict=True)]
    plain = losses("a", rows)
    assert losses("b", weighted) == plain  # not asked for
    ours = losses("c", weighted, **{"data.weight": "w"})
    assert ours != plain
    # A common factor divides out of every mean.
    tripled = [{**row, "w": 3 * row["w"]} for row in weighted]
    assert losses("d", tripled, **{"data.weight": "w"}) == pytest.approx(ours, rel=1e-6)


def test_weights_where_there_can_be_none(tmp_path):
    lines = tmp_path / "train.txt"
    lines.write_text("__label__a good\n__label__b bad\n" * 5, "utf-8")
    given = ("--set", "data.weight=w", "-o", tmp_path / "run")
    assert "has no columns to take weights from" in fails(
        "train", "--recipe", "tfidf", "--train", lines, *given
    )
    table = write(tmp_path, "tsv")
    assert "the task 'seq2seq' is trained without weights" in fails(
        "train", "--recipe", "seq2seq", "--train", table, *given
    )
    assert "no 'w2' column" in fails(
        "train", "--recipe", "tfidf", "--train", table, "--set", "data.weight=w2",
        "-o", tmp_path / "run",
    )  # fmt: skip
