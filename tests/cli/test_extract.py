"""weft extract: text, JSON lines, TSV and a page; and bad input."""

import json

import pytest

import weft
from tests.fixtures.command import fails, ok
from weft import config
from weft.report.drawings.tuple_graph import MAX_LINES, draw_tuples, wrap_lines
from weft.text.annotation.frames import Extraction
from weft.text.formats.semantics.extractions import read_extractions
from weft.text.synthetic.roles import generate_roles, write_roles

SENTENCES = ["Ann gave Bo the lamp .", "Carla found the kite in the garden .", "Hugo saw Ines ."]
SMALL = {
    "tokenizer.min_count": 1, "encoder.hidden": 24, "encoder.layers": 1, "encoder.dropout": 0.0,
    "head.hidden": 16, "head.predicate": 11, "head.sense": 9, "head.dropout": 0.0,
    "embedder": [{"kind": "lookup", "width": 20}], "train.epochs": 7, "train.batch_size": 4,
    "train.ema_decay": 0.0, "train.threads": 1, "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("extract")
    parts = generate_roles(size=120)
    write_roles(folder, {k: [e for e in v if len(e.words) < 14] for k, v in parts.items()})
    data = {"data.train": str(folder / "train.conll"), "data.dev": str(folder / "dev.conll")}
    built = config.recipe("srl-bilstm-crf").with_values({**SMALL, **data}, "test")
    weft.train(built, folder / "run", quiet=True, device="cpu")
    (folder / "text.txt").write_text("\n".join(SENTENCES) + "\n", "utf-8")
    return folder


def test_tuples_have_offsets_into_their_sentence(shared, tmp_path):
    ok("extract", shared / "run", shared / "text.txt", "-o", tmp_path / "t.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines()]
    assert [row["text"] for row in rows] == SENTENCES
    tuples = [(row["text"], one) for row in rows for one in row["tuples"]]
    assert tuples
    for text, one in tuples:
        assert 0 < one["confidence"] <= 1
        for part in (one["predicate"], *one["arguments"]):
            assert " ".join(text[i:j] for i, j in part["spans"]) == part["text"]
    printed = ok("extract", shared / "run", *SENTENCES).out
    assert all(sentence in printed for sentence in SENTENCES)
    assert printed.count("(") == len(tuples)


def test_tsv_is_read_back_and_confidence_filters(shared, tmp_path):
    path = tmp_path / "t.tsv"
    ok("extract", shared / "run", shared / "test.conll", "-o", path)
    all_of_them = [one for e in read_extractions(path) for one in e.label.tuples]
    assert all_of_them
    middle = sorted(one.confidence for one in all_of_them)[len(all_of_them) // 2]
    arguments = ("extract", shared / "run", shared / "test.conll", "--format", "tsv")
    kept = ok(*arguments, "--min-confidence", middle + 1e-3).lines
    assert 0 < len(kept) < len(all_of_them)
    assert all(float(line.split("\t")[1]) >= middle for line in kept)


def test_the_page_draws_each_sentence(shared, tmp_path):
    ok("extract", shared / "run", shared / "text.txt", "-o", tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text("utf-8")
    assert page.count('class="sentence"') == len(SENTENCES)
    assert "<svg" in page
    assert "http" not in page.split("</style>")[-1]


def test_the_graph_escapes_texts_and_shares_nodes():
    one = Extraction("has", ("<b>Bo</b>", "a & b"), 0.5)
    drawn = draw_tuples([one, Extraction("has", ("<b>Bo</b>", "c"), 0.25)])
    assert "<b>" not in drawn
    assert drawn.count("&lt;b&gt;Bo") == 1
    assert drawn.count(">has<") == 2
    assert drawn.count("<path") == 4
    assert len(wrap_lines("word " * 100)) == MAX_LINES
    assert "svg" in draw_tuples([])


def test_bad_input_is_one_line(shared, tmp_path):
    run, text = shared / "run", shared / "text.txt"
    (tmp_path / "folder").mkdir()
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00bad\x80\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.json").write_text("{", "utf-8")
    cases = {
        ("extract", tmp_path / "none", text): "no such model folder",
        ("extract", tmp_path / "empty", text): "not a model folder",
        ("extract", tmp_path / "model", text): "damaged",
        ("extract", run, tmp_path / "none.txt"): "none.txt",
        ("extract", run, text, "Another text ."): "other inputs",
        ("extract", run, text, "--format", "xml"): "xml",
        ("extract", run, text, "--format", "html"): "-o",
        ("extract", run, text, "-o", tmp_path / "t.doc"): "--format",
        ("extract", run, text, "-o", tmp_path / "folder", "--format", "tsv"): "is a folder",
        ("extract", run, text, "--min-confidence", "2"): "from 0 to 1",
        ("extract", run, text, "--min-confidence", "-0.5"): "from 0 to 1",
        ("extract", run, text, "--min-confidence", "nan"): "from 0 to 1",
        ("extract", run, text, "--on-bad-row", "ignore"): "ignore",
        ("extract", run, text, "--device", "tpu"): "tpu",
        ("extract", run, text, "-o", text / "t.jsonl"): "text.txt",
    }
    for arguments, message in cases.items():
        assert message in fails(*arguments), arguments


def test_other_tasks_are_refused(shared, tmp_path):
    rows = "".join(f"{label}\t{word} film\n" for label, word in [("a", "good"), ("b", "bad")] * 9)
    (tmp_path / "c.tsv").write_text("label\ttext\n" + rows, "utf-8")
    values = {"data.train": str(tmp_path / "c.tsv")}
    weft.train(config.recipe("tfidf").with_values(values, "test"), tmp_path / "c", quiet=True)
    assert "semantic roles" in fails("extract", tmp_path / "c", "A text .")
