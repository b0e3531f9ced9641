"""Every registered task keeps the interface of `weft.protocols`; discovered, not listed."""

import ast
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import registry
from weft.errors import UserError
from weft.protocols import LabelSpace, Task
from weft.run.data import find_task
from weft.tasks.classify import ClassSpace
from weft.tasks.embed import Embed
from weft.tasks.mlm import MLMVocabulary
from weft.tasks.regress import LabelScale
from weft.tasks.tag_vocabulary import TagSpace
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.text.example import Example

TASKS = sorted(registry.parts("task"))
REQUIRED = ("load_space", "target", "loss", "answers", "predict_targets", "build_metric")
# Members that a flag promises; without it, nobody calls them.
PROMISED = {
    "is_structured": ("gold",),
    "has_references": ("find_reference",),
    "has_threshold": ("tune",),
    "has_target_tokenizer": ("target_texts", "text_space"),
    "gives_vectors": ("golden_answers",),
}
FLAGS = {
    name: type(value)
    for name, value in vars(Task).items()
    if not name.startswith("_") and isinstance(value, (bool, float, str))
}


def violations(kind: type) -> list[str]:
    """Return what a class lacks to be a task."""
    if not issubclass(kind, Task):
        return ["does not derive from Task"]
    found = [] if isinstance(getattr(kind, "head", None), str) else ["has no 'head'"]
    for name, type_ in FLAGS.items():
        value = inspect.getattr_static(kind, name)
        if type(value) is not type_:
            found.append(f"'{name}' is no class attribute of {type_.__name__}")
    needed = list(REQUIRED if kind.has_target_tokenizer else (*REQUIRED, "space"))
    needed += [name for flag, names in PROMISED.items() if getattr(kind, flag) for name in names]
    if kind.read_mode != "labelled":
        needed.append("score_texts")
    found += [f"lacks '{name}'" for name in needed if getattr(kind, name) is getattr(Task, name)]
    for name, declared in vars(Task).items():
        if inspect.isfunction(declared):
            wanted, actual = (
                list(inspect.signature(each).parameters) for each in (declared, getattr(kind, name))
            )
            if actual != wanted:
                found.append(f"'{name}' takes {actual}, not {wanted}")
    return found


@pytest.mark.parametrize("name", TASKS)
def test_task_keeps_the_interface(name):
    kind = find_task(name)
    assert violations(kind) == []
    task = registry.build("task", {"kind": name}, tokenizer={})
    assert isinstance(task.metric, str)
    for flag, type_ in FLAGS.items():
        assert isinstance(getattr(task, flag), type_), flag
    assert kind.multi_label in (False, task.multi_label)


@pytest.mark.parametrize("name", TASKS)
def test_defaults_leave_an_example_alone(name):
    """Optional members that a task does not override change nothing."""
    kind, example = find_task(name), Example("a b", "x")
    task = registry.build("task", {"kind": name}, tokenizer={})
    if kind.group_references is Task.group_references:
        assert list(task.group_references([example])) == [example]
    if kind.training_instances is Task.training_instances:
        assert list(task.training_instances(example)) == [example]
    if kind.prepare is Task.prepare:
        assert task.prepare(example, None) is example
    if kind.model_input is Task.model_input:
        assert task.model_input(example, None, "text 1") == "a b"
    if kind.infer is Task.infer:
        assert task.infer({}, [example]) == {}
    if kind.golden_input is Task.golden_input:
        assert task.golden_input(example) is None
    if kind.missing_label_error is Task.missing_label_error:
        assert "no label. Give the label column" in str(task.missing_label_error(example))


def all_spaces() -> list[type[LabelSpace]]:
    """Return the label space of every task and what derives from it."""
    for name in TASKS:
        find_task(name)
    found, waiting = [], [LabelSpace]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return [kind for kind in found if kind.__module__.startswith("weft.")]


def probes(source: str) -> list[int]:
    """Return the lines that ask a task or a label space whether it has a member."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("hasattr", "getattr")
        and re.search(r"(^|[._])(task|space)$", ast.unparse(node.args[0]))
    ]


def test_nobody_probes_tasks_and_spaces():
    files = Path(weft.__file__).parent.rglob("*.py")
    found = [f"{path}:{line}" for path in files for line in probes(path.read_text("utf-8"))]
    assert not found, found
    assert probes("a = 1\nif hasattr(self.task, 'gold'): pass\nb = getattr(space, 'x', 0)") == [
        2,
        3,
    ]


def test_label_spaces_implement_what_is_required():
    spaces = all_spaces()
    assert len(spaces) >= 7
    for kind in spaces:
        assert kind.size is not LabelSpace.size, kind
        assert kind.to_json is not LabelSpace.to_json, kind


@pytest.mark.parametrize(
    "kind", [ClassSpace, TagSpace, LabelScale, TargetVocabulary, MLMVocabulary]
)
def test_fields_of_a_space_stay_required(kind):
    """A field named like a default of LabelSpace would get that default without `= field()`."""
    with pytest.raises(TypeError, match="required positional argument"):
        kind()


class Unrelated:
    head, metric = "linear", "accuracy"


class Incomplete(Embed):
    is_structured = True  # without `gold`


class Probing(Embed):
    @property
    def pairs(self):  # a flag is read from the class
        return True


class OtherSignature(Embed):
    def prepare(self, example):
        return example


class NoHead(Task):
    metric = ""


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Unrelated, "does not derive from Task"),
        (Incomplete, "lacks 'gold'"),
        (Probing, "'pairs' is no class attribute of bool"),
        (OtherSignature, "'prepare' takes ['self', 'example'], not ['self', 'example', 'tally']"),
        (NoHead, "has no 'head'"),
        (NoHead, "lacks 'space'"),
        (NoHead, "lacks 'loss'"),
    ],
)
def test_a_broken_task_is_noticed(kind, fault):
    assert fault in violations(kind)


def test_a_class_that_is_no_task_is_an_error_of_the_user():
    with (
        registry.trusting([__name__.split(".")[0]]),
        pytest.raises(UserError, match=r"must derive from weft\.protocols\.Task"),
    ):
        find_task(f"{__name__}:Unrelated")


@dataclass(frozen=True)
class Yes(LabelSpace):
    """The smallest label space."""

    @property
    def size(self):
        return 1

    def to_json(self):
        return {}


def test_optional_members_of_a_space_have_defaults():
    space = Yes()
    assert (space.entries, space.names, space.slots, space.width) == ((), (), (), 0)
    assert (space.threshold, space.deviation, space.tokenizer) == (None, None, None)
    assert not space.shared
    assert space.without_marks("a b") == "a b"
    with pytest.raises(NotImplementedError):
        _ = LabelSpace().size


def test_required_members_are_not_implemented_by_default():
    task, example = Task(), Example("a")
    calls = [
        lambda: task.space([example]),
        lambda: task.target(example, Yes()),
        lambda: task.loss(None, None),
        lambda: task.answers(np.zeros(0), Yes()),
    ]
    for call in calls:
        with pytest.raises(NotImplementedError):
            call()
