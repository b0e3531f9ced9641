"""Grids of tuples in NumPy: the labels of a row are read by the next one.

B rows of a batch   T words   I implied words   D rows of the grid   H width of a state   C labels
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.export.runtime.tags import softmax
from weft.text.annotation.word_tuples import IMPLIED, NONE, RELATION, SUBJECT

Arrays = Mapping[str, np.ndarray]
# Inputs and names of outputs -> outputs: the second graph of an export, a row of the grid.
Run = Callable[[Mapping[str, np.ndarray], list[str]], Arrays]


def decode_grid(
    outputs: Arrays, lengths: np.ndarray, tables: Arrays, gives: Mapping[str, Any], run: Run
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return per sentence the labels (I + T, D) of the grid, and their probabilities.

    The first row that is no tuple in any sentence is the last that is computed; behind the first
    row of a sentence that is no tuple, all labels are none.
    """
    read, counts = outputs["grid"], lengths + len(IMPLIED)
    real = np.arange(read.shape[1]) < counts[:, None]  # (B, I + T)
    shape = (len(read), read.shape[1], gives["rows"])
    table, probs = np.full(shape, NONE, np.int64), np.ones(shape, np.float32)
    open_rows = np.ones(len(read), bool)  # sentences whose rows have all been tuples
    for row in range(gives["rows"]):
        found = run({"grid": read, "counts": counts}, ["states", "logits"])
        chances = softmax(found["logits"])
        labels = chances.argmax(2)  # (B, I + T)
        open_rows &= _is_tuple(np.where(real, labels, NONE))
        if not open_rows.any():
            break
        table[open_rows, :, row] = labels[open_rows]
        probs[open_rows, :, row] = chances.max(2)[open_rows]
        read = found["states"] + tables["labels"][labels]
    return [
        (own[:count], prob[:count])
        for own, prob, count in zip(table, probs, counts.tolist(), strict=True)
    ]


def _is_tuple(labels: np.ndarray) -> np.ndarray:
    """Return which sentences (B,) have a subject among their words, and a relation."""
    has_subject = (labels[:, len(IMPLIED) :] == SUBJECT).any(1)
    found: np.ndarray = has_subject & (labels == RELATION).any(1)
    return found
