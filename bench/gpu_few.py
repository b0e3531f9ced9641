"""The part of bench/gpu_generation.py that asks how fast products of few rows are.

R rows   K width of what goes in   F width of what comes out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gpu_decoding import _microseconds
from torch import Tensor, nn

from weft.decode.decoders import small_batch as kernels
from weft.decode.search.constraints import fast_topk

if TYPE_CHECKING:
    from gpu_generation import Bench

# Rows, width in, width out: the products of a step of Marian's beams and of GPT-2 small.
PRODUCTS = (
    (5, 512, 1536), (5, 512, 512), (5, 512, 2048), (5, 2048, 512), (5, 512, 58101),
    (1, 768, 2304), (1, 768, 768), (1, 768, 3072), (1, 3072, 768), (1, 768, 50257),
)  # fmt: skip
SHAPES = ((4, 4), (4, 8), (8, 4), (8, 8), (16, 4), (16, 8), (32, 8))
LAYERS = 12  # different matrices that take turns, so that they come from where they do in a step


def few(bench: Bench) -> None:
    """Products of few rows with a norm before, in several shapes, against a norm and a product."""
    for sizes in PRODUCTS[:2] if bench.tiny else PRODUCTS:
        with bench.trying(f"few, {sizes}"):
            _measured(bench, *sizes)
    for rows, words, count in ((5, 58101, 10), (1, 50257, 1), (32, 50257, 1)):
        with bench.trying(f"largest, {rows} × {words}"):
            _largest(bench, rows, 4000 if bench.tiny else words, count)


@torch.no_grad()
def _measured(bench: Bench, rows: int, K: int, N: int) -> None:
    dtype = torch.float32 if bench.tiny else torch.bfloat16
    layers = 2 if N > 9000 else LAYERS
    torch.manual_seed(0)
    x = torch.randn(rows, K).to(bench.device, dtype)
    weights = (torch.randn(layers, N, K) / K**0.5).to(bench.device, dtype).unbind()
    bias, norm = torch.randn(N).to(bench.device, dtype), nn.LayerNorm(K).to(bench.device, dtype)
    turn = 0

    def next_one() -> Tensor:
        nonlocal turn
        turn = (turn + 1) % layers
        return weights[turn]

    def usual() -> Tensor:
        return nn.functional.linear(norm(x), next_one(), bias)

    def kernel(shape: tuple[int, int] | None) -> Tensor:
        if not x.is_cuda:
            return kernels.fused_linear(x, next_one(), bias, norm)
        from weft.kernels.triton.fused_linear import triton_fused_linear

        own = (norm.weight, norm.bias, norm.eps)
        return triton_fused_linear(x, next_one(), bias, *own, "", None, None, None, 0.0, shape)

    turn, wanted = 0, usual().float()
    turn, found = 0, kernel(None).float()  # type: ignore[assignment]
    apart = float((found - wanted).abs().max())
    taken = {"usual": _microseconds(bench, usual)}
    for shape in (None,) if bench.tiny else (None, *SHAPES):
        if shape is None or shape[0] * K <= 32768:
            taken[f"kernel {shape or 'as chosen'}"] = _microseconds(bench, lambda: kernel(shape))  # noqa: B023
    best = min((name for name in taken if name != "usual"), key=lambda name: taken[name])
    bench.line(
        f"few, {rows} rows, {K} to {N}",
        ("" if apart < 0.05 else "WRONG ") + f"{apart:.2g} apart, usual {taken['usual']} µs, "
        f"kernel {taken['kernel as chosen']} µs, best {best} {taken[best]} µs",
        apart=apart, microseconds=taken,
    )  # fmt: skip


def _largest(bench: Bench, rows: int, words: int, count: int) -> None:
    values = torch.randn(rows, words, device=bench.device)
    same = bool((fast_topk(values, count)[1] == values.topk(count).indices).all())
    taken = [
        _microseconds(bench, work)
        for work in (lambda: values.topk(count), lambda: fast_topk(values, count))
    ]
    bench.line(
        f"largest {count} of {rows} × {words}",
        ("" if same else "WRONG ") + f"topk {taken[0]} µs, kernel {taken[1]} µs",
        same=same, topk_us=taken[0], kernel_us=taken[1],
    )  # fmt: skip
