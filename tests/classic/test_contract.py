"""Every classic model of the registry derives from ClassicModel and has the required members."""

import inspect

import numpy as np
import pytest

from weft import registry
from weft.errors import UserError
from weft.protocols import ClassicModel

NAMES = sorted(registry.parts("classic"))
REQUIRED = ("parameters", "save", "load")
FLAGS = ("is_lm", "is_structured", "pairs", "is_linear", "is_seeded", "tunes_on_dev")


def problems(part):
    """What a class lacks to be a classic model."""
    if not issubclass(part, ClassicModel):
        return ["does not derive from ClassicModel"]
    required = (*REQUIRED, *(("fit_ids", "likelihoods") if part.is_lm else ("fit", "predict")))
    if part.is_linear:
        required += ("contributions",)
    out = [f"inherits {name}" for name in required if _inherited(part, name)]
    for name, member in vars(ClassicModel).items():
        ours = inspect.getattr_static(part, name)
        if inspect.isfunction(member) and not name.startswith("_"):
            theirs, own = (list(inspect.signature(f).parameters) for f in (member, ours))
            if theirs != own:
                out.append(f"{name}{own} has other parameters than {theirs}")
    return out


def _inherited(part, name):
    return inspect.getattr_static(part, name) is inspect.getattr_static(ClassicModel, name)


@pytest.mark.parametrize("name", NAMES)
def test_a_classic_model_has_the_required_members(name):
    assert not problems(registry.find("classic", name))


@pytest.mark.parametrize("name", NAMES)
def test_a_classic_model_answers_every_question_about_itself(name):
    model = registry.build("classic", {"kind": name})
    assert all(isinstance(getattr(model, flag), bool) for flag in FLAGS)
    assert model.kind == name
    assert model.epochs >= 1
    assert list(model.remarks) == []


@pytest.mark.parametrize("name", NAMES)
def test_an_unsupported_operation_is_a_user_error(name):
    model = registry.build("classic", {"kind": name})
    calls = {
        "likelihoods": lambda: next(model.likelihoods(["a"], None)),
        "fit_ids": lambda: model.fit_ids([], [], None, lambda progress: True),
    }
    if model.is_lm:
        calls = {
            "predict": lambda: model.predict(["a"]),
            "fit": lambda: model.fit([], [], None, None, 0, lambda progress: True),
            "states": lambda: model.states("a"),
        }
    if not model.is_linear:
        calls["contributions"] = lambda: model.contributions("a", np.ones(2))
    for call in calls.values():
        with pytest.raises(UserError):
            call()


def test_a_broken_model_is_noticed():
    class Stranger:
        pass

    class Unfinished(ClassicModel):
        def predict(self, inputs):
            return np.zeros((len(inputs), 2))

    assert problems(Stranger) == ["does not derive from ClassicModel"]
    found = problems(Unfinished)
    assert {"inherits fit", "inherits save", "inherits load", "inherits parameters"} < set(found)
    assert any(one.startswith("predict") for one in found)
