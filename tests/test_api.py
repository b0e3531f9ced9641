"""The Python interface: signatures, docstrings, defaults of the command line, reprs, messages."""

import collections.abc
import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.fixtures import small
from weft.cli import main
from weft.errors import UserError

VERBS = ("train", "compare", "tune", "check", "load", "evaluate", "generate", "read", "write")
# Options whose meaning is the same under another name, or that only a terminal has.
OTHER = {"read": "predict", "write": "predict", "load": "predict"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    file = small.file(folder)
    changes = {"data.train": str(file)}
    return weft.train("tfidf", folder / "run", changes=changes, quiet=True), folder / "run", file


@pytest.mark.parametrize("name", VERBS)
def test_signatures_name_every_parameter(name):
    verb = getattr(weft, name)
    parameters = inspect.signature(verb).parameters
    assert len(parameters) > 1
    loose = [p.name for p in parameters.values() if p.kind is p.VAR_POSITIONAL]
    assert not loose
    assert all(p.annotation is not p.empty for p in parameters.values()), parameters
    assert inspect.signature(verb).return_annotation is not inspect.Signature.empty
    assert len(inspect.getdoc(verb).split()) > 5
    assert name in dir(weft)


@pytest.mark.parametrize("name", ["train", "tune", "compare"])
def test_public_verbs_have_the_signature_of_their_function(name):
    homes = {"train": "weft.run", "tune": "weft.tune.search", "compare": "weft.report.compare"}
    home = homes[name]
    inner = dict(inspect.signature(getattr(importlib.import_module(home), name)).parameters)
    outer = dict(inspect.signature(getattr(weft, name)).parameters)
    assert outer["changes"].default == {}
    if name == "train":
        del outer["changes"]
    assert [(p.name, p.default, p.kind) for p in outer.values()] == [
        (p.name, p.default, p.kind) for p in inner.values()
    ]


def options(verb):
    """The defaults of a command's options."""
    (found,) = [c.callback for c in main.app.registered_commands if c.name == verb]
    return {p.name: p.default for p in inspect.signature(found).parameters.values()}


@pytest.mark.parametrize("name", ["train", "compare", "tune", "check", "load", "evaluate"])
def test_defaults_are_those_of_the_command_line(name):
    theirs = options(OTHER.get(name, name))
    ours = {p.name: p.default for p in inspect.signature(getattr(weft, name)).parameters.values()}
    # `predict --weights` shows what a token counted; the weights that `load` rounds are --int8.
    own = {"weights"} if name == "load" else set()
    shared = {n for n in ours if n in theirs and ours[n] is not inspect.Parameter.empty} - own
    assert shared, (ours, theirs)
    for one in shared:
        mine, other = (None if value in ("", [], (), None) else value
                       for value in (ours[one], theirs[one]))  # fmt: skip
        assert mine == other, f"{name}({one}={ours[one]!r}), weft {name}: {theirs[one]!r}"


def test_a_configuration_can_be_named_in_four_ways(run, tmp_path):
    from weft import config as configuration

    sections = dict(weft.recipe("bag").sections)
    (tmp_path / "a.toml").write_text(configuration.dumps({k: v for k, v in sections.items()
                                                          if k != "recipe"}))  # fmt: skip
    given = {"bag", str(tmp_path / "a.toml")}
    found = [configuration.as_config(one) for one in (*given, tmp_path / "a.toml", sections)]
    assert all(one["embedder"] == sections["embedder"] for one in found)
    own = weft.recipe("bag")
    assert configuration.as_config(own) is own


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, o: weft.train(123, o), "a recipe's name, a .toml or .json file"),
        (lambda m, o: weft.train("cmn", o), "Did you mean 'cnn'"),
        (lambda m, o: weft.train("no.toml", o), "no such configuration file"),
        (lambda m, o: weft.train("tfidf", 3), "'output' should be a text or a path, got 3"),
        (lambda m, o: weft.tune(123, o), "should be Config or a text or a path or a dict, got 123"),
        (lambda m, o: weft.load(None), "'folder' should be a text or a path, got None"),
        (lambda m, o: weft.load(3), "'folder' should be a text or a path, got 3"),
        (lambda m, o: weft.load(o, device=0), "'device' should be a text, got 0"),
        (lambda m, o: weft.compare(None), "cannot read rows from None"),
        (lambda m, o: weft.compare(["a"], recipes="cnn"), "'recipes' should be a list"),
        (lambda m, o: weft.compare(["a"], seeds="x"), "'seeds' should be a whole number"),
        (lambda m, o: weft.check(None), "cannot read rows from None"),
        (lambda m, o: weft.evaluate(None, []), "'predictor' should be"),
        (lambda m, o: weft.evaluate(m, "a.tsv"), "a.tsv: no such file"),
        (lambda m, o: weft.evaluate(m, [1]), "data[0]: a row should be"),
        (lambda m, o: weft.read(None), "cannot read rows from None"),
        (lambda m, o: weft.recipe(None), "'name' should be a text"),
        (lambda m, o: weft.generate(None), "'model' should be"),
        (lambda m, o: weft.Vectors.load(None), "'path' should be"),
        (lambda m, o: weft.corpus(3), "'name' should be a text"),
        (lambda m, o: weft.write(None, o), "'examples' should be"),
        (lambda m, o: weft.recipe("cnn").with_values(3, "x"), "'changes' should be"),
        (lambda m, o: m(None), "list of texts, not NoneType"),
        (lambda m, o: m(3), "list of texts, not int"),
        (lambda m, o: m("a text"), "list of texts, not a single string"),
        (lambda m, o: m([1, 2]), "Text 1 is int, not a string"),
        (lambda m, o: m.embed(None), "list of texts, not NoneType"),
        (lambda m, o: list(m.stream(None)), "list of texts, not NoneType"),
    ],
)
def test_wrong_argument_types_raise_user_error(run, tmp_path, call, message):
    with pytest.raises(UserError) as caught:
        call(run[0].predictor, tmp_path / "o")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_reprs_are_short_and_say_what_matters(run):
    outcome, folder, _ = run
    model = weft.load(folder)
    (answer,) = model(["the film was good"])
    assert repr(answer).startswith(f"Answer('{answer.value}', score={answer.score:.4g}")
    assert repr(model) == (
        f"Predictor(classify, tfidf, labels: negative, positive; {model.parameters:,} parameters)"
    )
    assert repr(outcome).startswith("RunResult(dev accuracy ")
    vectors = weft.Vectors(["a", "b"], np.zeros((2, 3), np.float32))
    assert repr(vectors) == "Vectors(2 words × 3)"
    for thing in (answer, model, outcome, vectors):
        assert len(repr(thing)) < 200, repr(thing)


def test_a_row_of_compare_is_short():
    from weft.compare.leaderboard import Row

    row = Row("cnn", metric="accuracy", quality=0.9125, spread=0.0123, values=(0.9, 0.925))
    assert repr(row) == "Row(cnn: accuracy 0.9125 ± 0.0123, 2 trials)"
    assert repr(Row("cnn", error="no room")) == "Row(cnn: no room)"


def test_check_is_what_the_command_finds(tmp_path):
    small.file(tmp_path)
    (tmp_path / "bad.tsv").write_text("good\ta film\nbad\ta film\nbad\tanother\n" * 3)
    diagnosis = weft.check([str(tmp_path / "bad.tsv")])
    assert diagnosis.worst in ("error", "warning")
    assert weft.check(str(tmp_path / "bad.tsv")).to_json() == diagnosis.to_json()


def test_import_weft_is_light():
    code = (
        "import sys, weft; dir(weft); weft.recipe('cnn');"
        "assert not {'torch', 'numpy', 'sklearn', 'typer'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_types_of_arguments_are_judged_by_their_hints():
    from weft.registry import fits

    assert fits(["a"], collections.abc.Sequence[str])
    assert not fits("a", collections.abc.Sequence[str])
    assert not fits([1], collections.abc.Sequence[str])
    assert fits(iter([]), collections.abc.Iterable[str])
    assert not fits("abc", collections.abc.Iterable[str])
    assert fits({}, collections.abc.Mapping[str, int])
    assert not fits(3, collections.abc.Callable[[int], int])
    assert fits(print, collections.abc.Callable[[int], int])
