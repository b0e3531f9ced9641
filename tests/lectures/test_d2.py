"""D2: a label at each position, by an independent softmax or a CRF with Viterbi."""

import math
from itertools import pairwise, product

import pytest
import torch

from weft.batch import Padded
from weft.decode.heads.crf import CRF
from weft.decode.heads.tag import TagHead

B, T, H, C = 2, 3, 5, 4
LENGTHS = [3, 2]
COLUMN = ((tuple("abcd"), ""),)


@pytest.fixture
def states():
    return Padded(
        torch.randn(B, T, H, generator=torch.Generator().manual_seed(2)), torch.tensor(LENGTHS)
    )


def test_independent_tags_are_a_softmax_at_each_position(states):
    torch.manual_seed(3)
    head = TagHead(H, COLUMN).eval()
    gold = torch.tensor([[[0], [3], [2]], [[1], [1], [-1]]])
    with torch.no_grad():
        output = head(states)
        W, b = head.score[0].weight.double(), head.score[0].bias.double()
    total = 0.0
    for row, (tags, probs) in enumerate(output.decode()):
        for t in range(LENGTHS[row]):
            logits = (W @ states.data[row, t].double() + b).tolist()
            p = [math.exp(s) / sum(map(math.exp, logits)) for s in logits]
            assert tags[t, 0] == p.index(max(p))
            assert probs[t, 0] == pytest.approx(max(p), abs=1e-5)
            total -= math.log(p[gold[row, t, 0]])
    loss, words = output.loss(gold)
    assert (loss.item(), words) == (pytest.approx(total, abs=1e-5), 5)


def test_crf_loss_and_viterbi_are_those_of_all_sequences():
    """log P(y) = s(y) − log Σ_y' exp s(y'); the best sequence maximises s."""
    torch.manual_seed(5)
    chain = CRF(C)
    for weight in chain.parameters():
        torch.nn.init.normal_(weight)
    emissions = Padded(torch.randn(B, T, C), torch.tensor(LENGTHS))
    gold = torch.tensor([[0, 3, 2], [1, 1, -1]])
    best, best_scores = chain.viterbi(emissions)
    total = 0.0
    for row, length in enumerate(LENGTHS):
        scores = {}
        for path in product(range(C), repeat=length):
            score = chain.start[path[0]] + chain.end[path[-1]]
            score = score + sum(emissions.data[row, t, y] for t, y in enumerate(path))
            scores[path] = (score + sum(chain.transitions[a, b] for a, b in pairwise(path))).item()
        log_z = math.log(sum(map(math.exp, scores.values())))
        total += log_z - scores[tuple(gold[row, :length].tolist())]
        top = max(scores, key=scores.get)
        assert tuple(best[row, :length].tolist()) == top
        assert best_scores[row].item() == pytest.approx(scores[top], abs=1e-5)
    assert chain.loss(emissions, gold)[0].item() == pytest.approx(total, abs=1e-5)
