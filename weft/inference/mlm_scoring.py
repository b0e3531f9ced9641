"""What documents cost a model that fills in hidden words; and blanks of texts, filled in.

D documents   K places that are asked for
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.bucketing import order_batches
from weft.batch.documents import Documents
from weft.batch.mlm_collator import Masking, MLMLoader
from weft.model import Model
from weft.runtime import Runtime

MAX_ROWS, MAX_TOKENS = 256, 16384  # rows and steps that are read together


class MaskedRow(NamedTuple):
    """A row in its frame, and the steps of it that are to be filled in."""

    ids: np.ndarray  # (T,)
    steps: list[int]


def score_documents(
    model: Model, documents: Documents, masking: Masking, runtime: Runtime, seed: int
) -> np.ndarray:
    """(D, 6) what each document cost: the sums over its rows of what the head makes of them."""
    model.eval()
    out = np.zeros((len(documents), 6))
    rows = max(1, min(MAX_ROWS, MAX_TOKENS // masking.window))
    with torch.inference_mode():
        for batch, _ in MLMLoader(documents, masking, rows=rows, seed=seed, epochs=1):
            with runtime.autocast():
                scores = model.run(batch.source.to(runtime.device)).scores
                found = scores.score_rows(batch.target.to(runtime.device))
            np.add.at(out, documents.document_of(batch.rows), found.cpu().numpy())
    return out


def predict_masked(
    model: Model, rows: Sequence[MaskedRow], allowed: np.ndarray, count: int, runtime: Runtime
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each row, the ids of the best words at its steps and their probabilities: (K, count)."""
    model.eval()
    out: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros((0, 0)), np.zeros((0, 0)))] * len(rows)
    lengths = np.array([len(row.ids) for row in rows], np.int64)
    words = torch.from_numpy(allowed).to(runtime.device)
    count = min(count, len(allowed))
    for chosen in order_batches(lengths, rows=MAX_ROWS, budget=MAX_TOKENS):
        batch = [rows[i] for i in chosen]
        source = Padded.from_rows([row.ids for row in batch]).to(runtime.device)
        sizes = [len(row.steps) for row in batch]
        owner = torch.arange(len(batch)).repeat_interleave(torch.tensor(sizes))
        steps = torch.tensor([step for row in batch for step in row.steps])
        with torch.inference_mode(), runtime.autocast():
            scores = model.run(source).scores
            logp = scores.words(owner.to(runtime.device), steps.to(runtime.device))  # (K, V)
        best = logp[:, words].topk(count, 1)
        ids = words[best.indices].cpu().numpy()
        chances = best.values.exp().cpu().numpy()
        for i, stop, size in zip(chosen.tolist(), np.cumsum(sizes), sizes, strict=True):
            out[i] = ids[stop - size : stop], chances[stop - size : stop]
    return out
