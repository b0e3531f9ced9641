"""Texts that models write: against plain loops, against likelihoods, and under every rule."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.data_to_text_runs import oov_word_pairs, restaurants
from tests.fixtures.data_to_text_runs import trained as informed
from tests.fixtures.ngram_models import file, sentences
from tests.fixtures.ngram_models import trained as counted
from tests.fixtures.seq2seq_runs import trained as paired
from weft.batch import Padded
from weft.config import recipe
from weft.decode.search.allowed_phrases import AllowedPhrases
from weft.errors import UserError
from weft.predict.generate import Generator, generate
from weft.predict.generation.torch_search import TorchSearch
from weft.tokens.streaming_decoder import REPLACEMENT

SMALL = {
    "tokenizer": {"kind": "word"}, "train.epochs": 1, "train.batch_size": 5, "train.patience": 0,
    "train.threads": 1,
}  # fmt: skip
SHAPES = {
    "gpt": {
        "decoder.hidden": 16, "decoder.heads": 2, "decoder.layers": 1, "decoder.max_positions": 11,
        "task.window": 7,
    },
    "lstm-lm": {"decoder.width": 13, "decoder.hidden": 13, "decoder.layers": 1, "task.window": 7},
    "nnlm": {"decoder.width": 7, "decoder.hidden": 11, "task.window": 7},
    "masked-bilstm": {"decoder.width": 7, "decoder.hidden": 11, "task.window": 7},
}  # fmt: skip


def neural(name, folder, **changes):
    data = {"data.train": str(file(folder / "train.txt", sentences()))}
    config = recipe(name).with_values({**SMALL, **SHAPES[name], **data, **changes}, "test")
    return weft.train(config, folder / "run", quiet=True, device="cpu").predictor


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A language model of every kind, and one that answers."""
    made = {}
    for name in SHAPES:
        made[name] = neural(name, tmp_path_factory.mktemp(name))
    made["kneser-ney"] = counted("kneser-ney", tmp_path_factory.mktemp("kn")).predictor
    values = {"tokenizer": {"kind": "bpe", "vocab_size": 61}, "classic.order": 4}
    made["pieces"] = counted("kneser-ney", tmp_path_factory.mktemp("bpe"), **values).predictor
    values = {"tokenizer": {"kind": "character"}, "task.lines": False}
    made["letters"] = counted("kneser-ney", tmp_path_factory.mktemp("letters"), **values).predictor
    values = {
        "tokenizer": {"kind": "bpe", "vocab_size": 284, "byte_level": True},
        "data.dev_fraction": 0.0,
    }
    texts = [f"ab {chr(0x1F600 + i)}{chr(0xE0 + i)}" for i in range(47)]
    folder = tmp_path_factory.mktemp("bytes")
    made["bytes"] = counted("kneser-ney", folder, texts, **values).predictor
    folder = tmp_path_factory.mktemp("pairs")
    made["seq2seq"] = paired("seq2seq-attention", folder, **{"train.epochs": 5}).predictor
    made["turned"] = paired(
        "seq2seq-transformer", tmp_path_factory.mktemp("turned"), **{"train.epochs": 1}
    ).predictor
    return made


CAUSAL = ("kneser-ney", "pieces", "gpt", "lstm-lm", "nnlm")


@pytest.mark.parametrize("name", CAUSAL)
@pytest.mark.parametrize("prompt", ["", "the old dog"])
def test_probabilities_are_those_of_the_text(models, name, prompt):
    settings = {"method": "sample", "max_length": 5, "seed": 3}  # what gpt sees at once
    ((one,),) = generate(models[name], prompt, **settings)
    (found,) = models[name].engine.likelihoods([one.whole])
    size = len(one.tokens)
    assert size >= 1
    if one.ended:
        assert found.table[-size:, 0].tolist() == [token.id for token in one.tokens]
        wanted = found.probs[-size:, 0]
    else:
        wanted = found.probs[-size - 1 : -1, 0]  # without the end that did not come
    assert np.allclose([token.probability for token in one.tokens], wanted, rtol=1e-4)
    assert one.text == "".join(token.text for token in one.tokens)
    assert one.whole.startswith(prompt)


def test_greedy_is_the_likeliest_word_at_every_step(models):
    predictor = models["kneser-ney"]
    writer = Generator(predictor)
    model = predictor.engine.part.model
    ids = [model.marks.bos, *writer.tokenizer.encode_ids(["the old"])[0].tolist()]
    for t in range(7):
        scores = model(Padded.from_rows([ids]))[0, -1]
        scores[1] = -torch.inf  # unknown words are not written
        if t < 6:
            scores[model.marks.eos] = -torch.inf
        ids.append(int(scores.argmax()))
    ((one,),) = generate(predictor, "the old", method="greedy", max_length=7, min_length=7)
    assert [token.id for token in one.tokens] == ids[3:]


@pytest.mark.parametrize("name", ["seq2seq", "turned"])
def test_answers_are_those_of_predict(models, name):
    texts = ["a b c", "e", "d d d d", "b a"]
    answers = models[name](texts)
    for answer, (one,) in zip(answers, generate(models[name], texts), strict=True):
        assert one.text == answer.value
        assert np.allclose([token.probability for token in one.tokens], answer.scores, atol=1e-4)


def test_copied_words_are_written(tmp_path):
    predictor = informed("seq2seq-copy", tmp_path, oov_word_pairs(tmp_path, 300)).predictor
    texts = ["zuzaza likes vivovu", "bofomo likes likes"]
    wanted = [answer.value for answer in predictor(texts)]
    assert "vivovu" in wanted[0]
    assert [one.text for (one,) in generate(predictor, texts)] == wanted
    assert "vivovu" in "".join(token.text for token in generate(predictor, texts)[0][0].tokens)
    ((one,),) = generate(predictor, texts[0], only=["it", "is"], max_length=5, min_length=3)
    assert set(one.text.split()) <= {"it", "is"}


def test_records_are_opened(tmp_path):
    values = {**restaurants(tmp_path), "task.delexicalise": ["name"], "train.epochs": 3}
    predictor = informed("seq2seq-records", tmp_path, values).predictor
    texts = ["food[tea], name[Zork Inn]", '{"name": "Bo", "food": "pie"}']
    wanted = [answer.value for answer in predictor(texts)]
    assert "Zork Inn" in wanted[0]
    assert [one.text for (one,) in generate(predictor, texts)] == wanted
    with pytest.raises(UserError, match="Prompt 2: unknown slot 'drink'"):
        generate(predictor, [texts[0], "drink[tea]"])


@pytest.mark.parametrize("name", ["kneser-ney", "gpt", "seq2seq"])
def test_a_stream_gives_the_same_token_by_token(models, name):
    prompt = "a b" if name == "seq2seq" else "the old"
    writer = Generator(models[name])
    settings = writer.search_settings(
        {"method": "sample", "max_length": 9, "seed": 5, "num_return": 1}
    )
    ((whole,),) = writer.write([prompt], settings)
    pieces = list(writer.stream(prompt, settings))
    assert [piece.id for piece in pieces] == [token.id for token in whole.tokens]
    assert [piece.text for piece in pieces] == [token.text for token in whole.tokens]
    assert np.allclose(
        [piece.probability for piece in pieces], [token.probability for token in whole.tokens]
    )


def test_characters_are_whole_wherever_the_limit_falls(models):
    writer, waited = Generator(models["bytes"]), 0
    for seed in range(31):
        settings = writer.search_settings({"max_length": 7, "seed": seed})
        ((one,),) = writer.write(["ab "], settings)
        pieces = list(writer.stream("ab ", settings))
        assert [piece.text for piece in pieces] == [token.text for token in one.tokens]
        ids = [*writer.tokenizer.encode_ids(["ab "])[0], *(token.id for token in one.tokens)]
        whole = writer.tokenizer.decode(id for id in ids if id < len(writer.tokenizer))
        assert one.whole == whole
        assert REPLACEMENT in whole or not any(REPLACEMENT in piece.text for piece in pieces)
        waited += sum(not piece.text for piece in pieces[:-1])
    assert waited > 31


@pytest.mark.parametrize("name", ["kneser-ney", "gpt"])
def test_neighbours_change_nothing_and_order_is_kept(models, name, monkeypatch):
    monkeypatch.setattr("weft.predict.generate.MAX_PROMPTS", 2)
    prompts = ["the old dog", "", "fish", "cat and", "the", "eats old fish"]
    settings = {"method": "sample", "max_length": 5, "seed": 11}
    writer = Generator(models[name])
    together = writer.write(prompts, writer.search_settings(settings))
    assert [texts[0].prompt for texts in together] == prompts
    for i, prompt in enumerate(prompts):
        (alone,) = writer.write([prompt], writer.search_settings(settings), first=i)
        assert alone[0].text == together[i][0].text
    assert len({texts[0].text for texts in together}) > 3


def test_many_texts_of_a_prompt(models):
    (samples,) = generate(models["kneser-ney"], "the", method="sample", num_samples=5, seed=2)
    assert len(samples) == 5
    assert len({one.text for one in samples}) > 1
    (best,) = generate(models["seq2seq"], "a b c", method="beam", num_beams=4, num_return=3)
    assert len(best) == 3
    assert best[0].score >= best[1].score >= best[2].score
    assert best[0].whole == "a b c" + best[0].text


def test_a_long_text_slides_over_what_is_seen(models):
    decoder = models["gpt"].engine.model.head.decoder
    writer = Generator(models["gpt"])
    assert writer.search.limit == 7  # of the window, as nothing else was learned
    ((one,),) = generate(models["gpt"], "the old", method="sample", max_length=31, min_length=31)
    ids = [writer.bos, *writer.tokenizer.encode_ids(["the old"])[0].tolist()]
    begin = 0
    for token in one.tokens:
        if len(ids) - begin > 7:
            begin = len(ids) - 1 - 3  # half of it, and the newest
        with torch.no_grad():
            shares = decoder(Padded.from_rows([ids[begin:]]))[0, -1].softmax(-1)
        assert token.probability == pytest.approx(float(shares[token.id]), rel=1e-4)
        ids.append(token.id)


def test_a_prompt_in_one_go_is_its_steps(models):
    for name in ("gpt", "lstm-lm", "nnlm", "kneser-ney"):
        writer = Generator(models[name])
        continuing = TorchSearch(models[name]).continuing
        (known,) = writer.tokenizer.encode_ids(["the dog cat sees eats old fish"])
        ids = torch.tensor([known.tolist(), [4, 4, 6, 8, 9, 10, 2]])
        at_once = continuing.step(ids[:, 6], continuing.start(ids[:, :6]))[0]
        state = continuing.start(ids[:, :0])
        for t in range(7):
            scores, state = continuing.step(ids[:, t], state)
        assert torch.allclose(scores, at_once, atol=1e-5)


def test_running_text_never_ends(models):
    ((one,),) = generate(models["letters"], "the ol", method="sample", max_length=97, seed=4)
    assert not one.ended
    assert len(one.text) == 97
    assert "\n" in one.text
    assert set(one.text) <= set("".join(sentences())) | {"\n"}


def test_a_forced_beginning(models):
    for name, prompt in (("kneser-ney", "the"), ("seq2seq", "a b"), ("pieces", "")):
        prefix = "B A" if name == "seq2seq" else "old dog"
        ((one,),) = generate(models[name], prompt, prefix=prefix, max_length=4)
        assert one.text.strip().startswith(prefix)
        assert all(0 <= token.probability <= 1 for token in one.tokens)


@pytest.mark.parametrize("name", ["kneser-ney", "pieces", "letters"])
@pytest.mark.parametrize("method", ["sample", "beam"])
def test_only_some_words_are_written(models, name, method):
    only = ["fish", "old dog", "and"]
    for prompt in ("", "the cat"):
        (found,) = generate(
            models[name], prompt, only=only, method=method, max_length=29, min_length=7,
            **({"num_samples": 3, "seed": 1} if method == "sample" else {}),
        )  # fmt: skip
        for one in found:
            text = f" {one.text.strip()}"
            assert prompt == "" or one.text.startswith(" ")
            while text:  # the last one may be cut off by the limit
                fitting = [f" {w}" for w in only if text.startswith(f" {w}")]
                cut = not one.ended and any(f" {w}".startswith(text) for w in only)
                assert fitting or cut, one.text
                text = text[len(fitting[0]) :] if fitting else ""


def test_entries_that_begin_alike_and_forced_tokens():
    rule = AllowedPhrases([[4], [4, 5, 6]], [[7, 4], [8]], size=11, eos=3, forced=[1, 0])

    def after(*ids, row=1):
        (mask,) = rule(torch.tensor([ids], dtype=torch.long).view(1, -1), torch.tensor([row]))
        return set(mask.nonzero()[:, 0].tolist())

    assert after() == {4}
    assert after(4) == {3, 5, 7, 8}  # it may be whole, or the longer one
    assert after(4, 5) == {6}
    assert after(4, 7) == {4}
    assert after(4, 5, 6, 8) == {3, 7, 8}
    assert after(row=0) == set(range(11))  # what is forced is free
    assert after(9, row=0) == {4}
    assert after(9, 4, row=0) == {3, 5, 7, 8}


def test_repetition_is_kept_out(models):
    ((one,),) = generate(
        models["kneser-ney"],
        "the",
        method="beam",
        max_length=29,
        min_length=29,
        no_repeat_ngram_size=2,
        num_beams=3,
    )
    pairs = list(pairwise(one.text.split()))
    assert len(pairs) == len(set(pairs)) > 20


def test_coverage_needs_attention(models):
    ((with_it,),) = generate(models["turned"], "a b c", coverage_penalty=0.5, method="beam")
    ((without,),) = generate(models["turned"], "a b c", method="beam")
    assert with_it.score < without.score  # a penalty below zero
    with pytest.raises(UserError, match="this decoder has no attention"):
        generate(models["kneser-ney"], "the", coverage_penalty=0.5, method="beam")


def test_unknown_words_and_marks_are_not_written(models):
    for name in ("gpt", "seq2seq"):
        prompt = "the zebra" if name == "gpt" else "a b"
        (found,) = generate(models[name], prompt, method="sample", num_samples=97, max_length=5)
        ids = {token.id for one in found for token in one.tokens}
        assert not ids & {0, 1}
        assert not any("<" in one.text for one in found)


def test_the_settings_of_the_model_are_the_usual_ones(models):
    writer = Generator(models["seq2seq"])
    assert (writer.search_settings({}).num_beams, writer.search_settings({}).max_length) == (2, 12)
    assert writer.search_settings({"max_length": 5}).max_length == 5
    assert Generator(models["kneser-ney"]).search_settings({}).method == "sample"


def test_a_folder_will_do(tmp_path):
    counted("kneser-ney", tmp_path)
    ((one,),) = weft.generate(tmp_path / "run", "the", max_length=3, method="greedy")
    assert one.prompt == "the"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("masked-bilstm", {}, "is bidirectional.* kneser-ney, lstm-lm, gpt"),
        ("gpt", {"prompts": "the " * 8}, "has 8 tokens; this model reads at most 6"),
        ("gpt", {"prompts": ["a", "the " * 8]}, "Prompt 2 has 8 tokens"),
        ("seq2seq", {"prompts": "  "}, "The prompt is empty; this model needs a source text"),
        (
            "kneser-ney",
            {"only": ["fish", "fisch"]},
            "'fisch' is not in the vocabulary.* Did you mean 'fish'",
        ),
        ("kneser-ney", {"prefix": "zebra"}, "prefix: 'zebra' is not in the vocabulary"),
        ("kneser-ney", {"temperature": 0.0}, "use method = 'greedy'"),
        ("kneser-ney", {"max_lenght": 3}, "Did you mean 'max_length'"),
        (
            "kneser-ney",
            {"only": ["fish"], "no_repeat_ngram_size": 1, "min_length": 5},
            "exclude every token",
        ),
    ],
)
def test_invalid_options_raise_user_error(models, name, given, message):
    with pytest.raises(UserError, match=message):
        generate(models[name], given.pop("prompts", "the"), **given)
