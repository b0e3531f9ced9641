"""Decode tags in NumPy: the most probable tag of every word, or Viterbi under a CRF.

B rows   T steps   C labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CRFTables:
    """Scores of transitions, of the first and of the last label; -inf if forbidden."""

    transitions: np.ndarray  # (C, C) from row to column
    start: np.ndarray  # (C,)
    end: np.ndarray  # (C,)


def read_chain(tables: Mapping[str, np.ndarray], column: int) -> CRFTables | None:
    """Return the CRF of a column, if it has one."""
    name = f"column.{column}."
    if f"{name}transitions" not in tables:
        return None
    return CRFTables(*(tables[name + part] for part in ("transitions", "start", "end")))


def viterbi(logits: np.ndarray, chain: CRFTables, lengths: np.ndarray) -> np.ndarray:
    """Return the labels of each row's best sequence (B, T), zero in the padding."""
    rows, steps, _ = logits.shape
    into = np.ascontiguousarray(chain.transitions.T)  # (C, C) to row, from column
    best = np.empty_like(logits)  # (B, T, C)
    best[:, 0] = logits[:, 0] + chain.start
    for t in range(1, steps):
        # Only the maxima are kept: back-pointers are recomputed along the best path.
        now = (best[:, t - 1, None] + into).max(2) + logits[:, t]
        # Relative to the best label, so that long rows lose no precision.
        best[:, t] = now - now.max(1, keepdims=True)
    path = np.zeros((rows, steps), np.int64)
    label = np.zeros(rows, np.int64)
    for t in reversed(range(steps)):
        follows = np.where((lengths == t + 1)[:, None], chain.end, into[label])  # (B, C)
        label = np.where(lengths > t, (best[:, t] + follows).argmax(1), 0)
        path[:, t] = label
    return path


def marginals(logits: np.ndarray, chain: CRFTables, lengths: np.ndarray) -> np.ndarray:
    """Return the probability of each label at each step (B, T, C), by forward and backward sums."""
    wide = logits.astype(np.float64)
    steps = wide.shape[1]
    transitions = chain.transitions.astype(np.float64)
    alpha = np.empty_like(wide)
    alpha[:, 0] = wide[:, 0] + chain.start
    for t in range(1, steps):
        alpha[:, t] = logsumexp(alpha[:, t - 1, :, None] + transitions, 1) + wide[:, t]
    beta = np.broadcast_to(chain.end.astype(np.float64), wide[:, 0].shape)
    out = np.zeros_like(wide)
    for t in reversed(range(steps)):
        ends = (lengths == t + 1)[:, None]
        beta = np.where(ends, chain.end, beta)  # (B, C) scores of what follows step t
        total = alpha[:, t] + beta
        probs = np.exp(total - logsumexp(total, 1)[:, None])
        out[:, t] = np.where((lengths > t)[:, None], probs, 0)
        beta = logsumexp(transitions + (wide[:, t] + beta)[:, None], 2)
    return out


def logsumexp(values: np.ndarray, axis: int) -> np.ndarray:
    """Return log Σ exp over an axis; -inf where every summand is."""
    top = values.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        total: np.ndarray = np.log(np.exp(values - top).sum(axis)) + top.squeeze(axis)
    return total


def softmax(values: np.ndarray) -> np.ndarray:
    """Return probabilities over the last axis, in single precision as PyTorch has them."""
    exps = np.exp(values - values.max(-1, keepdims=True))
    probs: np.ndarray = exps / exps.sum(-1, keepdims=True)
    return probs


def decode_tags(
    columns: Sequence[np.ndarray], chains: Sequence[CRFTables | None], lengths: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return per row the best tags (T, K) and their probabilities (T, K)."""
    tags, probs = [], []
    for logits, chain in zip(columns, chains, strict=True):
        if chain is None:
            each = softmax(logits)
            best = each.argmax(2)
        else:
            each = marginals(logits, chain, lengths).astype(np.float32)
            best = viterbi(logits, chain, lengths)
        tags.append(best)
        probs.append(np.take_along_axis(each, best[:, :, None], 2)[:, :, 0])
    table, sure = np.stack(tags, 2), np.stack(probs, 2)
    return [
        (table[row, :length], sure[row, :length]) for row, length in enumerate(lengths.tolist())
    ]
