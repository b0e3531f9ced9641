"""Decode parses in NumPy: the best tree of heads and its relations, the best tree of brackets.

B rows   T words   S = T + 1 heads, the root first   C labels   N spans of a row
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.export.runtime.outputs import Arrays, decode_columns, decodes
from weft.export.runtime.tags import softmax

NO_LABEL = -1  # of a span that is not a constituent


@decodes("arcs")
def decode_arcs(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row heads, relations and tags (T, 2 + K), and probabilities (T, 1 + K)."""
    arcs = outputs["arcs"]
    heads = _best_heads(arcs, lengths, gives["search"])  # (B, T)
    probs = softmax(arcs)
    tags = decode_columns(outputs, lengths, tables, gives["columns"])
    rows = []
    for row, length in enumerate(lengths.tolist()):
        own = heads[row, :length]
        relations = softmax(
            _relation_scores(
                outputs["label_words"][row, :length], outputs["label_heads"][row, own],
                tables["label"], own, gives["root"],
            )
        )  # fmt: skip
        best = relations.argmax(1)
        steps = np.arange(length)
        sure = probs[row, steps, own] * relations[steps, best]
        table, confidence = np.stack([own, best], 1), sure[:, None]
        if tags is not None:
            table = np.concatenate([table, tags[row][0]], axis=1)
            confidence = np.concatenate([confidence, tags[row][1]], axis=1)
        rows.append((table, confidence))
    return rows


def _best_heads(arcs: np.ndarray, lengths: np.ndarray, search: str) -> np.ndarray:
    """Return the head (B, T) of every word."""
    heads: np.ndarray
    if search == "greedy":
        heads = arcs.argmax(2)
        return heads
    from weft.decode.heads.mst import best_trees

    heads = best_trees(arcs, lengths, search == "projective")
    return heads


def _relation_scores(
    words: np.ndarray, heads: np.ndarray, weight: np.ndarray, chosen: np.ndarray, root: int | None
) -> np.ndarray:
    """Return the biaffine score (T, C) of every relation between words and their heads.

    The relation of the root is for the child of the root, and for no other word.
    """
    one = np.ones((len(words), 1), np.float32)
    x, y = np.concatenate([words, one], 1), np.concatenate([heads, one], 1)
    labels, width, _ = weight.shape
    projected = x @ weight.transpose(1, 0, 2).reshape(width, -1)  # (T, C*Y)
    scores: np.ndarray = np.einsum("ncy,ny->nc", projected.reshape(len(x), labels, -1), y)
    if root is None or labels == 1:
        return scores
    return np.where((np.arange(labels) == root) != (chosen == 0)[:, None], -np.inf, scores)


@decodes("brackets")
def decode_brackets(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row tags and labelled spans (·, 4), and probabilities of the tags (T, 1)."""
    from weft.decode.heads.cky import best_tree

    tags = decode_columns(outputs, lengths, tables, gives["columns"])
    assert tags is not None
    rows = []
    for gaps, length, (own, probs) in zip(outputs["gaps"], lengths.tolist(), tags, strict=True):
        start, end = np.triu_indices(length)
        scores = _span_scores(gaps[end + 1] - gaps[start], tables, gives["epsilon"])  # (N, C)
        none = np.where((start == 0) & (end + 1 == length) & (length > 1), -np.inf, 0)
        with_none = np.concatenate([scores, none[:, None].astype(np.float32)], axis=1)
        label = with_none.argmax(1)
        label = np.where(label == scores.shape[1], NO_LABEL, label)
        tree = best_tree(with_none.max(1), length)
        spans = [(label[i], start[i], end[i] + 1) for i in tree if label[i] != NO_LABEL]
        table = np.full((max(length, len(spans)), 4), -1, np.int64)
        table[:length, 0] = own[:, 0]
        if spans:
            table[: len(spans), 1:] = spans
        rows.append((table, probs))
    return rows


def _span_scores(spans: np.ndarray, tables: Arrays, epsilon: float) -> np.ndarray:
    """Return the label scores (N, C) of spans from the difference of their gaps (N, M)."""
    x = spans + tables["span.bias"]
    x = x - x.mean(1, keepdims=True)
    x = x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(epsilon))
    x = np.maximum(x * tables["span.norm.weight"] + tables["span.norm.bias"], 0)
    scores: np.ndarray = x @ tables["span.weight"].T + tables["span.label_bias"]
    return scores
