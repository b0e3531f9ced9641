"""Products of few rows on a GPU, in Triton: a norm before, a sum behind, and weights ahead of time.

R rows   K width of what goes in   F width of what comes out
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from weft.decode.early import early

SIZE = 16384  # numbers of a matrix that a program holds


@triton.jit
def _normed(x, gain, shift, column, real, size, eps):  # type: ignore[no-untyped-def]
    """A row in single precision with mean 0 and variance 1, times its gain."""
    mean = tl.sum(x, 0) / size
    apart = tl.where(real, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / size + eps)
    weight = tl.load(gain + column, mask=real, other=0.0).to(tl.float32)
    return apart * scale * weight + tl.load(shift + column, mask=real, other=0.0).to(tl.float32)


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    x, weight, bias, gain, shift, added, added_gain, added_shift, out,
    x_row, added_row, weight_row, size, width, eps, added_eps,
    ROWS: tl.constexpr, K: tl.constexpr, F: tl.constexpr, ALL: tl.constexpr,
    BIAS: tl.constexpr, NORM: tl.constexpr, ACTIVATION: tl.constexpr, ADDED: tl.constexpr,
    ADDED_NORM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Some columns of all rows: `F` of `width`, from rows of `size` numbers."""
    place = tl.arange(0, K)
    here = place < size
    column = tl.program_id(0) * F + tl.arange(0, F)
    real = column < width
    kind = out.dtype.element_ty
    at = weight + column.to(tl.int64)[:, None] * weight_row + place[None, :]
    # Nothing that runs before changes weights, so that they need not wait for it.
    matrix = tl.load(at, mask=real[:, None] & here[None, :], other=0.0)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    numbers = matrix.to(tl.float32)
    if BIAS:
        constant = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    for row in tl.static_range(ROWS):
        given = tl.load(x + row * x_row + place, mask=here, other=0.0).to(tl.float32)
        if NORM:
            given = _normed(given, gain, shift, place, here, size, eps).to(kind).to(tl.float32)
        made = tl.sum(numbers * given[None, :], 1)
        if BIAS:
            made += constant
        if ACTIVATION == "relu":
            made = tl.maximum(made, 0.0)
        if ACTIVATION == "gelu":
            made = made.to(kind).to(tl.float32)
            made = 0.5 * made * (1 + tl.erf(made * 0.7071067811865476))
        if ACTIVATION == "gelu-tanh":
            made = made.to(kind).to(tl.float32)
            inner = 0.7978845608028654 * (made + 0.044715 * made * made * made)
            made = made / (1 + tl.exp(-2 * inner))
        if ADDED:
            own = tl.load(added + row * added_row + column, mask=real, other=0.0).to(tl.float32)
            if ADDED_NORM:
                whole = tl.arange(0, ALL)
                there = whole < width
                others = tl.load(added + row * added_row + whole, mask=there, other=0.0)
                others = others.to(tl.float32)
                mean = tl.sum(others, 0) / width
                apart = tl.where(there, others - mean, 0.0)
                scale = tl.rsqrt(tl.sum(apart * apart, 0) / width + added_eps)
                own = (own - mean) * scale
                own *= tl.load(added_gain + column, mask=real, other=0.0).to(tl.float32)
                own += tl.load(added_shift + column, mask=real, other=0.0).to(tl.float32)
                own = own.to(kind).to(tl.float32)
            made = made.to(kind).to(tl.float32) + own
        tl.store(out + row * width + column, made.to(kind), mask=real)


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None,
    eps: float, activation: str, added: Tensor | None, added_gain: Tensor | None,
    added_shift: Tensor | None, added_eps: float, shape: tuple[int, int] | None = None,
) -> Tensor:  # fmt: skip
    """Rows (R, K) times a matrix (F, K), normalised before and added to others behind; see `few`.

    `shape` is how many columns a program makes, and its warps.
    """
    (R, K), N = x.shape, len(weight)
    assert all(part.stride(1) == 1 for part in (x, weight, _or(added, x)))
    out = torch.empty(R, N, dtype=x.dtype, device=x.device)
    wide = triton.next_power_of_2(K)
    columns, warps = shape or _shape(N, wide)
    rest: Any = {"ACTIVATION": activation, "num_warps": warps, **early(x)}
    # Triton starts its programs on the current device, which need not be the rows'.
    with torch.get_device_module(x.device).device(x.device):
        _product[(triton.cdiv(N, columns),)](
            x, weight, _or(bias, x), _or(gain, x), _or(shift, x), _or(added, x),
            _or(added_gain, x), _or(added_shift, x), out,
            x.stride(0), 0 if added is None else added.stride(0), weight.stride(0), K, N, eps,
            added_eps,
            ROWS=R, K=wide, F=columns, ALL=triton.next_power_of_2(N) if added is not None else 1,
            BIAS=bias is not None, NORM=gain is not None, ADDED=added is not None,
            ADDED_NORM=added_gain is not None, **rest,
        )  # fmt: skip
    return out


def _shape(columns: int, wide: int) -> tuple[int, int]:
    """Columns of a program and its warps: about as many programs as there are multiprocessors."""
    each = 16 if columns >= 2048 else 8 if columns >= 1024 else 4
    each = max(min(each, SIZE // wide), 1)
    return each, min(max(each * wide // 1024, 4), 8)


def _or(given: Tensor | None, other: Tensor) -> Tensor:
    return other if given is None else given
