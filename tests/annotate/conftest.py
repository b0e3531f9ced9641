"""Tiny models of every task that annotates, trained once."""

import pytest

import weft
from tests.fixtures.recipe_runs import train_tiny
from tests.fixtures.tagged_files import SMALL, columns, conllu, paragraphs
from weft.annotate import Pipeline

RECIPES = {"roles": ("srl-bilstm-crf", "srl"), "chains": ("coref-bilstm", "coref")}


@pytest.fixture(scope="package")
def models(tmp_path_factory):
    """Model folders by the name of what they annotate."""
    folder = tmp_path_factory.mktemp("annotate")
    out = {}
    for name, recipe, file, changes in (
        ("sentences", "sentence-splitter", paragraphs(folder / "a.conllu", 90), {
            "train.batch_size": 2, "train.epochs": 3,
        }),
        ("parser", "parser", conllu(folder / "b.conllu", 40), {
            "task.tags": ["upos", "feats"], "encoder.layers": 1, "head.arc": 11, "head.label": 7,
            "train.epochs": 4,
        }),
        ("tagger", "crf", conllu(folder / "b.conllu", 40), {"task.columns": ["xpos"]}),
        ("names", "crf", columns(folder / "c.conll"), {}),
    ):  # fmt: skip
        values = {} if recipe == "crf" else SMALL
        values = {**values, **changes, "data.train": str(file)}
        if recipe == "parser":
            del values["head.dropout"]
        made = weft.recipe(recipe).with_values(values, "test")
        weft.train(made, folder / name, quiet=True, device="cpu")
        out[name] = folder / name
    for name, (recipe, task) in RECIPES.items():
        (folder / f"{name}-data").mkdir()
        train_tiny(recipe, task, folder / f"{name}-data", {})
        out[name] = folder / f"{name}-data" / "run"
    return out


@pytest.fixture(scope="package")
def pipeline(models):
    return Pipeline.load(list(models.values()))
