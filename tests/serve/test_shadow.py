"""A shadow model answers in idle time; agreement and disagreements are kept."""

import json
import time

import pytest

from tests.fixtures import small
from tests.fixtures.servers import live_server
from weft import config, train
from weft.errors import UserError
from weft.serve.service import Service, name_models
from weft.serve.settings import ServeSettings
from weft.serve.shadow import values_agree


def train_model(folder, labels):
    path = small.file(folder)
    rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    path.write_text("".join(f"{labels[label]}\t{text}\n" for label, text in rows), "utf-8")
    recipe = config.recipe("tfidf").with_values({"data.train": str(path)}, "test")
    train(recipe, folder / "run", quiet=True)
    return folder / "run"


def test_agreement_is_counted_and_disagreements_are_kept(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    model = train_model(tmp_path / "a", {"positive": "positive", "negative": "negative"})
    # The other model calls what is good positive, and what is bad something else.
    other = train_model(tmp_path / "b", {"positive": "positive", "negative": "poor"})
    log = tmp_path / "disagreements.jsonl"
    with live_server(f"m={model}", shadow=str(other), shadow_log=log) as live:
        texts = ["the film was good", "the plot was bad", "the cast was bad"]
        reply = live.post("/predict", {"texts": texts}).json["answers"]
        assert [row["value"] for row in reply] == ["positive", "negative", "negative"]
        end = time.monotonic() + 10
        while live.metric("weft_shadow_total", model="m", result="disagree") < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert live.metric("weft_shadow_total", model="m", result="agree") == 1
    rows = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert [(row["input"], row["value"], row["shadow_value"]) for row in rows] == [
        (texts[1], "negative", "poor"), (texts[2], "negative", "poor"),
    ]  # fmt: skip


def test_values_and_names():
    assert values_agree(1.0, 1.005)
    assert not values_agree(1.0, 1.05)
    assert not values_agree(("a",), ("a", "b"))
    with pytest.raises(UserError, match="no model is called 'x'"):
        Service(name_models(["m=a"]), ServeSettings(shadow="x=b"))
