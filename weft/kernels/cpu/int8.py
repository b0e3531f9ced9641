"""Dynamic int8 quantisation of activations, compiled by Numba. Import it only to run it.

N rows   I width in   O width out
"""

import numpy as np
from numba import njit

# NaN and infinities keep their meaning; only the order of sums is free. With the numpy error model
# divisions never raise, so loops are vectorised.
_compiled = njit(
    nogil=True,
    cache=True,
    boundscheck=False,
    error_model="numpy",
    fastmath={"reassoc", "nsz", "contract", "arcp"},
)
f4, i4 = np.float32, np.int32
UINT8_LEVELS = f4(255)
MIN_STEP = f4(1e-12)  # a constant row has a step too
MAGNITUDE_BITS = i4(0x7FFFFFFF)  # all bits but the sign
RELU, GELU, TANH = 1, 2, 3  # in the order of `weft.kernels.cpu.linear.ONEDNN_ACTIVATIONS`


@_compiled
def quantise_rows(x, whole, size, low):
    """Quantise x (N, I) to uint8 levels, row by row: x = size·whole + low, both (N,)."""
    for n in range(len(x)):
        row, out = x[n], whole[n]
        least, most = _row_range(row)
        step = (most - least) / UINT8_LEVELS
        step = step if not step < MIN_STEP else MIN_STEP
        each = f4(1) / step
        shift = f4(0.5) - least * each
        for k in range(len(row)):
            out[k] = np.uint8(i4(row[k] * each + shift))
        size[n], low[n] = step, least


@_compiled
def dequantise(products, size, low, sums, bias, activation):
    """Dequantise products (N, O) in place, with bias and activation."""
    for n in range(len(products)):
        row, step, least = products[n], size[n], low[n]
        for k in range(len(row)):
            row[k] = row[k] * step + (sums[k] * least + bias[k])
        if activation == RELU:
            for k in range(len(row)):
                row[k] = row[k] if not row[k] < f4(0) else f4(0)
        elif activation == GELU:
            for k in range(len(row)):
                row[k] = _gelu(row[k])
        elif activation == TANH:
            for k in range(len(row)):
                row[k] = _gelu_tanh(row[k])


@_compiled
def dequantise_add(products, size, low, sums, bias, other):
    """Dequantise products (N, O) in place, add the bias and `other` (N, O)."""
    for n in range(len(products)):
        row, more, step, least = products[n], other[n], size[n], low[n]
        for k in range(len(row)):
            row[k] = row[k] * step + (sums[k] * least + bias[k]) + more[k]


@_compiled
def _row_range(row):
    """Return minimum and maximum of a row; NaN sorts beyond infinity, so it is noticed."""
    # As integers in the same order: only integer minima are vectorised.
    least, most = MAGNITUDE_BITS, i4(-MAGNITUDE_BITS - 1)
    for k in range(len(row)):
        key = _sortable_bits(f4(row[k]).view(np.int32))
        least, most = min(least, key), max(most, key)
    return i4(_sortable_bits(least)).view(np.float32), i4(_sortable_bits(most)).view(np.float32)


@_compiled
def _sortable_bits(bits):
    """Map float bits to an integer with the same order, and back."""
    return i4(bits ^ i4(i4(bits >> i4(31)) & MAGNITUDE_BITS))


@_compiled
def _exp(x):
    """Return e^x for x ≤ 80 with relative error 1e-7: 2^n times a polynomial of the remainder."""
    # The Taylor series of 2^f for |f| ≤ 1/2.
    x = x * f4(1.4426950408889634)
    x = x if not x < f4(-126) else f4(-126)
    whole = np.floor(x + f4(0.5))
    f = x - whole
    r = f4(1.5403530393381608e-4)
    r = r * f + f4(1.3333558146428443e-3)
    r = r * f + f4(9.618129107628477e-3)
    r = r * f + f4(5.550410866482158e-2)
    r = r * f + f4(0.2402265069591007)
    r = r * f + f4(0.6931471805599453)
    r = r * f + f4(1)
    return r * i4((i4(whole) + i4(127)) << i4(23)).view(np.float32)


@_compiled
def _gelu(x):
    """Return x·Φ(x) to 2e-7; Φ is formula 7.1.26 of Abramowitz and Stegun."""
    size = abs(x) * f4(0.7071067811865476)
    t = f4(1) / (f4(1) + f4(0.3275911) * size)
    r = f4(1.061405429)
    r = r * t - f4(1.453152027)
    r = r * t + f4(1.421413741)
    r = r * t - f4(0.284496736)
    r = r * t + f4(0.254829592)
    beyond = f4(0.5) * r * t * _exp(-size * size)  # 1 - Φ(|x|)
    return (x if not x < f4(0) else f4(0)) - abs(x) * beyond


@_compiled
def _gelu_tanh(x):
    """Return the tanh approximation of GELU, as in GPT-2."""
    inner = f4(1.5957691216057308) * (x + f4(0.044715) * x * x * x)
    inner = inner if not inner < f4(-80) else f4(-80)
    return x / (f4(1) + _exp(-inner))
