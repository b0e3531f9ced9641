"""Tagging from file to answer: CoNLL-U and column files, one column and several, spans."""

import json

import pytest

import weft
from tests.fixtures.tagged_files import columns, conllu, trained
from weft.config import recipe
from weft.errors import UserError
from weft.text.annotation.schemes import find_fault
from weft.text.read import read


def test_reading_gives_words_places_and_columns(tmp_path):
    (first, *_) = read(conllu(tmp_path / "a.conllu"))
    assert first.words[0] == "The"
    assert first.words[-1] == "."
    assert [first.text[a:b] for a, b in first.places] == list(first.words)
    assert first.label.main == "upos"
    assert first.label.columns["xpos"][0] == "XDET"
    assert (first.id, first.line) == ("s0", 1)


def test_a_column_file_is_its_words_with_spaces_between(tmp_path):
    (first, *_) = read(columns(tmp_path / "a.conll"))
    assert first.text == " ".join(first.words)
    assert [first.text[a:b] for a, b in first.places] == list(first.words)
    assert first.label.columns["tag"] == ("B-PER", "I-PER", "O", "O", "B-LOC", "O")


@pytest.mark.parametrize("name", ["tagger-bilstm", "tagger-bilstm-crf"])
def test_tags_are_learnt_saved_and_given_for_plain_text(name, tmp_path):
    outcome = trained(name, conllu(tmp_path / "a.conllu"), tmp_path / "run")
    assert outcome.figures["dev"]["upos"].value == 1.0
    loaded = weft.load(tmp_path / "run")
    (answer,) = loaded(["The dog sees the bee."])
    assert answer.value == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")
    assert [part[:2] for part in answer.parts][1] == (4, 7)
    assert 0.5 < answer.score <= 1
    assert loaded([""])[0].value == ()


@pytest.mark.parametrize("name", ["tagger-bilstm", "tagger-bilstm-crf"])
def test_spans_are_recognised_learnt_and_answered_with_characters(name, tmp_path):
    outcome = trained(name, columns(tmp_path / "a.conll"), tmp_path / "run")
    assert outcome.predictor.task.scheme == "IOB2"
    assert outcome.predictor.task.metric == "f1"
    assert outcome.figures["dev"]["f1"].value == 1.0
    (answer,) = weft.load(tmp_path / "run")(["Bo Lee lives in Rome."])
    found = [(span["label"], span["start"], span["end"], span["text"]) for span in answer.value]
    assert found == [("PER", 0, 6, "Bo Lee"), ("LOC", 16, 20, "Rome")]
    lines = (tmp_path / "run" / "predictions.jsonl").read_text("utf-8").splitlines()
    assert json.loads(lines[0])["label"]["tag"][0] == "B-PER"


def test_several_columns_are_learnt_by_one_model(tmp_path):
    outcome = trained(
        "tagger-bilstm", conllu(tmp_path / "a.conllu"), tmp_path / "run",
        **{"task.columns": ["upos", "xpos", "feats"]},
    )  # fmt: skip
    figures = outcome.figures["dev"]
    assert [figures[name].value for name in ("upos", "xpos", "feats", "all")] == [1.0] * 4
    (answer,) = outcome.predictor(["The cow hears the ant."])
    assert answer.value[2] == ["VERB", "XVERB", "Tense=Pres"]


def test_a_chain_never_gives_what_the_scheme_forbids(tmp_path):
    outcome = trained(
        "tagger-bilstm-crf", columns(tmp_path / "a.conll"), tmp_path / "run", **{"train.epochs": 1}
    )
    predictor = outcome.predictor
    scored = predictor.engine.predict(
        ["Rome Lee in in Ada . Fox Fox Rome lives", "Fox", "Lee . Lee"]
    )
    for found in scored.scores:
        tags = [predictor.space.name(0, int(number)) for number in found.table[:, 0]]
        assert find_fault(tags, "IOB2") is None


def test_a_tag_that_training_never_saw_is_wrong_and_no_error(tmp_path):
    outcome = trained("tagger-bilstm", conllu(tmp_path / "a.conllu"), tmp_path / "run")
    text = (tmp_path / "a.conllu").read_text("utf-8").replace("\tPUNCT\t", "\tSYM\t")
    (tmp_path / "b.conllu").write_text(text, "utf-8")
    from weft.predict.evaluate import evaluate

    measure = evaluate(outcome.predictor, read(tmp_path / "b.conllu"))
    assert measure.compute()["upos"].value == pytest.approx(5 / 6)
    assert measure.tagging.confusion("upos")["SYM", "PUNCT"] == 60


def test_long_sentences_are_read_in_stretches(tmp_path):
    outcome = trained(
        "tagger-bilstm", conllu(tmp_path / "a.conllu"), tmp_path / "run", **{"data.max_tokens": 4}
    )
    (answer,) = outcome.predictor(["The dog sees the bee."])
    assert answer.value == ("DET", "NOUN", "VERB", "DET", "NOUN", "PUNCT")


def test_untagged_file_raises_user_error(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\n" * 9, "utf-8")
    with pytest.raises(UserError, match=r"no tagged words. Give CoNLL-U"):
        trained("tagger-bilstm", tmp_path / "a.tsv", tmp_path / "run")
    with pytest.raises(UserError, match=r"[Uu]nknown column 'upso'.*upos"):
        trained(
            "tagger-bilstm", conllu(tmp_path / "a.conllu"), tmp_path / "run2",
            **{"task.columns": ["upso"]},
        )  # fmt: skip


def test_verbs_that_are_for_whole_texts_say_so(tmp_path):
    from weft.explain.method import explain

    file = conllu(tmp_path / "a.conllu")
    with pytest.raises(UserError, match=r"not one label of the text.*tagger-bilstm"):
        weft.train(recipe("bag").with_values({"data.train": str(file)}, "t"), tmp_path / "b")
    outcome = trained("tagger-bilstm", file, tmp_path / "run", **{"train.epochs": 1})
    with pytest.raises(UserError, match="takes models with an answer about a whole text"):
        explain(outcome.predictor, ["The dog sees the bee."])


def test_the_doctor_reads_tagged_words_as_texts(tmp_path):
    from tests.fixtures.command import ok

    found = json.loads(ok("check", conllu(tmp_path / "a.conllu"), "--json").out)
    assert "label" not in " ".join(finding["kind"] for finding in found["findings"])
    ok("check", tmp_path / "a.conllu", "--fix", tmp_path / "clean")
    first, clean = (next(read(tmp_path / name)) for name in ("a.conllu", "clean/a.conllu"))
    assert (clean.words, clean.label) == (first.words, first.label)
