"""Answers over HTTP are those of `weft predict --json`, for every task."""

import json

import numpy as np
import pytest

from tests.fixtures.command import command
from tests.fixtures.recipe_runs import train_tiny
from tests.fixtures.servers import live_server
from weft import registry
from weft.predict.evaluate import prediction_json

RECIPES = {
    "classify": "tfidf", "regress": "cnn", "pair-classify": "tfidf-pair", "pair-score": "towers",
    "tag": "crf", "regress-words": "word-numbers", "parse": "parser",
    "constituency": "constituency", "intent-slots": "joint-bilstm-crf", "nodes": "tree-lstm",
    "language": "kneser-ney", "masked": "bert-pretrain", "span": "bidaf",
    "seq2seq": "seq2seq-records", "srl": "srl-spans", "coref": "coref-bilstm",
    "openie": "openie-grid",
    "sentences": "sentence-splitter",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = {}
    for task, name in RECIPES.items():
        folder = tmp_path_factory.mktemp(task)
        out[task] = (*train_tiny(name, task, folder, {}), folder / "run")
    return out


@pytest.fixture(scope="module")
def live(trained):
    models = [f"{task}={folder}" for task, (_, _, folder) in trained.items()]
    with live_server(*models) as running:
        yield running


def body_of(example):
    return [example.text, example.other] if example.other is not None else example.text


def test_every_task_is_here():
    assert set(RECIPES) | {"embed"} == set(registry.parts("task"))


@pytest.mark.parametrize("task", RECIPES)
def test_answers_are_those_of_predict(live, trained, task, tmp_path):
    _, example, folder = trained[task]
    texts = [example.text] if example.other is None else [example.text, example.other]
    reply = live.post("/predict", {"model": task, "text": body_of(example)})
    if task == "nodes":  # a tree is read from a file only
        (tmp_path / "tree.txt").write_text(example.text + "\n", "utf-8")
        texts = [tmp_path / "tree.txt"]
    printed = command("predict", folder, *texts, "--json")
    assert (reply.status, printed.status) == (200, 0), (reply.body, printed.err)
    assert reply.json["answers"] == [json.loads(printed.lines[0])]
    assert reply.json["answers"][0]["coverage"] > 0


def test_options_are_those_of_predict(live, trained):
    _, example, folder = trained["classify"]
    reply = live.post("/predict", {"model": "classify", "text": example.text, "all": True})
    printed = command("predict", folder, example.text, "--json", "--all")
    assert reply.json["answers"] == [json.loads(printed.lines[0])]
    assert set(reply.json["answers"][0]["probabilities"]) == {"positive", "negative"}
    _, example, folder = trained["span"]
    reply = live.post("/predict", {"model": "span", "text": body_of(example), "all": True})
    printed = command("predict", folder, example.text, example.other, "--json", "--all")
    assert reply.json["answers"] == [json.loads(printed.lines[0])]


def test_many_texts_come_back_in_order(live, trained):
    predictor, _, _ = trained["regress"]
    texts = ["good " * n + "film" for n in (40, 1, 900, 7, 3, 0, 2)]
    reply = live.post("/predict", {"model": "regress", "texts": texts}).json["answers"]
    alone = [prediction_json(predictor([text])[0]) for text in texts]
    assert [row["value"] for row in reply] == pytest.approx([row["value"] for row in alone], 1e-5)
    assert [row["coverage"] for row in reply] == [row["coverage"] for row in alone]


def test_words_can_be_given(live):
    words = ["Bo", "Lee", "lives", "in", "St.", "Ives"]
    (row,) = live.post("/predict", {"model": "tag", "text": {"words": words}}).json["answers"]
    assert row["words"] == words
    assert [row["parts"][k][:2] for k in (4, 5)] == [[16, 19], [20, 24]]


def test_an_answer_is_drawn(live):
    body = {"model": "parse", "text": "The dog sees the bee .", "draw": True}
    (row,) = live.post("/predict", body).json["answers"]
    assert "<svg" in row["html"]
    assert "<script" not in row["html"]


def test_vectors_are_those_of_embed(live, trained):
    predictor, _, _ = trained["regress"]
    texts = ["the film was good", "bad"]
    reply = live.post("/v1/embeddings", {"model": "regress", "input": texts}).json
    vectors = predictor.embed(texts)
    found = [row["embedding"] for row in reply["data"]]
    np.testing.assert_allclose(found, vectors, rtol=1e-6)
    tokens = predictor.engine.count_tokens(texts)
    assert reply["usage"] == {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)}
    assert tokens == [4, 1]
    short = live.post("/v1/embeddings", {"model": "regress", "input": texts[0], "dimensions": 3})
    expected = vectors[0][:3] / np.linalg.norm(vectors[0][:3])
    np.testing.assert_allclose(short.json["data"][0]["embedding"], expected, rtol=1e-5)


def test_models_are_described(live, trained):
    rows = {row["id"]: row for row in live.get("/v1/models").json["data"]}
    assert list(rows) == list(RECIPES)
    assert rows["classify"]["labels"] == ["negative", "positive"]
    assert rows["span"]["pairs"]
    assert live.get("/v1/models/tag").json == rows["tag"]


def test_the_openapi_document_has_the_labels(live):
    document = live.get("/openapi.json").json
    value = document["components"]["schemas"]["Answer.classify"]["properties"]["value"]
    assert value["enum"] == ["negative", "positive"]
    body = document["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]
    name = body["schema"]["$ref"].rpartition("/")[2]
    assert "abstain_at" in document["components"]["schemas"][name]["properties"]
