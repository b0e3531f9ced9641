"""A network that does not learn reads every row once; the epochs go on from what it made of it."""

import shutil
from collections.abc import Callable
from pathlib import Path

from weft.batch import TokenStore
from weft.batch.token_store import FeatureCache
from weft.inference.forward import frozen_features
from weft.model import Model
from weft.runtime import Runtime

BYTES_PER_NUMBER = 4  # of a number


def cache_features(
    model: Model,
    store: TokenStore,
    runtime: Runtime,
    folder: Path,
    on_progress: Callable[[float], bool] = lambda share: True,
) -> bool:
    """Let a store keep what the networks that do not learn make of its rows; whether it does.

    It does not where that would be more than half of what is free on the disk; or when `heard`,
    which is told how much is done, has had enough.
    """
    kept: list[FeatureCache] = []
    done = 0
    for rows, made in frozen_features(model, store, runtime):
        if not kept:
            widths = [states.shape[2] for states in made]
            room = shutil.disk_usage(folder).free // 2
            if int(store.ends[-1]) * sum(widths) * BYTES_PER_NUMBER > room:
                return False
            kept = [FeatureCache(store.ends, width, folder) for width in widths]
        for one, states in zip(kept, made, strict=True):
            found = states.float().cpu().numpy()
            lengths = store.lengths[rows].tolist()
            one.add(rows, [row[:n] for row, n in zip(found, lengths, strict=True)])
        done += int(store.lengths[rows].sum())
        if not on_progress(done / int(store.ends[-1])):
            return False
    store.cached = [one.close() for one in kept]
    return True
