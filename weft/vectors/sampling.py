"""Sampling tables of word2vec: noise, Huffman tree, sub-sampling.

V words
"""

from __future__ import annotations

import heapq

import numpy as np

_FULL = 1 << 32


def keep(counts: np.ndarray, sample: float) -> np.ndarray:
    """(V,) how many of 2³² draws keep a word: word2vec's (√(f/t) + 1) · t/f, at most all."""
    if not sample:
        return np.full(len(counts), _FULL, np.uint64)
    share = counts / counts.sum()
    fraction = (np.sqrt(share / sample) + 1) * sample / share
    kept: np.ndarray = (np.minimum(fraction, 1.0) * _FULL).astype(np.uint64)
    return kept


def alias_table(counts: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Cells to draw words from in proportion to counts^power (Walker's method, Vose's filling).

    A cell is drawn evenly; then a 32-bit draw below `sure` means its own word, else its alias.
    """
    weights = counts.astype(np.float64) ** power
    share = weights * (len(counts) / weights.sum())
    sure = np.full(len(counts), _FULL, np.uint64)
    alias = np.arange(len(counts), dtype=np.int32)
    poor = [int(i) for i in np.flatnonzero(share < 1)]
    rich = [int(i) for i in np.flatnonzero(share >= 1)]
    left = share.tolist()
    while poor and rich:
        low, high = poor.pop(), rich[-1]
        sure[low] = int(left[low] * _FULL)
        alias[low] = high
        left[high] -= 1 - left[low]
        if left[high] < 1:
            poor.append(rich.pop())
    return sure, alias


def moves(
    counts: np.ndarray, sample: float, window: int, noise: tuple[int, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """(V,) how often a window has a word around its middle, and how often in the middle or drawn.

    `noise` says how many words are drawn for each, and by which power of their counts.
    """
    kept = counts * (keep(counts, sample) / _FULL)
    kept = kept / kept.sum()
    around = (window + 1) * kept  # a window reaches half-way, at the mean
    if noise is None:
        return around, kept
    negative, power = noise
    drawn = counts.astype(np.float64) ** power
    return around, kept + negative * drawn / drawn.sum()


def keep_fraction(moves: np.ndarray, pull: float, threads: int) -> np.ndarray:
    """Return the fraction of each thread's updates to keep for rows updated by all threads.

    If a move goes the share `pull` of the way to its goal, n moves go 1 − e^(−n·pull). Steps that
    threads made apart, from the same place, are scaled to go as far as one after the other.
    """
    way = np.maximum(moves * pull, 1e-6)
    fractions: np.ndarray = np.expm1(-way) / (threads * np.expm1(-way / threads))
    return fractions


def huffman(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Each word's path from the root of a Huffman tree: where it ends, its nodes, its turns.

    Node 0 is the root; a turn is 1 towards the rarer half, as in hierarchical softmax's labels.
    """
    size = len(counts)
    if size < 2:
        return np.zeros(size, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    heap = [(int(count), i) for i, count in enumerate(counts)]
    heapq.heapify(heap)
    parent = np.zeros(2 * size - 1, np.int64)
    rarer = np.zeros(2 * size - 1, np.float32)
    for node in range(size, 2 * size - 1):
        (few, one), (more, two) = heapq.heappop(heap), heapq.heappop(heap)
        parent[one] = parent[two] = node
        rarer[one] = 1.0
        heapq.heappush(heap, (few + more, node))
    root = 2 * size - 2
    nodes: list[int] = []
    turns: list[float] = []
    ends = np.empty(size, np.int64)
    for word in range(size):
        path, place = [], word
        while place != root:
            path.append((root - int(parent[place]), float(rarer[place])))
            place = int(parent[place])
        nodes += [node for node, _ in reversed(path)]
        turns += [turn for _, turn in reversed(path)]
        ends[word] = len(nodes)
    return ends, np.array(nodes, np.int32), np.array(turns, np.float32)
