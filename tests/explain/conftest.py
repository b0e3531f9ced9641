"""Small trained models that the tests of explanations share; nobody changes them."""

import dataclasses

import pytest

from tests.fixtures import small
from weft import config
from weft.predict import Predictor
from weft.run import train

SMALLER = {"width": 11, "hidden": 12, "buckets": 101}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """(recipe, changes…) -> a predictor, each trained once."""
    known = {}

    def make(name, **changes):
        key = (name, repr(sorted(changes.items())))
        if key not in known:
            found = config.recipe(name)
            values = {} if "classic" in found else {**small.SMALL, "train.learning_rate": 0.02}
            for option in config.setting_names(found.sections):
                last = option.split(".")[-1]
                if last in SMALLER and not option.startswith("classic"):
                    values[option] = SMALLER[last]
            values |= {option.replace("__", "."): value for option, value in changes.items()}
            folder = tmp_path_factory.mktemp(name)
            out = train(
                found.with_values(values, "test"), folder, splits=small.splits(), quiet=True
            )
            known[key] = out.predictor
        return known[key]

    return make


@pytest.fixture(scope="session")
def limited():
    """The same model, reading at most `limit` tokens."""

    def make(predictor, limit, policy):
        engine = predictor.engine
        indexer = dataclasses.replace(engine.indexer, limit=limit, policy=policy)
        cut = type(engine)(engine.model, indexer, engine.runtime)
        return Predictor(cut, predictor.task, predictor.space, predictor.config)

    return make
