"""Fused norm, linear layer and residual for small batches in Triton; weights are prefetched.

R rows   K input width   F output width
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from weft.kernels.triton.launch import launch_options

MAX_TILE_NUMBERS = 16384  # matrix elements that a program holds
MIN_MMA_SIZE = 16  # rows of a tensor-core tile
MAX_WHOLE_ROW = 1024  # widest row that tensor cores take at once
ROW_CHUNK = 512  # columns at a time of wider rows


@triton.jit
def _layer_norm(x, gain, shift, column, real, size, eps):
    """Return the layer norm of a row, in float32."""
    mean = tl.sum(x, 0) / size
    apart = tl.where(real, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / size + eps)
    weight = tl.load(gain + column, mask=real, other=0.0).to(tl.float32)
    return apart * scale * weight + tl.load(shift + column, mask=real, other=0.0).to(tl.float32)


@triton.jit
def _activate(x, kind, ACTIVATION: tl.constexpr):
    """Apply the activation after rounding, as separate kernels would."""
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    if ACTIVATION == "gelu":
        x = x.to(kind).to(tl.float32)
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    if ACTIVATION == "gelu-tanh":
        x = x.to(kind).to(tl.float32)
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x / (1 + tl.exp(-2 * inner))
    return x


@triton.jit
def _matvec_kernel(
    x, weight, bias, gain, shift, added, added_gain, added_shift, out,
    x_row, added_row, weight_row, size, width, eps, added_eps,
    ROWS: tl.constexpr, K: tl.constexpr, F: tl.constexpr, ALL: tl.constexpr,
    BIAS: tl.constexpr, NORM: tl.constexpr, ACTIVATION: tl.constexpr, ADDED: tl.constexpr,
    ADDED_NORM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute `F` of `width` output columns of all rows, from rows of `size` values."""
    offset = tl.arange(0, K)
    here = offset < size
    column = tl.program_id(0) * F + tl.arange(0, F)
    real = column < width
    kind = out.dtype.element_ty
    at = weight + column.to(tl.int64)[:, None] * weight_row + offset[None, :]
    # No earlier kernel writes weights, so they are loaded before the wait.
    matrix = tl.load(at, mask=real[:, None] & here[None, :], other=0.0)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    numbers = matrix.to(tl.float32)
    if BIAS:
        constant = tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    for row in tl.static_range(ROWS):
        inputs = tl.load(x + row * x_row + offset, mask=here, other=0.0).to(tl.float32)
        if NORM:
            inputs = (
                _layer_norm(inputs, gain, shift, offset, here, size, eps).to(kind).to(tl.float32)
            )
        product = tl.sum(numbers * inputs[None, :], 1)
        if BIAS:
            product += constant
        product = _activate(product, kind, ACTIVATION)
        if ADDED:
            residual = tl.load(added + row * added_row + column, mask=real, other=0.0).to(
                tl.float32
            )
            if ADDED_NORM:
                whole = tl.arange(0, ALL)
                there = whole < width
                others = tl.load(added + row * added_row + whole, mask=there, other=0.0)
                others = others.to(tl.float32)
                mean = tl.sum(others, 0) / width
                apart = tl.where(there, others - mean, 0.0)
                scale = tl.rsqrt(tl.sum(apart * apart, 0) / width + added_eps)
                residual = (residual - mean) * scale
                residual *= tl.load(added_gain + column, mask=real, other=0.0).to(tl.float32)
                residual += tl.load(added_shift + column, mask=real, other=0.0).to(tl.float32)
                residual = residual.to(kind).to(tl.float32)
            product = product.to(kind).to(tl.float32) + residual
        tl.store(out + row * width + column, product.to(kind), mask=real)


@triton.jit
def _matmul_kernel(
    x, weight, bias, gain, shift, added, added_gain, added_shift, out,
    x_row, added_row, weight_row, rows, size, width, eps, added_eps,
    R: tl.constexpr, K: tl.constexpr, F: tl.constexpr, ALL: tl.constexpr, WHOLE: tl.constexpr,
    BIAS: tl.constexpr, NORM: tl.constexpr, ACTIVATION: tl.constexpr, ADDED: tl.constexpr,
    ADDED_NORM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The same on tensor cores: all rows at once, `WHOLE` or `K` columns at a time."""
    offset = tl.arange(0, K)
    column = tl.program_id(0) * F + tl.arange(0, F)
    real = column < width
    row = tl.arange(0, R)
    there = row < rows
    kind = out.dtype.element_ty
    first = weight + column.to(tl.int64)[:, None] * weight_row + offset[None, :]
    if WHOLE:
        here = offset < size
        matrix = tl.load(first, mask=real[:, None] & here[None, :], other=0.0)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    inputs = x + row[:, None] * x_row + offset[None, :]
    if WHOLE:
        numbers = tl.load(inputs, mask=there[:, None] & here[None, :], other=0.0)
        if NORM:
            single = numbers.to(tl.float32)
            mean = tl.sum(single, 1) / size
            apart = tl.where(here[None, :], single - mean[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(apart * apart, 1) / size + eps)
            by = tl.load(gain + offset, mask=here, other=0.0).to(tl.float32)
            and_ = tl.load(shift + offset, mask=here, other=0.0).to(tl.float32)
            numbers = (apart * scale[:, None] * by[None, :] + and_[None, :]).to(kind)
        product = tl.dot(numbers, tl.trans(matrix))
    else:
        product = tl.zeros((R, F), tl.float32)
        for start in range(0, size, K):
            here = start + offset < size
            numbers = tl.load(inputs + start, mask=there[:, None] & here[None, :], other=0.0)
            matrix = tl.load(first + start, mask=real[:, None] & here[None, :], other=0.0)
            product = tl.dot(numbers, tl.trans(matrix), product)
    if BIAS:
        product += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)[None, :]
    product = _activate(product, kind, ACTIVATION)
    both = there[:, None] & real[None, :]
    if ADDED:
        residual = tl.load(added + row[:, None] * added_row + column[None, :], mask=both, other=0.0)
        residual = residual.to(tl.float32)
        if ADDED_NORM:
            whole = tl.arange(0, ALL)
            inside = there[:, None] & (whole < width)[None, :]
            others = tl.load(
                added + row[:, None] * added_row + whole[None, :], mask=inside, other=0.0
            ).to(tl.float32)
            mean = tl.sum(others, 1) / width
            apart = tl.where(inside, others - mean[:, None], 0.0)
            scale = tl.rsqrt(tl.sum(apart * apart, 1) / width + added_eps)
            by = tl.load(added_gain + column, mask=real, other=0.0).to(tl.float32)
            and_ = tl.load(added_shift + column, mask=real, other=0.0).to(tl.float32)
            residual = (residual - mean[:, None]) * scale[:, None] * by[None, :] + and_[None, :]
            residual = residual.to(kind).to(tl.float32)
        product = product.to(kind).to(tl.float32) + residual
    tl.store(out + row[:, None] * width + column[None, :], product.to(kind), mask=both)


def triton_fused_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, gain: Tensor | None, shift: Tensor | None,
    eps: float, activation: str, added: Tensor | None, added_gain: Tensor | None,
    added_shift: Tensor | None, added_eps: float, shape: tuple[int, int] | None = None,
) -> Tensor:  # fmt: skip
    """Return `small_batch.fused_linear` of rows (R, K) and a matrix (F, K), as (R, F).

    `shape` is the number of columns per program, and of warps.
    """
    (R, K), N = x.shape, len(weight)
    assert all(part.stride(1) == 1 for part in (x, weight, _or_dummy(added, x)))
    out = torch.empty(R, N, dtype=x.dtype, device=x.device)
    wide = max(triton.next_power_of_2(K), MIN_MMA_SIZE)
    units = R > 1 and x.dtype != torch.float32 and (wide <= MAX_WHOLE_ROW or gain is None)
    columns, warps = shape or (_matmul_shape(N, wide) if units else _matvec_shape(N, wide))
    arguments = (
        x, weight, _or_dummy(bias, x), _or_dummy(gain, x), _or_dummy(shift, x), _or_dummy(added, x),
        _or_dummy(added_gain, x), _or_dummy(added_shift, x), out, x.stride(0),
        0 if added is None else added.stride(0),
        weight.stride(0),
    )  # fmt: skip
    options: Any = {
        "F": columns, "ALL": triton.next_power_of_2(N) if added_gain is not None else 1,
        "BIAS": bias is not None, "NORM": gain is not None, "ACTIVATION": activation,
        "ADDED": added is not None, "ADDED_NORM": added_gain is not None, "num_warps": warps,
        **launch_options(x),
    }  # fmt: skip
    grid = (triton.cdiv(N, columns),)
    # Triton launches on the current device, which need not be that of the rows.
    with torch.get_device_module(x.device).device(x.device):
        if units:
            options |= {
                "R": max(triton.next_power_of_2(R), MIN_MMA_SIZE),
                "WHOLE": wide <= MAX_WHOLE_ROW,
            }
            options |= {"K": wide if wide <= MAX_WHOLE_ROW else ROW_CHUNK}
            _matmul_kernel[grid](*arguments, R, K, N, eps, added_eps, **options)
        else:
            _matvec_kernel[grid](*arguments, K, N, eps, added_eps, ROWS=R, K=wide, **options)
    return out


def _matvec_shape(columns: int, wide: int) -> tuple[int, int]:
    """Return columns per program and warps: about one program per multiprocessor."""
    each = 16 if columns >= 3000 else 8 if columns >= 1024 else 4
    each = max(min(each, MAX_TILE_NUMBERS // wide), 1)
    return each, 4 if wide <= 1024 else 8


def _matmul_shape(columns: int, wide: int) -> tuple[int, int]:
    """Return the same for tensor cores; measured on an H200."""
    return (64, 4) if columns >= 16384 and wide <= 512 else (32, 8)


def _or_dummy(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other if tensor is None else tensor
