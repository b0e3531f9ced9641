"""How probable every token of some texts is, read in rows that each have context before them.

B rows   T steps of a row   N tokens of a text   W pieces of a token
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.bucketing import order_batches
from weft.model import Model
from weft.runtime import Runtime

MAX_ROWS, MAX_TOKENS = 256, 32768  # rows and steps that are read together
SORTED_TEXTS = 8192  # texts that begin anew, sorted by length together
MAX_BLOCK_IDS = 2**20  # ids of running text that are held at a time, with those of their pieces


class ScoringWindow(NamedTuple):
    """Tokens of one text that are read together, and those of them that are judged."""

    text: int
    low: int  # the first token that is read
    start: int  # the first that is judged
    stop: int  # after the last that is judged
    high: int  # after the last that is read


def score_texts(
    model: Model,
    texts: Iterable[np.ndarray],
    runtime: Runtime,
    running: bool = False,
    backward: bool = False,
) -> Iterator[np.ndarray]:
    """The log-probabilities (N,) of the ids (N,) of each text, in order.

    With `running` the texts follow each other as one; otherwise each begins anew. Tokens with their
    pieces come as (N, 1+W). With `turned` the texts are read from the end, and come so; the decoder
    is asked that has learned to.
    """
    model.eval()
    stream = iter(texts)
    if running:
        yield from _score_running(model, stream, runtime, backward)
        return
    front: Any = model.head.bos_row
    while chunk := list(islice(stream, SORTED_TEXTS)):
        whole = [np.concatenate([front, ids]) for ids in chunk]
        yield from score_windows(model, whole, runtime, backward=backward)


def reverse_text(tokens: np.ndarray) -> np.ndarray:
    """A text and the token that ends it, as one reads it who comes from its end.

    The token that ends a text is also what stands before it, and so it comes last again.
    """
    return np.concatenate([tokens[:-1][::-1], tokens[-1:]])


def _score_running(
    model: Model, texts: Iterator[np.ndarray], runtime: Runtime, backward: bool
) -> Iterator[np.ndarray]:
    """Block by block; each begins with the end of the one before it as context."""
    head: Any = model.head
    past = head.bos_row
    while block := _read_block(texts):
        text = np.concatenate([past, *block])
        (found,) = score_windows(model, [text], runtime, len(past) - 1, backward)
        past = text[-(head.row_steps - head.new_steps + 1) :]
        yield from np.split(found, np.cumsum([len(ids) for ids in block])[:-1])


def _read_block(texts: Iterator[np.ndarray]) -> list[np.ndarray]:
    block, size = [], 0
    for ids in texts:
        block.append(ids)
        size += ids.size
        if size >= MAX_BLOCK_IDS:
            break
    return block


def score_windows(
    model: Model,
    texts: Sequence[np.ndarray],
    runtime: Runtime,
    context: int = 0,
    backward: bool = False,
) -> list[np.ndarray]:
    """Log-probabilities of the tokens of each text but `seen` and the one in front of them all."""
    head: Any = model.head
    out = [np.zeros(max(len(ids) - 1 - context, 0), np.float32) for ids in texts]
    rows = [
        row
        for i, ids in enumerate(texts)
        for row in split_windows(
            len(ids) - 1, context, head.row_steps, head.new_steps, head.is_bidirectional, i
        )
    ]
    lengths = np.array([row.high - row.low for row in rows], np.int64)
    for chosen in order_batches(lengths, rows=MAX_ROWS, budget=MAX_TOKENS):
        batch = [rows[i] for i in chosen]
        # What is read lies one before what is foretold, unless both sides of it are.
        back = 0 if head.is_bidirectional else 1
        given, target = (
            Padded.from_rows([texts[r.text][r.low + 1 - b : r.high + 1 - b] for r in batch])
            for b in (back, 0)
        )
        wanted = _scored_mask(batch, given)
        with torch.inference_mode(), runtime.autocast():
            source = given.to(runtime.device)
            scores = model.head(source, back=True) if backward else model.head(source)
            ids = target.data if target.data.dim() == 2 else target.data[..., 0]  # (B, T)
            found = scores.logps(ids.to(runtime.device), wanted.to(runtime.device))
        ends = np.cumsum([row.stop - row.start for row in batch])
        for row, values in zip(
            batch, np.split(found.float().cpu().numpy(), ends[:-1]), strict=True
        ):
            out[row.text][row.start - context : row.stop - context] = values
    return out


def split_windows(
    count: int, context: int, view: int, fresh: int, both: bool = False, text: int = 0
) -> Iterator[ScoringWindow]:
    """The rows in which `count` tokens are read, all but the first `seen` judged once.

    A row has at most `view` tokens, and where others stand before it, only `fresh` of them are
    judged. Of `both` sides the context is shared out between them.
    """
    start = context
    right = (view - fresh) // 2 if both else 0
    while start < count:
        room = fresh + right if start else view
        stop = count if count - start <= room else start + room - right
        high = min(stop + right, count)
        yield ScoringWindow(text, max(0, high - view), start, stop, high)
        start = stop


def _scored_mask(rows: Sequence[ScoringWindow], given: Padded) -> torch.Tensor:
    """(B, T) which steps are judged."""
    steps = torch.arange(given.data.shape[1])
    first = torch.tensor([row.start - row.low for row in rows])[:, None]
    last = torch.tensor([row.stop - row.low for row in rows])[:, None]
    return (steps >= first) & (steps < last)
