"""Promises every meeting of two texts keeps, and the papers' equations written out in loops."""

import copy
import math

import pytest
import torch

from tests.fixtures.attention import SCORES, build_spec
from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.batch.padded import concat_pair
from weft.encode.pair.bi_encoder import check_segment_marks
from weft.errors import UserError
from weft.protocols import Pair

WIDTH = 5
FIRST, SECOND = [4, 1, 3], [2, 6, 3]
SMALL = {"decomposable": {"hidden": 7}, "esim": {"hidden": 3}}
# Those that end with a vector of each text; who answers at the steps of one has tests of its own.
APART = [
    n for n in sorted(registry.parts("pair")) if registry.find("pair", n).join is not Pair.join
]
VARIANTS = [
    *({"kind": "esim", "hidden": 3, "[attention]": {"score": score}} for score in SCORES),
    *(
        {"kind": "decomposable", "hidden": 7, "intra": True, "[attention]": {"score": score}}
        for score in SCORES
    ),
    {"kind": "decomposable", "hidden": 7, "layers": 1, "intra": True, "distances": 2},
    {"kind": "decomposable", "hidden": 7, "null": False},
]
CASES = [{"kind": name, **SMALL.get(name, {})} for name in APART] + VARIANTS


def texts(lengths, seed, extra=0, garbage=9.0):
    torch.manual_seed(seed)
    data = torch.randn(len(lengths), max(lengths), WIDTH)
    data = torch.nn.functional.pad(data, (0, 0, 0, extra))
    x = Padded(data, torch.tensor(lengths))
    return Padded(data.masked_fill(~x.mask[..., None], garbage), x.lengths)


def sample(**how):
    return texts(FIRST, 0, **how), texts(SECOND, 1, **how)


def build(spec):
    torch.manual_seed(2)
    return build_spec("pair", spec, input_size=WIDTH).eval()


@pytest.fixture(params=CASES, ids=str)
def pair(request):
    return build(request.param)


def test_the_states_have_the_promised_width(pair):
    for out, given in zip(pair(*sample()), (FIRST, SECOND), strict=True):
        front = int(getattr(pair, "null", None) is not None)
        assert out.lengths.tolist() == [n + front for n in given]
        assert out.data.shape[2] == pair.output_size
    x, y = torch.randn(2, 3, 4).unbind()
    join = pair.join(4)
    assert join(x, y).shape == (3, join.output_size)


def test_padding_does_not_change_answers(pair):
    short, long = pair(*sample(garbage=0.0)), pair(*sample(extra=4, garbage=99.0))
    for before, after in zip(short, long, strict=True):
        for a, b in zip(before.rows(), after.rows(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_rows_do_not_see_each_other(pair):
    first, second = sample()
    together = pair(first, second)
    for i in range(len(FIRST)):
        alone = pair(
            *(Padded(x.data[i : i + 1, :n], x.lengths[i : i + 1])
              for x, n in ((first, FIRST[i]), (second, SECOND[i])))
        )  # fmt: skip
        for one, all_ in zip(alone, together, strict=True):
            torch.testing.assert_close(one.rows()[0], all_.rows()[i], rtol=1e-5, atol=1e-5)


def test_every_parameter_learns(pair):
    join = pair.join(pair.output_size)
    if not [*pair.parameters(), *join.parameters()]:
        return
    pooled = [out.data.sum(1) for out in pair.train()(*sample())]
    (join(*pooled) * torch.randn(3, join.output_size)).sum().backward()
    for module in (pair, join):
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


def test_weights_alone_carry_the_answer(pair):
    before = pair(*sample())[0].data
    saved = copy.deepcopy(pair.state_dict())
    with torch.no_grad():
        for parameter in pair.parameters():
            parameter.mul_(0.5).add_(0.1)
    assert torch.equal(pair(*sample())[0].data, before) is not bool(saved)
    pair.load_state_dict(saved)
    assert torch.equal(pair(*sample())[0].data, before)


def test_shape_comments_are_true():
    held = 0
    for spec in CASES:
        pair = build(spec)
        held += checked("weft.encode", lambda pair=pair: pair(*sample()))
        held += checked("weft.attend", lambda pair=pair: pair(*sample()))
        join = pair.join(4)
        held += checked("weft.encode", lambda join=join: join(torch.ones(3, 4), torch.ones(3, 4)))
    assert held > 20


@pytest.mark.parametrize("kind", APART)
def test_the_defaults_work(kind):
    first, _ = build({"kind": kind})(*sample())
    assert first.data.isfinite().all()


def softmax(values):
    raised = [math.exp(v - max(values)) for v in values]
    return [r / sum(raised) for r in raised]


def mean_of(weights, vectors):
    return sum(w * v for w, v in zip(weights, vectors, strict=True))


def aligned_by_hand(scores, a, b):
    beta = [mean_of(softmax([scores(x, y) for y in b]), b) for x in a]
    alpha = [mean_of(softmax([scores(x, y) for x in a]), a) for y in b]
    return beta, alpha


def intra_by_hand(pair, a):
    """[a_i; a'_i] by equation 7 of Parikh et al., with distances beyond the last in one bucket."""
    far = pair.distances
    seen = [pair.within(x) for x in a]

    def bias(gap):
        return pair.bias[gap + far] if abs(gap) <= far else pair.bias[2 * far + 1]

    out = []
    for i, x in enumerate(a):
        scores = [float(seen[i] @ seen[j] + bias(i - j)) for j in range(len(a))]
        out.append(torch.cat([x, mean_of(softmax(scores), a)]))
    return out


@pytest.mark.parametrize("intra", [False, True])
def test_decomposable_attention_is_that_of_the_paper(intra):
    pair = build({"kind": "decomposable", "hidden": 7, "intra": intra, "distances": 1})
    if intra:
        torch.nn.init.normal_(pair.bias)
    given = sample()
    with torch.no_grad():
        found = pair(*given)
        for row, (a, b) in enumerate(zip(*(x.rows() for x in given), strict=True)):
            a, b = [pair.null, *a], [pair.null, *b]
            if intra:
                a, b = intra_by_hand(pair, a), intra_by_hand(pair, b)
            beta, alpha = aligned_by_hand(
                lambda x, y: float(pair.attend(x) @ pair.attend(y)), a, b
            )  # fmt: skip
            for out, own, other in ((found[0], a, beta), (found[1], b, alpha)):
                expected = [
                    pair.compare(torch.cat([x, y])) for x, y in zip(own, other, strict=True)
                ]
                torch.testing.assert_close(
                    out.rows()[row], torch.stack(expected), rtol=1e-5, atol=1e-5
                )


def lstm_by_hand(net, vectors, suffix):
    """One direction by the formulas of an LSTM."""
    W, U, b, c = (
        getattr(net, f"{n}_l0{suffix}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    size = net.hidden_size
    hidden, cell = torch.zeros(size), torch.zeros(size)
    out = []
    for x in vectors[::-1] if suffix else vectors:
        enter, keep, fresh, leave = (W @ x + b + U @ hidden + c).split(size)
        cell = keep.sigmoid() * cell + enter.sigmoid() * fresh.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        out.append(hidden)
    return out[::-1] if suffix else out


def test_esim_is_that_of_the_paper():
    pair = build({"kind": "esim", "hidden": 3})
    given = sample()
    with torch.no_grad():
        found = pair(*given)
        for row, (a, b) in enumerate(zip(*(x.rows() for x in given), strict=True)):
            beta, alpha = aligned_by_hand(lambda x, y: float(x @ y), list(a), list(b))
            for out, own, other in ((found[0], a, beta), (found[1], b, alpha)):
                enhanced = [
                    torch.cat([x, y, x - y, x * y]) for x, y in zip(own, other, strict=True)
                ]
                local = [(pair.project.weight @ m + pair.project.bias).relu() for m in enhanced]
                ahead = lstm_by_hand(pair.compose.net, local, "")
                back = lstm_by_hand(pair.compose.net, local, "_reverse")
                expected = [torch.cat(two) for two in zip(ahead, back, strict=True)]
                torch.testing.assert_close(
                    out.rows()[row], torch.stack(expected), rtol=1e-5, atol=1e-5
                )


def test_joint_marks_the_second_text():
    joint = registry.build("pair", {"kind": "joint", "mark": True}, input_size=WIDTH)
    x = concat_pair(*sample(garbage=0.0))
    marked = joint(x)
    for row, first in enumerate(FIRST):
        assert torch.equal(marked.rows()[row][:first], x.rows()[row][:first])
        moved = marked.rows()[row][first:] - x.rows()[row][first:]
        torch.testing.assert_close(moved, joint.mark.detach().expand_as(moved))
    plain = registry.build("pair", {"kind": "joint"}, input_size=WIDTH)
    assert plain(x) is x
    check_segment_marks(plain, framed=True)
    with pytest.raises(UserError, match=r"where the second begins\. Set pair\.mark = true"):
        check_segment_marks(plain, framed=False)


def test_bad_options_are_refused():
    with pytest.raises(UserError, match="'distances' should be 0 or more"):
        build({"kind": "decomposable", "distances": -1})
    with pytest.raises(UserError, match="pair 'sum'"):
        build({"kind": "sum"})
