"""Deep biaffine attention against the paper's equations, its loss and its decoding."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.fixtures.shapes import checked
from tests.fixtures.tree_checks import is_tree
from weft.batch import Padded
from weft.decode.heads.biaffine import PAIRS_PER_PART, BiaffineScorer
from weft.errors import UserError

LENGTHS = [7, 3, 1]
HEADS = [[2, 0, 2, 5, 3, 5, 1], [2, 3, 0], [0]]
LABELS = [[1, 0, 2, 2, 1, 1, 2], [1, 2, 0], [0]]


def padded(rows, fill=-1) -> torch.Tensor:
    return Padded.from_rows(rows, fill).data


@pytest.fixture
def head():
    torch.manual_seed(2)
    return BiaffineScorer(11, 3, arc=5, label=4, dropout=0.3).eval()


@pytest.fixture
def states():
    torch.manual_seed(3)
    x = Padded(torch.randn(3, 7, 11), torch.tensor(LENGTHS))
    return x.with_data(x.data)


def slow_scores(head, row):
    """Arc scores (T, S) and label scores (T, S, C) of one row of states, from the equations."""

    def role(layer, h):
        x = layer[0].weight @ h + layer[0].bias
        return torch.where(x > 0, x, 0.1 * x)

    steps = [head.root, *row]
    U, u = head.arc.weight[0, :-1], head.arc.weight[0, -1]
    W = head.label.weight
    arcs = torch.full((len(row), len(steps)), -torch.inf)
    labels = torch.empty(len(row), len(steps), len(W))
    for i, word in enumerate(row):
        for j, step in enumerate(steps):
            d, h = role(head.arc_word, word), role(head.arc_head, step)
            if j != i + 1:
                arcs[i, j] = d @ U @ h + u @ h
            r, g = role(head.label_word, word), role(head.label_head, step)
            for c in range(len(W)):
                alone = W[c, :-1, -1] @ r + W[c, -1, :-1] @ g
                labels[i, j, c] = r @ W[c, :-1, :-1] @ g + alone + W[c, -1, -1]
    return arcs, labels


def test_labels_scored_in_parts_are_those_scored_together():
    torch.manual_seed(6)
    label = BiaffineScorer(11, 3, label=4).label
    x, y = torch.randn(2, 2 * PAIRS_PER_PART + 5, 4)
    together = label.pairs(x, y)
    assert together.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(label.pairs(x, y), together.detach(), rtol=1e-5, atol=1e-5)
        assert label.pairs(x[:0], y[:0]).shape == (0, 3)


def test_scores_are_the_equations(head, states):
    scores = head(states)
    heads = padded(HEADS)
    named = iter(head.labels(scores, heads))
    assert scores.arcs.shape == (3, 7, 8)
    for b, row in enumerate(states.rows()):
        arcs, labels = slow_scores(head, row)
        n = len(row)
        torch.testing.assert_close(scores.arcs[b, :n, : n + 1], arcs, rtol=1e-5, atol=1e-5)
        assert (scores.arcs[b, :, n + 1 :] == -torch.inf).all()
        for i, j in enumerate(HEADS[b]):
            torch.testing.assert_close(next(named), labels[i, j], rtol=1e-5, atol=1e-5)
    assert next(named, None) is None


def test_loss_is_both_cross_entropies(head, states):
    total, count = head.loss(head(states), padded(HEADS), padded(LABELS))
    expected = torch.zeros(())
    for row, heads, labels in zip(states.rows(), HEADS, LABELS, strict=True):
        arcs, named = slow_scores(head, row)
        for i, (j, c) in enumerate(zip(heads, labels, strict=True)):
            expected = expected - arcs[i].log_softmax(0)[j] - named[i, j].log_softmax(0)[c]
    assert count == 11
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)


def test_an_unknown_label_or_head_adds_nothing(head, states):
    scores, heads, labels = head(states), padded(HEADS), padded(LABELS)
    whole, _ = head.loss(scores, heads, labels)
    named = head.labels(scores, heads)[3]
    labels[0, 3] = -1
    less, count = head.loss(scores, heads, labels)
    assert count == 11
    torch.testing.assert_close(whole - less, F.cross_entropy(named, torch.tensor(2)))
    heads[0, 3] = -1
    least, count = head.loss(scores, heads, labels)
    assert count == 10
    torch.testing.assert_close(less - least, -scores.arcs[0, 3].log_softmax(0)[5])


@pytest.mark.parametrize("search", ["tree", "projective", "greedy"])
def test_garbage_in_the_padding_changes_nothing(head, states, search):
    wild = states.data + 99 * ~states.mask[:, :, None]
    other = Padded(wild, states.lengths)
    losses = [head.loss(head(x), padded(HEADS), padded(LABELS))[0] for x in (states, other)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    first, second = (head.decode(head(x), search) for x in (states, other))
    np.testing.assert_array_equal(first.heads, second.heads)
    np.testing.assert_array_equal(first.labels, second.labels)
    np.testing.assert_allclose(first.probs, second.probs, rtol=1e-5)


def test_rows_do_not_see_each_other(head, states):
    whole = head.decode(head(states))
    alone = head.decode(head(Padded(states.data[1:2, :3], states.lengths[1:2])))
    np.testing.assert_array_equal(whole.heads[1, :3], alone.heads[0])
    np.testing.assert_array_equal(whole.labels[1, :3], alone.labels[0])
    np.testing.assert_allclose(whole.probs[1, :3], alone.probs[0], rtol=1e-5)


def test_decoding_returns_trees_with_labels_and_probabilities(head, states):
    scores = head(states)
    parse = head.decode(scores)
    greedy = head.decode(scores, "greedy")
    for b, row in enumerate(states.rows()):
        arcs, labels = slow_scores(head, row)
        n = len(row)
        assert is_tree(parse.heads[b, :n])
        assert (parse.heads[b, n:] == -1).all()
        assert (parse.labels[b, n:] == -1).all()
        np.testing.assert_array_equal(greedy.heads[b, :n], arcs.argmax(1))
        for i, j in enumerate(parse.heads[b, :n]):
            named = labels[i, j].softmax(0)
            assert parse.labels[b, i] == named.argmax()
            chance = arcs[i].softmax(0)[j] * named.max()
            assert parse.probs[b, i] == pytest.approx(chance.item(), rel=1e-4)


def test_the_label_of_the_root_is_its_own(head, states):
    for root in range(3):
        parse = head.decode(head(states), root=root)
        real = parse.heads >= 0
        np.testing.assert_array_equal(parse.labels[real] == root, parse.heads[real] == 0)
    with pytest.raises(UserError, match="'root' is label 3, but there are only 3 labels"):
        head.decode(head(states), root=3)


def test_every_parameter_learns(head, states):
    total, _ = head.train().loss(head(states), padded(HEADS), padded(LABELS))
    total.backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad.any(), name


def test_gradients(head, states):
    head = head.double()

    def loss(data):
        scores = head(Padded(data, states.lengths))
        arcs = scores.arcs.masked_fill(scores.arcs == -torch.inf, 0)
        return arcs, head.labels(scores, padded(HEADS))

    # Nowhere zero: padding would lie on the kink of the hidden layers.
    data = torch.randn(3, 7, 11, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (data,))


def test_dropout_takes_a_unit_at_every_step(head, states):
    torch.manual_seed(5)
    kept = head.train()(states).words[0] != 0  # (T, R)
    assert (kept == kept[:1]).all()
    assert kept.any()
    assert not kept.all()


def test_shape_comments_are_true(head, states):
    def work():
        scores = head(states)
        head.loss(scores, padded(HEADS), padded(LABELS))
        head.decode(scores)

    assert checked("weft.decode.heads.biaffine", work) >= 12


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match="head 'arcs': 'arc' should be at least 1, got 0"):
        BiaffineScorer(7, 3, arc=0)
    with pytest.raises(UserError, match=r"head 'arcs': 'dropout' .* got 1"):
        BiaffineScorer(7, 3, dropout=1.0)
