"""Reading a store of rows with a model: batches of similar length in, the store's order out."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded, TokenStore, inference_batches
from weft.model import Model, ModelOutput
from weft.runtime import Runtime, use_threads

MAX_ROWS, MAX_TOKENS = 256, 16384  # of a batch that is only read: no gradients, so it may be larger
SINGLE_THREAD_STEPS = (
    512  # steps that one thread reads alone; on a busy machine several would wait for each other
)


def forward_batches(
    model: Model, store: TokenStore, runtime: Runtime
) -> Iterator[tuple[np.ndarray, ModelOutput]]:
    """The row numbers and the reading of each batch, shortest rows first."""
    yield from _batches(model, store, runtime, model.run)


def frozen_features(
    model: Model, store: TokenStore, runtime: Runtime
) -> Iterator[tuple[np.ndarray, tuple[Tensor, ...]]]:
    """The row numbers of each batch, and what networks that do not learn make of its steps."""
    yield from _batches(model, store, runtime, model.frozen_features)


def _batches(
    model: Model, store: TokenStore, runtime: Runtime, read: Callable[[Padded], Any]
) -> Iterator[tuple[np.ndarray, Any]]:
    model.eval()
    with torch.inference_mode():
        for batch in inference_batches(store, rows=MAX_ROWS, budget=MAX_TOKENS):
            alone = batch.source.data.numel() <= SINGLE_THREAD_STEPS
            with runtime.autocast(), use_threads(1 if alone else 0):
                found = read(batch.source.to(runtime.device))
            yield batch.rows, found


def collect_outputs(
    model: Model,
    store: TokenStore,
    runtime: Runtime,
    select: Callable[[ModelOutput], Tensor] = lambda reading: reading.scores,
) -> np.ndarray:
    """(rows, scores), or whatever else is taken from each reading, in the store's order."""
    found, order = [], []
    for rows, reading in forward_batches(model, store, runtime):
        found.append(select(reading).float())
        order.append(rows)
    together = torch.cat(found).cpu().numpy()
    out = np.empty_like(together)
    out[np.concatenate(order)] = together
    return out


def decode_batches(model: Model, store: TokenStore, runtime: Runtime) -> list[Any]:
    """What a model that answers at every word says of each row, in the store's order."""
    out: list[Any] = [None] * len(store)
    for rows, answers in _batches(model, store, runtime, model):
        for row, found in zip(rows.tolist(), answers.decode(), strict=True):
            out[row] = found
    return out
