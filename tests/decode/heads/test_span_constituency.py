"""Span scores, the search over bracketings and the margin against slow, obvious versions."""

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.fixtures.shapes import checked
from weft.batch import Padded
from weft.decode.heads import cky
from weft.decode.heads import span_constituency as module
from weft.decode.heads.span_constituency import NO_LABEL, UNSEEN_LABEL, SpanScorer, gold_spans
from weft.errors import UserError

LENGTHS = [5, 3, 1]
GOLD = [[(1, 0, 5), (0, 0, 2), (2, 3, 5)], [(0, 0, 3), (2, 1, 3), (1, 1, 2)], [(2, 0, 1)]]


@cache
def bracketings(start: int, end: int) -> list[tuple[tuple[int, int], ...]]:
    """The spans of every binary tree."""
    if end - start == 1:
        return [((start, end),)]
    return [
        ((start, end), *left, *right)
        for split in range(start + 1, end)
        for left in bracketings(start, split)
        for right in bracketings(split, end)
    ]


def place(start: int, end: int, n: int) -> int:
    return [(i, j) for i in range(n) for j in range(i + 1, n + 1)].index((start, end))


@pytest.fixture(params=range(2, 9))
def seed(request):
    """Several, so that the empty label, the margin and the whole sentence all come to matter."""
    return request.param


@pytest.fixture
def head(seed):
    torch.manual_seed(seed)
    made = SpanScorer(11, 3, hidden=7)
    torch.nn.init.normal_(made.second.weight, std=2.0)  # labels and the empty one both win
    torch.nn.init.constant_(made.second.bias, -2.0)
    torch.nn.init.normal_(made.bias)
    return made.eval()


@pytest.fixture
def states(seed):
    torch.manual_seed(seed + 1)
    x = Padded(torch.randn(3, 5, 11), torch.tensor(LENGTHS))
    return x.with_data(x.data)


def slow_scores(head, row) -> dict[tuple[int, int], torch.Tensor]:
    """Scores (C + 1,) of every span of one row, the empty label last, from the equations."""
    half, n = head.ahead, len(row)
    gaps = [
        torch.cat([row[k - 1][:half] if k else head.before, row[k][half:] if k < n else head.after])
        for k in range(n + 1)
    ]
    out = {}
    for start in range(n):
        for end in range(start + 1, n + 1):
            x = head.first.weight @ (gaps[end] - gaps[start]) + head.bias
            x = (x - x.mean()) / (x.var(unbiased=False) + head.norm.eps).sqrt()
            hidden = (x * head.norm.weight + head.norm.bias).relu()
            scores = head.second.weight @ hidden + head.second.bias
            empty = scores.new_full((1,), -torch.inf if (start, end) == (0, n) and n > 1 else 0.0)
            out[start, end] = torch.cat([scores, empty])
    return out


def slow_best(scores, n, right=None):
    """Best total and its (label, start, end), by trying every tree; wrong labels gain 1."""

    def gain(span):
        if right is None:
            return scores[span]
        wanted = right.get(span, 3)
        return (
            scores[span] + 1 - (0 if wanted == UNSEEN_LABEL else F.one_hot(torch.tensor(wanted), 4))
        )

    totals = [sum(gain(span).max() for span in tree) for tree in bracketings(0, n)]
    tree = bracketings(0, n)[int(torch.stack(totals).argmax())]
    return max(totals), [(int(gain(span).argmax()), *span) for span in tree]


def test_scores_are_the_equations(head, states):
    boundaries = head(states)
    for b, row in enumerate(states.rows()):
        for (start, end), expected in slow_scores(head, row).items():
            where = (torch.tensor([at]) for at in (b, start, end))
            found = head.scores(boundaries, *where)[0]
            torch.testing.assert_close(found, expected[:3], rtol=1e-5, atol=1e-5)


def test_decoding_finds_the_best_tree(head, states):
    found = head.decode(head(states))
    for b, row in enumerate(states.rows()):
        total, spans = slow_best(slow_scores(head, row), len(row))
        assert list(found[b].spans) == [span for span in spans if span[0] != 3]
        assert found[b].score == pytest.approx(total.item(), rel=1e-4)


@pytest.mark.parametrize("unseen", [False, True])
def test_loss_is_the_margin_with_its_gradients(head, states, unseen):
    gold = [list(row) for row in GOLD]
    if unseen:
        gold[0][1] = (UNSEEN_LABEL, 0, 2)
    total, count = head.loss(head(states), gold_spans(gold))
    expected = torch.zeros(())
    for row, spans in zip(states.rows(), gold, strict=True):
        scores = slow_scores(head, row)
        right = {(start, end): label for label, start, end in spans}
        best, _ = slow_best(scores, len(row), right)
        worth = sum(scores[start, end][label] for label, start, end in spans if label >= 0)
        expected = expected + (best - worth).relu()
    assert count == 3
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-5)
    parameters = list(head.parameters())
    for name, a, b in zip(
        dict(head.named_parameters()),
        torch.autograd.grad(total, parameters, retain_graph=True),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=name)
        assert a.any() or not total, name


@pytest.mark.parametrize("seed", [5])
def test_no_loss_once_the_right_tree_wins_by_the_margin(states):
    head = SpanScorer(11, 3, hidden=31)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.03)
    for _ in range(300):
        total, _ = head.loss(head(states), gold_spans(GOLD))
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        if not total.item():
            break
    assert total.item() == 0
    found = head.decode(head(states))
    assert [sorted(row.spans) for row in found] == [sorted(row) for row in GOLD]


def test_garbage_in_the_padding_changes_nothing(head, states):
    wild = Padded(states.data + 99 * ~states.mask[:, :, None], states.lengths)
    losses = [head.loss(head(x), gold_spans(GOLD))[0] for x in (states, wild)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    assert head.decode(head(states)) == head.decode(head(wild))


def test_rows_do_not_see_each_other(head, states):
    whole = head.decode(head(states))
    alone = head.decode(head(Padded(states.data[1:2, :3], states.lengths[1:2])))
    assert whole[1].spans == alone[0].spans


def test_blocks_and_threads_make_no_difference(head, states, monkeypatch):
    whole, loss = head.decode(head(states)), head.loss(head(states), gold_spans(GOLD))[0]
    monkeypatch.setattr(module, "SPANS_PER_CHUNK", 4)
    chunked = head.decode(head(states), threads=3)
    assert [tree.spans for tree in chunked] == [tree.spans for tree in whole]
    # Products of other sizes may round the last bit differently.
    assert [tree.score for tree in chunked] == pytest.approx(
        [tree.score for tree in whole], rel=1e-6
    )
    torch.testing.assert_close(head.loss(head(states), gold_spans(GOLD), threads=3)[0], loss)


def test_rows_without_words_or_spans(head):
    x = Padded(torch.randn(3, 2, 11), torch.tensor([2, 0, 1]))
    found = head.decode(head(x))
    assert [len(row.spans) > 0 for row in found][:2] == [True, False]
    total, count = head.loss(head(x), gold_spans([[(1, 0, 2)], [], []]))
    assert count == 3
    assert total.isfinite()


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_the_search_tries_every_bracketing(n):
    rng = np.random.default_rng(n)
    for _ in range(53):
        scores = rng.normal(size=cky.span_count(n)).round(rng.integers(0, 3))  # some with many ties
        found = cky.best_tree(scores, n)
        totals = [sum(scores[place(*span, n)] for span in tree) for tree in bracketings(0, n)]
        assert scores[found].sum() == pytest.approx(max(totals))
        spans = {(i, j) for i in range(n) for j in range(i + 1, n + 1) if place(i, j, n) in found}
        assert spans in [set(tree) for tree in bracketings(0, n)]
        assert found[0] == place(0, n, n)


def test_a_long_sentence():
    n = 499
    found = cky.best_tree(np.random.default_rng(0).normal(size=cky.span_count(n)), n)
    assert len(set(found.tolist())) == 2 * n - 1


def test_too_long_and_no_numbers(head, monkeypatch):
    with pytest.raises(UserError, match=r"not finite .* diverged. Train again with a lower"):
        cky.best_tree(np.array([0.0, np.nan, 1.0]), 2)
    monkeypatch.setattr(cky, "MAX_WORDS", 4)
    with pytest.raises(UserError, match=r"of 5 words is too long for constituency .*limit 4\)"):
        head.decode(head(Padded(torch.zeros(1, 5, 11), torch.tensor([5]))))


def test_targets_pad_with_nothing():
    found = gold_spans([[(2, 0, 3), (NO_LABEL, 0, 1)], [], [(1, 0, 1)]])
    assert found.tolist() == [
        [[2, 0, 3], [-1, 0, 1]],
        [[-1, -1, -1], [-1, -1, -1]],
        [[1, 0, 1], [-1, -1, -1]],
    ]


def test_shape_comments_are_true(head, states):
    def work():
        head.loss(head(states), gold_spans(GOLD))
        head.decode(head(states))

    assert checked("weft.decode.heads.span_constituency", work) >= 12


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match="head 'brackets': 'hidden' should be at least 1, got 0"):
        SpanScorer(7, 3, hidden=0)
