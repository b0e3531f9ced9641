"""Rows of ids -> padded batches of similar length."""

from weft.batch.bucketing import Position
from weft.batch.loader import Batch, Batches, Labelled, for_reading, labelled
from weft.batch.padded import Padded
from weft.batch.token_store import Store

__all__ = [
    "Batch",
    "Batches",
    "Labelled",
    "Padded",
    "Position",
    "Store",
    "for_reading",
    "labelled",
]
