"""A label of each sentence beside the tags of its words, in all notations that have one."""

import json

from tests.fixtures.command import command
from weft.text.example import WordAnnotations
from weft.text.formats.parallel import read_parallel, resolve_files
from weft.text.read import Columns, read, table_layout
from weft.text.write import write

ROWS = [
    {"tokens": ["play", "some", "jazz"], "tags": ["O", "O", "B-genre"], "label": "play"},
    {"id": "7", "tokens": ["to", "new", "york"], "tags": ["O", "B-city", "I-city"], "label": "go"},
]


def write_rows(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def annotations(examples):
    return [(e.words, e.label.columns["tag"], e.label.label) for e in examples]


WANTED = [
    (("play", "some", "jazz"), ("O", "O", "B-genre"), "play"),
    (("to", "new", "york"), ("O", "B-city", "I-city"), "go"),
]


def test_rows_of_tokens_have_a_label_of_the_whole(tmp_path):
    path = write_rows(tmp_path / "a.jsonl")
    found = list(read(path))
    assert annotations(found) == WANTED
    assert [(e.id, e.line, e.text) for e in found] == [
        ("", 1, "play some jazz"), ("7", 2, "to new york"),
    ]  # fmt: skip
    assert annotations(read(ROWS)) == WANTED
    other = [{"words": ["hi"], "ner_tags": ["O"], "tags": ["O"], "intent": "greet"}]
    assert annotations(read(other)) == [(("hi",), ("O",), "greet")]
    described = table_layout(str(path), Columns())
    assert "tags: column 'tags'; label: column 'label'" in described.describe()


def test_columns_with_comments_and_parallel_files_say_the_same(tmp_path):
    blocks = [
        f"# intent = {label}\n" + "".join(f"{w}\t{t}\n" for w, t in zip(words, tags, strict=True))
        for words, tags, label in WANTED
    ]
    (tmp_path / "a.conll").write_text("\n".join(blocks), "utf-8")
    assert annotations(read(tmp_path / "a.conll")) == WANTED
    folder = tmp_path / "train"
    folder.mkdir()
    columns = zip(*[(" ".join(w), " ".join(t), label) for w, t, label in WANTED], strict=True)
    for name, lines in zip(("seq.in", "seq.out", "label"), columns, strict=True):
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    files = resolve_files(folder)
    assert [f.rpartition("/")[2] for f in files] == ["seq.in", "seq.out", "label"]
    assert annotations(read_parallel(*files, second="tags")) == WANTED


def test_what_is_written_is_read_back(tmp_path):
    found = list(read(write_rows(tmp_path / "a.jsonl")))
    write(found, tmp_path / "b.jsonl")
    again = list(read(tmp_path / "b.jsonl"))
    assert annotations(again) == WANTED
    assert [e.id for e in again] == ["", "7"]


def test_the_doctor_counts_intents_finds_faults_and_repairs_tags(tmp_path):
    rows = [
        *ROWS,
        {"tokens": ["to", "rome"], "tags": ["O", "I-city"], "label": "go"},
        {"tokens": ["play", "some", "jazz"], "tags": ["O", "O", "B-genre"], "label": "stop"},
    ]
    path = write_rows(tmp_path / "a.jsonl", rows)
    found = json.loads(
        command("check", path, "--json", "--fix", tmp_path / "fixed").out.splitlines()[0]
    )
    kinds = {one["kind"] for one in found["findings"]}
    assert "invalid tag" in kinds
    assert any("label" in kind or "conflict" in kind or "differ" in kind for kind in kinds)
    assert found["layers"]["intents"] == {
        "go": {"data": 2}, "play": {"data": 1}, "stop": {"data": 1},
    }  # fmt: skip
    fixed = list(read(tmp_path / "fixed" / "a.jsonl"))
    assert isinstance(fixed[2].label, WordAnnotations)
    assert fixed[2].label.columns["tag"] == ("O", "B-city")
    assert fixed[2].label.label == "go"
