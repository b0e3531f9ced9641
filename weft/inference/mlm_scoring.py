"""Score documents with a masked language model, and predict masked tokens.

D documents   K masked positions
"""

from collections.abc import Sequence

import numpy as np
import torch

from weft.batch import Padded
from weft.batch.bucketing import order_batches
from weft.batch.documents import Documents
from weft.batch.mlm_collator import Masking, MLMLoader
from weft.inference.windows import MaskedRow
from weft.model import Model
from weft.runtime import Runtime

MAX_ROWS, MAX_TOKENS = 256, 16384  # per batch


def score_documents(
    model: Model, documents: Documents, masking: Masking, runtime: Runtime, seed: int
) -> np.ndarray:
    """Return (D, 6) the loss sums and counts of each document, added up over its rows."""
    model.eval()
    out = np.zeros((len(documents), 6))
    rows = max(1, min(MAX_ROWS, MAX_TOKENS // masking.window))
    with torch.inference_mode():
        for batch, _ in MLMLoader(documents, masking, rows=rows, seed=seed, epochs=1):
            with runtime.autocast():
                output = model.run(batch.source.to(runtime.device)).scores
                statistics = output.score_rows(batch.target.to(runtime.device))
            np.add.at(out, documents.document_of(batch.rows), statistics.cpu().numpy())
    return out


def predict_masked(
    model: Model, rows: Sequence[MaskedRow], allowed: np.ndarray, count: int, runtime: Runtime
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ids and probabilities (K, count) of the best tokens at each row's masked steps."""
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
        probs = best.values.exp().cpu().numpy()
        for i, stop, size in zip(chosen.tolist(), np.cumsum(sizes), sizes, strict=True):
            out[i] = ids[stop - size : stop], probs[stop - size : stop]
    return out
