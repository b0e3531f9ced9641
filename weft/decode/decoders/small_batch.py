"""Steps of few rows: every product one kernel with the norm before it and the sum behind it.

A search of one sentence has a row for each beam. What a step then takes is not arithmetic but
waiting: for kernels to begin, and for weights to come from memory. So there are fewer kernels, and
in a graph each fetches its weights while the one before it still runs.

R rows   K width of what goes in   F width of what comes out   H hidden width   N heads
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.decode.decoders.kv_cache import MAX_KERNEL_ERROR, CacheSlot, KVPair, cross_attend
from weft.embed.activations import ACTIVATIONS

SMALL_BATCH_ROWS = 16  # rows that are few
MAX_INPUT_WIDTH = 4096  # what goes in at most: a program holds all of a row
NO_ACTIVATION = ""  # no activation


# To a compiler one operation, whatever does it.
@torch.library.custom_op("weft::few", mutates_args=())
def _fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    eps: float,
    activation: str,
    added: Tensor | None,
    added_gain: Tensor | None,
    added_shift: Tensor | None,
    added_eps: float,
) -> Tensor:
    if x.is_cuda:
        from weft.kernels.triton.fused_linear import triton_fused_linear

        return triton_fused_linear(
            x, weight, bias, gain, shift, eps, activation, added, added_gain, added_shift, added_eps
        )
    if gain is not None:
        x = F.layer_norm(x, gain.shape, gain, shift, eps)
    made = F.linear(x, weight, bias)
    if activation != NO_ACTIVATION:
        made = ACTIVATIONS[activation]()(made)
    if added is None:
        return made
    if added_gain is not None:
        added = F.layer_norm(added, added_gain.shape, added_gain, added_shift, added_eps)
    return added + made


@_fused_linear.register_fake
def _fake_fused_linear(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(len(x), len(weight))


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: nn.LayerNorm | None = None,
    activation: str = NO_ACTIVATION,
    added: Tensor | None = None,
    added_norm: nn.LayerNorm | None = None,
) -> Tensor:
    """Rows (R, K) times a matrix (F, K), as (R, F).

    The rows are normalised first where there is a norm, and what comes out is added to other rows
    (R, F), which may have one too.
    """
    return _fused_linear(
        x, weight, bias, *_norm_weights(norm), activation, added, *_norm_weights(added_norm)
    )


def run_blocks(
    blocks: Any,
    x: Tensor,
    pasts: Sequence[KVPair],
    memory: Sequence[KVPair],
    place: CacheSlot,
    lengths: Tensor | None,
) -> Tensor:
    """One step (R, 1, H) through a decoder's blocks, laid out for steps, as (R, 1, H).

    A norm behind a sum is left to whoever reads it, so that none is a kernel of its own.
    """
    sums, norm = x[:, 0], None  # (R, H), and the norm that is still to come
    for i, block in enumerate(blocks):
        first = block.norm_first
        own = block.attention
        weight, bias = own.fused_qkv
        before = block.attention_norm if first else norm
        made = fused_linear(sums, weight, bias, before)  # (R, 3*H)
        q, k, v = (_split_heads(part, own.heads) for part in made.chunk(3, dim=1))
        mixed = place.attend(q, k, v, pasts[i])[:, 0]  # (R, H)
        sums = _add_projection(sums, mixed, own.output, norm)
        norm = None if first else block.attention_norm
        if block.cross is not None:
            assert lengths is not None
            asked = block.cross.query
            before = block.cross_norm if first else norm
            q = _split_heads(
                fused_linear(sums, asked.weight, asked.bias, before), block.cross.heads
            )
            mixed = cross_attend(q, *memory[i], lengths)[:, 0]  # (R, H)
            sums = _add_projection(sums, mixed, block.cross.output, norm)
            norm = None if first else block.cross_norm
        into, before = block.feed_in, block.feed_norm if first else norm
        inner = fused_linear(sums, into.weight, into.bias, before, block.activation_name)
        sums = _add_projection(sums, inner, block.feed_out, norm)
        norm = None if first else block.feed_norm
    return (sums if norm is None else norm(sums))[:, None]


@cache
def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a device has a kernel for products of few rows; tried once.

    An error where there is one that fails.
    """
    if device.type == "cpu" or dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    make = torch.Generator().manual_seed(0)
    shapes = ((3, 48), (20, 48), (20,), (48,), (48,), (3, 20), (20,), (20,))
    made = [torch.randn(shape, generator=make) for shape in shapes]
    made[1] /= 7  # so that what comes out is about as large as what goes in
    here = [part.to(dtype) for part in made]
    there = [part.to(device) for part in here]
    if not there[0].is_cuda:
        return False

    def found(given: list[Tensor], rows: int) -> Tensor:
        x, *rest, added, gain, shift = given
        made = _fused_linear(x[:rows], *rest, 1e-5, "gelu", added[:rows], gain, shift, 1e-5)
        return made.float().cpu()

    try:
        apart = max(float((found(there, n) - found(here, n)).abs().max()) for n in (1, 3))
    except ImportError:
        return False  # Triton comes with torch for NVIDIA GPUs on Linux
    if not apart < MAX_KERNEL_ERROR:
        raise RuntimeError(f"{apart:.2g} away from plain arithmetic on {device}.")
    return True


def is_supported(decoder: Any) -> bool:
    """Whether a decoder's matrices are as narrow as a kernel wants them."""
    blocks = getattr(decoder, "blocks", ())
    return bool(blocks) and all(
        max(block.feed_in.weight.shape) <= MAX_INPUT_WIDTH for block in blocks
    )


def _add_projection(sums: Tensor, x: Tensor, layer: nn.Linear, norm: nn.LayerNorm | None) -> Tensor:
    """What a layer makes of rows, added to the sums, which may still have a norm to come."""
    return fused_linear(x, layer.weight, layer.bias, added=sums, added_norm=norm)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Rows (R, H) as (R, N, 1, H/N)."""
    return x.unflatten(1, (heads, -1))[:, :, None]


def _norm_weights(norm: nn.LayerNorm | None) -> tuple[Tensor | None, Tensor | None, float]:
    return (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
