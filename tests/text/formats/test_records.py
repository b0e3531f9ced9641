"""Records: what is read, how it is written as a text, and values taken out and put back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.text.columns import Columns
from weft.text.formats.records import check_slots, delexicalise, linearise, mark_slot, read_record
from weft.text.read import read

NAMES = st.text(st.characters(whitelist_categories=["L", "N"]), min_size=1, max_size=7)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("name[Blue Spice], area[city centre]", {"name": "Blue Spice", "area": "city centre"}),
        ('{"name": "Blue Spice", "stars": 5}', {"name": "Blue Spice", "stars": "5"}),
        ('{"open": true, "late": false, "x": null, "y": " "}', {"open": "yes", "late": "no"}),
        ('{"dishes": ["pie", "tea"]}', {"dishes": "pie, tea"}),
    ],
)
def test_both_forms_are_read(text, record):
    assert read_record(text) == record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Blue Spice", r"a\.csv:3: expected slot\[value\], found 'Blue Spice'"),
        ("", r"a\.csv:3: a record without slots"),
        ("{}", r"a\.csv:3: a record without slots"),
        ('{"name"', r"a\.csv:3: the record is not a JSON object"),
        ('{"name": {"first": "A"}}', r"slot 'name' holds .*Use a text or a number"),
        ("a⟩[b]", r"slot 'a⟩' contains ⟨ or ⟩"),
    ],
)
def test_malformed_record_raises_user_error(text, message):
    with pytest.raises(UserError, match=message):
        read_record(text, "a.csv:3")


def test_a_record_is_one_text():
    record = {"name": "Blue Spice", "customer rating": "5 out of 5"}
    assert linearise(record) == "⟨name⟩ Blue Spice ⟨customer rating⟩ 5 out of 5"
    assert linearise(record, ["name"]) == "⟨name⟩ ⟨customer rating⟩ 5 out of 5"


def test_values_are_taken_out_and_put_back():
    record = {"name": "Bar", "near": "Bar Seven", "area": "riverside"}
    text = "Bar is near Bar Seven, not Barbican, at the riverside."
    bare = delexicalise(text, record, ["name", "near"])
    assert bare == "⟨name⟩ is near ⟨near⟩, not Barbican, at the riverside."
    assert lexicalised(bare, record) == text


def lexicalised(text, record):
    for slot, value in record.items():
        text = text.replace(mark_slot(slot), value)
    return text


@given(st.dictionaries(NAMES, NAMES, min_size=1, max_size=5), st.data())
def test_putting_back_undoes_taking_out(record, data):
    hidden = data.draw(st.lists(st.sampled_from(sorted(record)), unique=True))
    text = " ".join(record.values())
    assert lexicalised(delexicalise(text, record, hidden), record) == text


def test_unknown_slot_raises_user_error():
    message = r"b\.csv:2: unknown slot 'nmae'\. Did you mean 'name'\? Known: area, name\."
    with pytest.raises(UserError, match=message):
        check_slots(["nmae"], ["name", "area"], "b.csv:2")


def test_columns_of_a_table_make_a_record(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("name,food,said\nBlue,pie,Blue has pie.\nBar,,A bar.\n", "utf-8")
    columns = Columns(label="said", fields=("name", "food"))
    found = [(json.loads(e.text), e.label, e.line) for e in read(path, columns=columns)]
    assert found == [
        ({"name": "Blue", "food": "pie"}, "Blue has pie.", 2),
        ({"name": "Bar"}, "A bar.", 3),
    ]
    others = Columns(label="said", fields=("*",))
    assert [json.loads(e.text) for e in read(path, columns=others)] == [one for one, *_ in found]


def test_fields_of_objects_make_a_record(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"name": "Blue", "n": 3, "said": "three"}, {"name": "Bar", "said": "none"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    columns = Columns(label="said", fields=("name", "n"))
    found = [read_record(e.text) for e in read(path, columns=columns)]
    assert found == [{"name": "Blue", "n": "3"}, {"name": "Bar"}]
    path.write_text(json.dumps({"mr": {"name": "Blue"}, "said": "blue"}) + "\n", "utf-8")
    (inner,) = read(path, columns=Columns(label="said", fields=("mr",)))
    assert read_record(inner.text) == {"name": "Blue"}


def test_a_target_beside_fields_is_known_by_its_name(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"source": {"name": "The Mill"}, "n": 3, "target": "it is"}\n', "utf-8")
    (one,) = read(path, columns=Columns(fields=("source",)))
    assert (json.loads(one.text), one.label) == ({"name": "The Mill"}, "it is")
    (one,) = read(path, columns=Columns(label="n", fields=("source",)))
    assert one.label == "3"
    (one,) = read(path, columns=Columns(label="", fields=("source",)))  # none is asked for
    assert one.label is None
    (one,) = read(path, columns=Columns(fields=("n", "target")))
    assert one.label is None


def test_fields_need_names(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("1\t2\n3\t4\n", "utf-8")
    with pytest.raises(UserError, match=r"no header row\. The columns of a record name its slots"):
        list(read(path, columns=Columns(fields=("*",))))
    path.write_text("name\tsaid\nBlue\tblue\n", "utf-8")
    with pytest.raises(UserError, match=r"no 'nmae' column; .* Did you mean 'name'"):
        list(read(path, columns=Columns(label="said", fields=("nmae",))))


def test_several_columns_are_several_references(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tone\ttwo\na\tb\tc\nd\te\t\n", "utf-8")
    columns = Columns(text="text", label="one", extra_labels=("two",))
    assert [e.label for e in read(path, columns=columns)] == [("b", "c"), ("e",)]
    path = tmp_path / "a.jsonl"
    path.write_text('{"source": ["One.", "Two."], "target": ["a", "b"], "more": "c"}\n', "utf-8")
    (found,) = read(path, columns=Columns(text="source", label="target", extra_labels=("more",)))
    assert (found.text, found.label) == ("One. Two.", ("a", "b", "c"))


def test_parquet_reads_records_and_references_too(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"name": ["Blue", "Bar"], "n": [3, None], "one": ["a", "b"], "two": ["c", None]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    columns = Columns(label="one", fields=("name", "n"), extra_labels=("two",))
    found = [(read_record(e.text), e.label) for e in read(tmp_path / "a.parquet", columns=columns)]
    assert found == [({"name": "Blue", "n": "3"}, ("a", "c")), ({"name": "Bar"}, ("b",))]
