"""Cache the outputs of frozen embedders: each row is encoded once, and every epoch reuses it."""

import shutil
from collections.abc import Callable
from pathlib import Path

from weft.batch import TokenStore
from weft.batch.token_store import FeatureCache
from weft.inference.forward import frozen_features
from weft.model import Model
from weft.runtime import Runtime

BYTES_PER_NUMBER = 4


def cache_features(
    model: Model,
    store: TokenStore,
    runtime: Runtime,
    folder: Path,
    on_progress: Callable[[float], bool] = lambda fraction: True,
) -> bool:
    """Store the frozen features of every row in `store`; return False if they were not kept.

    They are dropped if they would take more than half of the free disk space, or if `on_progress`,
    called with the fraction done, returns False.
    """
    caches: list[FeatureCache] = []
    done = 0
    for rows, features in frozen_features(model, store, runtime):
        if not caches:
            widths = [states.shape[2] for states in features]
            capacity = shutil.disk_usage(folder).free // 2
            if int(store.ends[-1]) * sum(widths) * BYTES_PER_NUMBER > capacity:
                return False
            caches = [FeatureCache(store.ends, width, folder) for width in widths]
        for cache, states in zip(caches, features, strict=True):
            values = states.float().cpu().numpy()
            lengths = store.lengths[rows].tolist()
            cache.add(rows, [row[:n] for row, n in zip(values, lengths, strict=True)])
        done += int(store.lengths[rows].sum())
        if not on_progress(done / int(store.ends[-1])):
            return False
    store.cached = [cache.close() for cache in caches]
    return True
