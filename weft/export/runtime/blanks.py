"""Fill masks in NumPy, and score tokens as if each were masked, by models of both sides.

B rows   T steps   K scored steps   V words
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from weft.batch.bucketing import order_batches
from weft.batch.ragged import pad
from weft.inference.windows import MaskedRow, ScoringWindow

MAX_ROWS, MAX_STEPS = 256, 4096  # of a batch
MASK_ID, MASK_STRIDE = 0, 7  # a mask, and the distance of those that are scored together
Run = Callable[[Mapping[str, np.ndarray], list[str]], Mapping[str, np.ndarray]]


def predict_masked(
    run: Run, rows: Sequence[MaskedRow], allowed: np.ndarray, count: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ids and probabilities (K, count) of the best tokens at each row's masked steps."""
    out = [(np.zeros((0, 0)), np.zeros((0, 0)))] * len(rows)
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    count = min(count, len(allowed))
    for chosen in order_batches(lengths, rows=MAX_ROWS, budget=MAX_STEPS):
        batch = [rows[i] for i in chosen]
        sizes = [len(row.steps) for row in batch]
        steps = np.array([step for row in batch for step in row.steps], np.int64)
        feeds = {
            "ids": pad([row.ids for row in batch], lengths[chosen]), "lengths": lengths[chosen],
            "rows": np.repeat(np.arange(len(batch)), sizes), "steps": steps,
            "targets": np.zeros(len(steps), np.int64),
        }  # fmt: skip
        words = run(feeds, ["words"])["words"][:, allowed]  # (K, V)
        best = np.argsort(-words, axis=1, kind="stable")[:, :count]
        probs = np.exp(np.take_along_axis(words, best, 1))
        for i, stop, size in zip(chosen.tolist(), np.cumsum(sizes), sizes, strict=True):
            out[i] = allowed[best[stop - size : stop]], probs[stop - size : stop]
    return out


def score_windows(
    run: Run, windows: Sequence[ScoringWindow], ids: Sequence[np.ndarray], masks: bool
) -> np.ndarray:
    """Return the log-probabilities (K,) of the scored tokens of some windows, window by window.

    With `masks` every seventh token is masked, in seven passes over the windows.
    """
    lengths = np.array([len(one) for one in ids], np.int64)
    table = pad(ids, lengths)
    at = np.arange(table.shape[1])
    first = np.array([[row.start - row.low] for row in windows])
    last = np.array([[row.stop - row.low] for row in windows])
    scored = (at >= first) & (at < last)  # (B, T)
    out = np.zeros(table.shape, np.float32)
    for offset in range(MASK_STRIDE if masks else 1):
        now = scored
        read = table
        if masks:
            hidden = (at % MASK_STRIDE == offset) & (at < lengths[:, None])
            now, read = scored & hidden, np.where(hidden, MASK_ID, table)
        rows, steps = np.nonzero(now)
        if not len(rows):
            continue
        feeds = {"ids": read, "lengths": lengths, "rows": rows, "steps": steps,
                 "targets": table[rows, steps]}  # fmt: skip
        out[rows, steps] = run(feeds, ["log_probs"])["log_probs"]
    return out[scored]
