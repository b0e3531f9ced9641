"""T5: pictures of vectors; "bank" has two vectors in two contexts, and one in a lookup table."""

import json
import re

import numpy as np
import pytest
import torch

import weft
from weft import config
from weft.batch import Padded
from weft.errors import UserError
from weft.explain.contexts import Contexts, Occurrence, find_contexts
from weft.report.analysis.projection import MIN_TEXTS, project
from weft.report.pages.contexts import render
from weft.run import Splits, train
from weft.text.example import Example

THIEF = "The thief was robbing a bank"
SAFARI = "On our safari we saw many crocodiles on the bank of the river"
SMALL = {"task.window": 16, "train.epochs": 1, "train.batch_size": 2, "train.threads": 1}
RECURRENT = {"decoder.width": 7, "decoder.hidden": 5}
MODELS = {
    "rnn-lm": RECURRENT | {"tokenizer.min_count": 1},
    "lstm-lm": RECURRENT | {"tokenizer.min_count": 1},
    "nnlm": RECURRENT | {"tokenizer.min_count": 1},
    "masked-bilstm": RECURRENT | {"tokenizer.min_count": 1},
    "gpt": {"decoder.hidden": 12, "decoder.heads": 2, "decoder.layers": 2,
            "decoder.max_positions": 16, "tokenizer.vocab_size": 300},
    "elmo-pretrain": {"decoder.width": 7, "decoder.hidden": 5, "decoder.filters": [[1, 3], [2, 3]],
                      "tokenizer.min_count": 1},
}  # fmt: skip


def examples():
    return [Example(THIEF), Example(SAFARI)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    cache = {}

    def make(recipe):
        if recipe not in cache:
            folder = tmp_path_factory.mktemp(recipe)
            rows = examples() * 6
            splits = Splits(lambda: iter(rows), lambda: iter(rows[:2]), None)
            given = config.recipe(recipe).with_values(SMALL | MODELS[recipe], "test")
            train(given, folder, splits=splits, quiet=True)
            cache[recipe] = weft.load(folder)
        return cache[recipe]

    return make


@pytest.mark.parametrize("recipe", MODELS)
def test_bank_has_two_vectors_in_two_contexts_and_one_in_the_table(recipe, trained):
    predictor = trained(recipe)
    found = find_contexts(predictor, examples(), "bank")
    assert [one.text for one in found.found] == [THIEF, SAFARI]
    first, second = found.vectors
    assert np.abs(first - second).max() > 1e-3
    first, second = find_contexts(predictor, examples(), "bank", layer=0).vectors
    assert np.abs(first - second).max() < 1e-6


def test_the_vector_of_a_language_model_is_its_state_after_the_word(trained):
    predictor = trained("rnn-lm")
    model, tokenizer = predictor.engine.model, predictor.engine.indexer.tokenizer
    decoder, head = model.head.decoder, model.head
    W, U, b, d = (getattr(decoder.net, f"{name}_l0") for name in
                  ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))  # fmt: skip
    s = torch.zeros(5)
    for word in [head.bos, *tokenizer.encode_ids([THIEF])[0].tolist()]:  # "bank" is the last word
        s = torch.tanh(W @ decoder.words.table.weight[word] + b + U @ s + d)
    found = find_contexts(predictor, [Example(THIEF)], "bank").vectors[0]
    assert found == pytest.approx(s.detach().numpy(), abs=1e-5)


def test_gpt_has_a_vector_for_each_layer(trained):
    predictor = trained("gpt")
    decoder = predictor.engine.model.head.decoder
    (ids,) = predictor.engine.indexer.tokenizer.encode_ids([THIEF])
    source = Padded.from_rows([[predictor.engine.model.head.bos, *ids.tolist()]])
    with torch.no_grad():
        x = decoder.words.embed(source.data) + decoder.positions.table[: source.data.shape[1]]
        first = decoder.blocks[0](x, None, None, None, None, False)[0][0]
        last = decoder.features(source)[0]
    places = predictor.engine.indexer.tokenizer.encode_batch([THIEF])[0].offsets.tolist()
    own = [k + 1 for k, (a, z) in enumerate(places) if z > THIEF.index("bank")]
    for layer, states in ((1, first), (2, last), (None, last)):
        found = find_contexts(predictor, [Example(THIEF)], "bank", layer).vectors[0]
        assert found == pytest.approx(states[own].mean(0).numpy(), abs=1e-5)
    with pytest.raises(UserError, match=r"from 0 \(the words alone\) to 2, got 3"):
        find_contexts(predictor, examples(), "bank", layer=3)


def test_a_text_longer_than_gpt_sees_is_read_in_windows(trained):
    long = "we saw many crocodiles " * 12 + "bank"
    found = find_contexts(trained("gpt"), [Example(long)], "bank")
    assert (len(found.found), found.truncated) == (1, 0)


def test_pca_is_the_svd_of_the_centred_vectors():
    vectors = np.random.default_rng(0).normal(size=(11, 7))
    centred = vectors - vectors.mean(0)
    _, _, right = np.linalg.svd(centred, full_matrices=False)
    wanted = centred @ right[:2].T
    found = project(vectors, "pca")
    for column in range(2):
        sign = np.sign(found[:, column] @ wanted[:, column])
        assert found[:, column] == pytest.approx(sign * wanted[:, column], abs=1e-5)


@pytest.mark.parametrize("count", [2, 3])
def test_pca_keeps_all_distances_of_two_and_three_points(count):
    vectors = np.random.default_rng(1).normal(size=(count, 7))
    points = project(vectors, "pca")
    for i in range(count):
        for j in range(count):
            distance = np.linalg.norm(vectors[i] - vectors[j])
            assert np.linalg.norm(points[i] - points[j]) == pytest.approx(distance, abs=1e-5)


def occurrences(count):
    vectors = np.random.default_rng(2).normal(size=(count, 7))
    return Contexts("bank", (Occurrence(THIEF, 24, 28),) * count, vectors, None)


def layouts(count, method=None):
    page = render(occurrences(count), "f.txt", command=["weft"], method=method)
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page).group(1))
    return page, data["layouts"]


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_few_occurrences_are_drawn(count):
    page, drawn = layouts(count)
    assert len(drawn["pca"]) == 2 * count
    assert ("t-sne" in drawn) is (count >= MIN_TEXTS)
    assert ("t-SNE needs at least 4 vectors" in page) is (count < MIN_TEXTS)
    assert f"{count} occurrences by pca" in page  # shown first, where there are few


@pytest.mark.parametrize("method", ["t-sne", "umap"])
def test_a_projection_of_choice_is_drawn_from_four_occurrences_on(method, request):
    if method == "umap":
        request.getfixturevalue("interpreted_umap")
    page, drawn = layouts(4, method)
    assert set(drawn) == {"pca", method}
    assert f"4 occurrences by {method}" in page
    page, drawn = layouts(3, method)
    assert set(drawn) == {"pca"}
    assert "needs at least 4 vectors, got 3; PCA keeps all distances" in page
