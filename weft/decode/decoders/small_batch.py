"""Small-batch decode steps: norm, linear layer and residual fused into one kernel.

A search over one sentence has one row per beam. Its steps are bound by kernel launches and by
loading weights, not by arithmetic. So there are fewer kernels, and in a CUDA graph each prefetches
its weights while the one before still runs.

R rows   K input width   F output width   H hidden width   N heads
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.head_scores import HeadScaled
from weft.decode.decoders.kv_cache import MAX_KERNEL_ERROR, CacheSlot, KVPair, cross_attend
from weft.embed.activations import ACTIVATIONS

if TYPE_CHECKING:
    from weft.decode.decoders.transformer import TransformerDecoder, TransformerDecoderBlock

SMALL_BATCH_ROWS = 16  # largest small batch
MAX_INPUT_WIDTH = 4096  # a program holds a whole row
NO_ACTIVATION = ""  # no activation


# An opaque operation to the compiler.
@torch.library.custom_op("weft::fused_linear", mutates_args=())
def _fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    eps: float,
    activation: str,
    residual: Tensor | None,
    residual_gain: Tensor | None,
    residual_shift: Tensor | None,
    residual_eps: float,
) -> Tensor:
    if x.is_cuda:
        from weft.kernels.triton.fused_linear import triton_fused_linear

        return triton_fused_linear(
            x,
            weight,
            bias,
            gain,
            shift,
            eps,
            activation,
            residual,
            residual_gain,
            residual_shift,
            residual_eps,
        )
    if gain is not None:
        x = F.layer_norm(x, gain.shape, gain, shift, eps)
    y = F.linear(x, weight, bias)
    if activation != NO_ACTIVATION:
        y = ACTIVATIONS[activation]()(y)
    if residual is None:
        return y
    if residual_gain is not None:
        residual = F.layer_norm(
            residual, residual_gain.shape, residual_gain, residual_shift, residual_eps
        )
    return residual + y


@_fused_linear.register_fake
def _fake_fused_linear(x: Tensor, weight: Tensor, *rest: object) -> Tensor:
    return x.new_empty(len(x), len(weight))


def fused_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: nn.LayerNorm | None = None,
    activation: str = NO_ACTIVATION,
    residual: Tensor | None = None,
    residual_norm: nn.LayerNorm | None = None,
) -> Tensor:
    """Multiply rows (R, K) by a matrix (F, K), as (R, F).

    `norm` normalises the input first; the result is residual to the residual (R, F), which
    `residual_norm` normalises.
    """
    y: Tensor = _fused_linear(
        x, weight, bias, *_norm_weights(norm), activation, residual, *_norm_weights(residual_norm)
    )
    return y


def run_blocks(
    blocks: "Sequence[TransformerDecoderBlock]",
    x: Tensor,
    pasts: Sequence[KVPair],
    memory: Sequence[KVPair],
    slot: CacheSlot,
    lengths: Tensor | None,
) -> Tensor:
    """Run one step (R, 1, H) through a decoder's blocks with fused QKV, as (R, 1, H).

    A norm after a sum is deferred to the next kernel, so that none is a separate kernel.
    """
    sums = x[:, 0]  # (R, H)
    norm: nn.LayerNorm | None = None  # deferred
    for i, block in enumerate(blocks):
        first = block.norm_first
        attention = block.attention
        assert attention.fused_qkv is not None
        weight, bias = attention.fused_qkv
        before = block.attention_norm if first else norm
        qkv = fused_linear(sums, weight, bias, before)  # (R, 3*H)
        q, k, v = (_split_heads(part, attention.heads) for part in qkv.chunk(3, dim=1))
        context = slot.attend(q, k, v, pasts[i])[:, 0]  # (R, H)
        sums = _add_projection(sums, context, attention.output, norm)
        norm = None if first else block.attention_norm
        if block.cross is not None:
            assert lengths is not None
            query = block.cross.query
            before = block.cross_norm if first else norm
            q = _split_heads(
                fused_linear(sums, query.weight, query.bias, before), block.cross.heads
            )
            context = cross_attend(q, *memory[i], lengths)[:, 0]  # (R, H)
            sums = _add_projection(sums, context, block.cross.output, norm)
            norm = None if first else block.cross_norm
        into, before = block.feed_in, block.feed_norm if first else norm
        inner = fused_linear(sums, into.weight, into.bias, before, block.activation_name)
        sums = _add_projection(sums, inner, block.feed_out, norm)
        norm = None if first else block.feed_norm
    return (sums if norm is None else norm(sums))[:, None]


@cache
def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if the device has the fused linear kernel; tested once.

    Raises a RuntimeError if the kernel exists but computes wrong results.
    """
    if device.type == "cpu" or dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 48), (20, 48), (20,), (48,), (48,), (3, 20), (20,), (20,))
    arguments = [torch.randn(shape, generator=generator) for shape in shapes]
    arguments[1] /= 7  # so that outputs are about as large as inputs
    here = [part.to(dtype) for part in arguments]
    there = [part.to(device) for part in here]
    if not there[0].is_cuda:
        return False

    def run(arguments: list[Tensor], rows: int) -> Tensor:
        x, *rest, residual, gain, shift = arguments
        y: Tensor = _fused_linear(x[:rows], *rest, 1e-5, "gelu", residual[:rows], gain, shift, 1e-5)
        return y.float().cpu()

    try:
        error = max(float((run(there, n) - run(here, n)).abs().max()) for n in (1, 3))
    except ImportError:
        return False  # Triton comes with torch for NVIDIA GPUs on Linux
    if not error < MAX_KERNEL_ERROR:
        raise RuntimeError(f"{error:.2g} away from the reference on {device}.")
    return True


def is_supported(decoder: "TransformerDecoder") -> bool:
    """Return True if the decoder's matrices are narrow enough and its attention is scaled."""
    return all(
        max(block.feed_in.weight.shape) <= MAX_INPUT_WIDTH
        and block.attention.has_kernel
        and type(block.attention.score) is HeadScaled
        for block in decoder.layers
    )


def _add_projection(sums: Tensor, x: Tensor, layer: nn.Linear, norm: nn.LayerNorm | None) -> Tensor:
    """Add a layer's output to the sums, which may have a deferred norm."""
    return fused_linear(x, layer.weight, layer.bias, residual=sums, residual_norm=norm)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """Return rows (R, H) as (R, N, 1, H/N)."""
    split: Tensor = x.unflatten(1, (heads, -1))  # (R, N, H/N)
    return split[:, :, None]


def _norm_weights(norm: nn.LayerNorm | None) -> tuple[Tensor | None, Tensor | None, float]:
    return (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
