"""The inner products and updates of word2vec as vector instructions, a few rows at a time.

Left to itself the compiler makes one row at a time of these loops and a slow remainder of each
width. Here a block of GROUP output rows stays in registers while the input rows pass by, and rows
are padded with zeros to whole registers. A row is given by its address, rows by the address of an
`int64` array of addresses. Numba has no vector types, so the loops are written in LLVM's; they
run on every processor and use 512-bit registers where there are some.

Compiled loops are kept on disk until their own file changes: after a change here, touch kernels.py
and kernels_pieces.py.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

GROUP = 6  # output rows at once: a word and 5 negatives
SCORES_PER_ROW = 8  # scores kept for one input row, so that they fill registers
LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f", False) else 8
ROWS_PER_REGISTER = LANES // SCORES_PER_ROW  # input rows whose scores fill one register

intrinsic: Any = extending.intrinsic  # its own types do not know that the context is given
_FLOAT, _LONG = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_FAST = ("fast",)
_BYTES = 4 * LANES
_ADDRESS = types.int64


def padded_width(width: int) -> int:
    """The width of a row that is whole cache lines, and so whole registers."""
    return -(-width // 16) * 16


@intrinsic
def scores(context, inputs, count, outputs, steps, into):
    """Compute inner products of `count` input rows with GROUP output rows, of `steps` registers.

    `count` is a multiple of ROWS_PER_REGISTER; the scores of an input row are SCORES_PER_ROW apart.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        inputs, count, outputs, steps, into = values
        columns = [_entry(builder, outputs, q) for q in range(GROUP)]
        with cgutils.for_range_slice(builder, _n(0), count, _n(ROWS_PER_REGISTER), _LONG) as (p, _):
            rows = [
                _entry(builder, inputs, builder.add(p, _n(i))) for i in range(ROWS_PER_REGISTER)
            ]
            sums = [_slot(builder) for _ in range(ROWS_PER_REGISTER * GROUP)]
            with cgutils.for_range(builder, steps, intp=_LONG) as loop:
                ahead = builder.mul(loop.index, _n(_BYTES))
                a = [_load(builder, row, ahead) for row in rows]
                for q in range(GROUP):
                    b = _load(builder, columns[q], ahead)
                    for i in range(ROWS_PER_REGISTER):
                        place = sums[i * GROUP + q]
                        product = builder.fmul(a[i], b, flags=_FAST)
                        builder.store(
                            builder.fadd(builder.load(place), product, flags=_FAST), place
                        )
            found = [builder.load(place) for place in sums]
            zero = ir.Constant(_VECTOR, [0.0] * LANES)
            lines: list[Any] = []
            for i in range(ROWS_PER_REGISTER):
                lines += found[i * GROUP : (i + 1) * GROUP] + [zero] * (SCORES_PER_ROW - GROUP)
            _store(builder, _sum(builder, lines), into, builder.mul(p, _n(4 * SCORES_PER_ROW)))
        return context.get_dummy_value()

    return types.void(_ADDRESS, types.int64, _ADDRESS, types.int64, _ADDRESS), code


@intrinsic
def update_rows(context, inputs, count, outputs, steps, gains):
    """Add to each row the rows of the other side, each times its gain; all at their old values."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        inputs, count, outputs, steps, gains = values
        columns = [_entry(builder, outputs, q) for q in range(GROUP)]
        with cgutils.for_range(builder, steps, intp=_LONG) as loop:
            ahead = builder.mul(loop.index, _n(_BYTES))
            old = [_load(builder, column, ahead) for column in columns]
            new = [_slot(builder) for _ in columns]
            with cgutils.for_range(builder, count, intp=_LONG) as inner:
                row = _entry(builder, inputs, inner.index)
                a = moved = _load(builder, row, ahead)
                base = builder.add(gains, builder.mul(inner.index, _n(4 * SCORES_PER_ROW)))
                for q in range(GROUP):
                    gain = _broadcast(builder, base, q)
                    moved = builder.fadd(
                        moved, builder.fmul(gain, old[q], flags=_FAST), flags=_FAST
                    )
                    step = builder.fmul(gain, a, flags=_FAST)
                    builder.store(builder.fadd(builder.load(new[q]), step, flags=_FAST), new[q])
                _store(builder, moved, row, ahead)
            for column, place in zip(columns, new, strict=True):
                # Read again: a word may be among the negatives twice.
                now = _load(builder, column, ahead)
                _store(builder, builder.fadd(now, builder.load(place), flags=_FAST), column, ahead)
        return context.get_dummy_value()

    return types.void(_ADDRESS, types.int64, _ADDRESS, types.int64, _ADDRESS), code


@intrinsic
def mean(context, rows, count, steps, into, copy):
    """The mean of some rows, written twice."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, count, steps, into, copy = values
        share = builder.fdiv(ir.Constant(_FLOAT, 1.0), builder.sitofp(count, _FLOAT))
        shares = _fill(builder, share)
        with cgutils.for_range(builder, steps, intp=_LONG) as loop:
            ahead = builder.mul(loop.index, _n(_BYTES))
            total = _slot(builder)
            with cgutils.for_range(builder, count, intp=_LONG) as inner:
                a = _load(builder, _entry(builder, rows, inner.index), ahead)
                builder.store(builder.fadd(builder.load(total), a, flags=_FAST), total)
            result = builder.fmul(builder.load(total), shares, flags=_FAST)
            _store(builder, result, into, ahead)
            _store(builder, result, copy, ahead)
        return context.get_dummy_value()

    return types.void(_ADDRESS, types.int64, types.int64, _ADDRESS, _ADDRESS), code


@intrinsic
def add_delta(context, rows, count, steps, new, old):
    """Add `new` − `old` to each of some rows."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, count, steps, new, old = values
        with cgutils.for_range(builder, steps, intp=_LONG) as loop:
            ahead = builder.mul(loop.index, _n(_BYTES))
            way = builder.fsub(_load(builder, new, ahead), _load(builder, old, ahead), flags=_FAST)
            with cgutils.for_range(builder, count, intp=_LONG) as inner:
                row = _entry(builder, rows, inner.index)
                _store(
                    builder, builder.fadd(_load(builder, row, ahead), way, flags=_FAST), row, ahead
                )
        return context.get_dummy_value()

    return types.void(_ADDRESS, types.int64, types.int64, _ADDRESS, _ADDRESS), code


@intrinsic
def fetch(context, row, lines):
    """Ask the memory for the cache lines of a row that will be needed soon."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        row, lines = values
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()] + [ir.IntType(32)] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
        how = [ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]  # to read, keep, data
        with cgutils.for_range(builder, lines, intp=_LONG) as loop:
            place = builder.add(row, builder.mul(loop.index, _n(64)))
            builder.call(function, [builder.inttoptr(place, ir.IntType(8).as_pointer()), *how])
        return context.get_dummy_value()

    return types.void(_ADDRESS, types.int64), code


def _n(value: int) -> Any:
    return ir.Constant(_LONG, value)


def _entry(builder: Any, array: Any, index: Any) -> Any:
    """Entry `index` of an array of addresses."""
    place = _n(index) if isinstance(index, int) else index
    there = builder.add(array, builder.mul(place, _n(8)))
    return builder.load(builder.inttoptr(there, _LONG.as_pointer()))


def _load(builder: Any, row: Any, ahead: Any) -> Any:
    place = builder.inttoptr(builder.add(row, ahead), _VECTOR.as_pointer())
    return builder.load(place, align=4)


def _store(builder: Any, value: Any, row: Any, ahead: Any) -> None:
    place = builder.inttoptr(builder.add(row, ahead), _VECTOR.as_pointer())
    builder.store(value, place, align=4)


def _broadcast(builder: Any, base: Any, index: int) -> Any:
    """One number of an array in every lane."""
    place = builder.inttoptr(builder.add(base, _n(4 * index)), _FLOAT.as_pointer())
    return _fill(builder, builder.load(place))


def _fill(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _n(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, one, lanes)


def _slot(builder: Any) -> Any:
    """A register that starts at zero; the compiler takes it out of memory."""
    place = cgutils.alloca_once(builder, _VECTOR)
    builder.store(ir.Constant(_VECTOR, [0.0] * LANES), place)
    return place


def _sum(builder: Any, lines: list[Any]) -> Any:
    """The sum of each of LANES vectors, as one vector: halves are folded, two vectors at a time."""
    half = LANES // 2
    while len(lines) > 1:
        # Each vector holds partial sums in runs of 2·half lanes; fold every run to `half`.
        low = [i for i in range(2 * LANES) if i % (2 * half) < half]
        high = [i + half for i in low]
        kind = ir.VectorType(ir.IntType(32), LANES)
        folded = []
        for one, two in zip(lines[::2], lines[1::2], strict=True):
            parts = [
                builder.shuffle_vector(one, two, ir.Constant(kind, where)) for where in (low, high)
            ]
            folded.append(builder.fadd(*parts, flags=_FAST))
        lines, half = folded, half // 2
    return lines[0]
