"""Where answers begin and end: scores, their loss, and the best span by trying all."""

import math
from itertools import product

import pytest
import torch

from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.decode.heads.answer_span import AnswerSpanOutput
from weft.errors import UserError
from weft.tokens.special_tokens import SpecialTokens

E = 7
JOINT = SpecialTokens((1,), (2,), (2,))
EACH = SpecialTokens((1,), (2,), (2,), each=True)


def built(outputs=(3, False), **known):
    torch.manual_seed(1)
    settings = {name: known.pop(name) for name in ("own_end",) if name in known}
    spec = {"kind": "span", **settings}
    return registry.build("head", spec, input_size=E, outputs=outputs, **known).eval()


def states(lengths=(6, 3, 5), second=None, garbage=0.0):
    torch.manual_seed(2)
    lengths = torch.tensor(lengths)
    x = Padded(torch.randn(len(lengths), int(lengths.max()), E), lengths)
    data = x.data.masked_fill(~x.mask[..., None], garbage)
    return Padded(data, lengths, second=None if second is None else torch.tensor(second))


def allowed(scores):
    return [[i for i, s in enumerate(row[1:].tolist()) if s > -math.inf] for row in scores.starts]


def test_only_steps_of_the_passage_can_be_answers():
    assert allowed(built()(states())) == [[0, 1, 2, 3, 4, 5], [0, 1, 2], [0, 1, 2, 3, 4]]
    # [CLS] q [SEP] p p p [SEP]: the question, the frame and the padding are out.
    framed = states((7, 4, 6), second=[3, 2, 4])
    assert allowed(built(frame=JOINT)(framed)) == [[3, 4, 5], [2], [4]]
    assert allowed(built(frame=EACH)(states())) == [[1, 2, 3, 4], [1], [1, 2, 3]]


def test_padding_does_not_change_scores():
    for own_end in (False, True):
        head = built(own_end=own_end, outputs=(3, True))
        clean, dirty = head(states()), head(states(garbage=9.0))
        torch.testing.assert_close(clean.starts, dirty.starts)
        torch.testing.assert_close(clean.ends, dirty.ends)


@pytest.mark.parametrize("longest", [1, 3, 50])
def test_the_best_span_is_found(longest):
    torch.manual_seed(3)
    starts, ends = torch.randn(2, 11, 9)
    starts[:, [4, 8]] = ends[:, [4, 8]] = -math.inf
    for row, best in enumerate(AnswerSpanOutput(starts, ends, longest).decode()):
        s, e = starts[row, 1:], ends[row, 1:]
        tried = {
            (i, j): float(s[i] + e[j])
            for i, j in product(range(8), repeat=2)
            if i <= j < i + longest and s[i] + e[j] > -math.inf
        }
        assert (best.first, best.last) == max(tried, key=tried.get)
        assert best.score == pytest.approx(max(tried.values()))
        assert best.nothing == pytest.approx(float(starts[row, 0] + ends[row, 0]))
        assert best.total == pytest.approx(math.log(sum(map(math.exp, tried.values()))), abs=1e-5)


def test_the_loss_is_the_mean_of_both():
    head = built(outputs=(3, True))
    scores = head(states())
    target = torch.tensor([[1, 4], [-1, -1], [0, 0]])
    total, count = scores.loss(target)
    by_hand = 0.0
    for row, (first, last) in enumerate(target.tolist()):
        for side, at in ((scores.starts, first), (scores.ends, last)):
            by_hand -= float(side[row].detach().log_softmax(0)[at + 1]) / 2
    assert count == 3
    assert float(total.detach()) == pytest.approx(by_hand, rel=1e-5)
    assert math.isfinite(by_hand)


def test_no_answer_stands_at_the_first_step_or_is_learned():
    learned = built(outputs=(3, True))
    with torch.no_grad():
        learned.nothing.copy_(torch.tensor([2.0, -3.0]))
    scores = learned(states())
    assert scores.starts[:, 0].tolist() == [2, 2, 2]
    assert scores.ends[:, 0].tolist() == [-3, -3, -3]
    marked = built(outputs=(3, True), frame=JOINT)
    x = states((7, 4, 6), second=[3, 2, 4])
    assert marked.nothing is None
    torch.testing.assert_close(marked(x).starts[:, 0], marked.start(x.data)[:, 0, 0])
    assert all(best.nothing == -math.inf for best in built()(states()).decode())


def test_the_ends_own_reader():
    """End scores are w·[G; M²], with M² a BiLSTM over M alone."""
    head = built(own_end=True, modelled=4)
    x = states()
    scores = head(x)
    for row, own in enumerate(x.rows()):
        read = head.reader(Padded(own[None, :, 3:], torch.tensor([len(own)]))).data[0]
        wanted = torch.cat([own[:, :3], read], 1) @ head.end.weight[0] + head.end.bias
        torch.testing.assert_close(scores.ends[row, 1 : 1 + len(own)], wanted)
    whole = built(own_end=True)  # nothing says which part is the model's
    assert whole.reader.net.input_size == E


@pytest.mark.parametrize("known", [{}, {"frame": JOINT}, {"own_end": True, "modelled": 4}])
def test_every_parameter_learns(known):
    head = built(outputs=(3, True), **known)
    second = [2, 1, 3] if "frame" in known else None
    total, _ = head(states(second=second)).loss(torch.tensor([[3, 4], [-1, -1], [3, 3]]))
    total.backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        if name not in ("start.bias", "end.bias"):  # shifts all scores alike, but a learned none
            assert parameter.grad.any(), name


def test_shape_comments_are_true():
    head = built(own_end=True, outputs=(3, True))
    assert checked("weft.decode.heads.answer_span", lambda: head(states()).decode()) >= 8


def test_wrong_task_or_pool_raises_user_error():
    with pytest.raises(UserError, match="needs the task 'span'"):
        built(outputs=5)
    with pytest.raises(UserError, match=r"Set pool\.kind to 'none'"):
        built()(torch.zeros(3, E))
