"""Cleaned copies: only texts and labels change, everything else of a row stays where it was."""

import csv
import gzip
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.doctor.diagnose import diagnose
from weft.doctor.fix import FixResult, fix
from weft.doctor.formats.files import open_files
from weft.doctor.survey import survey_sources
from weft.text.columns import Columns
from weft.text.example import GoldAnswers
from weft.text.read import read
from weft.text.rewrite import rewrite

HEADER = ["note", "text", "source", "label", "stars"]
ROWS = [
    ["a", "I love this film", "web", "positive", "5"],
    ["b", "I  love this FILM", "web", "positive", "4"],  # the same again: goes
    ["c, too", 'Terrible  "acting" ', "mail", "negative", ""],
    ["d", "", "mail", "positive", "1"],  # empty: goes
    ['e "quoted"', "a cafÃ© on the corner", "post", "Positive", "2.50"],
    [" f ", "nothing in here is special", "web", "negative", "007"],
    ["g", "what an evening that was", "web", "positive", "+3"],
]
CLEAN = [
    ROWS[0],
    ["c, too", 'Terrible "acting"', "mail", "negative", ""],
    ['e "quoted"', "a café on the corner", "post", "positive", "2.50"],
    *ROWS[5:],
]


def fixed(path: Path, out: Path, columns: Columns = Columns()) -> FixResult:  # noqa: B008 (frozen)
    files = open_files([str(path)], columns)
    seen = survey_sources(files.sources)
    _, copies = diagnose(seen, files.paths, 512, True, files.tallies, files.findings)
    return fix(files, seen, copies, str(out))


def table(rows: list[list[str]], **style) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, **{"lineterminator": "\n", **style}).writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("a.csv", {}),
        ("a.csv", {"delimiter": ";"}),
        ("a.csv", {"lineterminator": "\r\n"}),
        ("a.tsv", {"delimiter": "\t"}),  # quotes inside a cell: written as CSV would
    ],
)
def test_a_table_keeps_its_other_columns(tmp_path, name, style):
    (tmp_path / name).write_text(table([HEADER, *ROWS], **style), "utf-8", newline="")
    done = fixed(tmp_path / name, tmp_path / "out")
    copy = (tmp_path / "out" / name).read_bytes().decode()
    assert copy == table([HEADER, *CLEAN], **style)
    assert done.lost == ()


def test_plain_tabs_are_not_quoted(tmp_path):
    rows = [
        [' note"', "text", "label"],
        ['5" x', 'He said "no"  twice', "x"],
        ["", "good film", "y"],
    ]
    (tmp_path / "a.tsv").write_text("".join("\t".join(r) + "\r\n" for r in rows), "utf-8")
    fixed(tmp_path / "a.tsv", tmp_path / "out")
    copy = (tmp_path / "out" / "a.tsv").read_bytes().decode()
    assert copy == ' note"\ttext\tlabel\r\n5" x\tHe said "no" twice\tx\r\n\tgood film\ty\r\n'


def test_cells_over_several_lines_stay_with_their_row(tmp_path):
    rows = [
        ["first\nsecond, third", "one  text\nand its end ", "x"],
        ['a "b"\r\nc', "two texts are not one", "y"],
        ["gone\n\n", " ", "x"],
        ["\n", "three of them\n\nwould do", "y"],
        ["last", "four and no more", "x"],
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n" + table([["note", "text", "label"], *rows]), "utf-8", newline="")
    fixed(path, tmp_path / "out")
    with open(tmp_path / "out" / "a.csv", encoding="utf-8", newline="") as file:
        copy = list(csv.reader(file))
    assert [row[0] for row in copy] == ["note", rows[0][0], rows[1][0], "\n", "last"]
    assert copy[1][1] == "one text\nand its end"
    assert [row[2] for row in copy[1:]] == ["x", "y", "y", "x"]


def test_rows_without_header_and_broken_rows(tmp_path):
    rows = [[str(7 * i), f"text number {i} of  this", "xy"[i % 2], "z"] for i in range(29)]
    good = [table([row]).encode() for row in rows]
    good.insert(3, b"1,caf\xe9,x,z\n2,three,cells\n")
    (tmp_path / "a.csv").write_bytes(b"".join(good))
    fixed(tmp_path / "a.csv", tmp_path / "out", Columns(text=1, label=2))
    with open(tmp_path / "out" / "a.csv", encoding="utf-8", newline="") as file:
        copy = list(csv.reader(file))
    assert copy == [[a, f"text number {i} of this", c, d] for i, (a, _, c, d) in enumerate(rows)]


def test_a_file_that_breaks_off_is_copied_as_far_as_it_goes(tmp_path):
    rows = [["n", "text", "label"], *([str(i), f"text {i} of many", "xy"[i % 2]] for i in range(5))]
    (tmp_path / "a.csv").write_text(table(rows) + '9,"never closed,x\n', "utf-8")
    fixed(tmp_path / "a.csv", tmp_path / "out")
    assert (tmp_path / "out" / "a.csv").read_text("utf-8") == table(rows)


def test_json_keeps_its_other_fields_and_their_kinds(tmp_path):
    lines = [
        '{"n":1.50,"text":"a film to see","label":1,"more":{"a":[null,true]}}',
        "",
        '{"n": 2, "text": " two  films", "label": 1, "tags": ["é"]}',
        '{"n": 3, "label": 2, "text": "caf\\u00c3\\u00a9 noir", "half": "\\ud83d"}',
        '{"text": "a film to see", "label": 1, "n": 4}',
        '{"text": "no label here", "n": 5}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    fixed(tmp_path / "a.jsonl", tmp_path / "out")
    copy = (tmp_path / "out" / "a.jsonl").read_text("utf-8").splitlines()
    assert copy[0] == lines[0]
    assert copy[1] == '{"n": 2, "text": "two films", "label": 1, "tags": ["é"]}'
    assert copy[2] == lines[3].replace("\\u00c3\\u00a9", "\\u00e9")
    assert copy[3] == lines[5]
    assert len(copy) == 4


def test_json_labels_are_fixed_in_place(tmp_path):
    words = [name * 3 for name in "abcdefghijk"]
    rows = [{"label": "good", "text": f"{word} films of {word}", "n": word} for word in words]
    rows[3]["label"] = "Good"
    rows[7]["label"] = "bad"
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    done = fixed(tmp_path / "a.jsonl", tmp_path / "out.jsonl")
    assert done.counts == {"label corrected": 1}
    copy = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert copy == [{**row, "label": row["label"].lower()} for row in rows]
    assert list(copy[3]) == ["label", "text", "n"]


def test_parquet_keeps_its_columns_and_their_kinds(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    count = 2003  # more than one batch
    texts = [f"text number {i} of  many" for i in range(count)]
    texts[5] = texts[1500] = ""
    kinds = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    labels = ["Up" if i == 1700 else ("up", "down")[i % 2] for i in range(count)]
    given = pyarrow.table(
        {
            "n": pyarrow.array(range(count), pyarrow.int16()),
            "text": pyarrow.array(texts, pyarrow.large_string()),
            "when": pyarrow.array([i * 86_400_000 for i in range(count)], pyarrow.date64()),
            "label": pyarrow.array(labels, kinds),
            "list": [[i] * (i % 3) for i in range(count)],
        }
    )
    parquet.write_table(given, tmp_path / "a.parquet")
    given = parquet.read_table(tmp_path / "a.parquet")
    fixed(tmp_path / "a.parquet", tmp_path / "out")
    copy = parquet.read_table(tmp_path / "out" / "a.parquet")
    assert copy.schema == given.schema
    kept = [i for i in range(count) if i not in (5, 1500)]
    assert copy["n"].to_pylist() == kept
    assert copy["text"].to_pylist() == [f"text number {i} of many" for i in kept]
    assert copy["label"].to_pylist() == [labels[i].lower() for i in kept]
    for name in ("when", "list"):
        assert copy[name].to_pylist() == given[name].take(pyarrow.array(kept)).to_pylist()


def test_packed_copies_are_packed_as_their_name_says(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wt", encoding="utf-8", newline="") as file:
        file.write(table([HEADER, *ROWS]))
    fixed(tmp_path / "a.csv.gz", tmp_path / "out")
    with gzip.open(tmp_path / "out" / "a.csv.gz", "rt", encoding="utf-8", newline="") as file:
        assert file.read() == table([HEADER, *CLEAN])
    fixed(tmp_path / "a.csv.gz", tmp_path / "one" / "b.csv")
    assert (tmp_path / "one" / "b.csv").read_text("utf-8") == table([HEADER, *CLEAN])


def test_format_change_reports_dropped_columns(tmp_path):
    (tmp_path / "a.csv").write_text(table([HEADER, *ROWS]), "utf-8")
    done = fixed(tmp_path / "a.csv", tmp_path / "b.jsonl")
    assert done.lost == (
        f"{tmp_path / 'b.jsonl'} holds only texts and labels; other columns of "
        f"{tmp_path / 'a.csv'} are dropped: note, source, stars. Write csv to keep them.",
    )
    copy = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text("utf-8").splitlines()]
    assert copy == [{"text": row[1], "label": row[3]} for row in CLEAN]


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=7)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(cells, cells, st.booleans()), min_size=1, max_size=7), st.sampled_from(",;")
)
def test_fixed_table_round_trips(tmp_path_factory, rows, delimiter):
    folder = tmp_path_factory.mktemp("any")
    given_rows = [[a, f"text {i}", b, "xy"[i % 2]] for i, (a, b, _) in enumerate(rows)]
    style = {"quoting": csv.QUOTE_ALL, "delimiter": delimiter}
    content = table([["a", "text", "b", "label"], *given_rows], **style)
    (folder / "a.csv").write_text(content, "utf-8", newline="")
    kept = [e for e, row in zip(read(folder / "a.csv"), rows, strict=True) if row[2]]
    rewrite(kept, str(folder / "a.csv"), str(folder / "b.csv"), "csv", Columns())
    with open(folder / "b.csv", encoding="utf-8", newline="") as file:
        copy = list(csv.reader(file, delimiter=delimiter))
    assert copy[1:] == [row for row, (_, _, kept) in zip(given_rows, rows, strict=True) if kept]


PASSAGE = "The loom stands in Lyon. A weaver in Lyon owns the loom."


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_answers_stay_in_their_passages(tmp_path, name):
    rows = [("Where?", "Lyon"), ("Who\u200b?", "weaver"), ("What?", "loom"), ("Why?", "Bern")]
    path = tmp_path / name
    if name == "a.csv":
        lines = [f'{asked},"{PASSAGE}",{answer}' for asked, answer in rows]
        path.write_text("question,context,answer\n" + "\n".join(lines) + "\n", "utf-8")
    elif name == "a.jsonl":
        lines = [
            json.dumps({"question": asked, "context": PASSAGE, "answer": answer})
            for asked, answer in rows
        ]
        path.write_text("\n".join(lines) + "\n", "utf-8")
    else:
        asked = [
            {"id": f"q{i}", "question": asked, "answers": [{"text": a, "answer_start": start}]}
            for i, (asked, a) in enumerate(rows)
            for start in [max(PASSAGE.find(a), 0)]
        ]
        whole = {"data": [{"paragraphs": [{"context": PASSAGE, "qas": asked}]}]}
        path.write_text(json.dumps(whole), "utf-8")
    fixed(path, tmp_path / "out")
    found = [(e.text, e.label) for e in read(tmp_path / "out" / name)]
    assert found == [
        ("Where?", GoldAnswers(("Lyon",), (19,))),
        ("Who?", GoldAnswers(("weaver",), (27,))),
        ("What?", GoldAnswers(("loom",), (4,))),
    ]
