"""The rows of a prediction: padded batches straight from the indexer, without a token store."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft.batch.indexer import Row
from weft.batch.padded import Padded
from weft.batch.ragged import pad


class InferenceRows:
    """Rows of an indexer that a model reads once, in batches of similar length.

    Batches are the same, bit for bit, as those of a TokenStore that holds these rows: sub-tokens
    are padded to the widest token of all rows, not of the batch.
    """

    def __init__(self, rows: Sequence[Row], pairs: bool = False):
        self.rows, self.pairs = rows, pairs
        self.lengths = np.array([len(row.ids) for row in rows], np.int64)
        kinds = len(rows[0].subtokens) if rows else 0
        self.widths = [_widest(rows, kind) for kind in range(kinds)]

    def __len__(self) -> int:
        return len(self.rows)

    def padded(self, rows: np.ndarray) -> Padded:
        """Return these rows as one padded batch."""
        chosen, lengths = [self.rows[i] for i in rows], self.lengths[rows]
        subtokens = (
            _pad_subtokens([row.subtokens[kind] for row in chosen], lengths, width)
            for kind, width in enumerate(self.widths)
        )
        return Padded(
            torch.from_numpy(pad([row.ids for row in chosen], lengths)),
            torch.from_numpy(lengths),
            tuple(subtokens),
            _pad_word_tables([row.parents for row in chosen], lengths),
            torch.tensor([row.second for row in chosen]) if self.pairs else None,
            marks=_pad_word_tables([row.marks for row in chosen], lengths),
        )


def _widest(rows: Sequence[Row], kind: int) -> int:
    return max((len(ids) for row in rows for ids in row.subtokens[kind]), default=0)


def _pad_subtokens(rows: Sequence[list[list[int]]], lengths: np.ndarray, width: int) -> Tensor:
    """Return the sub-token ids (B, T, W), 0 behind those of each token."""
    tokens = [ids for row in rows for ids in row]
    counts = np.array([len(ids) for ids in tokens], np.int64)
    flat = np.zeros((len(tokens), width), np.int64)
    flat[np.arange(width) < counts[:, None]] = [i for ids in tokens for i in ids]
    out = np.zeros((len(rows), int(lengths.max()), width), np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = flat
    return torch.from_numpy(out)


def _pad_word_tables(rows: Sequence[np.ndarray | None], lengths: np.ndarray) -> Tensor | None:
    """Return the parents or marks of each step (B, T, ...), -1 behind a row; None without any."""
    tables = [row for row in rows if row is not None]
    return torch.from_numpy(pad(tables, lengths, -1)) if tables else None
