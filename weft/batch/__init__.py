"""Rows of ids -> padded batches of similar length.

Names are imported when they are used: rows are also made where there is no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.batch.bucketing import Position as Position
    from weft.batch.loader import Batch as Batch
    from weft.batch.loader import BatchLoader as BatchLoader
    from weft.batch.loader import LabelledBatch as LabelledBatch
    from weft.batch.loader import RowSource as RowSource
    from weft.batch.loader import inference_batches as inference_batches
    from weft.batch.loader import labelled_batch as labelled_batch
    from weft.batch.padded import Padded as Padded
    from weft.batch.token_store import TokenStore as TokenStore

_HOMES = {
    "Batch": "loader",
    "BatchLoader": "loader",
    "LabelledBatch": "loader",
    "Padded": "padded",
    "Position": "bucketing",
    "RowSource": "loader",
    "TokenStore": "token_store",
    "inference_batches": "loader",
    "labelled_batch": "loader",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft.batch' has no attribute '{name}'")
    return getattr(importlib.import_module(f"weft.batch.{_HOMES[name]}"), name)
