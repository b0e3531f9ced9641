"""Outputs of a graph -> predictions, by the kind of answer: what heads do after their scores.

B rows   T steps   L longest answer
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.export.runtime.tags import decode_tags, logsumexp, read_chain, softmax

Arrays = Mapping[str, np.ndarray]
Decode = Callable[["Arrays", np.ndarray, "Arrays", Mapping[str, Any]], list[Any]]
DECODERS: dict[str, Decode] = {}  # by the kind in "gives"


def decodes(kind: str) -> Callable[[Decode], Decode]:
    """Register the function that decodes outputs of a kind."""

    def register(function: Decode) -> Decode:
        DECODERS[kind] = function
        return function

    return register


def decode_columns(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, columns: int
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return per row the tags (T, K) of all columns and their probabilities; None without any."""
    if not columns:
        return None
    logits = [outputs[f"logits_{k}"] for k in range(columns)]
    return decode_tags(logits, [read_chain(tables, k) for k in range(columns)], lengths)


@decodes("tags")
def decode_words(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row the tags (T, K) of words and their probabilities (T, K)."""
    return list(decode_columns(outputs, lengths, tables, gives["columns"]) or [])


@decodes("intent-slots")
def decode_intents(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row tags and intent (T, 2), the intent at every word, and probabilities."""
    intents = softmax(outputs["intents"])
    slots = decode_tags([outputs["logits_0"]], [read_chain(tables, 0)], lengths)
    return [
        (
            np.concatenate([tags, np.full((len(tags), 1), row.argmax())], axis=1),
            np.concatenate([probs, np.full((len(tags), 1), row.max())], axis=1),
        )
        for (tags, probs), row in zip(slots, intents, strict=True)
    ]


@decodes("numbers")
def decode_numbers(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row the numbers of words as bit patterns (T, 1), and as they are (T, 1)."""
    numbers = np.ascontiguousarray(outputs["numbers"], np.float32)
    bits = numbers.view(np.int32).astype(np.int64)
    return [
        (bits[row, :length, None], numbers[row, :length, None])
        for row, length in enumerate(lengths.tolist())
    ]


@decodes("nodes")
def decode_nodes(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row the best label (T, 1) of every node, and probabilities of labels (T, C)."""
    probs = softmax(outputs["logits"])
    rows = zip(probs, lengths.tolist(), strict=True)
    return [(row[:length].argmax(1)[:, None], row[:length]) for row, length in rows]


@decodes("ctc")
def decode_paths(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row the ids (L, 1) of the text with the most probable paths, and probabilities."""
    from weft.decode.heads.ctc.search import best_path, prefix_beam_search, score_tokens

    logits = outputs["logits"].copy()
    logits[:, :, gives["unwritten"]] = -np.inf
    rows = []
    for row, length in zip(logits, lengths.tolist(), strict=True):
        log_probs = row[:length] - logsumexp(row[:length], 1)[:, None]
        if gives["beams"] == 1:
            ids = best_path(log_probs)
        else:
            ids = prefix_beam_search(log_probs, gives["beams"])[0][0]
        rows.append(score_tokens(log_probs, ids))
    return rows


@decodes("span")
def decode_spans(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> list[Any]:
    """Return per row the best span: first and last step, score, that of none, and of all spans."""
    starts, ends = outputs["starts"][:, 1:], outputs["ends"][:, 1:]  # (B, T)
    wide = min(gives["longest"], starts.shape[1])
    # For each start the L possible ends.
    padded = np.pad(ends, ((0, 0), (0, wide - 1)), constant_values=-np.inf)
    near = np.lib.stride_tricks.sliding_window_view(padded, wide, axis=1)  # (B, T, L)
    spans = (starts[:, :, None] + near).reshape(len(starts), -1)  # (B, T*L)
    index = spans.argmax(1)
    best = np.take_along_axis(spans, index[:, None], 1)[:, 0]
    nothing = outputs["starts"][:, 0] + outputs["ends"][:, 0]
    first, length = index // wide, index % wide
    columns = (first, first + length, best, nothing, logsumexp(spans, 1))
    return list(zip(*(column.tolist() for column in columns), strict=True))
