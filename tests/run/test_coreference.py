"""Coreference end to end on synthetic stories: train, predict, evaluate, resume, bad files."""

import json
import re

import numpy as np
import pytest

import weft
from tests.fixtures.command import command, ok
from tests.fixtures.command import fails as fails_with_one_line
from weft import config
from weft.errors import UserError
from weft.report.drawings.draw import draw, draw_terminal
from weft.tasks.annotation import Annotation
from weft.tasks.semantics.coreference import CoreferenceResolution, CoreferenceSpace
from weft.text.annotation.frames import Coreference, Mention
from weft.text.annotation.mention_heads import find_heads
from weft.text.example import Example
from weft.text.formats.semantics.coreference import read_coreference
from weft.text.synthetic.coreference import generate_coreference, write_coreference

SMALL = {
    "tokenizer.min_count": 1, "encoder.hidden": 24, "encoder.layers": 1, "encoder.dropout": 0.0,
    "head.hidden": 32, "head.span": 32, "head.window": 12, "head.antecedents": 20,
    "head.dropout": 0.0, "embedder": [{"kind": "lookup", "width": 20}], "train.epochs": 7,
    "train.batch_size": 4, "train.threads": 1, "train.learning_rate": 0.01, "train.patience": 0,
}  # fmt: skip
TEXT = "Ann saw a tall doctor . She greeted him ."


def small(folder, **changes):
    values = {"data.train": str(folder / "train.conll"), "data.dev": str(folder / "dev.conll")}
    return config.recipe("coref-bilstm").with_values({**SMALL, **values, **changes}, "test")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coreference")
    write_coreference(folder, generate_coreference(size=120))
    return folder


@pytest.fixture(scope="module")
def run(files):
    return weft.train(small(files), files / "run", quiet=True, device="cpu")


def test_chains_are_learned_and_read_from_plain_text(run, files):
    assert run.figures["dev"]["conll"].value > 0.45
    (answer,) = run.predictor([TEXT])
    for chain in answer.value:
        assert len(chain["mentions"]) > 1  # no singletons in training
        for mention in chain["mentions"]:
            assert TEXT[mention["start"] : mention["end"]] == mention["text"]
    assert run.predictor([""])[0].value == ()
    printed = json.loads(ok("evaluate", files / "run", files / "test.conll", "--json").out)
    assert {"conll", "muc_f1", "b_cubed_f1", "ceaf_e_f1", "lea_f1", "mention_f1"} <= set(printed)


def test_predicted_columns_can_be_read_again(run, files, tmp_path):
    written = ok("predict", files / "run", files / "dev.conll", "--conll").out
    (tmp_path / "a.conll").write_text(written, "utf-8")
    again = list(read_coreference(tmp_path / "a.conll"))
    gold = list(read_coreference(files / "dev.conll"))
    assert [e.words for e in again] == [e.words for e in gold]
    assert [e.label.sentences for e in again] == [e.label.sentences for e in gold]
    assert any(e.label.mentions for e in again)
    one = json.loads(ok("predict", files / "run", TEXT, "--json").out)
    assert all(chain.keys() == {"entity", "mentions"} for chain in one["value"])
    ok("predict", files / "run", TEXT)


def test_a_resumed_training_goes_on(files, tmp_path):
    for resume in (False, True):
        epochs = {"train.epochs": 2, "train.save_every": 1}
        out = weft.train(small(files, **epochs), tmp_path / "run", quiet=True, device="cpu",
                         resume=resume)  # fmt: skip
    assert out.figures["dev"]["conll"].n == 12


def test_singletons_are_a_setting():
    words = ("Ann", "slept", ".", "She", "saw", "Bo", ".")
    label = Coreference((Mention("a", 0, 1), Mention("a", 3, 4), Mention("b", 5, 6)))
    example = Example(" ".join(words), label, words=words)
    kept, dropped = CoreferenceResolution(), CoreferenceResolution("drop")
    assert kept.space([example]).singletons
    assert not dropped.space([example]).singletons
    lines = kept.target(example, CoreferenceSpace(True))
    assert lines[:4].tolist() == [[0, 0, 0, 1], [3, 0, 3, 4], [5, 1, 5, 6], [-1] * 4]
    assert dropped.target(example, CoreferenceSpace(False))[2].tolist() == [-1] * 4
    assert len(dropped.find_reference(example).mentions) == 2
    with pytest.raises(UserError, match="nothing to link"):
        kept.space([Example("Bo", Coreference((Mention("b", 0, 1),)), words=("Bo",))])
    with pytest.raises(UserError, match="no coreference"):
        kept.target(Example("Bo", None, words=("Bo",)), CoreferenceSpace(True))


def test_heads_are_distinct_words_of_their_mentions():
    words = ["the", "new", "president", "of", "France", "and", "his", "wife", ",", "who", "left"]
    spans = [(0, 5), (4, 5), (6, 7), (6, 8), (0, 8), (6, 11)]
    heads = find_heads(words, spans)
    assert heads[0, 5] == 2
    assert (heads[4, 5], heads[6, 7], heads[6, 8]) == (4, 6, 7)
    assert heads[0, 8] == 5  # the conjunction: all other words are in smaller mentions
    assert len({*heads.values()}) == len(heads) == 6
    tree = [("NP", 0, 5), ("PP", 3, 5), ("VP", 2, 5)]
    assert find_heads(words, [(0, 5)], tree)[0, 5] == 1
    assert find_heads(("x",), [(0, 1), (0, 1)]) == {(0, 1): 0}


def test_speakers_genre_and_trees_of_conll_2012_are_read(tmp_path):
    rows = [("I", "(TOP(NP*)", "bo", "(1)"), ("ran", "(VP*))", "bo", "-"), ("I", "*", "al", "(1)")]
    text = "#begin document (bc/x/1); part 000\n" + "".join(
        f"bc/x/1\t0\t{i}\t{w}\tNN\t{bits}\t-\t-\t-\t{who}\t*\t{cell}\n"
        for i, (w, bits, who, cell) in enumerate(rows)
    )
    (tmp_path / "a.conll").write_text(text + "\n#end document\n", "utf-8")
    (example,) = read_coreference(tmp_path / "a.conll")
    assert example.label.speakers == ("bo", "bo", "al")
    assert example.label.genre == "bc"
    assert ("VP", 1, 2) in example.label.constituents


def test_chains_are_drawn():
    drawn = Annotation("chains", ("Her", "<cat>", "saw", "her"),
                       mentions=(("1", 0, 1), ("2", 0, 2), ("1", 3, 4), ("3", 1, 3)))  # fmt: skip
    html = str(draw(drawn))
    assert html.count("<mark") == html.count("</mark>") == 3  # the crossing one is left out
    assert "&lt;cat&gt;" in html
    assert draw_terminal(drawn).plain == "[[Her]1 <cat>]2 saw [her]1"
    assert Annotation.from_json(drawn.to_json()).mentions == drawn.mentions


BEGIN, END = "#begin document (d)\n", "\n#end document\n"
ROWS = "0\tAnn\t(1)\n1\tsaw\t_\n2\ther\t(1)\n"
GOOD = (BEGIN + ROWS + END) * 3
BAD_FILES = {
    "empty": ("", "empty|no column of mention"),
    "no brackets": ("a\tX\nb\tY\n\n" * 4, "no column of mention brackets"),
    "plain text": ("Ann slept .\nBo ran .\n", "no column of mention brackets"),
    "unclosed": (GOOD + BEGIN + "0\tBo\t(1\n1\tran\t_\n" + END, "unclosed bracket"),
    "unopened": (GOOD + BEGIN + "0\tBo\t1)\n1\tran\t_\n" + END, "unopened bracket"),
    "malformed": (GOOD * 3 + BEGIN + "0\tBo\t((\n1\tran\t_\n" + END, "malformed bracket"),
    "ragged": (GOOD + BEGIN + "0\tBo\n1\tran\t(1)\n" + END, "ragged rows|no column of mention"),
    "no end": (GOOD + BEGIN + ROWS, "no '#end document'"),
    "no begin": (GOOD + ROWS + END, "before '#begin document'|without '#begin"),
    "duplicate": (
        GOOD + BEGIN + "0\tBo\t(1)(1)\n1\tran\t_\n" + END,
        "duplicate mention|no column of mention",
    ),
    "only singletons": ((BEGIN + "0\tBo\t(1)\n1\tran\t_\n" + END) * 3, "nothing to link"),
    "not UTF-8": (GOOD.encode() + BEGIN.encode() + b"0\t\xff\t(1)\n" + END.encode(), "UTF-8"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_line_errors(name, tmp_path):
    contents, message = BAD_FILES[name]
    raw = contents if isinstance(contents, bytes) else contents.encode()
    (tmp_path / "a.conll").write_bytes(raw)
    done = command("train", "--recipe", "coref-bilstm", "--train", tmp_path / "a.conll",
                   "-o", tmp_path / "run")  # fmt: skip
    last = done.err.strip().splitlines()[-1]
    assert done.status == 2, done.err
    assert re.search(message, last), last
    assert "a.conll" in last
    assert "Traceback" not in done.err


def test_other_heads_tasks_and_settings_are_refused(files, run, tmp_path):
    train = ("--train", files / "train.conll", "-o", tmp_path / "x")
    for setting, message in (("head.window=0", "window"), ("head.antecedents=0", "antecedents"),
                             ("pool.kind=mean", "state per word|pool"),
                             ("task.singletons=some", "singletons")):  # fmt: skip
        done = fails_with_one_line("train", "--recipe", "coref-bilstm", *train, "--set", setting)
        assert re.search(message, done)
    assert "coref-bilstm" in fails_with_one_line("train", "--recipe", "tagger-bilstm", *train)


def test_compare_recognises_the_task(files):
    from weft.compare.prepare import find_tasks
    from weft.run.data import Data

    assert find_tasks(Data(train=str(files / "train.conll")))[0] == "coref"


@pytest.mark.parametrize(
    "damage", [{"singletons": 1}, {"genres": "x"}, {"genres": [3]}, {"genres": ["a", "a"]}]
)
def test_damaged_label_spaces_are_refused(damage):
    saved = CoreferenceSpace(True, ("a",)).to_json()
    assert CoreferenceSpace.from_json(saved).genres == ("a",)
    with pytest.raises(UserError, match="damaged"):
        CoreferenceSpace.from_json({**saved, **damage})


def test_synthetic_stories_are_the_same_every_time():
    assert generate_coreference(seed=3, size=20) == generate_coreference(seed=3, size=20)
    for example in generate_coreference(size=20)["train"]:
        assert all(len(chain) > 1 for chain in example.label.chains.values())
        assert np.all(np.diff(example.label.sentences) > 0)
