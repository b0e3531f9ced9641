"""Tables in memory: every form gives the examples of a file; faults name the row."""

import copy
import pickle

import datasets
import numpy
import pandas
import polars
import pyarrow
import pytest

import weft
from weft.errors import UserError
from weft.text.example import SkipCounter
from weft.text.location import TableName, format_location
from weft.text.read import Columns, table_layout
from weft.text.tables.spool import spool_table
from weft.text.tables.table import BATCH_ROWS, as_table, list_sources, name_table

PAIRS = [("a good film", "pos"), ("a bad film", "neg"), ("a dull film", "neg")]
FRAME = pandas.DataFrame(PAIRS, columns=["text", "label"])
DATASET = datasets.Dataset.from_pandas(FRAME)
FORMS = {
    "tuples": PAIRS,
    "lists": [list(row) for row in PAIRS],
    "dicts": FRAME.to_dict("records"),
    "columns": FRAME.to_dict("list"),
    "generator": lambda: (row for row in PAIRS),
    "pandas": FRAME,
    "pandas, pyarrow strings": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, categories": FRAME.astype({"label": "category"}),
    "pandas, index": FRAME.set_axis([7, 7, 1]),
    "two series": (FRAME["text"], FRAME["label"]),
    "two arrays": (FRAME["text"].to_numpy(), numpy.array(FRAME["label"])),
    "two lists": ([text for text, _ in PAIRS], [label for _, label in PAIRS]),
    "array of rows": numpy.array(PAIRS),
    "polars": polars.from_pandas(FRAME),
    "polars, categories": polars.from_pandas(FRAME).cast({"label": polars.Categorical}),
    "two polars series": tuple(polars.from_pandas(FRAME)),
    "arrow": pyarrow.Table.from_pandas(FRAME),
    "arrow batch": pyarrow.RecordBatch.from_pandas(FRAME),
    "arrow reader": lambda: pyarrow.Table.from_pandas(FRAME).to_reader(),
    "dataset": DATASET,
    "dataset, indexed": datasets.concatenate_datasets([DATASET, DATASET]).select([0, 4, 2]),
    "dataset, class ids": DATASET.class_encode_column("label"),
    "streaming dataset": DATASET.to_iterable_dataset(),
    "streaming dataset, class ids": DATASET.class_encode_column("label").to_iterable_dataset(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_examples(form):
    data = FORMS[form]() if callable(FORMS[form]) else FORMS[form]
    name = name_table(data, "train")
    for _ in range(2):  # data are read more than once
        examples = list(weft.read(name))
        assert [(e.text, e.label) for e in examples] == PAIRS
    wheres = [e.where.partition(" ")[0] for e in examples]
    assert wheres == ["train[0]", "train[1]", "train[2]"]


@pytest.mark.parametrize("form", ["tuples", "pandas", "polars", "arrow", "dataset"])
def test_batches_keep_the_order(form):
    count = 2 * BATCH_ROWS + 1
    rows = [(f"text {i}", f"{i % 7}") for i in range(count)]
    frame = pandas.DataFrame(rows, columns=["text", "label"])
    data = {
        "tuples": lambda: rows,
        "pandas": lambda: frame,
        "polars": lambda: polars.from_pandas(frame),
        "arrow": lambda: pyarrow.Table.from_pandas(frame),
        "dataset": lambda: datasets.Dataset.from_pandas(frame),
    }[form]()
    examples = list(weft.read(data))
    assert [(e.text, e.label) for e in examples] == rows
    assert examples[-1].where == f"data[{count - 1}]"


NAN, LONE = float("nan"), "\ud800"
BAD = {
    "NaN": (pandas.DataFrame({"text": ["a", NAN], "label": ["x", "y"]}), "[1]: 'text' has no"),
    "NA": (
        pandas.DataFrame({"text": pandas.array(["a", None], "string"), "label": ["x", "y"]}),
        "[1]: 'text' has no value",
    ),
    "None": ([("a", "x"), (None, "y")], "[1]: 'text' has no value"),
    "null in Arrow": (pyarrow.table({"text": ["a", None], "label": ["x", "y"]}), "[1]: 'text' has"),
    "empty": ([("a", "x"), (" ", "y")], "[1]: the text is empty"),
    "number": ([("a", "x"), (7, "y")], "[1]: 'text' must be a text, found 7"),
    "mixed column": (
        pandas.DataFrame({"text": ["a", 2.5], "label": ["x", "y"]}),
        "[1]: 'text' must be a text, found 2.5",
    ),
    "bytes": ([("a", "x"), (b"b", "y")], "[1]: 'text' must be a text, found b'b'. Decode it"),
    "bytes label": ([("a", "x"), ("b", b"y")], "[1]: the label must be a text, a number"),
    "nested label": ([("a", "x"), ("b", [["y"]])], "[1]: the label must be a text, a number"),
    "nested text": (
        [{"text": "a", "label": "x"}, {"text": [["b"]], "label": "y"}],
        "[1]: 'text' must be a text, found [['b']]",
    ),
    "infinite label": ([("a", 0.5), ("b", float("inf"))], "[1]: label inf is not a finite number"),
    "surrogate": ([("a", "x"), (f"b {LONE}", "y")], "[1]: 'text' contains a lone surrogate"),
    "missing key": (
        [{"text": "a", "label": "x"}, {"body": "b", "label": "y"}],
        "[1]: no 'text' field; found ['body', 'label']. Rename it or pass --text body",
    ),
    "ragged": ([("a", "x"), ("b",)], "[1]: 1 value, but the first row has 2"),
    "mixed rows": ([("a", "x"), {"text": "b"}], "[1]: a dict, but the first row is a tuple"),
    "text among rows": ([("a", "x"), "b"], "[1]: a text, but the first row is a tuple"),
    "repeated index": (
        pandas.DataFrame({"text": ["a", None], "label": ["x", "y"]}, index=[5, 5]),
        "[1] (index 5): 'text' has no value",
    ),
    "tags": (
        [(["a", "b"], ["X", "Y"]), (["a"], ["X", "Y"])],
        "[1]: 2 tags in 'tags' for 1 tokens",
    ),
    "missing tag": ([(["a", "b"], ["X", "Y"]), (["a"], [None])], "[1]: tag 0 is None, not a tag"),
    "token": ([(["a", "b"], ["X", "Y"]), (["a", 3], ["X", "Y"])], "[1]: token 1 of 'tokens'"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_located_skipped_and_counted(name, tmp_path):
    data, message = BAD[name]
    table = name_table(data, "train")
    with pytest.raises(UserError) as caught:
        list(weft.read(table))
    assert str(caught.value).startswith(f"train{message}")
    skipped = SkipCounter()
    assert len(list(weft.read(table, on_bad_row="skip", skipped=skipped))) == 1
    place = f"train{message.partition(':')[0]}"
    assert list(skipped.places.values()) == [[place]]
    # Other processes read a file of the rows; faults and locations stay.
    stored = SkipCounter()
    assert (
        len(list(weft.read(spool_table(table, tmp_path), on_bad_row="skip", skipped=stored))) == 1
    )
    assert stored.counts == skipped.counts
    assert list(stored.places.values()) == [[place.partition(" ")[0]]]


UNUSABLE = {
    "empty list": ([], "no rows"),
    "empty frame": (FRAME.head(0), "no rows"),
    "empty polars frame": (polars.from_pandas(FRAME).head(0), "no rows"),
    "empty Arrow table": (pyarrow.Table.from_pandas(FRAME).slice(0, 0), "no rows"),
    "empty dataset": (DATASET.select([]), "no rows"),
    "empty columns": ({"text": [], "label": []}, "no rows"),
    "used generator": ((row for row in ()), "no rows. A generator can be read once"),
    "unequal lengths": ((["a", "b"], ["x"]), "unequal length: 'text' has 2, 'label' has 1"),
    "unequal columns": ({"text": ["a"], "label": []}, "unequal length"),
    "one row as a dict": ({"text": "a", "label": "x"}, "column 'text' should be a sequence"),
    "number": (5, "cannot read rows from int (5). Pass a file, a list of (text, label)"),
    "numbers": ([1, 2], "[0]: a row should be a dict, (text, label) or a text, found int (1)"),
    "None": ([None], "[0]: a row should be a dict, (text, label) or a text, found None"),
    "bytes": (b"abc", "cannot read rows from bytes"),
    "set": ({"a"}, "cannot read rows from set"),
    "wide tuples": ([("a", "b", "c", "d")], "rows of 4 values have no names"),
    "lazy frame": (polars.from_pandas(FRAME).lazy(), "has no rows yet. Pass frame.collect()"),
    "dataset dict": (datasets.DatasetDict(dev=DATASET), "with the splits 'dev'. Pass one, such as"),
    "columns of one name": (
        pandas.DataFrame([["a", "x"]], columns=["text", "text"]),
        "2 columns are named 'text'",
    ),
    "Arrow columns of one name": (
        pyarrow.table([["a"], ["x"]], names=["text", "text"]),
        "2 columns are named 'text'",
    ),
    "array": (numpy.zeros((2, 2, 2)), "an array of 3 axes"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_data_are_refused(name):
    data, message = UNUSABLE[name]
    with pytest.raises(UserError) as caught:
        name_table(data, "train")
    assert str(caught.value).startswith("train")
    assert message in str(caught.value)


def test_columns_are_detected_as_in_files():
    frame = FRAME.rename(columns={"text": "review", "label": "stars"}).assign(id=[4, 5, 6])
    layout = table_layout(name_table(frame, "train"), Columns())
    assert layout.describe() == "text: column 'review'; label: column 'stars'; ignored: 'id'"
    (first, *_) = weft.read(frame, columns=Columns(label="id"))
    assert first.label == "4"
    with pytest.raises(UserError, match="no 'rating' column; found"):
        weft.read(frame, columns=Columns(label="rating"))
    with pytest.raises(UserError, match="<memory: data; 3 rows>: column 'topic'"):
        weft.read(FRAME.drop(columns="label").assign(topic=["a", "b", "c"], intent=["d", "e", "f"]))


def test_tags_need_a_choice_among_several_columns():
    rows = [{"tokens": ["a", "b"], "pos_tags": ["D", "N"], "ner_tags": ["O", "B-X"]}]
    with pytest.raises(UserError, match=r"could each be the tags\. Pass --label pos_tags or"):
        list(weft.read(rows))
    (example,) = weft.read(rows, columns=Columns(label="ner_tags"))
    assert example.words == ("a", "b")
    assert example.label.columns == {"pos_tags": ("D", "N"), "tag": ("O", "B-X")}


def test_tokens_with_one_label_are_a_text():
    (example,) = weft.read([{"tokens": ["a", "b"], "label": "x"}])
    assert (example.text, example.label) == ("a b", "x")


def test_missing_labels_are_none():
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [0.5, NAN]})
    assert [e.label for e in weft.read(frame)] == [0.5, None]
    ids = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, -1]}).cast_column(
        "label", datasets.ClassLabel(names=["x", "y"])
    )
    assert [e.label for e in weft.read(ids)] == ["y", None]


def test_class_names_of_a_parquet_file(tmp_path):
    encoded = DATASET.class_encode_column("label")
    encoded.to_parquet(tmp_path / "a.parquet")
    assert [e.label for e in weft.read(tmp_path / "a.parquet")] == [label for _, label in PAIRS]


def test_several_labels():
    assert [e.label for e in weft.read([("a", ["x", "y"]), ("b", ["x"])])] == [("x", "y"), ("x",)]
    split = weft.read([("a", "x|y"), ("b", None)], separator="|")
    assert [e.label for e in split] == [("x", "y"), ()]


def test_the_fingerprint_depends_on_values_alone():
    def digest(data):
        return as_table(data).fingerprint()

    assert digest(PAIRS) == digest(FRAME) == digest(DATASET) == digest(iter(PAIRS))
    assert digest(PAIRS) != digest(PAIRS[::-1])
    assert digest(PAIRS) != digest(FRAME.rename(columns={"text": "review"}))
    assert digest([("a", "1")]) != digest([("a", 1)])
    first, second = {"a": 1, "b": 2}, {"a": 1, "c": 2}
    assert digest([first, {"a": 3}]) != digest([first, {"b": 3}])
    assert digest([first, second]) != digest([second, first])


def test_a_name_keeps_its_table_when_copied():
    name = name_table(PAIRS, "train")
    assert copy.deepcopy(name) is name
    sent = pickle.loads(pickle.dumps(name))
    assert isinstance(sent, TableName)
    assert (sent, sent.label, len(sent.table)) == (name, "train", 3)
    assert list(weft.read(sent)) == list(weft.read(name))


def test_rows_are_not_changed():
    rows = [{"text": ["one sentence", "two"], "label": "x"}]
    assert next(weft.read(rows)).text == "one sentence two"
    assert rows == [{"text": ["one sentence", "two"], "label": "x"}]


def test_lists_of_files_rows_and_tables():
    assert list_sources("a.tsv") == ["a.tsv"]
    assert list_sources(["a.tsv", "b.tsv"]) == ["a.tsv", "b.tsv"]
    assert list_sources(PAIRS) == [PAIRS]
    assert len(list_sources((FRAME["text"], FRAME["label"]))) == 1
    assert len(list_sources([FRAME, DATASET])) == 2
    assert len(list_sources([PAIRS, PAIRS[:1]])) == 2
    assert len(list_sources([(["a"], ["X"])])) == 1


def test_locations():
    assert format_location("a.tsv", 18) == "a.tsv:18"
    assert format_location("out/data/train.memory.jsonl", 18) == "train[17]"
    assert format_location("hf:reviews:test", 18) == "hf:reviews:test[17]"
