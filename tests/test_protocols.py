"""Every registered part derives from the interface of its kind, and hides nothing of its own."""

import inspect

import pytest
import torch
from torch import nn

from tests.fixtures.interfaces import hidden_members
from weft import protocols, registry

MODULE_KINDS = ("embedder", "encoder", "pool", "pair")
SIZES = {"vocabulary_size": 11, "input_size": 6, "directions": 2}
REQUIRED = {"embedder": {"features": 3, "shape": [5, 7, 3]}}  # settings without a usable default
PARTS = [(kind, name) for kind in MODULE_KINDS for name in sorted(registry.parts(kind))]


def build(kind, name):
    accepted = inspect.signature(registry.find(kind, name)).parameters
    settings = {k: v for k, v in REQUIRED.get(kind, {}).items() if k in accepted}
    sizes = {key: size for key, size in SIZES.items() if key in accepted}
    return registry.build(kind, {"kind": name, **settings}, **sizes)


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_part_keeps_its_interface(kind, name):
    part = build(kind, name)
    interface = registry.INTERFACES[kind]
    assert isinstance(part, interface)
    assert isinstance(part.output_size, int)
    assert hidden_members(part) == []
    declared = {n for n in dir(interface) if not n.startswith("_")}
    declared |= set(inspect.get_annotations(interface))
    for member in declared:
        getattr(part, member)  # declared, so everyone may read it


def test_a_default_that_hides_a_submodule_is_seen():
    class Broken(nn.Module, protocols.Encoder):
        leading = None

        def __init__(self):
            super().__init__()
            self.leading = nn.Linear(2, 2)

    assert hidden_members(Broken()) == ["leading"]
    assert Broken().leading is None


def test_a_missing_member_is_seen():
    class Broken(nn.Module, protocols.Encoder):
        pass

    with pytest.raises(AttributeError, match="output_size"):
        Broken().output_size  # noqa: B018


@pytest.mark.parametrize("kind", registry.INTERFACES)
def test_every_built_in_part_derives_from_its_interface(kind):
    for name in registry.parts(kind):
        assert issubclass(registry.find(kind, name), registry.INTERFACES[kind]), name


def test_optional_members_of_an_embedder_have_defaults():
    class Plain(nn.Module, protocols.Embedder):
        output_size = 3

        def forward(self, x):
            return x.with_data(torch.zeros(*x.data.shape[:2], 3))

    part = Plain()
    assert part.token_table is None
    assert part.scalar_mix is None
    assert part.layer_groups() == []
    assert part.initialise(["a"]) == 0
    with pytest.raises(NotImplementedError):
        part.subtoken_ids(["a"])
