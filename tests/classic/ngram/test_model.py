"""N-gram models through the spine: from files to perplexity, equal to the functions below them."""

import json
import math

import numpy as np
import pytest

from tests.fixtures.ngram_models import WORDS, sentences, trained
from weft.classic.ngram.counts import Marks, count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.classic.ngram.kneser_ney import kneser_ney
from weft.classic.ngram.model import KneserNey
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.text.example import Example

NUMBERS = {word: 4 + i for i, word in enumerate(WORDS)}  # PAD, UNK, BOS and EOS come first


def numbered(texts):
    return [[NUMBERS.get(word, 1) for word in text.split()] for text in texts]


def told(found):
    """What both halves of the engine say of texts, as logarithms."""
    return [np.log(one.probs[:, 0]) for one in found]


@pytest.mark.parametrize("name", ["ngram", "kneser-ney"])
def test_the_recipes_equal_the_functions(tmp_path, name):
    out = trained(name, tmp_path, **{"classic.order": 4})
    counts = count(numbered(sentences()), 13, 4)
    held = numbered(sentences(23, 6))
    model = (
        kneser_ney(counts).model
        if name == "kneser-ney"
        else estimate_interpolated(counts, held, buckets=True).model
    )
    texts = ["the old dog sees the cat", "fish fish fish", "dog and zebra ."]
    own = told(out.predictor.engine.likelihoods(texts))
    for mine, right in zip(own, model.sentence_scores(numbered(texts)), strict=True):
        assert np.allclose(mine, right, atol=1e-5)
    figure = out.figures["dev"]["token_perplexity"]
    assert math.isclose(figure.value, model.perplexity(held), rel_tol=1e-4)
    assert out.predictor.parameters == len(model.words)


def test_saved_model_predicts_the_same(tmp_path):
    out = trained("kneser-ney", tmp_path, **{"classic.prune": [0, 0, 1]})
    again = load(tmp_path / "run")  # its recorded answers are asked again
    texts = ["the old dog", "", "eels"]
    answers = again(texts, parts=True)
    assert [one.value for one in answers] == [one.value for one in out.predictor(texts)]
    assert [part[:2] for part in answers[0].parts] == [(0, 3), (4, 7), (8, 11), (11, 11)]
    assert answers[0].parts[1][2] == pytest.approx(answers[0].scores[1])
    assert again.config["generate"]["method"] == "sample"
    assert (tmp_path / "run/model/weights.safetensors").stat().st_size < 100_000


def test_measuring_a_file_is_the_same_as_asking_for_its_texts(tmp_path):
    predictor = trained("kneser-ney", tmp_path).predictor
    texts = sentences(31, 7)
    whole = evaluate(predictor, [Example(text) for text in texts]).compute(resamples=0)
    nats = -np.concatenate(told(predictor.engine.likelihoods(texts)))
    assert whole["token_perplexity"].value == pytest.approx(np.exp(nats.mean()))
    assert whole["perplexity"].n == 31


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"kind": "character"},
        {"kind": "bpe", "vocab_size": 61},
        {"kind": "unigram", "vocab_size": 53},
    ],
)
def test_any_tokens_will_do(tmp_path, tokenizer):
    out = trained("kneser-ney", tmp_path, tokenizer=tokenizer)
    assert 1 < out.figures["dev"]["perplexity"].value < 20
    (found,) = out.predictor.engine.likelihoods(["the old <eos> <pad> dog"])
    assert np.isfinite(np.log(found.probs)).all()  # text that spells a mark is text
    bits = out.figures["dev"]["bits_per_character"].value
    assert 0.2 < bits < 1.5


def test_running_text_continues_across_lines(tmp_path):
    values = {"task.lines": False, "tokenizer": {"kind": "character"}, "classic.order": 4}
    out = trained("kneser-ney", tmp_path, **values)
    engine, space = out.predictor.engine, out.predictor.space
    text = "".join(f"{text}\n" for text in sentences(11, 8))
    lines = text.splitlines(keepends=True)
    whole = np.concatenate(told(engine.likelihoods([text], running=True)))
    parts = told(engine.likelihoods(lines, running=True))
    assert [len(part) for part in parts] == [len(line) for line in lines]  # no end is charged
    assert np.allclose(np.concatenate(parts), whole)
    alone = told(engine.likelihoods(lines))
    assert np.allclose(alone[0], parts[0])  # what stands before the first is a line break
    assert np.allclose(alone[3][3:], parts[3][3:])  # four letters back, nothing else is seen
    # The same by the functions: all of the training file is one sentence.
    (train,) = space.tokenizer.encode_ids(["".join(f"{text}\n" for text in sentences())])
    size, first, last = space.size
    model = kneser_ney(count([train], size + 1, 4, Marks(0, 1, size, last))).model
    (ids,) = space.tokenizer.encode_ids([text])
    right = model.sentence_scores([[first, *ids]])[0][1:-1]
    assert np.allclose(whole, right, atol=1e-5)


def test_texts_may_come_in_many_pieces(tmp_path, monkeypatch):
    values = {"task.lines": False, "tokenizer": {"kind": "character"}}
    predictor = trained("kneser-ney", tmp_path, **values).predictor
    lines = [f"{text}\n" for text in sentences(11, 8)]
    once = told(predictor.engine.likelihoods(iter(lines), running=True))
    monkeypatch.setattr("weft.classic.ngram.model.CHUNK_TEXTS", 2)
    for mine, right in zip(
        told(predictor.engine.likelihoods(iter(lines), running=True)), once, strict=True
    ):
        assert np.allclose(mine, right)


def test_a_mark_that_a_foreign_tokenizer_finds_in_a_text_is_an_unknown_word(tmp_path):
    space = trained("kneser-ney", tmp_path).predictor.space
    marked = np.array([4, space.size[2], 5, 0])
    parts = [KneserNey(order=2), KneserNey(order=2)]
    for part, row in zip(parts, (marked, np.array([4, 1, 5, 1])), strict=True):
        part.fit_ids(iter([row] * 3), iter([]), space)
    assert np.array_equal(parts[0].model.scores, parts[1].model.scores)


def test_a_word_that_no_file_has_is_possible(tmp_path):
    engine = trained("ngram", tmp_path).predictor.engine
    (found,) = engine.likelihoods(["the zebra"])
    assert 0 < found.probs[1, 0] < 0.05
    assert found.table[1, 0] == 1


def test_texts_are_read_once_and_held_out_ones_only_where_they_are_needed(tmp_path):
    space = trained("kneser-ney", tmp_path).predictor.space
    part, read = KneserNey(order=3), []

    def rows():
        for ids in space.tokenizer.encode_ids(sentences()):
            read.append(len(ids))
            yield ids

    heard = []
    part.fit_ids(rows(), iter(rows()), space, watch=lambda progress: heard.append(progress) or True)
    assert len(read) == 97
    assert [one.share for one in heard] == [0, 0.5, 1]
    assert heard[-1].what == f"{part.parameters():,} n-grams"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "kneser-ney",
            {"task.kind": "classify"},
            r"\[classic\] stands alone; remove \[tokenizer\]",
        ),
        ("kneser-ney", {"classic": {"kind": "tfidf"}}, "'tfidf' is not a language model"),
        ("tfidf", {"classic": {"kind": "ngram"}}, r"language model. Set task.kind to 'language'"),
        ("kneser-ney", {"classic.order": 0}, "'order' should be 1 or more, got 0"),
        ("kneser-ney", {"classic.prune": [1]}, "single words cannot be left out"),
        ("kneser-ney", {"classic.ordr": 3}, "Did you mean 'order'"),
        ("kneser-ney", {"generate.method": "guess"}, "guess"),
        (
            "ngram",
            {"data.dev": "", "data.dev_fraction": 0.0},
            "no held-out text .* Pass --dev FILE",
        ),
        ("ngram", {"encoder.kind": "rnn"}, r"remove \[encoder\]"),
    ],
)
def test_incompatible_settings_raise_user_error(tmp_path, name, changes, message):
    labels = [f"{'good' if i % 2 else 'bad'}\t{text}" for i, text in enumerate(sentences())]
    texts = labels if name == "tfidf" else None
    if name == "tfidf":
        changes = {**changes, "data.dev": ""}
    with pytest.raises(UserError, match=message):
        trained(name, tmp_path, texts, **changes)


def test_mismatched_model_files_raise_user_error(tmp_path):
    trained("kneser-ney", tmp_path)
    (tmp_path / "other").mkdir()
    trained("kneser-ney", tmp_path / "other", ["one the three", "two one"] * 7)
    weights = tmp_path / "run/model/weights.safetensors"
    other = tmp_path / "other/run/model/weights.safetensors"
    other.write_bytes(weights.read_bytes())
    with pytest.raises(UserError, match=r"incomplete 'kneser-ney' model .*labels\.json"):
        load(tmp_path / "other/run")
    saved = json.loads((tmp_path / "run/model/model.json").read_text("utf-8"))
    assert saved["config"]["tokenizer"]["vocab_size"] == 30000
