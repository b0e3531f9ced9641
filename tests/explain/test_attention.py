"""Attention: the pool's weights as they are, rollout by hand, and the maps of heads and layers."""

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.explain import explain, methods
from weft.explain.attention import heads, rollout

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
    maps = heads(predictor, TEXT)
    flow = np.eye(len(maps.tokens))
    for layer in maps.weights.mean(1):
        flow = (0.5 * layer + 0.5 * np.eye(len(flow))) @ flow
    if pool in ("mean", "first", "last"):
        wanted = {"mean": flow.mean(0), "first": flow[0], "last": flow[-1]}[pool][int(cls) :]
        assert alone == pytest.approx((wanted / wanted.sum()).tolist(), abs=1e-5)


def test_heads_and_layers_have_a_map_each(trained):
    maps = heads(trained("transformer", encoder__cls=True), TEXT)
    assert maps.tokens == ("[CLS]", *TEXT.split())
    assert maps.weights.shape == (2, 4, 9, 9)
    assert maps.weights.sum(3) == pytest.approx(np.ones((2, 4, 9)), abs=1e-5)
    with pytest.raises(UserError, match="Only a model with a 'transformer' encoder"):
        heads(trained("bag"), TEXT)


def test_only_models_that_attend_have_the_method(trained):
    assert "attention" in methods(trained("transformer"))
    assert "attention" in methods(trained("bag", pool__kind="attention"))
    assert "attention" not in methods(trained("cnn"))
    strided = trained("cnn", pool__kind="attention", encoder__stride=2)
    assert "attention" not in methods(strided)
