"""The CRF as a model of the task 'tag': from files to answers, its columns, files and messages."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

import weft
from tests.fixtures.tagged_files import columns, conllu
from weft.classic.crf.features import features
from weft.classic.crf.model import LinearCRF
from weft.classic.crf.tagger import MAX_COLUMN_VALUES, Tagger, _choose_columns
from weft.config import recipe
from weft.errors import UserError
from weft.predict.evaluate import evaluate
from weft.tasks.tag import Tag
from weft.text.annotation.schemes import find_fault
from weft.text.example import Example, WordAnnotations
from weft.text.read import read

pytest.importorskip("pycrfsuite")


def trained(file, folder, **changes):
    values = {"data.train": str(file), "classic.iterations": 30, **changes}
    return weft.train(recipe("crf").with_values(values, "test"), folder, quiet=True)


def chunks(path, sentences=60):
    """Words mean nothing here: the middle column says what is a chunk."""
    rng = np.random.default_rng(5)
    rows = []
    for _ in range(sentences):
        for word in rng.choice(["ka", "lo", "mi", "nu"], 5):
            noun = rng.random() < 0.5
            rows.append(f"{word} {'NN' if noun else 'VB'} {'B-NP' if noun else 'O'}")
        rows.append("")
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def test_tagger_is_trained_saved_and_predicts_plain_text(tmp_path, monkeypatch):
    outcome = trained(conllu(tmp_path / "a.conllu"), tmp_path / "run")
    assert outcome.figures["dev"]["upos"].value == 1.0
    assert outcome.record["parameters"] > 100
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)  # answers come without the library
    loaded = weft.load(tmp_path / "run")
    (answer, empty) = loaded(["The dog sees the bee.", " "])
    assert answer.value == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert [part[:2] for part in answer.parts][1] == (4, 7)
    assert 0.5 < answer.score <= 1
    assert (empty.value, empty.coverage) == ((), 0.0)
    assert len((tmp_path / "run/model/golden.jsonl").read_text("utf-8").splitlines()) == 5


def test_spans_keep_to_the_scheme(tmp_path):
    outcome = trained(columns(tmp_path / "a.conll"), tmp_path / "run")
    assert outcome.figures["dev"]["f1"].value == 1.0
    (answer,) = outcome.predictor(["Bo Lee lives in Rome."])
    found = [(span["label"], span["start"], span["end"], span["text"]) for span in answer.value]
    assert found == [("PER", 0, 6, "Bo Lee"), ("LOC", 16, 20, "Rome")]
    hasty = trained(tmp_path / "a.conll", tmp_path / "hasty", **{"classic.iterations": 1}).predictor
    for one in hasty.engine.predict(["Rome Lee in in Ada . Fox Fox", "Fox", "Lee . Lee"]).scores:
        tags = [hasty.space.name(0, int(number)) for number in one.table[:, 0]]
        assert find_fault(tags, hasty.space.scheme) is None


def test_training_logs_columns_and_iterations(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.run.classic.MAX_SILENT_SECONDS", 0)
    few = {"classic.iterations": 2, "classic.columns": ["pos"]}
    trained(chunks(tmp_path / "a.conll"), tmp_path / "run", **few)
    log = (tmp_path / "run" / "log.txt").read_text("utf-8").splitlines()
    assert log[0] == (
        "words: column 0; tags: column 2 (NP, IOB2); ignored: 1 (columns count from 0)"
    )
    assert "features: the words and the columns 'pos'" in log
    log = [line for line in log if ": iteration" in line]
    assert log[0].startswith("25%  pos: iteration 1, loss ")
    assert log[3].startswith("100%  tag: iteration 2, loss ")


def test_several_columns_have_a_chain_each(tmp_path):
    outcome = trained(
        conllu(tmp_path / "a.conllu"), tmp_path / "run", **{"task.columns": ["upos", "feats"]}
    )
    assert outcome.figures["dev"]["all"].value == 1.0
    loaded = weft.load(tmp_path / "run")
    assert loaded(["The cow hears the ant."])[0].value[2] == ["VERB", "Tense=Pres"]
    assert [len(chain.labels) for chain in loaded.engine.part.chains] == [4, 3]


@pytest.mark.parametrize(("column", "kept"), [("pos", "pos"), ("1", "pos"), ("*", "pos")])
def test_named_columns_are_features_and_are_found_where_they_are_missing(tmp_path, column, kept):
    outcome = trained(
        chunks(tmp_path / "a.conll"), tmp_path / "run", **{"classic.columns": [column]}
    )
    assert outcome.figures["dev"]["f1"].value == 1.0
    part = weft.load(tmp_path / "run").engine.part
    assert part.columns == (kept,)
    assert f"columns '{kept}'" in (tmp_path / "run/log.txt").read_text("utf-8")
    words = trained(tmp_path / "a.conll", tmp_path / "words")  # by default, the words alone
    assert "features: the words (" in (tmp_path / "words/log.txt").read_text("utf-8")
    assert words.figures["dev"]["f1"].value < 0.9
    # Where the file has the column it is believed; in plain text its own chain says what it is.
    (example, *_) = read(tmp_path / "a.conll")
    (plain,) = part.predict([example.text])
    tags = part.before[0].predict([features([(word,) for word in example.words])])[0]
    believed = _example(example, tags, kept)
    np.testing.assert_array_equal(plain.table, part.predict([believed])[0].table)
    given = _example(example, ["NN"] * 5, kept)
    (told,) = part.predict([given])
    space = outcome.predictor.space
    assert {space.name(0, int(number))[1:] for number in told.table[:, 0]} == {"-NP"}


def _example(example, tags, name):
    return replace(example, label=WordAnnotations({name: tuple(tags)}, name))


def test_files_that_lack_the_column_are_measured_all_the_same(tmp_path):
    outcome = trained(
        chunks(tmp_path / "a.conll"), tmp_path / "run", **{"classic.columns": ["pos"]}
    )
    rows = [line.split() for line in (tmp_path / "a.conll").read_text("utf-8").splitlines()]
    bare = "\n".join(f"{row[0]} {row[2]}" if row else "" for row in rows)
    (tmp_path / "b.conll").write_text(bare + "\n", "utf-8")
    assert evaluate(outcome.predictor, read(tmp_path / "b.conll")).n == 60


def sentence(**more):
    return Example(
        "a b",
        WordAnnotations({"tag": ("X", "Y"), "0": ("a", "b"), **more}, "tag"),
        words=("a", "b"),
    )


def test_every_other_column_means_those_with_few_values():
    many = [sentence(**{"1": (f"v{i}", "w"), "2": ("p", "q"), "3": ("X", "Y")}) for i in range(200)]
    assert len({e.label.columns["1"][0] for e in many}) > MAX_COLUMN_VALUES
    space = Tag().space(many)
    assert _choose_columns(["*"], many, space) == ("2",)
    assert _choose_columns(["1", "*"], many, space) == ("1", "2")
    assert _choose_columns([], many, space) == ()
    treebank = [
        Example("a", WordAnnotations({"upos": ("X",), "xpos": ("Y",)}, "upos"), words=("a",))
    ]
    assert _choose_columns(["*"], treebank, Tag().space(treebank)) == ()


def test_messages(tmp_path):
    file = conllu(tmp_path / "a.conllu")
    with pytest.raises(UserError, match=r"'upos' is the target.*classic.columns"):
        trained(file, tmp_path / "a", **{"classic.columns": ["upos"]})
    with pytest.raises(UserError, match=r"column 'xpso'.*'xpos'"):
        trained(file, tmp_path / "b", **{"classic.columns": ["xpso"]})
    with pytest.raises(UserError, match="l2 is -1"):
        trained(file, tmp_path / "c", **{"classic.l2": -1.0})
    other = recipe("tfidf").with_values({"data.train": str(file), "task.kind": "tag"}, "t")
    with pytest.raises(UserError, match=r"'tfidf' answers about whole texts.*--recipe crf"):
        weft.train(other, tmp_path / "d", quiet=True)
    (tmp_path / "a.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\n" * 9, "utf-8")
    with pytest.raises(UserError, match=r"'crf' tags words\. Set task.kind to 'tag'"):
        trained(tmp_path / "a.tsv", tmp_path / "e", **{"task": {"kind": "classify"}})


def test_the_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pycrfsuite", None)
    with pytest.raises(UserError, match=r"python-crfsuite.*pip install 'weft\[crf\]'"):
        trained(conllu(tmp_path / "a.conllu"), tmp_path / "run")


def test_damaged_model_folder_raises_user_error(tmp_path):
    predictor = trained(columns(tmp_path / "a.conll"), tmp_path / "run").predictor
    with pytest.raises(UserError, match="no vectors"):
        predictor.embed(["a"])
    settings = {"kind": "crf", "iterations": 30}
    model = tmp_path / "run" / "model"
    for name, content, told in (
        ("columns.json", "{", "columns.json: incomplete 'crf' model"),
        ("columns.json", json.dumps({"features": [], "tags": [[0, 1]]}), "does not match"),
        ("columns.json", None, "missing"),
        ("tags-0.safetensors", None, "tags-0.safetensors.*missing"),
    ):
        folder = tmp_path / "copy"
        shutil.copytree(model, folder)
        (folder / name).unlink()
        if content is not None:
            (folder / name).write_text(content, "utf-8")
        with pytest.raises(UserError, match=told):
            Tagger.load(folder, settings)
        shutil.rmtree(folder)


def test_paths_and_probabilities_come_from_one_reading(tmp_path):
    part = trained(columns(tmp_path / "a.conll"), tmp_path / "run").predictor.engine.part
    chain: LinearCRF = part.chains[0]
    asked = [[["shape=Xx", "capital"], ["shape=xx"]], [], [["capital"]]]
    for (path, shares), tags, chances in zip(
        chain.decode(asked), chain.predict(asked), chain.marginals(asked), strict=True
    ):
        assert [chain.labels[label] for label in path] == tags
        np.testing.assert_array_equal(shares, chances[np.arange(len(path)), path])
