"""The tokenizer of answers is trained in a step of its own, before the label space is learned."""

import pytest

from weft import registry
from weft.errors import UserError
from weft.run.target_tokenizer import learn_space, train_target_tokenizer
from weft.tasks.language import LanguageModelling
from weft.tasks.seq2seq import Seq2Seq
from weft.text.example import Example

WORD = {"kind": "word", "lowercase": False}
PAIRS = [Example("a cat", "eine Katze"), Example("a dog", "ein Hund")]


def task(kind, tokenizer=WORD, **settings):
    return registry.build("task", {"kind": kind, **settings}, tokenizer=tokenizer)


def test_a_seq2seq_tokenizer_learns_targets_and_sources_only_if_shared():
    alone = train_target_tokenizer(task("seq2seq"), PAIRS).vocabulary
    assert {"eine", "Hund"} <= set(alone)
    assert "cat" not in alone
    shared = train_target_tokenizer(task("seq2seq", shared=True), PAIRS).vocabulary
    assert {"eine", "Hund", "cat"} <= set(shared)


def test_a_space_takes_the_tokenizer_and_trains_none(monkeypatch):
    other = train_target_tokenizer(task("seq2seq"), [Example("x", "y")])
    monkeypatch.setattr(registry, "build", None)  # nothing can be trained any more
    for built in (Seq2Seq(tokenizer=WORD), LanguageModelling(tokenizer=WORD)):
        space = built.text_space(PAIRS, other)
        assert space.tokenizer is other


def test_a_saved_tokenizer_is_loaded_and_the_texts_are_not_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    train_target_tokenizer(task("language"), PAIRS).save(path)

    def refuse():
        pytest.fail("the texts were read")
        yield

    space = learn_space(task("language", {**WORD, "path": str(path)}), refuse)
    assert "cat" in space.tokenizer.vocabulary


def test_only_the_first_reading_is_watched():
    readings, watched = [], []

    def examples():
        readings.append(1)
        return iter(PAIRS)

    def watch(rows):
        watched.append(1)
        return rows

    learn_space(task("seq2seq"), examples, watch)
    assert (len(readings), len(watched)) == (2, 1)
    learn_space(task("classify"), lambda: iter(PAIRS), watch)
    assert len(watched) == 2


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([Example("a", file="a.en"), Example("b", file="a.en")], "no text has a target"),
        ([*PAIRS, Example("a", file="a.tsv", line=4)], "a.tsv:4: no target text"),
    ],
)
def test_missing_targets_are_found_while_the_tokenizer_is_trained(examples, message):
    with pytest.raises(UserError, match=message):
        learn_space(task("seq2seq"), lambda: iter(examples))


@pytest.mark.parametrize("kind", ["word", "file"])
def test_a_masked_lm_needs_a_mask_token(kind, tmp_path):
    section = WORD
    if kind == "file":
        path = tmp_path / "tokenizer.json"
        train_target_tokenizer(task("language"), PAIRS).save(path)
        section = {**WORD, "path": str(path)}
    name = "The tokenizer 'word'" if kind == "word" else "this tokenizer"
    with pytest.raises(UserError, match=f"{name} has neither <mask> nor"):
        learn_space(task("masked", section), lambda: iter(PAIRS))
