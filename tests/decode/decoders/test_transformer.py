"""Transformer decoders against PyTorch's layers, and their caches against each other."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from weft.batch import Padded
from weft.decode.decoders.transformer import GPT, Seq2SeqTransformerDecoder
from weft.embed.position import sinusoidal_table
from weft.errors import UserError

V, M, H, N = 11, 6, 6, 3
LENGTHS = [3, 2, 7]
MASK = torch.arange(7) < torch.tensor(LENGTHS)[:, None]
FUTURE = torch.ones(5, 5, dtype=torch.bool).triu(1)


def memory():
    torch.manual_seed(2)
    return Padded(torch.randn(3, 7, M), torch.tensor(LENGTHS))


def words(steps=5):
    torch.manual_seed(4)
    return Padded(torch.randint(1, V, (3, steps)), torch.full((3,), steps))


def shaken(model):
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def copied(ours, theirs):
    """One of our attentions into one of PyTorch's."""
    with torch.no_grad():
        three = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in three]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in three]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_blocks_are_pytorchs(norm, activation):
    ours = shaken(
        Seq2SeqTransformerDecoder(V, M, H, 2, N, 7, norm, activation=activation, tied=False)
    )
    layer = nn.TransformerDecoderLayer(
        H, N, 7, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    last = nn.LayerNorm(H) if norm == "pre" else None
    theirs = nn.TransformerDecoder(layer, 2, norm=last).eval()
    for block, other in zip(ours.blocks, theirs.layers, strict=True):
        copied(block.attention, other.self_attn)
        copied(block.cross, other.multihead_attn)
        for name, part in (
            ("linear1", block.feed_in),
            ("linear2", block.feed_out),
            ("norm1", block.attention_norm),
            ("norm2", block.cross_norm),
            ("norm3", block.feed_norm),
        ):
            getattr(other, name).load_state_dict(part.state_dict())
    if last is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())
    ids = words()
    x = ours.words.table.weight[ids.data] * H**0.5 + sinusoidal_table(5, H)
    states = theirs(x, memory().data, tgt_mask=FUTURE, memory_key_padding_mask=~MASK)
    expected = states @ ours.words.scored.T + ours.words.bias
    torch.testing.assert_close(ours(ids, memory()), expected, rtol=1e-5, atol=1e-5)


def test_gpt_is_pytorchs_encoder_with_a_causal_mask():
    ours = shaken(GPT(V, H, 2, N, 7, max_positions=5))
    layer = nn.TransformerEncoderLayer(
        H,
        N,
        7,
        activation=lambda x: F.gelu(x, approximate="tanh"),
        batch_first=True,
        norm_first=True,
    )
    theirs = nn.TransformerEncoder(layer, 2, nn.LayerNorm(H), enable_nested_tensor=False).eval()
    for block, other in zip(ours.blocks, theirs.layers, strict=True):
        copied(block.attention, other.self_attn)
        other.linear1.load_state_dict(block.feed_in.state_dict())
        other.linear2.load_state_dict(block.feed_out.state_dict())
        other.norm1.load_state_dict(block.attention_norm.state_dict())
        other.norm2.load_state_dict(block.feed_norm.state_dict())
    theirs.norm.load_state_dict(ours.norm.state_dict())
    table = ours.words.table.weight
    x = table[words().data] + ours.positions.table[:5]
    expected = theirs(x, mask=FUTURE) @ table.T
    torch.testing.assert_close(ours(words()), expected, rtol=1e-5, atol=1e-5)


def starts(limit):
    gpt, decoder = (
        shaken(GPT(V, H, 2, N, 7, max_positions=9)),
        shaken(Seq2SeqTransformerDecoder(V, M, H, 2, N, 7)),
    )
    yield gpt, gpt.start(3, "cpu", limit=limit), gpt(words())
    yield decoder, decoder.start(memory(), limit=limit), decoder(words(), memory())


@pytest.mark.parametrize("limit", [5, 7])
def test_a_fixed_cache_is_the_same_and_keeps_its_shape(limit):
    for model, state, expected in starts(limit):
        shapes = [pair[0].shape for pair in state.past]
        for t, column in enumerate(words().data.unbind(1)):
            scores, state = model.step(column, state)
            torch.testing.assert_close(scores, expected[:, t], rtol=1e-5, atol=1e-5)
            assert [pair[0].shape for pair in state.past] == shapes == [(3, N, limit, H // N)] * 2
        assert state.position.tolist() == [5, 5, 5]


def test_prompts_of_different_lengths_in_a_fixed_cache():
    lengths = torch.tensor([3, 1, 4])
    for model, state, expected in starts(9):
        prompt = Padded(words().data[:, :4], lengths)
        read, state = model.prefill(prompt, state)
        assert state.position.tolist() == lengths.tolist()
        scores = model.words.logits(read.features)
        for row, n in enumerate(lengths):
            torch.testing.assert_close(scores[row, :n], expected[row, :n], rtol=1e-5, atol=1e-5)
        following = words().data[torch.arange(3), lengths]
        scores, state = model.step(following, state)
        for row, n in enumerate(lengths):
            torch.testing.assert_close(scores[row], expected[row, n], rtol=1e-5, atol=1e-5)


def test_prompts_in_a_growing_cache_have_one_length():
    for model, state, expected in starts(0):
        _, after = model.prefill(Padded(words().data[:, :4], torch.full((3,), 4)), state)
        scores, _ = model.step(words().data[:, 4], after)
        torch.testing.assert_close(scores, expected[:, 4], rtol=1e-5, atol=1e-5)
        with pytest.raises(UserError, match="Prompts of different lengths cannot share a growing"):
            model.prefill(Padded(words().data[:, :4], torch.tensor([3, 1, 4])), state)


def test_the_memory_is_projected_once():
    decoder = Seq2SeqTransformerDecoder(V, M, H, 2, N, 7).eval()
    calls = []
    for block in decoder.blocks:
        block.cross.key.register_forward_hook(lambda *_: calls.append(1))
    state = decoder.start(memory())
    for column in words().data.unbind(1):
        _, state = decoder.step(column, state)
    assert len(calls) == 2


def test_requested_attention_is_the_mean_of_the_last_layer():
    decoder = shaken(Seq2SeqTransformerDecoder(V, M, H, 2, N, 7))
    found = []
    decoder.blocks[1].register_forward_hook(lambda _, __, out: found.append(out[2]))
    read = decoder.read(words(), memory())
    torch.testing.assert_close(read.weights, found[0].mean(1))
    assert decoder.read(words(), memory(), weights=False).weights is None
    assert decoder.start(memory()).weights is None


@pytest.mark.parametrize("inner", [True, False])
def test_inner_dropout_drops_inside_the_block(inner):
    decoder = shaken(Seq2SeqTransformerDecoder(V, M, H, 2, N, 7, dropout=0.5, inner_dropout=inner))
    expected = decoder(words(), memory())
    assert decoder.train()(words(), memory()).ne(expected).any()
    for part in (decoder, *decoder.blocks):
        part.dropout = nn.Identity()  # what is left lies inside
    assert torch.equal(decoder(words(), memory()), expected) is not inner


def test_gpt_starts_with_small_weights():
    torch.manual_seed(0)
    gpt = GPT(97, 64, 8, 4).requires_grad_(False)
    block = gpt.blocks[0]
    assert block.attention.query.weight.std() == pytest.approx(0.02, rel=0.1)
    assert block.attention.output.weight.std() == pytest.approx(0.005, rel=0.1)
    assert block.feed_out.weight.std() == pytest.approx(0.005, rel=0.1)
    assert gpt.words.table.weight.std() == pytest.approx(0.02, rel=0.1)
    assert not any(p.any() for name, p in gpt.named_parameters() if name.endswith("bias"))


def test_learned_positions_end_and_waves_do_not():
    message = (
        r"A sequence has 6 steps, but the positions of decoder 'gpt' end at 5. Raise decoder.m"
    )
    with pytest.raises(UserError, match=message):
        GPT(V, H, 1, N, max_positions=5)(words(6))
    with pytest.raises(UserError, match=message):
        GPT(V, H, 1, N, max_positions=5).start(3, limit=6)
    short, long = (
        Seq2SeqTransformerDecoder(V, M, H, 1, N, 7, max_positions=n).eval() for n in (2, 64)
    )
    long.load_state_dict(short.state_dict())
    torch.testing.assert_close(short(words(), memory()), long(words(), memory()))


def test_options_that_make_no_sense():
    with pytest.raises(
        UserError, match=r"decoder 'transformer': 'feed_forward' should be 0 .* got -1"
    ):
        Seq2SeqTransformerDecoder(V, M, feed_forward=-1)
    with pytest.raises(UserError, match=r"hidden \(10\) must be divisible by heads \(3\)"):
        GPT(V, 10, heads=3)


def test_a_gpt_drops_what_gpt2_drops():
    """Attention weights and what is added to the residual, but nothing inside the MLP."""
    transformers = pytest.importorskip("transformers")
    shape = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 7, "vocab_size": 11}
    drop = {"resid_pdrop": 0.3, "embd_pdrop": 0.3, "attn_pdrop": 0.3}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **drop))
    ours = GPT(11, hidden=12, layers=2, heads=3, max_positions=7, dropout=0.3)
    active = [m.p for m in theirs.modules() if isinstance(m, torch.nn.Dropout) and m.p > 0]
    assert len(active) == 1 + 2 * 3  # the embedding; of a block its attention and two outputs
    assert ours.dropout.p == 0.3
    for block in ours.blocks:
        assert (block.attention.dropout, block.dropout.p, block.inner.p) == (0.3, 0.3, 0.0)
