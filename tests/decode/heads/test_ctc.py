"""CTC: loss, searches and alignment against enumeration of all paths."""

from itertools import product

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.decode.heads.ctc.head import CTCHead, CTCOutput, answer_log_prob
from weft.decode.heads.ctc.search import align, best_path, min_steps, prefix_beam_search
from weft.errors import UserError


def collapse(path):
    merged = [one for i, one in enumerate(path) if i == 0 or path[i - 1] != one]
    return tuple(one for one in merged if one)


def draw(steps, size, seed):
    return torch.tensor(np.random.default_rng(seed).normal(size=(steps, size))).log_softmax(-1)


def enumerate_texts(log_probs):
    """The probability of each text, and its best path, over all paths."""
    steps, size = log_probs.shape
    sums, best = {}, {}
    for path in product(range(size), repeat=steps):
        score = sum(float(log_probs[t, v]) for t, v in enumerate(path))
        text = collapse(path)
        sums[text] = sums.get(text, 0.0) + np.exp(score)
        if text not in best or score > best[text][0]:
            best[text] = score, path
    return sums, best


@pytest.mark.parametrize("seed", range(5))
def test_searches_agree_with_all_paths(seed):
    table = draw(5, 4, seed).numpy()
    sums, best = enumerate_texts(table)
    found = prefix_beam_search(table, beam=1000)
    assert tuple(found[0][0]) == max(sums, key=sums.get)
    for text, score in found:
        assert np.exp(score) == pytest.approx(sums[tuple(text)], rel=1e-6)
    (_, path), text = max((one, text) for text, one in best.items())
    assert tuple(best_path(table)) == text == collapse(path)
    for text in [(1,), (2, 1), (1, 1), (3, 2, 3)]:
        path = best[text][1]
        spans = align(table, text)
        groups = [t for t, v in enumerate(path) if v and (t == 0 or path[t - 1] != v)]
        assert [first for first, _ in spans] == groups


class Bigrams:
    """A language model that is a table: p(token | token before), 0 begins and ends."""

    def __init__(self, size):
        raw = np.random.default_rng(3).random((size, size))
        self.table = np.log(raw / raw.sum(1, keepdims=True))

    def start(self):
        return 0

    def step(self, token, state):
        now = 0 if token is None else token
        return self.table[now], float(self.table[now, 0]), now

    def score(self, text):
        steps = zip((0, *text), (*text, 0), strict=True)
        return sum(self.table[a, b] for a, b in steps)


def test_a_language_model_is_added_to_the_score():
    table, lm = draw(5, 4, 11).numpy(), Bigrams(4)
    sums, _ = enumerate_texts(table)
    expected = {
        text: np.log(p) + 0.7 * lm.score(text) + 0.3 * len(text) for text, p in sums.items()
    }
    found = prefix_beam_search(table, 1000, lm, 0.7, 0.3)
    assert tuple(found[0][0]) == max(expected, key=expected.get)
    for text, score in found:
        assert score == pytest.approx(expected[tuple(text)], abs=1e-6)


def head_of(size=6, **options):
    torch.manual_seed(0)
    return CTCHead(3, (size, size - 2, size - 1), **options)


def test_the_loss_is_that_of_all_paths_and_ignores_padding():
    head = head_of()
    tables = [draw(4, 6, 1), draw(3, 6, 2)]
    data = torch.full((2, 4, 6), 9.0)
    for i, table in enumerate(tables):
        data[i, : len(table)] = table
    output = CTCOutput(head, Padded(data, torch.tensor([4, 3])))
    target = torch.tensor([[2, 3, 5, -1], [2, 2, 5, -1]])[:, :, None]  # 5 is EOS
    total, count = output.loss(target)
    expected = [enumerate_texts(t.numpy())[0] for t in tables]
    assert count == 4
    assert float(total) == pytest.approx(-np.log(expected[0][2, 3]) - np.log(expected[1][2, 2]))
    assert answer_log_prob(output, [2])[0].item() == pytest.approx(np.log(expected[0][(2,)]))


def test_texts_longer_than_their_recording_have_no_gradient():
    data = torch.randn(2, 3, 6, requires_grad=True)
    output = CTCOutput(head_of(), Padded(data, torch.tensor([3, 3])))
    target = torch.tensor([[2, 2, 3, 5], [2, 3, 5, -1]])[:, :, None]  # 2, 2, 3 needs 4 steps
    total, _ = output.loss(target)
    total.backward()
    assert torch.all(data.grad[0] == 0)
    assert data.grad[1].abs().sum() > 0
    assert torch.isfinite(data.grad).all()
    assert output.log_likelihood(torch.tensor([[2, 2, 3], [2, 3, 0]]), torch.tensor([3, 2]))[0] == (
        -torch.inf
    )


def test_decoded_texts_have_no_special_tokens():
    head = head_of(num_beams=4)
    data = torch.zeros(1, 3, 6)
    data[:, :, [1, 4, 5]] = 50.0  # unknown, begin, end
    data[:, 1, 3] = 20.0
    ((ids, probs),) = CTCOutput(head, Padded(data, torch.tensor([3]))).decode()
    assert ids.ravel().tolist() == [3]
    assert probs.shape == (1, 1)
    with head.greedy_decoding():
        assert head.num_beams == 1
    assert head.num_beams == 4


def test_repeated_tokens_need_a_step_more():
    assert [min_steps(text) for text in ([], [1], [1, 2], [1, 1], [1, 1, 1])] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("beams", [0, 1001])
def test_impossible_beams_are_refused(beams):
    with pytest.raises(UserError, match="num_beams"):
        head_of(num_beams=beams)
