"""Rows of ids -> padded batches of similar length."""

from weft.batch.bucketing import Position
from weft.batch.loader import (
    Batch,
    BatchLoader,
    LabelledBatch,
    RowSource,
    inference_batches,
    labelled_batch,
)
from weft.batch.padded import Padded
from weft.batch.token_store import TokenStore

__all__ = [
    "Batch",
    "BatchLoader",
    "LabelledBatch",
    "Padded",
    "Position",
    "RowSource",
    "TokenStore",
    "inference_batches",
    "labelled_batch",
]
