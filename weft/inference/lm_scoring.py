"""Score the tokens of texts with a language model, in windows that overlap as context.

B rows   T steps of a row   N tokens of a text   W pieces of a token
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.bucketing import order_batches
from weft.decode.heads.lm import LanguageModelHead
from weft.model import Model
from weft.runtime import Runtime

MAX_ROWS, MAX_TOKENS = 256, 32768  # per batch
SORTED_TEXTS = 8192  # independent texts sorted by length together
MAX_BLOCK_IDS = 2**20  # ids of running text in memory at a time


class ScoringWindow(NamedTuple):
    """A window of one text, and the tokens in it that are scored."""

    text: int
    low: int  # the first token in the window
    start: int  # the first token that is scored
    stop: int  # after the last that is scored
    high: int  # after the last in the window


def lm_head(model: Model) -> LanguageModelHead:
    """Return the head of a language model."""
    assert isinstance(model.head, LanguageModelHead)
    return model.head


def score_texts(
    model: Model,
    texts: Iterable[np.ndarray],
    runtime: Runtime,
    running: bool = False,
    backward: bool = False,
) -> Iterator[np.ndarray]:
    """Yield the log-probabilities (N,) of the ids (N,) of each text, in order.

    With `running` the texts are one continuous text; otherwise they are independent. Tokens with
    characters come as (N, 1+W). With `backward` the texts come reversed and the backward language
    model scores them.
    """
    model.eval()
    stream = iter(texts)
    if running:
        yield from _score_running(model, stream, runtime, backward)
        return
    front = lm_head(model).bos_row
    while chunk := list(islice(stream, SORTED_TEXTS)):
        texts_with_start = [np.concatenate([front, ids]) for ids in chunk]
        yield from score_windows(model, texts_with_start, runtime, backward=backward)


def reverse_text(tokens: np.ndarray) -> np.ndarray:
    """Reverse a text whose last token is the end marker, which stays last.

    The end marker also stands before a text, so a reversed text ends with it as well.
    """
    return np.concatenate([tokens[:-1][::-1], tokens[-1:]])


def _score_running(
    model: Model, texts: Iterator[np.ndarray], runtime: Runtime, backward: bool
) -> Iterator[np.ndarray]:
    """Score block by block; each starts with the end of the previous one as context."""
    head = lm_head(model)
    past = head.bos_row
    while block := _read_block(texts):
        text = np.concatenate([past, *block])
        (log_probs,) = score_windows(model, [text], runtime, len(past) - 1, backward)
        past = text[-(head.row_steps - head.new_steps + 1) :]
        yield from np.split(log_probs, np.cumsum([len(ids) for ids in block])[:-1])


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
    """Return the log-probabilities of each text, without the first token and `context` more."""
    head = lm_head(model)
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
        # Inputs are one step before the predicted tokens, unless is_bidirectional sides are read.
        back = 0 if head.is_bidirectional else 1
        inputs, target = (
            Padded.from_rows([texts[r.text][r.low + 1 - b : r.high + 1 - b] for r in batch])
            for b in (back, 0)
        )
        scored = _scored_mask(batch, inputs)
        with torch.inference_mode(), runtime.autocast():
            source = inputs.to(runtime.device)
            output = head(source, back=True) if backward else head(source)
            ids = target.data if target.data.dim() == 2 else target.data[..., 0]  # (B, T)
            log_probs = output.logps(ids.to(runtime.device), scored.to(runtime.device))
        ends = np.cumsum([row.stop - row.start for row in batch])
        for row, values in zip(
            batch, np.split(log_probs.float().cpu().numpy(), ends[:-1]), strict=True
        ):
            out[row.text][row.start - context : row.stop - context] = values
    return out


def split_windows(
    count: int, context: int, view: int, fresh: int, both: bool = False, text: int = 0
) -> Iterator[ScoringWindow]:
    """Yield windows over `count` tokens in which all but the first `context` are scored once.

    A window has at most `view` tokens; except in the first, only `fresh` of them are scored. With
    `both` sides read, the context is split between them.
    """
    start = context
    right = (view - fresh) // 2 if both else 0
    while start < count:
        capacity = fresh + right if start else view
        stop = count if count - start <= capacity else start + capacity - right
        high = min(stop + right, count)
        yield ScoringWindow(text, max(0, high - view), start, stop, high)
        start = stop


def _scored_mask(rows: Sequence[ScoringWindow], inputs: Padded) -> torch.Tensor:
    """Return a mask (B, T), True at steps that are scored."""
    steps = torch.arange(inputs.data.shape[1])
    first = torch.tensor([row.start - row.low for row in rows])[:, None]
    last = torch.tensor([row.stop - row.low for row in rows])[:, None]
    return (steps >= first) & (steps < last)
