"""Files with two texts a row: which columns they are, and what is said where one is missing."""

import json

import pytest

from weft.errors import UserError
from weft.text.read import Columns, read, resolve_columns

ROWS = [
    ("A dog runs in the park.", "An animal is outside.", "entailment"),
    ("Two men play chess.", "The men are asleep.", "contradiction"),
    ("A girl reads a book.", "A girl reads a long novel.", "neutral"),
]


def table(folder, names, rows=ROWS, name="pairs.tsv", sign="\t"):
    path = folder / name
    lines = [sign.join(row) for row in ([names] if names else []) + list(rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def found(path, **columns):
    return [(e.text, e.other, e.label) for e in read(path, columns=Columns(**columns))]


@pytest.mark.parametrize(
    "names",
    [
        ("premise", "hypothesis", "label"),
        ("sentence1", "sentence2", "gold_label"),
        ("question1", "question2", "is_duplicate"),
        ("sentence_A", "sentence_B", "judgment"),
        ("text_a", "text_b", "label"),
        ("Text 1", "Text 2", "label"),
        ("text", "hypothesis", "label"),
        ("query", "passage", "label"),
    ],
)
def test_names_that_belong_together_are_two_texts(tmp_path, names):
    assert found(table(tmp_path, names)) == ROWS


def test_their_order_in_the_row_does_not_matter(tmp_path):
    rows = [(c, b, a) for a, b, c in ROWS]
    path = table(tmp_path, ("label", "hypothesis", "premise"), rows)
    assert found(path) == ROWS


def test_columns_can_be_named_and_counted(tmp_path):
    path = table(tmp_path, ("left", "right", "label"))
    assert found(path, text="left", text_pair="right") == ROWS
    assert found(path, text="right", text_pair="left")[0][:2] == ROWS[0][1::-1]
    bare = table(tmp_path, None, name="bare.tsv")
    assert found(bare, text=0, text_pair=1, label=2) == ROWS


def test_one_text_has_no_other(tmp_path):
    path = table(tmp_path, ("text", "note", "label"))
    assert found(path)[0][1] is None
    named = table(tmp_path, ("premise", "hypothesis", "label"))
    assert found(named, text="hypothesis")[0] == (ROWS[0][1], None, "entailment")


def test_json_lines_and_parquet(tmp_path):
    path = tmp_path / "pairs.jsonl"
    objects = [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in ROWS]
    path.write_text("".join(json.dumps(o) + "\n" for o in objects), "utf-8")
    assert found(path) == ROWS
    assert found(path, text="hypothesis", text_pair="premise")[0][:2] == ROWS[0][1::-1]
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(objects), tmp_path / "pairs.parquet")
    assert found(tmp_path / "pairs.parquet") == ROWS


def test_lone_surrogate_in_the_second_text_is_reported(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"premise": "a", "hypothesis": "\\ud83d", "label": "x"}\n', "utf-8")
    with pytest.raises(UserError, match=r"pairs\.jsonl:1: 'hypothesis' contains a lone surrogate"):
        found(path)


def test_missing_json_field_is_none(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"premise": "a", "hypothesis": "b"}\n{"premise": "c"}\n', "utf-8")
    assert found(path, label="") == [("a", "b", None), ("c", None, None)]


def test_a_sister_file_is_read_alike(tmp_path):
    path = table(tmp_path, ("left", "right", "label"))
    columns = resolve_columns(path, Columns(text="left", text_pair="right"))
    assert (columns.text, columns.text_pair, columns.label) == ("left", "right", "label")


def test_two_texts_without_a_label_are_one_that_becomes_the_other(tmp_path):
    path = table(tmp_path, ("sentence1", "sentence2"), [row[:2] for row in ROWS])
    assert found(path)[0] == (ROWS[0][0], None, ROWS[0][1])
    assert found(path, label="")[0] == (*ROWS[0][:2], None)


def test_two_columns_are_two_texts_where_those_are_wanted(tmp_path):
    path = table(tmp_path, None, [row[:2] for row in ROWS])
    assert found(path, label="", requires_pair=True)[0] == (*ROWS[0][:2], None)
    assert found(path, label="", requires_pair=True, text=1)[0] == (*ROWS[0][1::-1], None)
    wide = table(tmp_path, None, name="wide.tsv")
    told = (
        r"cannot tell which columns hold the two texts; there are 3 unnamed columns\. "
        "Pass --text and --text-pair"
    )
    with pytest.raises(UserError, match=told):
        found(wide, label="", requires_pair=True)


def test_a_label_is_no_second_text(tmp_path):
    path = table(tmp_path, ("text", "label"), [(row[0], row[2]) for row in ROWS])
    told = (
        r"cannot tell which columns hold the two texts; found \['text', 'label'\]\. "
        "Pass --text and --text-pair"
    )
    with pytest.raises(UserError, match=told):
        found(path, label="", requires_pair=True)


def test_a_column_that_is_not_there(tmp_path):
    path = table(tmp_path, ("premise", "hypothesis", "label"))
    with pytest.raises(
        UserError, match=r"no 'hypotesis' column.*hypothesis.*pass another --text-pair"
    ):
        found(path, text_pair="hypotesis")
    with pytest.raises(UserError, match="column 'label' has two roles"):
        found(path, text_pair="label", label="label")
