"""weft annotate: the four output formats, several inputs, and bad input."""

import json
import re

import pytest

from tests.fixtures.command import command, fails, ok
from tests.fixtures.processes import FORK_SERVER
from weft.annotate import pipeline as batches
from weft.annotate.brat import safe_name
from weft.text.formats.conllu import read_conllu
from weft.text.formats.conllu_offsets import locate_words
from weft.text.formats.standoff import read_brat

TEXT = (
    "The bee sees the ant. The dog eats <b>.\n\nAda Lee lives in Rome .  The cow hears\nthe dog.\n"
)


@pytest.fixture(scope="module")
def shared(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verb")
    (folder / "text.txt").write_text(TEXT, "utf-8")
    (folder / "rows.jsonl").write_text('{"id": "x", "text": "The bee."}\n{"text": ""}\n', "utf-8")
    return folder


@pytest.fixture(scope="module")
def all_models(models):
    return ",".join(map(str, models.values()))


@pytest.fixture(scope="module")
def rows(shared, all_models):
    done = ok("annotate", "--models", all_models, shared / "text.txt")
    assert re.search(r"words; words/s: \S+sentences [\d,]+, ", done.err)
    return [json.loads(line) for line in done.lines]


def test_conllu_has_the_same_layers(shared, all_models, rows, tmp_path):
    out = tmp_path / "a.conllu"
    ok("annotate", "--models", all_models, shared / "text.txt", "-o", out)
    sentences = list(read_conllu(out))
    (row,) = rows
    assert [len(s.words) for s in sentences] == [len(s["tokens"]) for s in row["sentences"]]
    assert sentences[0].comments[:2] == ["# newdoc id = text", "# global.Entity = eid"]
    assert sum("# newpar" in s.comments for s in sentences) == 2
    for one, written in zip(row["sentences"], sentences, strict=True):
        assert written.column("upos") == [token["upos"] for token in one["tokens"]]
        assert written.heads == [token["head"] for token in one["tokens"]]
        text, _ = locate_words(written)  # SpaceAfter and the text agree
        assert text == TEXT[one["start"] : one["end"]].replace("\n", " ")
        misc = [dict(p.partition("=")[::2] for p in m.split("|")) for m in written.column("misc")]
        ranges = [tuple(map(int, m["TokenRange"].split(":"))) for m in misc]
        assert ranges == [(token["start"], token["end"]) for token in one["tokens"]]
        predicates = [m["Predicate"] for m in misc if "Predicate" in m]
        assert predicates == [p["sense"] for p in one.get("predicates", [])]
    ner = [m for s in sentences for m in s.column("misc") if "NER=B-" in m]
    assert len(ner) == len(row["entities"])
    brackets = "".join(re.findall(r"Entity=([^|\n]*)", out.read_text("utf-8")))
    mentions = sum(len(one["mentions"]) for one in row["coreference"])
    assert brackets.count("(") == brackets.count(")") == mentions


def test_brat_has_the_same_layers(shared, all_models, rows, tmp_path):
    out = tmp_path / "a.brat"
    for _ in range(2):  # it replaces what it wrote
        ok("annotate", "--models", all_models, shared / "text.txt", "-o", out)
    (found,) = read_brat(out, check=False)
    (row,) = rows
    assert found.text == TEXT
    tokens = [token for one in row["sentences"] for token in one["tokens"]]
    spans = {tuple(span) for span in found.spans}
    assert {(token["upos"], token["start"], token["end"]) for token in tokens} <= spans
    assert {(e["label"], e["start"], e["end"]) for e in row["entities"]} <= spans
    relations = [line for line in found.others if line.startswith("R")]
    assert len(relations) == sum(bool(token["head"]) for token in tokens)
    predicates = sum(len(one.get("predicates", [])) for one in row["sentences"])
    assert sum(line.startswith("E") for line in found.others) == predicates
    assert safe_name("../../etc/passwd") == "etc_passwd"
    assert safe_name("..") == "text"


def test_the_page_is_offline_and_has_every_layer(shared, all_models, rows, tmp_path):
    out = tmp_path / "a.html"
    ok("annotate", "--models", all_models, shared / "text.txt", "-o", out)
    page = out.read_text("utf-8")
    (row,) = rows
    assert page.count('<section class="sentence">') == len(row["sentences"])
    assert page.count("<svg") == len(row["sentences"])
    for layer in ("tags", "dependencies", "roles", "entities", "coreference"):
        assert f'id="show-{layer}"' in page
    assert page.count('<div class="layer entities">') > 0
    assert "&lt;b&gt;" in page
    assert "<b>." not in page
    assert not re.search(r"(?:src|href)=[\"']?http|@import|url\(", page)


def test_lines_rows_folders_and_standard_input_are_documents(shared, models, tmp_path):
    run = ("annotate", "--models", models["sentences"])
    lines = [json.loads(one) for one in ok(*run, shared / "text.txt", "--lines").lines]
    assert [one["id"] for one in lines] == ["text-1", "text-3", "text-4"]
    found = [json.loads(one) for one in ok(*run, shared / "rows.jsonl").lines]
    assert [one["id"] for one in found] == ["x", "rows-2"]
    assert found[1]["sentences"] == []
    done = ok(*run, "-", "--format", "conllu", stdin="The bee. The ant.")
    assert "# newdoc id = stdin" in done.out
    (tmp_path / "in").mkdir()
    for name in ("b", "a"):
        (tmp_path / "in" / f"{name}.txt").write_text(f"The {name}.", "utf-8")
    both = [json.loads(one) for one in ok(*run, tmp_path / "in", shared / "rows.jsonl").lines]
    assert [one["id"] for one in both] == ["a", "b", "x", "rows-2"]
    tables = ok(*run, shared / "rows.jsonl", "--text", "text", "-o", tmp_path / "two.brat")
    assert tables.status == 0
    assert {p.name for p in (tmp_path / "two.brat").iterdir()} == {
        "x.txt", "x.ann", "rows-2.txt", "rows-2.ann",
    }  # fmt: skip


def bad_inputs(models, folder):
    """Arguments and what the error says."""
    text, one = folder / "text.txt", models["sentences"]
    (folder / "latin.txt").write_bytes("Fünf.\nSieben.".encode("latin1"))
    (folder / "nul.txt").write_bytes(b"good\na\0b\n")
    (folder / "wide.txt").write_bytes("A bee.".encode("utf-16"))
    (folder / "mac.txt").write_bytes(b"A bee.\rAn ant.\rA cow.")
    (folder / "empty.txt").write_text("", "utf-8")
    (folder / "blank.txt").write_text(" \n\n\t\n", "utf-8")
    (folder / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n', "utf-8")
    (folder / "words.conllu").write_text("1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n", "utf-8")
    (folder / "hollow").mkdir(exist_ok=True)
    (folder / "damaged.txt.gz").write_bytes(b"\x1f\x8b\x08\x00 no gzip")
    damaged = folder / "damaged"
    damaged.mkdir(exist_ok=True)
    (damaged / "model.json").write_text("{", "utf-8")
    run = ("--models", one)
    return {
        "no models": ((text,), "Name the models: --models"),
        "blank models": (("--models", " , ", text), "Name the models: --models"),
        "twice": (("--models", f"{one},{one}", text), "twice. Leave one out"),
        "same layer": (("--models", f"{one},{one.parent}/./{one.name}", text), "both give the sen"),
        "missing model": (("--models", folder / "gone", text), "gone"),
        "damaged model": (("--models", damaged, text), "model.json"),
        "missing file": ((*run, folder / "txet.txt"), "no such file. Did you mean 'text.txt'?"),
        "empty": ((*run, folder / "empty.txt"), "no text. Give at least one sentence"),
        "blank": ((*run, folder / "blank.txt"), "no text. Give at least one sentence"),
        "empty folder": ((*run, folder / "hollow"), "the folder is empty"),
        "latin": ((*run, folder / "latin.txt"), "latin.txt:1: byte 0xfc at offset 1"),
        "NUL": ((*run, folder / "nul.txt"), "nul.txt:2: NUL byte at offset 1"),
        "UTF-16": ((*run, folder / "wide.txt"), "the file is UTF-16"),
        "Mac": ((*run, folder / "mac.txt"), "bare carriage returns"),
        "gzip": ((*run, folder / "damaged.txt.gz"), "damaged or truncated"),
        "JSON": ((*run, folder / "broken.jsonl"), "broken.jsonl:2: "),
        "column": ((*run, folder / "rows.jsonl", "--text", "body"), "body"),
        "words": ((*run, folder / "words.conllu"), "has words and sentences already"),
        "ending": ((*run, text, "-o", folder / "a.xml"), ".jsonl, .conllu, .html or .brat"),
        "format": ((*run, text, "--format", "xml"), "xml"),
        "page to stdout": ((*run, text, "--format", "html"), "Name it with -o"),
        "folder as file": ((*run, text, "--format", "jsonl", "-o", folder), "is a folder"),
        "file as folder": ((*run, text, "--format", "brat", "-o", text), "BRAT needs a folder"),
        "empty stdin": ((*run, "-"), "no text. Give at least one sentence"),
    }  # fmt: skip


def test_bad_input_is_one_line_that_says_what_to_do(models, shared):
    cases = bad_inputs(models, shared)
    assert len(cases) > 20
    for name, (arguments, reason) in cases.items():
        line = fails("annotate", *arguments)
        assert reason in line, (name, line)
    assert (shared / "text.txt").read_text("utf-8") == TEXT


def test_bad_rows_can_be_skipped_and_are_counted(models, shared):
    bad_inputs(models, shared)
    arguments = ("annotate", "--models", models["sentences"], "--on-bad-row", "skip")
    done = command(*arguments, shared / "broken.jsonl")
    assert done.status == 0
    assert len(done.lines) == 1
    assert "1 " in done.err
    assert "broken.jsonl:2" in done.err


def annotate_by_small_batches(*arguments):
    batches.MAX_BATCH_CHARACTERS = 10
    ok("annotate", *arguments)


@pytest.mark.parametrize("ending", ["jsonl", "brat"])
def test_a_killed_annotation_leaves_no_half_of_its_output(ending, models, shared, tmp_path):
    (tmp_path / "long.txt").write_text("The bee sees the ant.\n" * 3000, "utf-8")
    run = ("--models", models["sentences"], "--lines")
    for name in ("killed", "whole"):
        ok("annotate", *run, shared / "text.txt", "-o", tmp_path / f"{name}.{ending}")
    out = tmp_path / f"killed.{ending}"
    arguments = (*run, tmp_path / "long.txt", "-o", out)
    process = FORK_SERVER.Process(target=annotate_by_small_batches, args=arguments)
    process.start()
    while process.is_alive() and not [*tmp_path.rglob(".*.part")]:
        process.join(0.005)
    process.kill()
    process.join(60)
    assert process.exitcode == -9
    read = {"jsonl": lambda path: path.read_text("utf-8"), "brat": lambda path: {
        one.name: one.read_text("utf-8") for one in path.iterdir() if one.is_file()
    }}[ending]  # fmt: skip
    assert read(out) == read(tmp_path / f"whole.{ending}")
    ok("annotate", *run, shared / "text.txt", "-o", out)
    assert read(out) == read(tmp_path / f"whole.{ending}")
