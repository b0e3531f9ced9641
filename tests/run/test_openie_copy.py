"""Tuples written one after the other: steps, training, extraction, bad settings."""

import json
import re

import pytest

import weft
from tests.fixtures.command import fails, ok
from tests.fixtures.tuple_files import write_tuples
from weft import config
from weft.annotate.tuple_writer import MAX_TUPLES
from weft.annotate.tuple_writer import write_tuples as write
from weft.tasks.semantics.tuple_steps import END, parse_tuple, read_steps, write_tuple
from weft.text.annotation.frames import Extraction, Extractions
from weft.text.example import Example

SMALL = {
    "tokenizer.min_count": 1, "embedder.width": 24, "embedder.dropout": 0.0, "encoder.hidden": 24,
    "decoder.width": 24, "decoder.hidden": 48, "decoder.dropout": 0.0, "train.epochs": 1,
    "train.batch_size": 8, "train.learning_rate": 0.01, "train.threads": 1, "train.patience": 0,
    "generate.max_length": 20,
}  # fmt: skip
GRID_FORMAT = ("--set", "data.format=extractions")
TEXT = "Ann gave Bo the lamp ."
GAVE = Extraction("gave", ("Ann", "Bo", "the lamp"))
RAN = Extraction("ran", ("Ann",))


def small(folder, **changes):
    values = {"data.train": str(folder / "train.tsv"), "data.dev": str(folder / "dev.tsv")}
    return config.recipe("openie-copy").with_values({**SMALL, **values, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tuples(tmp_path_factory.mktemp("steps"), size=30)


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


def test_steps_end_and_stay_together():
    example = Example(TEXT, Extractions((GAVE, RAN)))
    first, second, last = read_steps([example])
    assert first.text == TEXT
    assert second.text == f"{TEXT} [T] {first.label}"
    assert last.text == f"{second.text} [T] {second.label}"
    assert last.label == END
    assert {one.group for one in (first, second, last)} == {TEXT}


@pytest.mark.parametrize("one", [GAVE, RAN])
def test_written_tuples_are_read_again(one):
    assert parse_tuple(write_tuple(one), 0.5) == Extraction(one.predicate, one.arguments, 0.5)


@pytest.mark.parametrize("text", ["", "Ann", "Ann [R]", "[R] ran", "Ann ran home", "[O] a [O] b"])
def test_what_is_no_tuple_is_none(text):
    assert parse_tuple(text, 0.5) is None


class Writer:
    """A model that writes what it is told, step by step."""

    def __init__(self, *texts):
        self.texts, self.sources = list(texts), []

    def __call__(self, sources):
        self.sources += sources
        return [weft.Answer(self.texts.pop(0) if self.texts else END, 0.9) for _ in sources]


def test_writing_reads_what_was_written_and_ends():
    sang = "Ann [R] sang [O] songs"  # not in the sentence
    model = Writer(write_tuple(GAVE), sang, write_tuple(GAVE))
    ((places, tuples),) = write(model, [TEXT])
    assert [one.to_extraction(TEXT, places).arguments for one in tuples] == [GAVE.arguments]
    assert model.sources[2] == f"{TEXT} [T] {write_tuple(GAVE)} [T] {sang}"
    assert len(model.sources) == 3  # a tuple again is the end
    endless = Writer(*(f"Ann [R] gave [O] Bo {n}" for n in range(99)))
    write(endless, [TEXT])
    assert len(endless.sources) == MAX_TUPLES
    assert write(Writer(), ["", " "]) == [((), []), ((), [])]


def test_verbs_work(run, files, tmp_path):
    ok("extract", files / "run", files / "dev.tsv", "-o", tmp_path / "t.jsonl")
    for line in (tmp_path / "t.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        for one in row["tuples"]:
            assert all(row["text"][a:b] for a, b in one["predicate"]["spans"])
    printed = json.loads(ok("evaluate", files / "run", files / "test.tsv", "--json").out)
    assert {"bleu", "exact_match"} <= set(printed)
    ok("predict", files / "run", TEXT)
    ok("extract", files / "run", TEXT, "-o", tmp_path / "t.html")
    assert "lamp" in (tmp_path / "t.html").read_text("utf-8")
    ok("explain", files / "run", TEXT, "-o", tmp_path / "e.html")
    assert "lamp" in (tmp_path / "e.html").read_text("utf-8")


@pytest.mark.parametrize("recipe", ["openie-copy", "openie-grid"])
def test_compare_trains_either_kind(files, tmp_path, recipe):
    changes = {"generate.max_length": 5} if recipe == "openie-copy" else {"encoder.layers": 1}
    changes |= {"train.epochs": 1, "train.threads": 1, "encoder.hidden": 8}
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    done = ok("compare", files / "train.tsv", files / "test.tsv", "--dev", files / "dev.tsv",
              "-o", tmp_path / "c", "--recipes", recipe, "--seeds", 1, "--device", "cpu",
              *settings, *(() if recipe == "openie-copy" else GRID_FORMAT))  # fmt: skip
    assert recipe in done.out
    (row,) = json.loads((tmp_path / "c/leaderboard.json").read_text("utf-8"))
    assert (row["recipe"], row["status"]) == (recipe, "ranked")
    assert weft.load(tmp_path / "c/model")([TEXT])[0].value is not None


def test_settings_and_files_that_do_not_fit_are_refused(files, tmp_path):
    (tmp_path / "a.txt").write_text("a line\nand another\n", "utf-8")
    out = ("-o", tmp_path / "x")
    for file, message in (("a.txt", "no tuples, as data.tuples asks"), ("none.tsv", "none.tsv")):
        done = fails("train", "--recipe", "openie-copy", "--train", tmp_path / file, *out)
        assert re.search(message, done), done
    done = fails("train", "--recipe", "openie-grid", "--train", files / "train.tsv",
                 "--set", "data.tuples=true", *out)  # fmt: skip
    assert "data.tuples is for the task 'seq2seq'" in done
