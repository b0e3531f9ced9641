"""Batched forward passes: batches of similar length in, the order of the rows out."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded, RowSource, inference_batches
from weft.model import Model, ModelOutput
from weft.runtime import Runtime, use_threads

MAX_ROWS, MAX_TOKENS = 256, 16384  # per batch: without gradients it may be larger
SINGLE_THREAD_STEPS = 512  # up to here one thread; on a busy machine several wait for each other

Output = TypeVar("Output")


def forward_batches(
    model: Model, source: RowSource, runtime: Runtime
) -> Iterator[tuple[np.ndarray, ModelOutput]]:
    """Yield the row numbers and the model output of each batch, shortest rows first."""
    yield from _run_batches(model, source, runtime, model.run)


def frozen_features(
    model: Model, source: RowSource, runtime: Runtime
) -> Iterator[tuple[np.ndarray, tuple[Tensor, ...]]]:
    """Yield the row numbers and the frozen embedders' features of each batch."""
    yield from _run_batches(model, source, runtime, model.frozen_features)


def _run_batches(
    model: Model, source: RowSource, runtime: Runtime, forward: Callable[[Padded], Output]
) -> Iterator[tuple[np.ndarray, Output]]:
    model.eval()
    with torch.inference_mode():
        for batch in inference_batches(source, rows=MAX_ROWS, budget=MAX_TOKENS):
            small = batch.source.data.numel() <= SINGLE_THREAD_STEPS
            with runtime.autocast(), use_threads(1 if small else 0):
                output = forward(batch.source.to(runtime.device))
            yield batch.rows, output


def collect_outputs(
    model: Model,
    source: RowSource,
    runtime: Runtime,
    select: Callable[[ModelOutput], Tensor] = lambda output: output.scores,
) -> np.ndarray:
    """Return the logits (rows, C), or what `select` takes from each output, in row order."""
    parts, order = [], []
    for rows, output in forward_batches(model, source, runtime):
        parts.append(select(output).float())
        order.append(rows)
    values = torch.cat(parts).cpu().numpy()
    out = np.empty_like(values)
    out[np.concatenate(order)] = values
    return out


def decode_batches(model: Model, source: RowSource, runtime: Runtime) -> list[Any]:
    """Return the decoded prediction of each row, in the order of the rows."""
    return run_rows(model, source, runtime, lambda output: output.decode())


def run_rows(
    model: Model, source: RowSource, runtime: Runtime, read: Callable[[Any], Sequence[Any]]
) -> list[Any]:
    """Return what `read` takes from each batch's output, row by row, in the order of the rows."""
    out: list[Any] = [None] * len(source)
    if not len(source):
        return out
    for rows, output in _run_batches(model, source, runtime, model):
        for row, value in zip(rows.tolist(), read(output), strict=True):
            out[row] = value
    return out
