"""The registry: names to classes, signatures to schemas, and messages for what does not fit."""

import subprocess
import sys
import typing
from typing import Any, Literal

import pytest

from weft import registry
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import FOLDERS, build, check, describe_type, fill, find, fits, parts, trusting


class Cell(Encoder):
    """A part for these tests."""

    def __init__(
        self,
        input_size: int,
        hidden: int = 5,
        rate: float = 0.5,
        cell: Literal["lstm", "gru"] = "lstm",
        widths: list[int] = [3],  # noqa: B006
    ):
        self.size = (input_size, hidden)
        self.rate, self.cell, self.widths = rate, cell, widths


HERE = f"{__name__}:Cell"


@pytest.mark.parametrize(
    ("value", "hint", "good", "words"),
    [
        (3, int, True, "a whole number"),
        (3.0, int, False, "a whole number"),
        (True, int, False, "a whole number"),
        ("3", int, False, "a whole number"),
        (3, float, True, "a number"),
        (3.5, float, True, "a number"),
        (True, float, False, "a number"),
        ("a", str, True, "a text"),
        (3, str, False, "a text"),
        (True, bool, True, "true or false"),
        (1, bool, False, "true or false"),
        ("lstm", Literal["lstm", "gru"], True, "one of 'lstm', 'gru'"),
        ("ltsm", Literal["lstm", "gru"], False, "one of 'lstm', 'gru'"),
        ([3, 5], list[int], True, "a list of a whole number"),
        ((3, 5), list[int], True, "a list of a whole number"),
        ([3, "5"], list[int], False, "a list of a whole number"),
        (3, list[int], False, "a list of a whole number"),
        ([], list[int], True, "a list of a whole number"),
        (3, str | int, True, "a text or a whole number"),
        (3.5, str | int, False, "a text or a whole number"),
        (None, int | None, True, "a whole number or nothing"),
        (None, typing.Optional[int], True, "a whole number or nothing"),  # noqa: UP045
        ({"a": 1}, dict[str, int], True, "dict"),
        ([], Any, True, "Any"),
    ],
)
def test_values_against_annotations(value, hint, good, words):
    assert fits(value, hint) is good
    assert describe_type(hint) == words


def test_fill_writes_every_default_in():
    with trusting(["tests"]):
        filled = fill("encoder", {"kind": HERE, "hidden": 7}, ("input_size",))
    assert filled == {"kind": HERE, "hidden": 7, "rate": 0.5, "cell": "lstm", "widths": [3]}


def test_build_injects_what_the_model_knows():
    with trusting(["tests"]):
        made = build("encoder", {"kind": HERE, "hidden": 7}, input_size=11, directions=2)
    assert made.size == (11, 7)  # and 'directions', which it does not take, is left out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"hiden": 7},
            r"Unknown option 'hiden' in here\. Did you mean 'hidden'\? "
            r"Known: cell, hidden, rate, widths\.",
        ),
        ({"input_size": 7}, "Remove 'input_size' from here: the model works it out itself"),
        ({"directions": 2}, "Remove 'directions' from here"),
        ({"hidden": 7.5}, r"here: 'hidden' should be a whole number, got 7\.5"),
        ({"hidden": "7"}, "here: 'hidden' should be a whole number, got '7'"),
        ({"cell": "ltsm"}, "here: 'cell' should be one of 'lstm', 'gru', got 'ltsm'"),
        ({"widths": 3}, "here: 'widths' should be a list of a whole number, got 3"),
    ],
)
def test_options_that_do_not_fit(given, message):
    with pytest.raises(UserError, match=message):
        check(Cell, given, "here", ("input_size", "directions"))


def test_missing_required_option_raises_user_error():
    with pytest.raises(UserError, match="here needs input_size"):
        check(Cell, {}, "here")
    with pytest.raises(UserError, match=r"\[encoder\] needs a 'kind'. Known: bag, cnn"):
        fill("encoder", {"hidden": 7})
    with pytest.raises(UserError, match=r"\[encoder\] 'kind' should be a name, got 3"):
        fill("encoder", {"kind": 3})


def test_unknown_parts_have_near_misses():
    with pytest.raises(UserError, match=r"Unknown encoder 'rrn'\. Did you mean 'rnn'\? Known: "):
        find("encoder", "rrn")


@pytest.mark.parametrize("name", ["no.such.module:Cell", f"{__name__}:Sell"])
def test_parts_from_elsewhere_that_are_not_there(name):
    with trusting(["no", "tests"]), pytest.raises(UserError, match="Cannot import encoder"):
        find("encoder", name)


def test_derived_sizes_are_refused_in_real_parts():
    from weft.config import recipe
    from weft.run.train import resolve_config

    wrong = {
        "embedder.vocabulary_size": "embedder 'lookup'",
        "encoder.input_size": "encoder 'rnn'",
        "pool.directions": "pool 'last'",
        "head.outputs": "head 'linear'",
    }
    for key, where in wrong.items():
        name = key.split(".")[1]
        with pytest.raises(UserError, match=f"Remove '{name}' from {where}"):
            resolve_config(recipe("lstm").with_values({key: 7}, "--set"))


@pytest.mark.parametrize("kind", FOLDERS)
def test_parts_read_from_source_equal_the_loaded_classes(kind):
    import inspect

    assert parts(kind)
    for name, part in parts(kind).items():
        loaded = part.load()
        assert loaded.__name__ == part.attribute
        assert part.summary.endswith((".", ":")), f"{kind} {name} needs a sentence"
        if loaded.__init__ is object.__init__:
            assert part.options == ()
            continue
        signature = inspect.signature(loaded).parameters
        assert [option for option, _ in part.options] == list(signature)
        required = [n for n, p in signature.items() if p.default is p.empty]
        assert [option for option, default in part.options if not default] == required


def test_two_parts_of_one_name_are_an_error(tmp_path, monkeypatch):
    source = '@register("encoder", "same")\nclass A:\n    "One."\n'
    (tmp_path / "encode").mkdir()
    for name in ("one", "two"):
        (tmp_path / "encode" / f"{name}.py").write_text(source, "utf-8")
    monkeypatch.setattr(registry, "__file__", str(tmp_path / "registry.py"))
    with pytest.raises(UserError, match=r"Two encoders are called 'same': weft\.encode\.one and"):
        parts.__wrapped__("encoder")


def test_listing_imports_no_part():
    code = (
        "import sys\n"
        "from weft import registry\n"
        "assert all(registry.parts(kind) for kind in registry.FOLDERS)\n"
        "heavy = {'torch', 'numpy', 'tokenizers', 'weft.encode.rnn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
