"""D4: two texts become one vector: [x; y], x·y, x W y, and [CLS] a [SEP] b [SEP]."""

import numpy as np
import pytest
import torch

from tests.fixtures.classify_runs import settings, source
from tests.fixtures.pair_runs import pairs
from weft import registry
from weft.batch import TokenStore
from weft.model import build_model
from weft.predict.neural import make_indexer
from weft.predict.predictor import load
from weft.run import Splits, train
from weft.tokens.word import Word

TEXTS = ["a dog is here", "the cat"]
OTHERS = ["the cat runs", "dog"]
CLS, SEP, E, C = 1, 2, 5, 3


def combine(kind, x, y, W=None):
    """Each of the forms for two vectors, in plain numbers."""
    dot = sum(a * b for a, b in zip(x, y, strict=True))
    if kind == "concat":
        return [*x, *y]
    if kind == "towers":
        gaps = [abs(a - b) for a, b in zip(x, y, strict=True)]
        return [*x, *y, *gaps, *(a * b for a, b in zip(x, y, strict=True))]
    if kind == "dot":
        return [dot]
    if kind == "bilinear":
        return [sum(x[i] * W[i][j] * y[j] for i in range(len(x)) for j in range(len(y)))]
    return [dot / (sum(a * a for a in x) * sum(b * b for b in y)) ** 0.5]


def network(embedder, pair):
    torch.manual_seed(0)
    tokenizer = Word().train(TEXTS + OTHERS)
    parts = {
        "embedder": embedder, "encoder": {"kind": "none"}, "pair": pair,
        "pool": {"kind": "mean"}, "head": {"kind": "linear"},
    }  # fmt: skip
    return build_model(parts, vocabulary_size=len(tokenizer), outputs=C).eval(), tokenizer


def word_ids(tokenizer, text):
    return [tokenizer.vocabulary.index(word) for word in text.split()]


def batch(model, tokenizer):
    store = TokenStore(pairs=True)
    rows = list(make_indexer(model, tokenizer, 0, "head").rows(TEXTS, others=OTHERS))
    for row in rows:
        store.append(row.ids, 0, second=row.second)
    return rows, store.close().padded(np.arange(len(rows)))


@pytest.mark.parametrize("kind", ["concat", "dot", "bilinear", "towers", "cosine"])
def test_two_texts_are_combined_by_the_formula(kind):
    model, tokenizer = network({"kind": "lookup", "width": E}, {"kind": kind})
    table, head = model.embedders[0].table.weight, model.head.score
    W = model.join.weight.tolist() if kind == "bilinear" else None
    with torch.no_grad():
        output = model.run(batch(model, tokenizer)[1])
        for i, (one, other) in enumerate(zip(TEXTS, OTHERS, strict=True)):
            x, y = (table[word_ids(tokenizer, text)].mean(0).tolist() for text in (one, other))
            vector = torch.tensor(combine(kind, x, y, W))
            torch.testing.assert_close(output.vector[i], vector, rtol=1e-5, atol=1e-5)
            expected = head.weight @ vector + head.bias
            torch.testing.assert_close(output.scores[i], expected, rtol=1e-5, atol=1e-5)


def test_joint_encoding_is_one_row_of_both_texts():
    bert = {"kind": "bert", "width": 6, "layers": 1, "heads": 2, "feed_forward": 5}
    bert |= {"max_positions": 16, "cls": CLS, "sep": SEP}
    model, tokenizer = network(bert, {"kind": "joint"})
    rows, padded = batch(model, tokenizer)
    for row, one, other, segments in zip(rows, TEXTS, OTHERS, padded.segments, strict=True):
        a, b = (word_ids(tokenizer, text) for text in (one, other))
        assert list(row.ids) == [CLS, *a, SEP, *b, SEP]
        first = [0] * (len(a) + 2) + [1] * (len(b) + 1)
        assert segments.tolist()[: len(first)] == first


@pytest.mark.parametrize("kind", ["concat", "dot", "bilinear", "joint"])
def test_one_setting_chooses_among_them(kind, tmp_path):
    changes = {"pair__mark": True} if kind == "joint" else {}
    config = settings("towers", pair__kind=kind, train__epochs=1, **changes)
    outcome = train(config, tmp_path, splits=Splits(source(pairs())), quiet=True)
    loaded = load(tmp_path, device="cpu")
    assert loaded.config["pair"]["kind"] == kind
    examples = [(row.text, row.other) for row in pairs()]
    for one, other in zip(outcome.predictor(examples), loaded(examples), strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-6)


def test_x_w_y_is_no_symmetric_form():
    join = registry.build("pair", {"kind": "bilinear"}, input_size=E).join(E)
    x, y = torch.randn(2, 3, E).unbind()
    assert not torch.allclose(join(x, y), join(y, x))
