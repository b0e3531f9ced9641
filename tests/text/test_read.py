"""Formats are recognised, columns found, and large files read in constant memory."""

import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tracemalloc

import pytest

from weft.errors import UserError
from weft.text.example import SkipCounter
from weft.text.read import Columns, read, recognise

COLA = [
    f"{'gj04' if i < 5 else 'bc01'}\t{i % 2}\t{'*' if i % 2 else ''}\tSentence {i} is fine."
    for i in range(11)
]
TREC = [
    "DESC\tDESC:manner\tHow did serfdom develop in Russia ?",
    "ENTY\tENTY:cremat\tWhat films featured Popeye Doyle ?",
    "DESC\tDESC:def\tWhat does the acronym say ?",
    "ENTY\tENTY:animal\tWhat fowl grabs the spotlight ?",
    "HUM\tHUM:ind\tWho killed Gandhi ?",
]


def imdb() -> list[str]:
    # As in the real file: thousands of rows of one class come first, so a short look misleads.
    rows = [
        f"neg\t{1 + i % 4}\t{i * 7919}\tA long and weary tale {i}, badly told." for i in range(1300)
    ]
    return rows + [
        f"pos\t{7 + i % 4}\t{i * 7907}\tA fine tale {i}, well told." for i in range(1300)
    ]


def save(folder, name, text, encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding) if isinstance(text, str) else text)
    return path


def pairs(path, **options):
    return [(e.label, e.text) for e in read(path, **options)]


@pytest.mark.parametrize(
    ("name", "text", "kind", "first"),
    [
        ("a.csv", "text,category\nhello there,greeting\n", "csv", ("greeting", "hello there")),
        ("a.csv", 'label,text\n1,"a, ""b""\nc"\n', "csv", ("1", 'a, "b"\nc')),
        ("a.csv", "text;label\nso, so;meh\n", "csv", ("meh", "so, so")),
        ("a.tsv", "\n".join(TREC), "tsv", ("DESC", "How did serfdom develop in Russia ?")),
        ("a.tsv", "\n".join(imdb()), "tsv", ("neg", "A long and weary tale 0, badly told.")),
        (
            "a.tsv",
            "0\tsimplistic and silly\n0\ttedious .\n1\tgood fun\n",
            "tsv",
            ("0", "simplistic and silly"),
        ),
        ("a.tsv", "Arabic\tKhoury\nArabic\tNahas\nCzech\tAdsit\n", "tsv", ("Arabic", "Khoury")),
        (
            "a.tsv",
            '0\t" maid in manhattan " is a charmer\n1\tb\n',
            "tsv",
            ("0", '" maid in manhattan " is a charmer'),
        ),
        ("a.tsv", '0\t" quiet letters . "\n1\tb c\n', "tsv", ("0", '" quiet letters . "')),
        ("a.tsv", 'label\ttext\n0\t"he said ""no"" twice"\n', "tsv", ("0", 'he said "no" twice')),
        (
            "a.tsv",
            "0.25\tone text\n0.75\tanother text\n0.5\tthird text here\n",
            "tsv",
            ("0.25", "one text"),
        ),
        (
            "a.tsv",
            "1\tfirst of them\n2\tsecond of them\n3\tthird\n",
            "tsv",
            (None, "first of them"),
        ),
        ("a.txt", "pos\tgood film\nneg\tbad film\n", "tsv", ("pos", "good film")),
        ("a.txt", "__label__x good film\n", "fasttext", ("x", "good film")),
        ("a.txt", "__label__x __label__y good\n", "fasttext", (("x", "y"), "good")),
        ("a.txt", "good film __label__x\n", "lines", (None, "good film __label__x")),
        ("a.ft", "good film __label__x\n", "fasttext", ("x", "good film")),
        ("a.txt", "(3 (2 The) (4 good))\n", "trees", ("3", "The good")),
        ("a.txt", "just a line\n(and another)\n", "lines", (None, "just a line")),
        ("a.txt", '{"text": "hi", "label": 3}\n', "jsonl", ("3", "hi")),
        ("a.jsonl", '{"sentence": "hi", "score": 0.5}\n', "jsonl", (0.5, "hi")),
        ("a.jsonl", '{"text": "hi", "label": true}\n', "jsonl", ("true", "hi")),
        ("a.jsonl", '{"text": "hi", "labels": ["a", "b"]}\n', "jsonl", (("a", "b"), "hi")),
        ("a.txt", "text,label\nhi,x\n", "csv", ("x", "hi")),
        ("a.csv", "\ufefftext,label\r\nhi,x\r\n", "csv", ("x", "hi")),
        ("a.txt", "\ufeffhi\r\n", "lines", (None, "hi")),
    ],
)
def test_first_row(tmp_path, name, text, kind, first):
    path = save(tmp_path, name, text)
    assert recognise(path) == kind
    assert pairs(path)[0] == first


def test_every_row_of_a_sorted_file(tmp_path):
    labels = [label for label, _ in pairs(save(tmp_path, "a.tsv", "\n".join(imdb())))]
    assert labels == ["neg"] * 1300 + ["pos"] * 1300


def test_ambiguous_label_column_raises_user_error(tmp_path):
    path = save(tmp_path, "cola.tsv", "\n".join(COLA))
    with pytest.raises(
        UserError, match=r"column 0 \('gj04', 'bc01'…\) and column 1 .*--label 0 or"
    ):
        read(path)
    assert pairs(path, columns=Columns(label=1))[:2] == [
        ("0", "Sentence 0 is fine."),
        ("1", "Sentence 1 is fine."),
    ]
    assert pairs(path, columns=Columns(label=""))[0] == (None, "Sentence 0 is fine.")


@pytest.mark.parametrize("columns", [Columns(2, 0), Columns("2", "0"), Columns("q", "Class")])
def test_columns_by_name_and_position(tmp_path, columns):
    path = save(tmp_path, "a.tsv", "class\tx\tq\nA\tfoo bar baz and more\thello\n")
    assert pairs(path, columns=columns) == [("A", "hello")]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_packed(tmp_path, ending, pack):
    path = save(tmp_path, "a.csv" + ending, pack(b"text,label\nhi,x\n"))
    assert recognise(path) == "csv"
    assert pairs(path) == [("x", "hi")]


def test_place_is_the_line_a_row_starts_on(tmp_path):
    path = save(tmp_path, "a.csv", 'text,label\n"two\nlines",x\nhi,y\n')
    assert [(e.file, e.line) for e in read(path)] == [(str(path), 2), (str(path), 4)]


PAIRS = [
    (f"the dog number {i} sleeps", f"der Hund Nummer {i} schläft lange und tief") for i in range(30)
]


@pytest.mark.parametrize(
    "header", [(), ("source", "target"), ("src", "tgt"), ("mr", "ref"), ("article", "summary")]
)
@pytest.mark.parametrize("separator", ["\t", ","])
def test_two_texts_are_a_source_and_a_target(tmp_path, header, separator):
    path = tmp_path / ("a.tsv" if separator == "\t" else "a.csv")
    rows = [separator.join(row) + "\n" for row in ((header, *PAIRS) if header else PAIRS)]
    path.write_text("".join(rows), "utf-8")
    assert [(e.text, e.label) for e in read(path)] == PAIRS
    bare = read(path, columns=Columns(label=""))  # as `weft predict` reads it
    assert [(e.text, e.label) for e in bare] == [(text, None) for text, _ in PAIRS]


def test_texts_that_have_labels_are_no_pairs(tmp_path):
    path = tmp_path / "a.csv"
    lines = [f"{a},{b},{i % 2}\n" for i, (a, b) in enumerate(PAIRS)]
    path.write_text("text,summary,score\n" + "".join(lines), "utf-8")
    assert {e.label for e in read(path)} == {"0", "1"}
    path.write_text(
        "text,kind\n" + "".join(f"{a},{i % 2} of two\n" for i, (a, _) in enumerate(PAIRS))
    )
    assert {e.label for e in read(path)} == {"0 of two", "1 of two"}


def test_a_list_of_references_beside_a_source(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        json.dumps({"id": i, "source": [a, a], "target": [b, "x"]})
        for i, (a, b) in enumerate(PAIRS)
    ]
    path.write_text("\n".join(rows), "utf-8")
    first = next(read(path))
    assert (first.text, first.label) == (f"{PAIRS[0][0]} {PAIRS[0][0]}", (PAIRS[0][1], "x"))


def test_separator_gives_several_labels(tmp_path):
    path = save(tmp_path, "a.csv", "text,labels\nhi,x|y\nho,\n")
    assert pairs(path, separator="|") == [(("x", "y"), "hi"), ((), "ho")]


def test_folder(tmp_path):
    for name, text in {
        "pos/b": "good",
        "pos/a": "fine\r\nday\n",
        "neg/c": "bad",
        "readme": "?",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save(tmp_path, name, text)
    tally = SkipCounter()
    assert recognise(tmp_path) == "folder"
    assert pairs(tmp_path, skipped=tally) == [("neg", "bad"), ("pos", "fine\nday"), ("pos", "good")]
    assert tally.counts == {"file outside a class folder": 1}


def test_trees_with_phrases(tmp_path):
    path = save(tmp_path, "a.txt", "(3 (2 -LRB-) (4 (2 very) (3 good)))\n")
    assert pairs(path, phrases=True) == [
        ("3", "( very good"),
        ("2", "("),
        ("4", "very good"),
        ("2", "very"),
        ("3", "good"),
    ]


@pytest.mark.parametrize(
    ("text", "first"), [("hi\n", None), ('{"text": "hi", "label": "x"}\n', "x")]
)
def test_standard_input(monkeypatch, text, first):
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode())))
    )
    assert recognise("-") == ("jsonl" if first else "lines")
    (example,) = read("-")
    assert (example.label, example.text, example.where) == (first, "hi", "standard input:1")


def test_standard_input_does_not_wait_for_the_end():
    code = "from weft.text.read import read\nfor e in read('-'): print(e.text, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        process.stdin.close()


def test_parquet(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    table = pa.table({"n": [1, 2], "sentence": ["hi", "ho"], "label": [3, 5]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert pairs(tmp_path / "a.parquet") == [("3", "hi"), ("5", "ho")]
    assert [e.line for e in read(tmp_path / "a.parquet")] == [1, 2]


ROW = {
    "a.tsv": b"pos\tthe quick brown fox jumps over the lazy dog again and again\n",
    "a.csv": b'"the quick brown fox, it jumps over the lazy dog again and again",pos\n',
    "a.txt": b"the quick brown fox jumps over the lazy dog again and again and again\n",
    "a.ft": b"__label__pos the quick brown fox jumps over the lazy dog again and again\n",
    "a.jsonl": json.dumps({"text": "the quick brown fox jumps over a dog", "label": "p"}).encode()
    + b"\n",
}


@pytest.mark.parametrize("name", ROW)
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    path = tmp_path / name
    count = 20_000_000 // len(ROW[name])
    with open(path, "wb") as out:
        for _ in range(100):
            out.write(ROW[name] * (count // 100))
    examples = read(path)
    taken = 0
    tracemalloc.start()
    try:
        # A tenth is enough to tell a stream from a list, at the pace of a traced interpreter.
        for _ in zip(range(count // 10), examples, strict=False):
            taken += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken == count // 10
    assert peak < 5_000_000


def test_a_very_long_line(tmp_path):
    long = "word " * 200_000
    assert pairs(save(tmp_path, "a.csv", f"text,label\n{long},x\n")) == [("x", long)]
    assert pairs(save(tmp_path, "a.txt", long)) == [(None, long)]


def test_importing_the_reader_is_light():
    code = "import sys, weft.text.read, weft.text.write; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"torch", "numpy", "pyarrow", "sklearn"} & set(loaded.stdout.split())


def test_spans_are_no_column_of_labels_for_a_sister_file(tmp_path):
    """What a file of spans teaches is found by what is in it, in dev as in train."""
    from weft.text.columns import Columns
    from weft.text.read import resolve_columns

    rows = [
        {"id": f"s{i}", "text": f"Ana number {i} slept", "spans": [
            {"start": 0, "end": 3, "label": "PER"}, {"start": 4, "end": 10 + i, "label": "X"},
        ]}
        for i in range(5)
    ]  # fmt: skip
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert resolve_columns(path, Columns()) == Columns()
    other = tmp_path / "other.jsonl"  # nested values of another kind are no text either
    other.write_text(
        "".join(json.dumps({"text": r["text"], "more": r["spans"]}) + "\n" for r in rows)
    )
    assert resolve_columns(other, Columns()).label is None


ANIMALS = ("dog", "cat", "cow", "hen", "fox")
SENTENCES = "".join(f"the {w} sees a {w}\tlo {w} ra {w} mi\n" for w in ANIMALS)


@pytest.mark.parametrize(("name", "sign"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_single_words_over_sentences_are_a_header(tmp_path, name, sign):
    path, tally = tmp_path / name, SkipCounter()
    path.write_text(("english\tloomish\n" + SENTENCES).replace("\t", sign), "utf-8")
    found = list(read(path, skipped=tally))
    assert [e.line for e in found] == [2, 3, 4, 5, 6]
    assert (found[0].text, found[0].label) == ("the dog sees a dog", "lo dog ra dog mi")
    assert tally.lines() == [f"1 first line taken for a header: {path}:1"]
    (only, *_) = read(path, columns=Columns(text="loomish"))
    assert (only.text, only.label) == ("lo dog ra dog mi", "the dog sees a dog")


@pytest.mark.parametrize(
    "first",
    [
        "stop\tcow",  # a word of the column below
        "Stop!\tLo!",  # no name of a column has a stop
        "stop\tlos mi",  # a name is one word
        "stop\tstop",
        "stop\thalt\nhush\tsil",  # not the only row of single words
    ],
)
def test_a_row_of_data_is_no_header(tmp_path, first):
    path, tally = tmp_path / "a.tsv", SkipCounter()
    path.write_text(f"{first}\n{SENTENCES}", "utf-8")
    found = list(read(path, skipped=tally))
    assert found[0].line == 1
    assert found[0].text == first.split("\t")[0]
    assert not tally


def test_words_over_numbers_are_a_header_of_any_length(tmp_path):
    path = tmp_path / "a.csv"
    rows = "".join(f"{i},the {i} film of {i} was,{'good' if i % 2 else 'bad'}\n" for i in range(23))
    path.write_text(f"\ufeffticket,what the guest wrote,verdict\n{rows}", "utf-8")
    first = next(read(path))
    assert (first.line, first.text, first.label) == (2, "the 0 film of 0 was", "bad")
    path.write_text(f"not so bad a film,what the guest wrote,verdict\n{rows}", "utf-8")
    assert next(read(path)).line == 2
    path.write_text(rows, "utf-8")
    assert next(read(path)).line == 1


@pytest.mark.parametrize("blank", ["", " "])
def test_a_few_labels_that_are_missing_do_not_hide_the_others(tmp_path, blank):
    path = tmp_path / "a.csv"
    said = [blank if i in (5, 11) else ("good", "bad")[i % 2] for i in range(23)]
    rows = "".join(f"the {i} film of {i} was,{label}\n" for i, label in enumerate(said))
    path.write_text("what they wrote,verdict\n" + rows, "utf-8")
    found = list(read(path, columns=Columns(text="what they wrote")))
    assert [e.label or "" for e in found] == said
    half = "".join(f"the {i} film of {i} was,{'bad' if i % 2 else ''}\n" for i in range(23))
    path.write_text("what they wrote,verdict\n" + half, "utf-8")
    assert {e.label for e in read(path, columns=Columns(text="what they wrote"))} == {None}


def test_few_rows_or_classes_say_nothing_of_a_header(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("english\tloomish\n" + "".join(SENTENCES.splitlines(True)[:4]), "utf-8")
    assert next(read(path)).line == 1
    rows = "".join(f"the {i} film of {i} was\t{'good' if i % 2 else 'bad'}\n" for i in range(23))
    path.write_text("words\tsaid\n" + rows, "utf-8")
    assert next(read(path)).line == 1
