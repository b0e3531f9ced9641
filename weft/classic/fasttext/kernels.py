"""The classifier of Joulin et al. (2017) as compiled loops: the mean of rows under a linear layer.

Loops run over whole cache lines: a row has P = 16, 32, … places, of which the first E are used.
R rows   E width   C scores   n texts
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, njit, types
from numba.core import cgutils

SOFTMAX, SIGMOIDS, SQUARES = 0, 1, 2  # one class of many, yes or no for each, a number
LINE = 16  # float32 numbers in a cache line
AHEAD = 32  # rows that are on their way from memory while one is added
_SMALL = np.float32(1e-8)
_compiled = njit(nogil=True, boundscheck=False, cache=True, fastmath=True, error_model="numpy")


class Weights(NamedTuple):
    """The learned weights; gains are AdaGrad's sums of squared gradients, one per row and score.

    A thread among others has all but the table for itself, and copies of its first rows, which
    are the frequent ones: if all wrote to those, they would wait for each other's memory.
    """

    table: np.ndarray  # (R, P) float32
    gains: np.ndarray  # (R,) float32
    near: np.ndarray  # (H, P) float32: what a thread has instead of the first H rows
    near_gains: np.ndarray  # (H,) float32
    outputs: np.ndarray  # (E, C) float32
    output_gains: np.ndarray  # (C,) float32
    bias: np.ndarray  # (C,) float32
    bias_gains: np.ndarray  # (C,) float32


class TrainingTargets(NamedTuple):
    """Training targets: classes under SOFTMAX, else a row of numbers per text."""

    kind: int
    labels: np.ndarray  # (n,) int32
    wanted: np.ndarray  # (n, C) float32
    smoothing: float
    weights: np.ndarray  # (C,) float32 of classes, or of the positives of a label; empty: none
    gamma: float  # of the focal loss; 0: cross-entropy
    # (n,) float32 of the losses of texts; empty: all are 1
    row_weights: np.ndarray = np.zeros(0, np.float32)


_intrinsic: Any = extending.intrinsic  # its own types do not know that the context is given


@_intrinsic
def _fetch(context, array, row):  # type: ignore[no-untyped-def]
    """Ask the memory for the first cache line of a row that will be needed soon."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, values[0])
        (stride, *_) = cgutils.unpack_tuple(builder, held.strides)
        start = builder.ptrtoint(held.data, ir.IntType(64))
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        place = builder.inttoptr(builder.add(start, builder.mul(values[1], stride)), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch")
        builder.call(function, [place, *(ir.Constant(word, v) for v in (0, 3, 1))])  # data, keep
        return context.get_dummy_value()

    return types.void(array, types.int64), code


@_compiled
def _fetch_text(rows, begin, end, table, gains) -> None:  # type: ignore[no-untyped-def]
    """Ask for the first rows of a text."""
    for place in range(begin, min(end, begin + AHEAD)):
        _fetch(table, np.int64(rows[place]))
        if gains.size:
            _fetch(gains, np.int64(rows[place]))


@_compiled
def _mean(rows, begin, end, table, gains, near, into) -> None:  # type: ignore[no-untyped-def]
    """The mean of the rows from `begin` to `end`; zeros where there are none."""
    into[:] = 0
    share = np.float32(1.0 / max(end - begin, 1))
    for first in range(0, table.shape[1], LINE):
        line = into[first : first + LINE]
        for place in range(begin, end):
            soon = np.int64(rows[min(place + AHEAD, end - 1)])
            _fetch(table[:, first:], soon)
            if gains.size:
                _fetch(gains, soon)
            number = rows[place]
            row = (near if number < len(near) else table)[number, first : first + LINE]
            for j in range(LINE):
                line[j] += row[j]
        for j in range(LINE):
            line[j] *= share


@_compiled
def _scores(hidden, outputs, bias, into) -> None:  # type: ignore[no-untyped-def]
    into[:] = bias
    for j in range(outputs.shape[0]):
        for c in range(into.size):
            into[c] += hidden[j] * outputs[j, c]


@_compiled
def _softmax(scores, label, smoothing):  # type: ignore[no-untyped-def]
    """Turn scores into what the loss grows by with each; the loss (cross-entropy)."""
    top = scores.max()
    total, plain = np.float32(0), np.float32(0)
    for c in range(scores.size):
        plain += scores[c] - top
    right = scores[label] - top
    for c in range(scores.size):
        scores[c] = np.exp(scores[c] - top)
        total += scores[c]
    share = np.float32(smoothing) / np.float32(scores.size)
    for c in range(scores.size):
        scores[c] = scores[c] / total - share
    scores[label] -= np.float32(1) - np.float32(smoothing)
    return np.log(total) - (np.float32(1) - np.float32(smoothing)) * right - share * plain


@_compiled
def _weighted_softmax(scores, label, smoothing, weights):  # type: ignore[no-untyped-def]
    """`_softmax` with a weight for each class: −Σ t_c w_c log p_c of smoothed targets t."""
    top = scores.max()
    share = np.float32(smoothing) / np.float32(scores.size)
    rest = np.float32(1) - np.float32(smoothing)
    loss, mass, total = np.float32(0), np.float32(0), np.float32(0)
    for c in range(scores.size):
        wanted = (share + (rest if c == label else np.float32(0))) * weights[c]
        mass += wanted
        loss -= wanted * (scores[c] - top)
        total += np.exp(scores[c] - top)
    for c in range(scores.size):
        wanted = (share + (rest if c == label else np.float32(0))) * weights[c]
        scores[c] = mass * np.exp(scores[c] - top) / total - wanted
    return loss + mass * np.log(total)


@_compiled
def _focus(nats, gamma):  # type: ignore[no-untyped-def]
    """The focal loss (1 − p)^γ · nats of nats = −log p, over nats, and its slope in nats."""
    p = np.exp(-nats)
    error = max(np.float32(1) - p, np.float32(1e-7))
    power = error**gamma
    return power, power + gamma * nats * p * power / error


@_compiled
def _errors(scores, aims, text):  # type: ignore[no-untyped-def]
    """Turn the scores of a text into what the loss grows by with each of them; the loss."""
    gamma = np.float32(aims.gamma)
    if aims.kind == SOFTMAX:
        label = aims.labels[text]
        if aims.weights.size:
            return _weighted_softmax(scores, label, aims.smoothing, aims.weights)
        loss = _softmax(scores, label, aims.smoothing)
        if gamma > 0:
            height, slope = _focus(loss, gamma)
            for c in range(scores.size):
                scores[c] *= slope
            loss *= height
        return loss
    loss = np.float32(0)
    for c in range(scores.size):
        score, wanted = scores[c], aims.wanted[text, c]
        if aims.kind == SQUARES:
            scores[c] = score - wanted
            loss += np.float32(0.5) * scores[c] * scores[c]
        else:
            wanted += np.float32(aims.smoothing) * (np.float32(0.5) - wanted)
            small = np.exp(-abs(score))
            chance = (np.float32(1) if score > 0 else small) / (np.float32(1) + small)
            scores[c] = chance - wanted
            nats = max(score, np.float32(0)) - score * wanted + np.log(np.float32(1) + small)
            if gamma > 0:
                height, slope = _focus(nats, gamma)
                scores[c] *= slope
                nats *= height
            elif aims.weights.size:  # w y softplus(−s) + (1 − y) softplus(s)
                more = (aims.weights[c] - np.float32(1)) * wanted
                scores[c] -= more * (np.float32(1) - chance)
                nats += more * (max(-score, np.float32(0)) + np.log(np.float32(1) + small))
            loss += nats
    return loss


@_compiled
def _slopes(errors, outputs, share, into):  # type: ignore[no-untyped-def]
    """Return the gradient with respect to a row, and the mean of its squares."""
    squares = np.float32(0)
    for j in range(outputs.shape[0]):
        slope = np.float32(0)
        for c in range(errors.size):
            slope += errors[c] * outputs[j, c]
        into[j] = slope * share
        squares += into[j] * into[j]
    return squares / np.float32(outputs.shape[0])


@_compiled
def _move_outputs(errors, hidden, weights, rate) -> None:  # type: ignore[no-untyped-def]
    width = weights.outputs.shape[0]
    size = np.float32(0)
    for j in range(width):
        size += hidden[j] * hidden[j]
    size /= np.float32(width)
    for c in range(errors.size):
        square = errors[c] * errors[c]
        weights.bias_gains[c] += square
        weights.output_gains[c] += square * size
        weights.bias[c] -= rate * errors[c] / np.sqrt(weights.bias_gains[c] + _SMALL)
        errors[c] *= rate / np.sqrt(weights.output_gains[c] + _SMALL)
    for j in range(width):
        for c in range(errors.size):
            weights.outputs[j, c] -= hidden[j] * errors[c]


@_compiled
def _move_rows(rows, begin, end, weights, slopes, squares, rate) -> None:  # type: ignore[no-untyped-def]
    for place in range(begin, end):
        number = rows[place]
        mine = number < len(weights.near)
        table = weights.near if mine else weights.table
        gains = weights.near_gains if mine else weights.gains
        gains[number] += squares
        step = rate / np.sqrt(gains[number] + _SMALL)
        for first in range(0, table.shape[1], LINE):
            row = table[number, first : first + LINE]
            slope = slopes[first : first + LINE]
            for j in range(LINE):
                row[j] -= step * slope[j]


@_compiled
def learn(rows, ends, order, first, last, aims, weights, start, stop):  # type: ignore[no-untyped-def]
    """One step for each text of order[first:last], the rate going from `start` to `stop`.

    AdaGrad (Duchi et al. 2011) with one gain for a whole row: rare words move as far as frequent
    ones. A row that occurs twice in a text moves twice. The sum of the losses before each step.
    """
    hidden = np.zeros(weights.table.shape[1], np.float32)
    slopes = np.zeros(weights.table.shape[1], np.float32)
    errors = np.empty(weights.bias.size, np.float32)
    total = 0.0
    for turn in range(first, last):
        text = order[turn]
        rate = np.float32(start + (stop - start) * (turn - first) / (last - first))
        begin, end = ends[text - 1] if text else 0, ends[text]
        _mean(rows, begin, end, weights.table, weights.gains, weights.near, hidden)
        if turn + 1 < last:
            after = order[turn + 1]
            beyond = ends[after - 1] if after else 0
            _fetch_text(rows, beyond, ends[after], weights.table, weights.gains)
        _scores(hidden, weights.outputs, weights.bias, errors)
        loss = _errors(errors, aims, text)
        if aims.row_weights.size:
            weight = aims.row_weights[text]
            loss *= weight
            for c in range(errors.size):
                errors[c] *= weight
        total += loss
        share = np.float32(1.0 / max(end - begin, 1))
        squares = _slopes(errors, weights.outputs, share, slopes)
        _move_outputs(errors, hidden, weights, rate)
        _move_rows(rows, begin, end, weights, slopes, squares, rate)
    return total


@_compiled
def merge(shared, own, before) -> None:  # type: ignore[no-untyped-def]
    """Add what a thread has learned since it last did so, and take what others have."""
    for i in range(shared.size):
        shared[i] += own[i] - before[i]
        own[i] = before[i] = shared[i]


@_compiled
def answer(rows, ends, table, outputs, bias, means, scores) -> None:  # type: ignore[no-untyped-def]
    """The mean row and the scores of each text."""
    unused, nothing = np.empty(0, np.float32), table[:0]
    for text in range(ends.size):
        begin = ends[text - 1] if text else 0
        if text + 1 < ends.size:
            _fetch_text(rows, ends[text], ends[text + 1], table, unused)
        _mean(rows, begin, ends[text], table, unused, nothing, means[text])
        _scores(means[text], outputs, bias, scores[text])
