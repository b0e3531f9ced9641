"""Attention: the pool's weights as they are, rollout by hand, and the maps of heads and layers."""

import numpy as np
import pytest
import torch

from tests.fixtures.networks import network
from weft.errors import UserError
from weft.explain import explain, faithfulness, methods
from weft.explain.attention import attention_maps, rollout
from weft.explain.token_level import (
    answer_sentences,
    attribute,
    make_request,
    measure_faithfulness,
)
from weft.text.example import PAIR_SEPARATOR

TEXT = "the film was good , the plot bad"


def weights(explanation):
    return [word.weight for word in explanation.words]


def test_the_weights_of_a_pool_are_given_as_they_are(trained):
    predictor = trained("bilstm-attention")
    (found,) = explain(predictor, [TEXT], method="attention")
    (answer,) = predictor([TEXT], parts=True)
    assert weights(found) == pytest.approx([weight for _, _, weight in answer.parts], abs=1e-6)
    assert sum(weights(found)) == pytest.approx(1)


def test_windows_count_equally(trained, limited):
    predictor = limited(trained("bilstm-attention"), 3, "windows")
    (found,) = explain(predictor, [TEXT], method="attention")
    assert len(found.words) == 8
    assert sum(weights(found)) == pytest.approx(1)


def test_rollout_is_the_product_of_mixed_layers():
    B, N, T, layers = 2, 3, 5, 3
    torch.manual_seed(0)
    given = [torch.rand(B, N, T, T).softmax(-1) for _ in range(layers)]
    found = rollout(given, torch.ones(B, T, dtype=torch.bool))
    for b in range(B):
        wanted = np.eye(T)
        for layer in given:
            mean = np.mean([layer[b, n].numpy() for n in range(N)], axis=0)
            mixed = mean + np.eye(T)
            wanted = (mixed / mixed.sum(1, keepdims=True)) @ wanted
        assert found[b].numpy() == pytest.approx(wanted, abs=1e-5)
    assert found.sum(2).numpy() == pytest.approx(np.ones((B, T)), abs=1e-5)


@pytest.mark.parametrize("pool", ["mean", "first", "last", "attention"])
@pytest.mark.parametrize("cls", [False, True])
def test_a_transformer_follows_the_flow_to_its_tokens(pool, cls, trained):
    predictor = trained("transformer", pool__kind=pool, encoder__cls=cls)
    alone = weights(explain(predictor, [TEXT], method="attention")[0])
    # A longer text beside it pads the row; that must not matter.
    company = explain(predictor, [TEXT, "good " * 13], method="attention")
    assert alone == pytest.approx(weights(company[0]), abs=1e-5)
    assert sum(alone) == pytest.approx(1)
    (maps,) = attention_maps(predictor, TEXT)
    flow = np.eye(len(maps.tokens))
    for layer in maps.weights.mean(1):
        flow = (0.5 * layer + 0.5 * np.eye(len(flow))) @ flow
    if pool in ("mean", "first", "last"):
        wanted = {"mean": flow.mean(0), "first": flow[0], "last": flow[-1]}[pool][int(cls) :]
        assert alone == pytest.approx((wanted / wanted.sum()).tolist(), abs=1e-5)


def test_heads_and_layers_have_a_map_each(trained):
    (maps,) = attention_maps(trained("transformer", encoder__cls=True), TEXT)
    assert maps.tokens == ("[CLS]", *TEXT.split())
    assert maps.weights.shape == (2, 4, 9, 9)
    assert maps.weights.sum(3) == pytest.approx(np.ones((2, 4, 9)), abs=1e-5)
    with pytest.raises(UserError, match="Only a model with a 'transformer' encoder"):
        attention_maps(trained("bag"), TEXT)


def test_only_models_that_attend_have_the_method(trained):
    assert "attention" in methods(trained("transformer"))
    assert "attention" in methods(trained("bag", pool__kind="attention"))
    assert "attention" not in methods(trained("cnn"))
    strided = trained("cnn", pool__kind="attention", encoder__stride=2)
    assert "attention" not in methods(strided)


# ---- networks that are pre-trained


def test_a_network_in_front_has_maps_with_what_stands_around_the_text():
    predictor = network()
    (maps,) = attention_maps(predictor, "The bank was steep")
    assert maps.tokens == ("<cls>", "The", "bank", "was", "steep", "<sep>")
    assert (maps.name, maps.second, maps.weights.shape) == ("bert", 0, (3, 2, 6, 6))
    assert maps.weights.sum(3) == pytest.approx(np.ones((3, 2, 6)), abs=1e-5)
    ((_, source),) = predictor.engine.batches(["The bank was steep"])
    with torch.no_grad():
        wanted = predictor.engine.model.embedders[0].attention_weights(source)
    assert maps.weights == pytest.approx(torch.cat(wanted).numpy(), abs=1e-6)
    short = maps.first(3)
    assert (len(short.tokens), short.weights.shape) == (3, (3, 2, 3, 3))


def test_gpt_looks_back_only():
    (maps,) = attention_maps(network(embedder="gpt"), "the bank was steep")
    assert maps.tokens == ("the", "bank", "was", "steep")
    assert np.triu(maps.weights, 1).max() == 0


@pytest.mark.parametrize("task", ["span", "pair-classify"])
def test_attention_map_marks_the_second_text(task):
    (maps,) = attention_maps(network(task, pair="joint"), ("a bank", "the river"))
    assert maps.tokens == ("<cls>", "a", "bank", "<sep>", "the", "river", "<sep>")
    assert maps.second == 4
    assert maps.first(4).second == 0


def test_two_texts_that_are_read_apart_have_a_map_each():
    first, second = attention_maps(
        network("pair-classify", pair="towers"), ("a bank", "the river was")
    )
    assert (first.name, second.name) == ("bert, first text", "bert, second text")
    assert first.tokens == ("<cls>", "a", "bank", "<sep>")
    assert second.tokens == ("<cls>", "the", "river", "was", "<sep>")
    assert second.weights.shape == (3, 2, 5, 5)


def test_hidden_words_are_shown_as_such():
    (maps,) = attention_maps(network("masked"), "the [MASK] of money")
    assert maps.tokens == ("<cls>", "the", "<mask>", "of", "money", "<sep>")


def test_words_are_shown_by_their_pieces():
    (maps,) = attention_maps(network("tag"), "the dogs")
    assert maps.tokens[:2] == ("<cls>", "the")
    assert len(maps.tokens) == maps.weights.shape[2] > 4  # "dogs" has several pieces


def test_a_transformer_behind_a_network_has_maps_of_its_own():
    behind = {"kind": "transformer", "hidden": 6, "heads": 3, "layers": 2, "cls": True}
    first, second = attention_maps(network(encoder=behind), "a bank")
    assert (first.name, first.weights.shape) == ("bert", (3, 2, 4, 4))
    assert (second.name, second.weights.shape) == ("transformer", (2, 3, 5, 5))
    assert second.tokens == ("[CLS]", *first.tokens)


def test_the_first_window_of_a_long_text_is_shown(limited):
    maps, *_ = attention_maps(limited(network(), 5, "windows"), "a bank lends money over the river")
    assert maps.tokens == ("<cls>", "a", "bank", "lends", "<sep>")
    assert maps.name == "bert, window 1 of 3"


def test_the_window_of_an_answer_is_shown(limited):
    predictor = limited(network("span", pair="joint"), 9, "windows")
    two = ("the dog", "the bank of the river was steep and a bank lends money")
    rows = list(predictor.engine.indexer.rows([two[0]], others=[two[1]]))
    (answer,) = predictor([two])
    ((start, end, _),) = answer.structure.spans
    holding = [i for i, row in enumerate(rows) if [start, end] in row.spans[row.second :].tolist()]
    assert min(holding) > 0  # not the first, which is shown otherwise
    (maps,) = attention_maps(predictor, two)
    assert maps.name == f"bert, window {holding[0] + 1} of {len(rows)}"
    assert two[1][start:end] in maps.tokens[maps.second :]


def test_a_network_is_followed_down_to_its_words():
    predictor = network()
    text = "the bank was steep"
    assert "attention" in methods(predictor)
    (found,) = explain(predictor, [text], method="attention")
    company, _ = explain(predictor, [text, "the river " * 4], method="attention")
    assert weights(found) == pytest.approx(weights(company), abs=1e-6)
    (maps,) = attention_maps(predictor, text)
    flow = np.eye(6)
    for layer in maps.weights.mean(1):
        flow = (0.5 * layer + 0.5 * np.eye(6)) @ flow
    wanted = flow[0][1:-1]  # [CLS] is what the pool reads; it and [SEP] are no words
    assert weights(found) == pytest.approx((wanted / wanted.sum()).tolist(), abs=1e-5)


def flows(maps):
    """After each layer of a network, how much of every step came from every step, by hand."""
    out = [np.eye(len(maps.tokens))]
    for layer in maps.weights.mean(1):
        out.append((0.5 * layer + 0.5 * np.eye(len(maps.tokens))) @ out[-1])
    return out


def unequal(predictor):
    """Shares of the layers of a network that are mixed, made unequal."""
    mix = predictor.engine.model.embedders[0].mix
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.3, -1.0, 2.0, 0.7]))
        mix.gamma.fill_(3.0)
    shares = mix.scores.softmax(0).tolist()
    assert max(shares) > 2 * min(shares)
    return shares


def test_layers_that_are_mixed_each_have_their_share():
    predictor, text = network(mix=True), "the bank was steep"
    assert "attention" in methods(predictor)
    shares = unequal(predictor)
    (found,) = explain(predictor, [text], method="attention")
    (maps,) = attention_maps(predictor, text)
    wanted = sum(share * flow for share, flow in zip(shares, flows(maps), strict=True))[0][1:-1]
    assert weights(found) == pytest.approx((wanted / wanted.sum()).tolist(), abs=1e-5)


@pytest.mark.parametrize("word", ["first", "last", "mean"])
@pytest.mark.parametrize("mix", [False, True])
def test_a_word_of_several_pieces_is_looked_at_by_all_of_them(word, mix):
    predictor = network("tag", subword_pooling=word, mix=mix)
    assert "attention" in methods(predictor)
    shares = unequal(predictor) if mix else [0, 0, 0, 1]
    ((example, answer),) = answer_sentences(predictor, ["the dogs lends money"])
    one = make_request(predictor, example, answer, word="dogs")
    found = attribute(one, "attention")
    (maps,) = attention_maps(predictor, example)
    flow = sum(share * flow for share, flow in zip(shares, flows(maps), strict=True))
    sizes = [len(ids) for ids in predictor.engine.indexer.tokenizer.encode_subtokens(example.words)]
    assert sizes[1] > 1
    ends = 1 + np.cumsum(sizes)  # behind [CLS]
    places = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    asked = {"first": places[1][:1], "last": places[1][-1:], "mean": places[1]}[word]
    row = flow[asked].mean(0)
    assert weights(found) == pytest.approx([row[place].sum() for place in places], abs=1e-5)
    assert sum(weights(found)) < 1  # [CLS] and [SEP] keep theirs
    assert np.isfinite(measure_faithfulness([one], [found]).gain.value)


def test_a_transformer_over_a_network_is_followed_through_both():
    behind = {"kind": "transformer", "hidden": 6, "heads": 3, "layers": 2, "cls": False}
    predictor = network("tag", encoder=behind)
    ((example, answer),) = answer_sentences(predictor, ["a bank lends"])
    found = attribute(make_request(predictor, example, answer, word="2"), "attention")
    first, second = attention_maps(predictor, example)
    words = flows(second)[-1]  # of words
    sizes = [len(ids) for ids in predictor.engine.indexer.tokenizer.encode_subtokens(example.words)]
    starts = 1 + np.cumsum([0, *sizes])
    inside = np.add.reduceat(flows(first)[-1], starts, axis=1)[:, :-1]  # (S, words)
    assert weights(found) == pytest.approx((words[1] @ inside[starts[:-1]]).tolist(), abs=1e-5)


# ---- two texts, and windows


def test_both_texts_of_one_row_are_looked_at():
    predictor = network("pair-classify", pair="joint")
    two = ("a bank", "the river was")
    assert "attention" in methods(predictor)
    assert "attention" not in methods(network("pair-classify", pair="towers"))
    (found,) = explain(predictor, [two], method="attention")
    (maps,) = attention_maps(predictor, two)
    wanted = flows(maps)[-1][0][[1, 2, 4, 5, 6]]  # without [CLS] and [SEP]
    words = [w for w in found.words if found.text[w.start : w.end] != PAIR_SEPARATOR.strip()]
    assert [found.text[w.start : w.end] for w in words] == ["a", "bank", "the", "river", "was"]
    shares = (wanted / wanted.sum()).tolist()
    assert [w.weight for w in words] == pytest.approx(shares, abs=1e-5)


LONG = "the bank of the river was steep and a bank lends money so the dog ran over the bank"


@pytest.mark.parametrize("pair", ["", "joint", "towers"])
@pytest.mark.parametrize("mix", [False, True])
def test_every_window_of_a_long_text_is_weighed_and_measured(pair, mix, limited):
    predictor = network("pair-classify" if pair else "classify", pair=pair, mix=mix)
    predictor = limited(predictor, 13, "windows")
    asked = ("a bank lends", LONG) if pair else LONG
    for method in methods(predictor):
        (found,) = explain(predictor, [asked], method=method)
        assert found.answer.coverage == 1
        own = [w for w in found.words if found.text[w.start : w.end] != PAIR_SEPARATOR.strip()]
        assert [found.text[w.start : w.end] for w in own] == [
            *(asked[0].split() if pair else ()),
            *LONG.split(),
        ]
        assert np.count_nonzero([w.weight for w in own]) == len(own), method
        measured = faithfulness(predictor, [found])
        assert measured.aopc.n == 1
        chances = measured.deletion
        assert chances[0] == pytest.approx(found.answer.score, abs=1e-6)
        assert chances[-1] != pytest.approx(chances[0], abs=1e-9)
