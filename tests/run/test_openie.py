"""Grid labelling of tuples end to end on synthetic sentences; and bad files of tuples."""

import json
import re

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, ok
from tests.fixtures.command import fails as fails_with_one_line
from tests.fixtures.tuple_files import write_json, write_tuples
from weft import config
from weft.errors import UserError
from weft.report.drawings.draw import draw, draw_terminal
from weft.tasks.semantics.openie import TupleExtraction, TupleSpace, with_words
from weft.text.annotation.frames import Extraction, Extractions
from weft.text.annotation.word_tuples import IMPLIED
from weft.text.example import Example
from weft.text.formats.semantics.extractions import read_extractions

SMALL = {
    "tokenizer.min_count": 1, "encoder.hidden": 24, "encoder.layers": 1, "encoder.dropout": 0.0,
    "head.dropout": 0.0, "embedder": [{"kind": "lookup", "width": 20}], "train.epochs": 8,
    "train.batch_size": 8, "train.threads": 1, "train.learning_rate": 0.005, "train.patience": 0,
}  # fmt: skip
TEXT = "Ann gave Bo the lamp ."


def small(folder, **changes):
    values = {"data.train": str(folder / "train.tsv"), "data.dev": str(folder / "dev.tsv")}
    return config.recipe("openie-grid").with_values({**SMALL, **values, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_tuples(tmp_path_factory.mktemp("tuples"), size=240)


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


def test_tuples_are_learned_and_have_offsets(run, files):
    assert run.figures["dev"]["f1"].value > 0.6
    (answer,) = run.predictor([TEXT])
    assert answer.value
    for one in answer.value:
        assert 0 < one["confidence"] <= 1
        for part in (one["predicate"], *one["arguments"]):
            assert " ".join(TEXT[i:j] for i, j in part["spans"]) == part["text"]
    assert run.predictor([""])[0].value == ()
    printed = json.loads(ok("evaluate", files / "run", files / "test.tsv", "--json").out)
    assert {"f1", "precision", "recall", "auc", "last_f1"} <= set(printed)
    assert printed["f1"]["value"] > 0.6


def test_every_form_of_prediction_names_the_parts(run, files, tmp_path):
    one = json.loads(ok("predict", files / "run", TEXT, "--json").out)
    assert one["value"][0]["predicate"]["text"] in TEXT
    assert "; " in ok("predict", files / "run", TEXT).out
    ok("extract", files / "run", files / "test.tsv", "-o", tmp_path / "t.jsonl")
    again = list(read_extractions(tmp_path / "t.jsonl"))
    assert again
    assert all(part.spans for example in again for part in example.label.tuples)
    ok("extract", files / "run", TEXT, "-o", tmp_path / "t.html")
    assert "<svg" in (tmp_path / "t.html").read_text("utf-8")


def test_two_models_agree_with_themselves(run, files):
    arguments = ("extract", files / "run", files / "dev.tsv", "--format", "tsv")
    alone = ok(*arguments).lines
    assert ok(*arguments, "--agree", files / "run").lines == alone
    written = ok(*arguments, "--agree", files / "run", "--whole-sentences").lines
    assert written == alone
    least = sorted(float(line.split("\t")[1]) for line in alone)[len(alone) // 2] + 1e-3
    unsure = {line.split("\t")[0] for line in alone if float(line.split("\t")[1]) < least}
    sure = [line for line in alone if line.split("\t")[0] not in unsure]
    assert ok(*arguments, "--whole-sentences", "--min-confidence", least).lines == sure
    assert "above 0" in fails_with_one_line(*arguments, "--agreement", "0")


def test_what_extract_writes_can_be_learned(files, tmp_path):
    path = write_json(tmp_path / "silver.jsonl", size=240)
    values = {"data.train": str(path), "train.epochs": 4}
    out = weft.train(small(files, **values), tmp_path / "run", quiet=True, device="cpu")
    assert out.figures["dev"]["f1"].value > 0


def test_a_row_can_read_the_labels_it_was_given_in_training(files, tmp_path):
    changes = {"head.gold_labels": False, "train.epochs": 1}
    out = weft.train(small(files, **changes), tmp_path / "run", quiet=True, device="cpu")
    assert out.predictor.config["head"]["gold_labels"] is False


def test_rows_and_words_of_targets():
    task = TupleExtraction(rows=2)
    tuples = Extractions((
        Extraction("is president of", ("Ann", "the club")),
        Extraction("runs", ("Ann", "the club")),
        Extraction("sings", ("Bo", "songs")),  # not in the sentence
    ))  # fmt: skip
    example = Example("Ann , president of the club , runs it .", tuples)
    space = task.space([example])
    target = task.target(example, space)
    words = with_words(example).words
    assert target.shape == (len(IMPLIED) + len(words), 2)
    names = np.array(["N", "S", "R", "O"])[target[len(IMPLIED) :]]
    assert names[:, 0].tolist() == ["S", "N", "R", "R", "O", "O", "N", "N", "N", "N"]
    assert names[:, 1].tolist() == ["S", "N", "N", "N", "O", "O", "N", "R", "N", "N"]
    assert target[: len(IMPLIED), 0].tolist() == [2, 0, 0]
    drawn = task.gold(example, space)
    assert "is president of" in draw(drawn)
    assert "is president of" in draw_terminal(drawn).plain


def test_an_explanation_names_a_part_of_a_tuple(run, files, tmp_path):
    ok("explain", files / "run", TEXT, "--column", "tuple1", "--word", "gave",
       "-o", tmp_path / "e.html")  # fmt: skip
    assert "gave" in (tmp_path / "e.html").read_text("utf-8")
    message = fails_with_one_line("explain", files / "run", TEXT, "--column", "tuple9")
    assert "tuple1" in message


def test_compare_recognises_the_task(files, tmp_path):
    from weft.compare.prepare import find_tasks
    from weft.run.data import Data

    assert find_tasks(Data(train=str(files / "train.tsv")))[0] == "openie"
    json_rows = write_json(tmp_path / "train.jsonl", size=60)
    assert find_tasks(Data(train=str(json_rows)))[0] == "openie"


SOUND = "".join(
    f"Ann saw the {thing} .\tsaw\tAnn\tthe {thing}\n" for thing in ("box", "cat", "dog")
)
SOUND += "Ann saw the dog .\tsaw\tAnn\n"
SPAN = '{"text": "Ann", "spans": [[0, 3]]}'
ROW = (
    '{"text": "Ann ran home .", '
    '"tuples": [{"confidence": 0.5, "predicate": %s, "arguments": [%s]}]}\n'
)
SOUND_JSON = ROW % ('{"text": "ran", "spans": [[4, 7]]}', SPAN)
OUTSIDE, NEGATIVE, FRACTION = (
    SOUND_JSON + ROW % (f'{{"text": "ran", "spans": [{span}]}}', SPAN)
    for span in ("[4, 700]", "[-4, 7]", "[4.5, 7]")
)
BAD_FILES = {
    "few columns": ("a.tsv", SOUND + "Ann saw Bo .\n", "a.tsv:5: too few columns"),
    "no predicate": ("a.tsv", SOUND + "Ann saw Bo .\t\tAnn\n", "a.tsv:5: missing predicate"),
    "no sentence": ("a.tsv", SOUND + "\tsaw\tAnn\n", "a.tsv:5: missing sentence"),
    "no tuples": ("a.tsv", "just a line of text\nand another one here\n", "no tuples"),
    "empty": ("a.tsv", "", "a.tsv"),
    "not worded": (
        "a.tsv", SOUND.replace("saw\tAnn", "observed\tAnn"), "no tuple is worded as its sentence",
    ),
    "bad confidence": (
        "a.tsv", SOUND.replace(" .\t", " .\t0.5\t") + "Ann saw Bo .\thigh\tsaw\tAnn\n",
        "a.tsv:5: confidence not a number",
    ),
    "not UTF-8": ("a.tsv", SOUND.encode() + b"Ann saw \xff .\tsaw\tAnn\n", "a.tsv:5.*UTF-8"),
    "json": ("a.jsonl", SOUND_JSON + "{\n", "a.jsonl:2: malformed row"),
    "json list": ("a.jsonl", SOUND_JSON + "[]\n", "a.jsonl:2: malformed row"),
    "json deep": ("a.jsonl", SOUND_JSON + "[" * 5000 + "\n", "a.jsonl:2: malformed row"),
    "json no spans": ("a.jsonl", SOUND_JSON + ROW % ('{"text": "ran"}', SPAN), "a.jsonl:2: malf"),
    "json outside": ("a.jsonl", OUTSIDE, "a.jsonl:2: malformed"),
    "json negative": ("a.jsonl", NEGATIVE, "a.jsonl:2: malformed"),
    "json fraction": ("a.jsonl", FRACTION, "a.jsonl:2: malformed"),
    "json confidence": ("a.jsonl", SOUND_JSON * 2 + SOUND_JSON.replace("0.5", "NaN"), "jsonl:3: "),
}  # fmt: skip


def test_the_doctor_reads_rows_of_json(tmp_path):
    rows = "".join(SOUND_JSON.replace("home", place) for place in ("home", "away", "off", "up"))
    (tmp_path / "sound.jsonl").write_text(rows, "utf-8")
    assert "No problems found." in ok("check", tmp_path / "sound.jsonl").out
    (tmp_path / "bad.jsonl").write_text(rows + OUTSIDE + "{\n", "utf-8")
    done = command("check", tmp_path / "bad.jsonl")
    assert "no sentence with its tuples" in done.out
    assert "bad.jsonl:6" in done.out
    assert "bad.jsonl:7" in done.out


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        *(("openie-grid", name) for name in BAD_FILES),
        *(("openie-copy", name) for name in BAD_FILES if name != "not worded"),  # it writes words
    ],
)
def test_bad_files_are_one_line_errors(recipe, name, tmp_path):
    file, contents, message = BAD_FILES[name]
    raw = contents if isinstance(contents, bytes) else contents.encode()
    (tmp_path / file).write_bytes(raw)
    done = command("train", "--recipe", recipe, "--train", tmp_path / file,
                   "-o", tmp_path / "run")  # fmt: skip
    last = done.err.strip().splitlines()[-1]
    assert done.status == 2, done.err
    assert re.search(message, last), last
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.rows=0", "from 1 to"), ("task.rows=99", "from 1 to"), ("head.layers=0", "layers"),
        ("head.heads=7", "divided among"), ("head.feed_forward=-1", "feed_forward"),
        ("pool.kind=mean", "state per word|pool"), ("head.kind=tags", "tuple-grid|openie|tag"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(files, tmp_path, setting, message):
    train = ("--train", files / "train.tsv", "-o", tmp_path / "x")
    done = fails_with_one_line("train", "--recipe", "openie-grid", *train, "--set", setting)
    assert re.search(message, done), done


@pytest.mark.parametrize("rows", [None, 0, 99, "5", True, 2.0])
def test_damaged_label_spaces_are_refused(rows):
    assert TupleSpace.from_json(TupleSpace(5).to_json()) == TupleSpace(5)
    with pytest.raises(UserError, match="damaged"):
        TupleSpace.from_json({"rows": rows})
