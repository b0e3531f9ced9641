"""Promises every embedder keeps. A new embedder is picked up by name; nobody edits this file."""

import copy

import pytest
import torch

from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded

VOCABULARY = 11
TEXTS = [["a", "loving", "naïveté", "of", "it"], [], ["b"], ["Ωmega", "a", "loving"]]
VARIANTS = [
    {"kind": "lookup", "width": 7},
    {"kind": "word-ngrams", "width": 7, "order": 3, "buckets": 101, "sparse": False},
    {"kind": "word-ngrams", "width": 7, "order": 1},
    {"kind": "ngrams", "width": 7, "buckets": 101, "combine": "sum", "sparse": True},
    {"kind": "character-cnn", "width": 7, "filters": [[1, 3], [11, 2]], "highway_layers": 0},
    {"kind": "vectors", "features": 3, "width": 7, "norm": True, "positions": "sinusoidal"},
    {"kind": "vectors", "features": 3, "width": 7, "positions": "learned", "max_positions": 8},
]
NEEDED = {
    "vectors": {"features": 5},
    "image": {"shape": [5, 8, 2], "patch": 2},
}  # what only the data can say
NAMES = sorted(registry.parts("embedder"))
CASES = [{"kind": name, **NEEDED.get(name, {})} for name in NAMES] + VARIANTS


def sample(embedder, texts=TEXTS, extra=0, garbage=0):
    lengths = torch.tensor([len(text) for text in texts])
    steps = int(lengths.max()) + extra
    if wide := embedder.features:
        vectors = torch.full((len(texts), steps, wide), float(garbage))
        for row, text in enumerate(texts):
            for step, word in enumerate(text):
                vectors[row, step] = torch.arange(wide).add(len(word) + 2).sin()
        return Padded(vectors, lengths)
    if not embedder.reads_subtokens:
        data = torch.full((len(texts), steps), garbage)
        for row, text in enumerate(texts):
            data[row, : len(text)] = torch.tensor([len(w) % 9 + 2 for w in text])
        return Padded(data, lengths)
    rows = [embedder.subtoken_ids(text) for text in texts]
    wide = max((len(piece) for row in rows for piece in row), default=0) + extra
    data = torch.full((len(texts), steps, wide), garbage)
    for row, pieces in enumerate(rows):
        for step, piece in enumerate(pieces):
            data[row, step] = torch.tensor(piece + [0] * (wide - len(piece)))
    return Padded(data, lengths)


@pytest.fixture(params=CASES, ids=str)
def embedder(request):
    torch.manual_seed(1)
    return registry.build("embedder", request.param, vocabulary_size=VOCABULARY).eval()


def test_output_has_the_promised_width(embedder):
    out = embedder(sample(embedder))
    assert out.data.shape == (4, 5, embedder.output_size)
    assert out.data[~out.mask].eq(0).all()
    assert out.data[out.mask].ne(0).any(-1).all()


def test_padding_does_not_change_answers(embedder):
    short = embedder(sample(embedder)).rows()
    long = embedder(sample(embedder, extra=3, garbage=7)).rows()
    for a, b in zip(short, long, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_rows_do_not_see_each_other(embedder):
    together = embedder(sample(embedder)).rows()
    for text, row in zip(TEXTS, together, strict=True):
        alone = embedder(sample(embedder, [text])).rows()[0]
        torch.testing.assert_close(alone, row, rtol=1e-5, atol=1e-5)


def test_every_parameter_learns(embedder):
    embedder.train()
    embedder(sample(embedder)).data.square().sum().backward()
    for name, parameter in embedder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.to_dense().any(), name


def test_weights_alone_carry_the_answer(embedder):
    x = sample(embedder)
    before = embedder(x).data
    saved = copy.deepcopy(embedder.state_dict())
    with torch.no_grad():
        for parameter in embedder.parameters():
            parameter.add_(1)
    assert not torch.equal(embedder(x).data, before)
    embedder.load_state_dict(saved)
    assert torch.equal(embedder(x).data, before)


def test_nothing_to_read(embedder):
    assert embedder(sample(embedder, [[], []])).data.shape == (2, 0, embedder.output_size)


def test_shape_comments_are_true(embedder):
    assert checked("weft.embed", lambda: embedder(sample(embedder))) >= 1
