"""Gradients: completeness, parity with captum and with arithmetic, windows, modes left as found."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from tests.fixtures.networks import network
from weft import config
from weft.explain import explain
from weft.explain.explanation import make_target
from weft.explain.gradients import (
    differentiable,
    integrate_gradients,
    mask_with_unknown,
    score_embedded,
)

NEURAL = [name for name in config.recipes() if "classic" not in config.recipe(name)]
TEXTS = ["the film was good, very good", "bad", "the plot of the dinner was bad 13 times over"]


def ends(predictor, texts, directions):
    """f at the texts and at unknown words, with f = scores · direction."""
    out = np.zeros((len(texts), 2))
    model = predictor.engine.model
    with torch.no_grad():
        for rows, source in predictor.engine.batches(texts):
            for k, given in enumerate((source, mask_with_unknown(source))):
                found = model(given).numpy()
                for row, line in zip(rows, found, strict=True):
                    out[row.text, k] += line @ directions[row.text]
    return out


@pytest.mark.parametrize("name", NEURAL)
def test_integrated_gradients_are_complete(name, trained):
    predictor = trained(name)
    found = explain(predictor, TEXTS, method="integrated-gradients", steps=200)
    directions = [make_target(predictor, e.target, e.answer).direction for e in found]
    reached = [sum(word.weight for word in e.words) for e in found]
    f = ends(predictor, TEXTS, directions)
    # A pool of maxima has kinks along the path, where quadrature gains one digit for ten times
    # the points; everywhere else it is as exact as the arithmetic.
    kinks = "max" in predictor.engine.model.parts["pool"]["kind"]
    near = (1e-2 if kinks else 1e-5) * np.abs(f).max() + 1e-6
    assert np.abs(np.array(reached) - (f[:, 0] - f[:, 1])).max() < near


@pytest.mark.parametrize("kind", ["character-cnn", "character-lstm", "ngrams"])
def test_embedders_that_look_inside_words_are_explained_by_word(kind, trained):
    predictor = trained("bag", embedder={"kind": kind, "width": 7})
    found = explain(predictor, TEXTS)
    directions = [make_target(predictor, e.target, e.answer).direction for e in found]
    f = ends(predictor, TEXTS, directions)
    reached = [sum(word.weight for word in e.words) for e in found]
    assert reached == pytest.approx(f[:, 0] - f[:, 1], rel=1e-4, abs=1e-6)
    assert max(reached) > 1e-3  # something was explained at all


@pytest.mark.parametrize("name", ["cnn", "bilstm-attention", "transformer", "gru"])
def test_both_agree_with_captum(name, trained):
    captum = pytest.importorskip("captum.attr")
    model = trained(name).engine.model
    _, source = next(trained(name).engine.batches(TEXTS))
    with torch.no_grad():
        embedded = model.embed(source)
    directions = torch.tensor([[1.0, -1.0]]).expand(len(TEXTS), -1)

    def score(data):
        # captum stacks the points of the path on the batch axis.
        times = len(data) // len(TEXTS)
        lengths = embedded.lengths.repeat(times)
        found = score_embedded(model, type(embedded)(data, lengths))
        return (found * directions.repeat(times, 1)).sum(1)

    with torch.no_grad():
        base = model.embed(mask_with_unknown(source)).data
    with differentiable(model):
        path = captum.IntegratedGradients(score).attribute(embedded.data, base, n_steps=23)
        here = captum.InputXGradient(score).attribute(embedded.data.clone().requires_grad_())
    ours = integrate_gradients(model, embedded, directions, 23, base)
    torch.testing.assert_close(ours, path.sum(2).float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        integrate_gradients(model, embedded, directions, 0), here.sum(2), rtol=1e-5, atol=1e-5
    )


def test_linear_bag_attributions_are_exact(trained):
    predictor = trained("bag")
    model = predictor.engine.model
    assert isinstance(model.encoder.project, nn.Identity)
    text = "the film was good"
    ids = predictor.engine.indexer.tokenizer.encode_ids([text])[0]
    with torch.no_grad():
        vectors = model.embedders[0].table.weight[torch.from_numpy(ids).long()]
        shares = vectors @ model.head.score.weight.T / len(ids)  # (T, C)
        nothing = model.embedders[0].table.weight[1] @ model.head.score.weight.T / len(ids)  # (C,)
    for method, base in (("integrated-gradients", nothing), ("gradient-input", 0 * nothing)):
        (found,) = explain(predictor, [text], method=method, target="positive")
        own = shares - base
        wanted = (own[:, 1] - own[:, 0]).tolist()
        assert [word.weight for word in found.words] == pytest.approx(wanted, abs=1e-6)


def test_more_rows_than_fit_are_taken_in_turns(trained, monkeypatch):
    predictor = trained("transformer")
    before = explain(predictor, TEXTS, steps=7)
    monkeypatch.setattr("weft.explain.gradients.MAX_BATCH_STEPS", 40)
    for a, b in zip(before, explain(predictor, TEXTS, steps=7), strict=True):
        assert [w.weight for w in a.words] == pytest.approx([w.weight for w in b.words], abs=1e-6)


def test_windows_share_what_the_text_is_given(trained, limited):
    predictor = limited(trained("transformer"), 5, "windows")
    text = TEXTS[2]
    (found,) = explain(predictor, [text], steps=100)
    assert {row.read_fraction for row in predictor.engine.indexer.rows([text])} == {1.0}
    assert len(found.words) == 10
    direction = make_target(predictor, found.target, found.answer).direction
    rows = len(list(predictor.engine.indexer.rows([text])))
    assert rows > 1
    f = ends(predictor, [text], [direction])[0] / rows
    assert sum(w.weight for w in found.words) == pytest.approx(f[0] - f[1], rel=1e-3)
    whole = predictor.engine.predict([text]).scores[0] @ direction
    assert whole == pytest.approx(f[0], rel=1e-4)


def test_the_model_is_left_as_it_was_found(trained):
    model = nn.ModuleList([nn.LSTM(3, 5, 2, dropout=0.3), nn.Dropout(0.5)])
    model.train()
    with differentiable(model):
        assert model[0].training  # what fused kernels on a GPU ask for
        assert model[0].dropout == 0
        assert not model[1].training
    assert not model[0].training
    assert model[0].dropout == 0.3
    predictor = trained("bilstm")
    before = predictor(TEXTS)
    parameters = list(predictor.engine.model.parameters())
    explain(predictor, TEXTS)
    assert predictor(TEXTS) == before
    assert all(parameter.grad is None for parameter in parameters)


@pytest.mark.parametrize(
    ("embedder", "pair"), [("bert", ""), ("bert", "joint"), ("bert", "towers"), ("gpt", "")]
)
def test_a_network_is_explained_from_its_words_on(embedder, pair):
    predictor = network("pair-classify" if pair else "classify", embedder, pair=pair)
    asked = [("the bank was", "a dog"), ("river", "the money of a bank")]
    given = asked if pair else [" ".join(two) for two in asked]
    # |x − y| of two towers has kinks on the way, so that many more points are needed.
    points = 2000 if pair == "towers" else 60
    found = explain(predictor, given, method="integrated-gradients", steps=points)
    engine, unknown_id = predictor.engine, predictor.engine.indexer.tokenizer.unknown
    for i, one in enumerate(found):
        direction = make_target(predictor, one.target, one.answer).direction
        ((_, source),) = engine.batches(predictor.prepare_inputs(given[i : i + 1]))
        frame = engine.model.traits.frame
        around = torch.isin(source.data, torch.tensor([*frame.before, *frame.after]))
        nothing = replace(source, data=source.data.where(around, torch.tensor(unknown_id)))
        with torch.no_grad():
            rise = [float(engine.model(x)[0] @ torch.from_numpy(direction))
                    for x in (source, nothing)]  # fmt: skip
        # Complete without [CLS] and [SEP], which stay as they are.
        assert sum(w.weight for w in one.words) == pytest.approx(rise[0] - rise[1], abs=1e-5)
        words = [w.weight for w in one.words if one.text[w.start : w.end] != "⟷"]
        assert np.count_nonzero(words) == len(words)  # not the first alone


def test_gradients_of_special_tokens_are_dropped():
    predictor = network()
    model = predictor.engine.model
    (found,) = explain(predictor, ["the bank"], method="gradient-input")
    ((_, source),) = predictor.engine.batches(["the bank"])
    vectors = model.embedders[0].table(source.data).detach().requires_grad_()
    handle = model.embedders[0].table.register_forward_hook(lambda *_: vectors)
    with torch.enable_grad():
        direction = make_target(predictor, found.target, found.answer).direction
        (model(source)[0] @ torch.from_numpy(direction)).backward()
    handle.remove()
    wanted = (vectors.grad * vectors).sum(2)[0].detach().tolist()
    assert [w.weight for w in found.words] == pytest.approx(wanted[1:3], abs=1e-6)
