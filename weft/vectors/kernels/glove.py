"""Compiled AdaGrad for GloVe: the order of an epoch's updates, and the updates themselves.

V words   E width   n pairs of a block   T threads
"""

import math

import numba
import numpy as np

from weft.vectors.kernels.word2vec import sample_noise

compiled = numba.njit(nogil=True, cache=True, boundscheck=False)
fast = numba.njit(nogil=True, cache=True, boundscheck=False, fastmath=True)


@compiled
def draw_pairs(seed, count, sure, alias):
    """Draw `count` words and contexts from the noise."""
    state = np.array([seed], np.uint64)
    words, contexts = np.empty(count, np.int32), np.empty(count, np.int32)
    for k in range(count):
        words[k] = sample_noise(state, sure, alias)
        contexts[k] = sample_noise(state, sure, alias)
    return words, contexts


@compiled
def lot_of(word, context, threads):
    """The lot of a pair: what one thread does in one stage.

    In stage s, thread t has the words w with w mod T = t and the contexts c with
    c mod T = (t + s) mod T. No two threads meet in a row.
    """
    a, b = word % threads, context % threads
    return (b - a) % threads * threads + a


@compiled
def arrange(first, second, weight, symmetric, negatives, seed, threads, power, most, out):
    """Fill `out` with a block's pairs in random order by lots, and say where each lot begins.

    A symmetric pair comes both ways round. `negatives` are words and contexts, the log of the
    count that they stay below, and minus their share; they come between the others.
    """
    words, contexts, logs, shares = out
    others, their_contexts, bound, their_share = negatives
    n, m = len(first), len(others)
    order = np.arange(n)
    state = np.uint64(seed)
    for k in range(n - 1, 0, -1):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        j = np.int64(((state >> np.uint64(32)) * np.uint64(k + 1)) >> np.uint64(32))
        order[k], order[j] = order[j], order[k]
    begins = np.zeros(threads * threads + 1, np.int64)
    for i in range(n):
        begins[lot_of(first[i], second[i], threads) + 1] += 1
        if symmetric and first[i] != second[i]:
            begins[lot_of(second[i], first[i], threads) + 1] += 1
    for i in range(m):
        begins[lot_of(others[i], their_contexts[i], threads) + 1] += 1
    for lot in range(threads * threads):
        begins[lot + 1] += begins[lot]
    free = begins.copy()
    done = 0
    for k in range(n):
        i = order[k]
        log = math.log(weight[i])
        share = min(1.0, math.exp(power * (log - math.log(most))))
        for turn in range(2 if symmetric and first[i] != second[i] else 1):
            word, context = (second[i], first[i]) if turn else (first[i], second[i])
            lot = lot_of(word, context, threads)
            at = free[lot]
            words[at], contexts[at], logs[at], shares[at] = word, context, log, share
            free[lot] += 1
        while done * n < (k + 1) * m:
            word, context = others[done], their_contexts[done]
            lot = lot_of(word, context, threads)
            at = free[lot]
            words[at], contexts[at], logs[at], shares[at] = word, context, bound, their_share
            free[lot] += 1
            done += 1
    return begins


@fast
def update(begin, end, pairs, vectors, biases, rate, bias_rate):
    """Take one AdaGrad step for each pair begin … end; the sum of f(x)·(error)² before the steps.

    A pair with a negative share is a random one, wrong only where it is predicted too often.

    `vectors` is (V, 2, 2, E) and `biases` (V, 2, 2): of a word, as word and as context, the numbers
    and their summed squared steps.
    """
    words, contexts, logs, shares = pairs
    width = vectors.shape[3]
    rate, bias_rate = np.float32(rate), np.float32(bias_rate)
    cost = 0.0
    for at in range(begin, end):
        i, j = words[at], contexts[at]
        word, context = vectors[i, 0, 0], vectors[j, 1, 0]
        word_squares, context_squares = vectors[i, 0, 1], vectors[j, 1, 1]
        error = biases[i, 0, 0] + biases[j, 1, 0] - logs[at]
        for k in range(width):
            error += word[k] * context[k]
        share = shares[at]
        if share < 0:
            if error <= 0:
                continue
            share = -share
        slope = share * error
        cost += slope * error
        bias_slope = slope * bias_rate
        slope *= rate
        for k in range(width):
            down, across = slope * context[k], slope * word[k]
            word[k] -= down / np.sqrt(word_squares[k])
            context[k] -= across / np.sqrt(context_squares[k])
            word_squares[k] += down * down
            context_squares[k] += across * across
        biases[i, 0, 0] -= bias_slope / np.sqrt(biases[i, 0, 1])
        biases[j, 1, 0] -= bias_slope / np.sqrt(biases[j, 1, 1])
        biases[i, 0, 1] += bias_slope * bias_slope
        biases[j, 1, 1] += bias_slope * bias_slope
    return cost
