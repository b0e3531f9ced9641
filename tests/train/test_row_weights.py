"""A row of weight 2 has the loss and the gradient of two copies; one of weight 0 has none."""

import numpy as np
import pytest
import torch

from weft.batch import TokenStore, labelled_batch
from weft.batch.loss_balance import LossBalance
from weft.model import build_model
from weft.tasks.classify import Classify
from weft.tasks.regress import Regress
from weft.tasks.tag import Tag
from weft.text.example import Example

LENGTHS = (3, 5, 2, 4)
WEIGHTS = (2.0, 1.0, 0.0, 3.0)
COPIES = (0, 0, 1, 3, 3, 3)  # the rows that these weights stand for
TAGS = [(("A", "B", "C"), "")]


def text_model(outputs):
    parts = {
        "embedder": {"kind": "lookup", "width": 6},
        "encoder": {"kind": "none"},
        "pool": {"kind": "mean"},
        "head": {"kind": "linear"},
    }
    return build_model(parts, vocabulary_size=20, outputs=outputs)


def tag_model(head):
    parts = {
        "task": {"kind": "tag"},
        "embedder": {"kind": "lookup", "width": 6},
        "encoder": {"kind": "none"},
        "pool": {"kind": "none"},
        "head": {"kind": head},
    }
    return build_model(parts, vocabulary_size=20, outputs=TAGS)


def fill_store(targets, rows, weights=None, columns=0):
    random = np.random.default_rng(0)
    texts = [random.integers(4, 20, length) for length in LENGTHS]
    store = TokenStore(columns=columns)
    for i in rows:
        store.append(texts[i], targets[i], weight=weights[i] if weights else 1.0)
    return store.close()


def loss_and_gradients(model, task, store, balance=None, parts=1):
    model.zero_grad()
    store.balance = balance
    batch = labelled_batch(store, np.arange(len(store)))
    total = 0.0
    for part in batch.split(parts):
        loss = task.loss(model(part.source), part)
        (loss.total / batch.count).backward()
        total += float(loss.total.detach()) / batch.count
    return total, [p.grad.clone() for p in model.parameters() if p.grad is not None]


CLASSES = [0, 2, 1, 1]
SETS = [np.array(row, np.float32) for row in ([1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0])]
NUMBERS = [0.5, -1.0, 2.0, 0.1]
VECTORS = [np.array([x, -x, 1.0], np.float32) for x in NUMBERS]
TABLES = [np.arange(length).reshape(-1, 1) % 3 for length in LENGTHS]
FOCAL = LossBalance(gamma=2.0)
BALANCED = LossBalance((np.array([0.5, 1.0, 2.0]),))
CASES = {
    "cross-entropy": (Classify(), CLASSES, 3, None),
    "smoothing": (Classify(label_smoothing=0.1), CLASSES, 3, None),
    "margin": (Classify(loss="margin"), CLASSES, 3, None),
    "margin-sum": (Classify(loss="margin-sum"), CLASSES, 3, BALANCED),
    "focal": (Classify(), CLASSES, 3, FOCAL),
    "class weights": (Classify(), CLASSES, 3, BALANCED),
    "sets": (Classify(multi_label=True), SETS, 3, None),
    "sets, balanced": (Classify(multi_label=True), SETS, 3, BALANCED),
    "sets, focal": (Classify(multi_label=True), SETS, 3, FOCAL),
    "sets, margin": (Classify(multi_label=True, loss="margin"), SETS, 3, None),
    "number": (Regress(), NUMBERS, 1, None),
    "vector": (Regress(dimensions=3), VECTORS, 3, None),
    "tags": (Tag(), TABLES, "tags", None),
    "tags, margin": (Tag(loss="margin"), TABLES, "tags", None),
    "tags, focal": (Tag(), TABLES, "tags", FOCAL),
    "crf": (Tag(), TABLES, "crf", None),
    "crf, balanced": (Tag(), TABLES, "crf", BALANCED),
    "crf, margin": (Tag(loss="margin"), TABLES, "crf", None),
}


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_a_weight_is_a_number_of_copies(name, parts):
    task, targets, outputs, balance = CASES[name]
    structured = isinstance(outputs, str)
    torch.manual_seed(0)
    model = tag_model(outputs) if structured else text_model(outputs)
    columns = 1 if structured else 0
    weighted = fill_store(targets, range(4), WEIGHTS, columns=columns)
    copied = fill_store(targets, COPIES, columns=columns)
    loss, gradients = loss_and_gradients(model, task, weighted, balance, parts)
    expected, theirs = loss_and_gradients(model, task, copied, balance)
    plain, _ = loss_and_gradients(model, task, fill_store(targets, range(4), columns=columns))
    assert loss == pytest.approx(expected, rel=1e-6)
    assert loss != pytest.approx(plain, rel=1e-4)
    for ours, gradient in zip(gradients, theirs, strict=True):
        torch.testing.assert_close(ours, gradient, rtol=1e-5, atol=1e-6)


def test_a_store_without_weights_makes_batches_without():
    batch = labelled_batch(fill_store(CLASSES, range(4)), np.arange(4))
    assert batch.row_weights is None
    assert batch.count == 4


def test_the_scale_of_numbers_is_weighted():
    numbers, weights = (1.0, 4.0, 9.0), (2.0, 1.0, 3.0)
    rows = [Example("x", y, weight=w) for y, w in zip(numbers, weights, strict=True)]
    copies = [Example("x", y) for y, w in zip(numbers, weights, strict=True) for _ in range(int(w))]
    one, two = Regress().space(rows), Regress().space(copies)
    assert one.mean == pytest.approx(two.mean, rel=1e-12)
    assert one.deviation == pytest.approx(two.deviation, rel=1e-12)
