"""Compiled AdaGrad for GloVe: the order of an epoch's updates, and the updates themselves.

V words   E width   n pairs of a block   T threads
"""

import math

import numba
import numpy as np

compiled = numba.njit(nogil=True, cache=True, boundscheck=False)
fast = numba.njit(nogil=True, cache=True, boundscheck=False, fastmath=True)


@compiled
def arrange(first, second, weight, seed, threads, power, most, out):
    """Fill `out` with a block's pairs both ways round, shuffled, and say where each lot begins.

    A lot is what one thread does in one stage: in stage s, thread t has the words w with
    w mod T = t and the contexts c with c mod T = (t + s) mod T. No two threads meet in a row.
    """
    words, contexts, logs, shares = out
    n = len(first)
    order = np.arange(n)
    state = np.uint64(seed)
    for k in range(n - 1, 0, -1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = np.int64(((state >> np.uint64(32)) * np.uint64(k + 1)) >> np.uint64(32))
        order[k], order[j] = order[j], order[k]
    begins = np.zeros(threads * threads + 1, np.int64)
    for i in range(n):
        a, b = first[i] % threads, second[i] % threads
        begins[(b - a) % threads * threads + a + 1] += 1
        if first[i] != second[i]:
            begins[(a - b) % threads * threads + b + 1] += 1
    for lot in range(threads * threads):
        begins[lot + 1] += begins[lot]
    free = begins.copy()
    for k in range(n):
        i = order[k]
        log = math.log(weight[i])
        share = min(1.0, math.exp(power * (log - math.log(most))))
        for turn in range(2 if first[i] != second[i] else 1):
            word, context = (second[i], first[i]) if turn else (first[i], second[i])
            a, b = word % threads, context % threads
            lot = (b - a) % threads * threads + a
            at = free[lot]
            words[at], contexts[at], logs[at], shares[at] = word, context, log, share
            free[lot] += 1
    return begins


@fast
def update(begin, end, pairs, vectors, biases, rate):
    """Take one AdaGrad step for each pair begin … end; the sum of f(x)·(error)² before the steps.

    `vectors` is (V, 2, 2, E) and `biases` (V, 2, 2): of a word, as word and as context, the numbers
    and their summed squared steps.
    """
    words, contexts, logs, shares = pairs
    width = vectors.shape[3]
    rate = np.float32(rate)
    cost = 0.0
    for at in range(begin, end):
        i, j = words[at], contexts[at]
        word, context = vectors[i, 0, 0], vectors[j, 1, 0]
        word_squares, context_squares = vectors[i, 0, 1], vectors[j, 1, 1]
        error = biases[i, 0, 0] + biases[j, 1, 0] - logs[at]
        for k in range(width):
            error += word[k] * context[k]
        slope = shares[at] * error
        cost += slope * error
        slope *= rate
        for k in range(width):
            down, across = slope * context[k], slope * word[k]
            word[k] -= down / np.sqrt(word_squares[k])
            context[k] -= across / np.sqrt(context_squares[k])
            word_squares[k] += down * down
            context_squares[k] += across * across
        biases[i, 0, 0] -= slope / np.sqrt(biases[i, 0, 1])
        biases[j, 1, 0] -= slope / np.sqrt(biases[j, 1, 1])
        biases[i, 0, 1] += slope * slope
        biases[j, 1, 1] += slope * slope
    return cost
