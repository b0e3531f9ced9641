"""Transformer layers against torch.nn.TransformerEncoderLayer."""

import pytest
import torch
from torch import nn

from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.embed.position import sinusoidal_table
from weft.encode.transformer import TransformerEncoder
from weft.errors import UserError

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
LENGTHS = torch.tensor([7, 1, 4])


def sample(width=10):
    torch.manual_seed(0)
    return Padded(torch.randn(3, 7, width), LENGTHS)


def reference(block, norm, activation):
    """PyTorch's layer with our weights, which are first shaken so that none is at its start."""
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    theirs = nn.TransformerEncoderLayer(
        10, 2, 13, 0.0, activation, batch_first=True, norm_first=norm == "pre"
    )
    a = block.attention
    three = (a.query, a.key, a.value)
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([m.weight for m in three]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([m.bias for m in three]))
    theirs.self_attn.out_proj.load_state_dict(a.output.state_dict())
    theirs.linear1.load_state_dict(block.feed_in.state_dict())
    theirs.linear2.load_state_dict(block.feed_out.state_dict())
    theirs.norm1.load_state_dict(block.attention_norm.state_dict())
    theirs.norm2.load_state_dict(block.feed_norm.state_dict())
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("training", [True, False])
def test_a_block_is_pytorchs_layer(norm, activation, training):
    torch.manual_seed(1)
    block = TransformerBlock(10, 2, 13, norm, activation=activation)
    theirs = reference(block, norm, activation).train(training)
    x = sample()
    expected = theirs(x.data, src_key_padding_mask=~x.mask)
    for weights in (False, True):
        got, _ = block(x.data, x.mask, return_weights=weights)
        torch.testing.assert_close(got[x.mask], expected[x.mask], **CLOSE)
    torch.testing.assert_close(block(x.data)[0], theirs(x.data), **CLOSE)


@pytest.mark.parametrize("inner", [True, False])
def test_inner_dropout_drops_inside_the_block(inner):
    torch.manual_seed(1)
    block = TransformerBlock(10, 2, 13, dropout=0.5, inner_dropout=inner)
    x = sample()
    expected, _ = block.eval()(x.data, x.mask)
    assert block.train()(x.data, x.mask)[0].ne(expected).any()
    block.dropout = nn.Identity()  # what is left lies inside
    assert torch.equal(block(x.data, x.mask)[0], expected) is not inner


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_stack_is_pytorchs_stack(norm):
    torch.manual_seed(1)
    ours = TransformerEncoder(
        11, hidden=10, layers=2, heads=2, feed_forward=13, norm=norm, dropout=0.0
    )
    stack = [reference(block, norm, "gelu") for block in ours.blocks]
    x = sample(11)
    states = ours.enter(x.data) + sinusoidal_table(7, 10)
    for layer in stack:
        states = layer(states, src_key_padding_mask=~x.mask)
    states = nn.functional.layer_norm(states, (10,)) if norm == "pre" else states
    torch.testing.assert_close(ours(x).data[x.mask], states[x.mask], **CLOSE)


def test_cls_stands_in_front_and_sees_everything():
    torch.manual_seed(1)
    net = TransformerEncoder(
        10, hidden=10, heads=2, positions="learned", max_positions=11, cls=True, dropout=0.0
    )
    x = sample()
    out = net(x)
    assert out.lengths.tolist() == [8, 2, 5]
    assert (net.leading, net.max_positions) == (1, 10)
    changed = x.data.clone()
    changed[:, 3] += torch.randn(10)
    other = net(x.with_data(changed)).data
    assert [torch.equal(a[0], b[0]) for a, b in zip(out.data, other, strict=True)] == [
        False,
        True,
        False,
    ]


def test_weights_of_every_head_and_layer():
    net = TransformerEncoder(10, hidden=10, layers=3, heads=2).eval()
    x = sample()
    found = net.attention_weights(x)
    assert [w.shape for w in found] == [(3, 2, 7, 7)] * 3
    for w in found:
        torch.testing.assert_close(w.sum(-1), torch.ones(3, 2, 7), **CLOSE)
        assert not w[1, :, :, 1:].any()


def test_order_is_seen_through_positions_only():
    x = sample()
    turned = Padded(x.data[:1].flip(1), x.lengths[:1])
    straight = Padded(x.data[:1], x.lengths[:1])
    for positions, sees in (("none", False), ("sinusoidal", True), ("learned", True)):
        torch.manual_seed(1)
        net = TransformerEncoder(10, hidden=10, heads=2, positions=positions).eval()
        a, b = net(straight).data.mean(1), net(turned).data.mean(1)
        assert bool((a - b).abs().max() > 1e-5) is sees, positions


def test_how_much_it_can_read():
    assert TransformerEncoder(3, hidden=4).max_positions is None
    assert TransformerEncoder(3, hidden=4, positions="none").max_positions is None
    net = TransformerEncoder(10, hidden=4, positions="learned", max_positions=5)
    assert net.max_positions == 5
    with pytest.raises(UserError, match="7 steps, but learned positions end at 5"):
        net(sample())


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match=r"hidden \(10\) must be divisible by heads \(3\)"):
        TransformerEncoder(5, hidden=10, heads=3)
    with pytest.raises(UserError, match="'feed_forward' should be 0"):
        TransformerEncoder(5, feed_forward=-1)
