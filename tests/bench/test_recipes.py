"""The figures of `weft list`: their form, and that each was measured with default settings."""

import json
import sys
from pathlib import Path

import pytest

from tests.fixtures.command import ok
from weft import config

BENCH = Path(__file__).parents[2] / "bench"
FORM = {"data": str, "metric": str, "value": float, "n": int}


def lines():
    return [json.loads(line) for line in (BENCH / "results" / "recipes.jsonl").open()]


def scores(name):
    return config.recipe(name)["recipe"]["scores"]


@pytest.mark.parametrize("name", config.recipes(None))
def test_each_figure_was_measured_with_default_settings(name):
    known = {(one["recipe"], one["data"], one["metric"]): one for one in lines()}
    for score in scores(name):
        assert {key: type(value) for key, value in score.items() if key != "start"} == FORM
        found = known[name, score["data"], score["metric"]]
        assert found["settings"] == "default"
        for key in ("value", "n", "start"):
            assert score.get(key) == found.get(key), (name, key)
    shown = {(name, one["data"], one["metric"]) for one in scores(name)}
    assert shown == {key for key in known if key[0] == name}  # none is left out


def test_the_file_is_what_the_trials_say(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import recipes

    monkeypatch.setitem(sys.modules, "recipes", recipes)
    assert recipes.figures() == lines()


def test_recipes_that_need_a_network_name_it():
    for name in config.recipes(None):
        about = config.recipe(name)["recipe"]
        if about.get("pretrained"):
            assert all("start" in score for score in about["scores"]), name


def test_list_names_data_metric_and_n():
    out = ok("list").out
    assert "UPOS accuracy 95.5 on ewt (n = 3)" in out
    assert "over MiniLM" in out
    for name in config.recipes(None):
        for score in scores(name):
            assert f"{score['metric']} {score['value']} on {score['data']} (n = {score['n']}" in out
