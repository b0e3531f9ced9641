"""Multi-head attention against torch.nn.MultiheadAttention, fast path against slow."""

import pytest
import torch
from torch import nn

from tests.fixtures.shapes import checked
from weft.attend.multihead import MultiHeadAttention
from weft.errors import UserError

LENGTHS = torch.tensor([7, 3, 1])
MASK = torch.arange(7) < LENGTHS[:, None]


def pair(memory_size=0):
    torch.manual_seed(0)
    ours = MultiHeadAttention(10, heads=2, memory_size=memory_size)
    for layer in (ours.query, ours.key, ours.value, ours.output):
        nn.init.normal_(layer.bias)
    sizes = {"kdim": memory_size or None, "vdim": memory_size or None}
    theirs = nn.MultiheadAttention(10, 2, batch_first=True, **sizes)
    with torch.no_grad():
        weights = [layer.weight for layer in (ours.query, ours.key, ours.value)]
        if memory_size:
            theirs.q_proj_weight.copy_(weights[0])
            theirs.k_proj_weight.copy_(weights[1])
            theirs.v_proj_weight.copy_(weights[2])
        else:
            theirs.in_proj_weight.copy_(torch.cat(weights))
        biases = [layer.bias for layer in (ours.query, ours.key, ours.value)]
        theirs.in_proj_bias.copy_(torch.cat(biases))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    return ours, theirs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("weights", [False, True])
def test_self_attention_matches_pytorch(causal, mask, weights):
    ours, theirs = pair()
    x = torch.randn(3, 7, 10)
    hidden = None if mask is None else ~mask
    future = torch.ones(7, 7, dtype=torch.bool).triu(1) if causal else None
    expected, theirs_weights = theirs(
        x, x, x, key_padding_mask=hidden, attn_mask=future, average_attn_weights=False
    )
    got, ours_weights = ours(x, mask=mask, causal=causal, return_weights=weights)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    if weights:
        torch.testing.assert_close(ours_weights, theirs_weights, rtol=1e-5, atol=1e-5)
    else:
        assert ours_weights is None


@pytest.mark.parametrize("weights", [False, True])
def test_cross_attention_matches_pytorch(weights):
    ours, theirs = pair(memory_size=11)
    x, memory = torch.randn(3, 5, 10), torch.randn(3, 7, 11)
    expected, _ = theirs(x, memory, memory, key_padding_mask=~MASK)
    got, _ = ours(x, memory, mask=MASK, return_weights=weights)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", [None, MASK])
def test_last_causal_queries_match_the_full_sequence(mask):
    """Two last queries alone get the same result as among all queries."""
    ours, _ = pair()
    x = torch.randn(3, 7, 10)
    full, _ = ours(x, mask=mask, causal=True)
    for weights in (False, True):
        last, _ = ours(x[:, -2:], x, mask=mask, causal=True, return_weights=weights)
        torch.testing.assert_close(last, full[:, -2:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weights", [False, True])
def test_mask_may_differ_by_query(weights):
    ours, _ = pair()
    x = torch.randn(3, 7, 10)
    q, k, v = ours.project_qkv(x)
    past = torch.ones(7, 7, dtype=torch.bool).tril()
    got, _ = ours.attend(q, k, v, MASK[:, None] & past, return_weights=weights)
    expected, _ = ours(x, mask=MASK, causal=True)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weights", [False, True])
def test_empty_memory_gives_zero_context(weights):
    ours, _ = pair()
    x = torch.randn(2, 3, 10, requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    out, _ = ours(x, mask=mask, return_weights=weights)
    torch.testing.assert_close(out[1], ours.output.bias.expand(3, -1))
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_dropout_acts_on_both_paths_in_training_only():
    ours = MultiHeadAttention(10, 2, dropout=0.5)
    x = torch.randn(3, 7, 10)
    for weights in (False, True):
        ours.train()
        assert not torch.equal(
            ours(x, return_weights=weights)[0], ours(x, return_weights=weights)[0]
        )
        ours.eval()
        first, second = (ours(x, return_weights=weights)[0] for _ in range(2))
        assert torch.equal(first, second)


def test_gradients():
    torch.manual_seed(0)
    ours = MultiHeadAttention(4, 2).double()
    x = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert torch.autograd.gradcheck(lambda x: ours(x, mask=mask, return_weights=True), (x,))
    assert torch.autograd.gradcheck(lambda x: ours(x, mask=mask)[0], (x,))


def test_hidden_must_be_divisible_by_heads():
    with pytest.raises(UserError, match=r"hidden \(10\) must be divisible by heads \(3\)"):
        MultiHeadAttention(10, 3)


def test_shape_comments_are_true():
    ours, _ = pair()
    x, memory = torch.randn(3, 5, 10), torch.randn(3, 7, 10)
    assert checked("weft.attend", lambda: ours(x, memory, mask=MASK, return_weights=True)) >= 6
