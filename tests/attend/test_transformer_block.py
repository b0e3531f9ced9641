"""The sum that runs through Transformer blocks, in the precision it came in."""

import pytest
import torch

from weft.attend.transformer_block import EmbeddingSum, TransformerBlock, compute_dtype
from weft.batch import Padded
from weft.decode.decoders.transformer import GPT
from weft.embed.bert import Bert

V, H, T = 17, 12, 5


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_blocks_keep_the_precision_of_their_steps(norm, kind):
    torch.manual_seed(1)
    block, x = TransformerBlock(H, 3, 7, norm).eval(), torch.randn(2, T, H)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = block(x.to(kind))
    assert found.dtype == kind
    torch.testing.assert_close(found.float(), block(x)[0], atol=0.05, rtol=0.02)


def test_products_are_narrow_under_autocast_only():
    x = torch.randn(3, H)
    assert compute_dtype(x) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert compute_dtype(x) == torch.bfloat16


def test_the_entrance_adds_up_and_normalises():
    a, b, norm = torch.randn(2, T, H), torch.randn(T, H), torch.nn.LayerNorm(H)
    enter, none = EmbeddingSum(), torch.nn.Dropout(0.0)
    assert torch.equal(enter([a, b], none, None, torch.float32), a + b)
    assert torch.equal(enter([a, b, b], none, norm, torch.float32), norm(a + b + b))
    assert enter([a], none, None, torch.bfloat16).dtype == torch.bfloat16
    assert (enter([a], torch.nn.Dropout(0.5), None, torch.float32) == 0).any()


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_the_sum_is_as_narrow_as_the_products(kind):
    torch.manual_seed(2)
    model = GPT(V, H, 2, 3, max_positions=T) if kind == "gpt" else Bert(V, H, 2, 3, max_positions=T)
    model.eval()
    ids, seen = Padded(torch.randint(1, V, (2, T)), torch.tensor([T, T])), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda module, given: seen.append(given[0].dtype))

    def states():
        return model.features(ids) if kind == "gpt" else model.last(ids)

    wide = states()
    with torch.autocast("cpu", torch.bfloat16):
        low = states()
    assert seen == [torch.float32] * 2 + [torch.bfloat16] * 2
    torch.testing.assert_close(low.float(), wide, atol=0.05, rtol=0.02)
    # BERT's go to whoever asks for vectors; GPT's only into a product.
    assert low.dtype == (torch.float32 if kind == "bert" else torch.bfloat16)
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        assert states().dtype == torch.bfloat16
    low.float().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
