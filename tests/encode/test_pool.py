"""Pools: the contract over all of them, and each against a loop over one row's real steps."""

import copy

import pytest
import torch

from tests.fixtures.attention import SCORES, build_spec
from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.errors import UserError

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
H = 6
LENGTHS = [5, 0, 1, 3]
VARIANTS = [
    {"kind": "last-attention", "hidden": 5},
    *(
        {"kind": kind, "[attention]": {"score": score}}
        for kind in ("attention", "last-attention")
        for score in SCORES
    ),
]
# "none" hands the states on, and has nothing to promise.
CASES = [{"kind": name} for name in sorted(registry.parts("pool")) if name != "none"] + VARIANTS


def build(spec, directions=1):
    torch.manual_seed(1)
    return build_spec("pool", spec, input_size=H, directions=directions).eval()


def sample(extra=0, garbage=0.0):
    torch.manual_seed(0)
    data = torch.nn.functional.pad(torch.randn(4, 5, H), (0, 0, 0, extra))
    x = Padded(data, torch.tensor(LENGTHS))
    return Padded(data.masked_fill(~x.mask[..., None], garbage), x.lengths)


@pytest.fixture(params=CASES, ids=str)
def pool(request):
    return build(request.param)


def test_promised_shapes(pool):
    vector, weights = pool(sample())
    assert vector.shape == (4, pool.output_size)
    assert vector.isfinite().all()
    assert not vector[1].any()
    assert vector[[0, 2, 3]].any(-1).all()
    if weights is not None:
        assert weights.shape == (4, 5)
        torch.testing.assert_close(weights.sum(1), torch.tensor([1.0, 0.0, 1.0, 1.0]))
        assert not weights[~sample().mask].any()


def test_padding_does_not_change_answers(pool):
    short, long = pool(sample())[0], pool(sample(extra=4, garbage=99.0))[0]
    torch.testing.assert_close(short, long, **CLOSE)


def test_rows_do_not_see_each_other(pool):
    x = sample()
    together = pool(x)[0]
    for i, n in enumerate(LENGTHS):
        alone = Padded(x.data[i : i + 1, :n], x.lengths[i : i + 1])
        torch.testing.assert_close(pool(alone)[0][0], together[i], **CLOSE)


def test_every_parameter_learns(pool):
    if list(pool.parameters()):
        pool.train()(sample())[0].square().sum().backward()
    for name, parameter in pool.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_weights_alone_carry_the_answer(pool):
    before = pool(sample())[0]
    saved = copy.deepcopy(pool.state_dict())
    with torch.no_grad():
        for parameter in pool.parameters():
            parameter.mul_(0.5).add_(torch.randn_like(parameter))
    assert torch.equal(pool(sample())[0], before) is not bool(saved)
    pool.load_state_dict(saved)
    assert torch.equal(pool(sample())[0], before)


def test_gradients(pool):
    pool = pool.double()
    data = sample().data.double().requires_grad_()
    lengths = torch.tensor(LENGTHS)
    parameters = list(pool.parameters())
    assert torch.autograd.gradcheck(lambda d, *_: pool(Padded(d, lengths))[0], (data, *parameters))


def test_shape_comments_are_true(pool):
    claimed = {"MeanMax": 2, "Max": 1, "First": 1, "Last": 2, "Attention": 3, "LastAttention": 5}
    held = checked("weft.", lambda: pool(sample()))
    assert held >= claimed.get(type(pool).__name__, 0)


SIMPLE = {
    "mean": lambda h: sum(h) / len(h),
    "sum": lambda h: sum(h),
    "max": lambda h: torch.stack([max(step[i] for step in h) for i in range(H)]),
    "first": lambda h: h[0],
    "last": lambda h: h[-1],
    "mean+max": lambda h: torch.cat([SIMPLE["mean"](h), SIMPLE["max"](h)]),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_pools_are_their_formulas(name):
    x = sample()
    got, weights = build({"kind": name})(x)
    assert weights is None
    for i, row in enumerate(x.rows()):
        if len(row):
            torch.testing.assert_close(got[i], SIMPLE[name](list(row)), **CLOSE)


def test_last_of_two_directions_joins_both_ends():
    x = sample()
    got, _ = build({"kind": "last"}, directions=2)(x)
    for i, row in enumerate(x.rows()):
        if len(row):
            assert torch.equal(got[i], torch.cat([row[-1, : H // 2], row[0, H // 2 :]]))


def test_last_attention_is_deck_003():
    pool = build({"kind": "last-attention"})
    x = sample()
    got, weights = pool(x)
    for i, row in enumerate(x.rows()):
        if not len(row):
            continue
        q = [torch.tanh(pool.query.weight @ h + pool.query.bias) for h in row]
        powers = [torch.exp(q_t @ q[-1]) for q_t in q]
        s = [p / sum(powers) for p in powers]
        torch.testing.assert_close(weights[i, : len(row)], torch.stack(s), **CLOSE)
        expected = sum(s_t * h_t for s_t, h_t in zip(s, row, strict=True))
        torch.testing.assert_close(got[i], expected, **CLOSE)


@pytest.mark.parametrize("score", sorted(registry.parts("score")))
def test_attention_with_a_learned_query(score):
    pool = build({"kind": "attention", "[attention]": {"score": score}})
    x = sample()
    got, weights = pool(x)
    for i, row in enumerate(x.rows()):
        if not len(row):
            continue
        fits = torch.stack(
            [pool.score(pool.query[None, None], h[None, None])[0, 0, 0] for h in row]
        )
        shares = fits.exp() / fits.exp().sum()
        torch.testing.assert_close(weights[i, : len(row)], shares, **CLOSE)
        torch.testing.assert_close(got[i], shares @ row, **CLOSE)


def test_unknown_score_suggests_a_near_one():
    with pytest.raises(UserError, match=r"Unknown score 'bilinaer'.* Did you mean 'bilinear'"):
        build({"kind": "attention", "[attention]": {"score": "bilinaer"}})
