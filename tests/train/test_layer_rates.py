"""Layers of a pre-trained embedder: their rates, their unfreezing, and small changes of them."""

import pytest
import torch

from weft.attend.lora import LoRA, add_lora, merge_lora
from weft.batch import Padded
from weft.embed.bert import Bert
from weft.errors import UserError
from weft.model import build_model
from weft.train.optim import RATE_FACTOR, Unfreezing, build_optimisers, layer_groups
from weft.train.settings import Settings

PARTS = {
    "encoder": {"kind": "none"},
    "pool": {"kind": "first"},
    "head": {"kind": "linear"},
}
SMALL = {
    "kind": "bert",
    "hidden": 10,
    "layers": 3,
    "heads": 2,
    "feed_forward": 13,
    "max_positions": 17,
}


def model(**more):
    return build_model({"embedder": SMALL | more, **PARTS}, vocabulary_size=23, outputs=3)


def rates(built, settings):
    return {
        id(p): group[RATE_FACTOR]
        for optimiser in build_optimisers(built, settings)
        for group in optimiser.param_groups
        for p in group["params"]
    }


def test_each_layer_learns_slower_than_the_one_above():
    built = model()
    found = rates(built, Settings(layer_decay=0.5))
    tables, *blocks = built.embedders[0].layer_groups()
    assert {found[id(p)] for p in built.head.parameters()} == {1.0}
    for below, block in enumerate(reversed(blocks)):
        assert {found[id(p)] for p in block} == {0.5**below}
    assert {found[id(p)] for p in tables} == {0.5**3}
    assert len(found) == len(list(built.parameters()))


def test_a_rate_of_the_embedders_is_that_of_the_last_layer():
    built = model()
    found = rates(built, Settings(learning_rate=1e-3, embedder_learning_rate=1e-4, layer_decay=0.9))
    for level, factor in ((-1, 0.1), (-2, 0.09)):
        own = [found[id(p)] for p in built.embedders[0].layer_groups()[level]]
        assert own == pytest.approx([factor] * len(own))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(layer_decay=1.5), "train.layer_decay should be above 0 and at most 1, got 1.5"),
        (Settings(layer_decay=0.0), "train.layer_decay should be above 0 and at most 1, got 0.0"),
        (
            Settings(unfreeze_epochs=-1.0),
            "train.unfreeze_epochs should be 0 or more, got -1.0",
        ),
    ],
)
def test_rates_that_make_no_sense(settings, told):
    with pytest.raises(UserError, match=told):
        build_optimisers(model(), settings)


@pytest.mark.parametrize("settings", [{"layer_decay": 0.9}, {"unfreeze_epochs": 1.0}], ids=str)
def test_rates_of_layers_where_there_are_none(settings):
    built = build_model(
        {"embedder": {"kind": "lookup", "width": 6}, **PARTS}, vocabulary_size=23, outputs=3
    )
    with pytest.raises(UserError, match=f"train.{next(iter(settings))} needs a pre-trained"):
        build_optimisers(built, Settings(**settings))


def test_every_parameter_is_in_one_level():
    built = model(mix=True)
    some = [id(p) for level in layer_groups(built) for p in level]
    assert sorted(some) == sorted(id(p) for p in built.embedders.parameters())


def test_layers_begin_to_learn_from_the_top():
    built = model()
    tables, *blocks = built.embedders[0].layer_groups()
    step = Unfreezing(built, built.parameters(), 0.5)

    def learning():
        return [all(p.requires_grad for p in level) for level in (tables, *blocks)]

    assert learning() == [False, False, False, False]
    assert all(p.requires_grad for p in built.head.parameters())
    step.step(0.49)
    assert learning() == [False, False, False, False]
    step.step(0.5)
    assert learning() == [False, False, False, True]
    step.step(1.7)
    assert learning() == [False, True, True, True]
    step.step(9)
    assert learning() == [True, True, True, True]


def test_frozen_embedder_is_never_unfrozen():
    built = model(frozen=True)
    Unfreezing(built, [p for p in built.parameters() if p.requires_grad], 0.5).step(9)
    assert not any(p.requires_grad for p in built.embedders.parameters())


def test_a_small_change_begins_as_none_and_is_all_that_learns():
    torch.manual_seed(1)
    bert = Bert(23, 10, 3, 2, 13, max_positions=17, dropout=0.0, lora=2).eval()
    ids = Padded.from_rows([[3, 5, 7, 11], [2, 13]])
    before = bert(ids).data
    bert(ids).data.sum().backward()
    learned = {name for name, p in bert.named_parameters() if p.grad is not None}
    assert learned
    assert all(name.endswith((".up", ".down")) for name in learned)
    assert len(learned) == 3 * 2 * 2  # layers, query and value, down and up
    with torch.no_grad():
        for part in bert.modules():
            if isinstance(part, LoRA):
                part.up.normal_()
    after = bert(ids).data
    assert (after - before).abs().max() > 1e-2
    assert merge_lora(bert) == 6
    torch.testing.assert_close(bert(ids).data, after)
    assert not any(name.endswith((".up", ".down")) for name, _ in bert.named_parameters())


def test_the_change_is_the_papers():
    layer = torch.nn.Linear(5, 7)
    plain = layer.weight.detach().clone()
    add_lora(layer, 3)
    change = layer.parametrizations.weight[0]
    with torch.no_grad():
        change.up.normal_()
    torch.testing.assert_close(layer.weight, plain + 2 * change.up @ change.down)


def test_frozen_and_lora_contradict():
    with pytest.raises(UserError, match="with 'lora' a little is"):
        Bert(23, 10, 3, 2, frozen=True, lora=2)
