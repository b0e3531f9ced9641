"""Parse by greedy merging in NumPy: the best pair of neighbours becomes a node, until one is left.

B rows   T words   H width of a node   C labels   M merges, T - 1
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.export.runtime.outputs import Arrays, decode_columns, decodes

ABSENT = -1  # the merge of a row that is done


class Merges(NamedTuple):
    """The nodes made in each row, in order."""

    start: np.ndarray  # (B, M)
    end: np.ndarray  # (B, M)
    states: np.ndarray  # (B, M, H)


@decodes("merges")
def decode_merges(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row tags and labelled spans (·, 4), and probabilities of the tags (T, 1)."""
    leaves = outputs["leaves"]  # (B, T, H)
    found = merge_neighbours(leaves, lengths, tables)
    words = np.broadcast_to(np.arange(leaves.shape[1]), leaves.shape[:2])
    start = np.concatenate([words, found.start], 1)  # (B, T + M)
    end = np.concatenate([words + 1, found.end], 1)
    states = np.concatenate([leaves, found.states], 1)
    logits = states @ tables["merge.label"].T + tables["merge.label_bias"]  # (B, T + M, C + 1)
    whole = (start == 0) & (end == lengths[:, None]) & (end > 1)
    logits[:, :, -1][whole] = -np.inf  # a sentence has a label
    label = logits.argmax(2)
    kept = (start >= 0) & (end <= lengths[:, None]) & (label < logits.shape[2] - 1)
    tags = decode_columns(outputs, lengths, tables, gives["columns"])
    assert tags is not None
    rows = []
    for row, (own, probs) in enumerate(tags):
        columns = (column[row, kept[row]].tolist() for column in (label, start, end))
        spans = sorted(zip(*columns, strict=True), key=lambda span: (span[1], -span[2]))
        table = np.full((max(len(own), len(spans)), 4), -1, np.int64)
        table[: len(own), 0] = own[:, 0]
        if spans:
            table[: len(spans), 1:] = spans
        rows.append((table, probs))
    return rows


def merge_neighbours(leaves: np.ndarray, lengths: np.ndarray, tables: Arrays) -> Merges:
    """Merge the best pair of neighbours (B, T, H) until one node is left, in all rows at once."""
    rows, words, width = leaves.shape
    weight, bias, scorer = (tables[f"merge.{name}"] for name in ("weight", "bias", "score"))
    into = weight.T  # (H, 2*H) as left child, as right
    index, row = np.arange(words), np.arange(rows)
    # One more column: rows that are done write there.
    end = np.tile(np.minimum(np.arange(words + 1) + 1, words), (rows, 1))  # of the node from there
    begin = np.tile(np.maximum(np.arange(words + 2) - 1, 0), (rows, 1))  # of the node up to there
    halves = np.pad(leaves, ((0, 0), (0, 1), (0, 0))) @ into  # (B, T + 1, 2*H)
    left, right = halves[:, :, :width], halves[:, :, width:]
    pairs = np.tanh(left[:, :-1] + right[:, 1:] + bias)  # (B, T, H) with the next node
    scores = np.full((rows, words + 1), -np.inf, np.float32)
    scores[:, :-1] = np.where(index + 1 < lengths[:, None], pairs @ scorer, -np.inf)
    pairs = np.pad(pairs, ((0, 0), (0, 1), (0, 0)))
    starts = np.full((rows, max(words - 1, 0)), ABSENT)
    ends, states = starts.copy(), np.zeros((*starts.shape, width), np.float32)
    for step in range(words - 1):
        active = step + 1 < lengths  # (B,)
        at = np.where(active, scores.argmax(1), words)
        split = end[row, at]
        stop = end[row, split]
        node = pairs[row, at]  # (B, H)
        starts[active, step], ends[active, step] = at[active], stop[active]
        states[:, step] = node
        halves[row, at] = node @ into
        end[row, at], begin[row, stop] = stop, at
        scores[row, split] = scores[row, at] = -np.inf
        # The new node with the one before it, and with the one after.
        for first, second, none in (
            (begin[row, at], at, (at == 0) | ~active),
            (at, stop, (stop >= lengths) | ~active),
        ):
            place = np.where(none, words, first)
            made = np.tanh(left[row, first] + right[row, second] + bias)  # (B, H)
            pairs[row, place] = made
            scores[row, place] = np.where(none, -np.inf, made @ scorer)
    return Merges(starts, ends, states)
