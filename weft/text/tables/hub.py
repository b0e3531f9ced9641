"""Datasets by name, through Hugging Face datasets: "hf:NAME", "hf:NAME:split" or "hf:FOLDER"."""

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from weft.errors import UserError, near_miss
from weft.text.location import HUB_PREFIX

if TYPE_CHECKING:
    from weft.text.tables.table import Table

DEFAULT_SPLIT = "train"


@lru_cache(maxsize=8)
def load_hub_table(name: str) -> "Table":
    """Return the rows of a dataset; a folder is read from disk, any other name from the hub."""
    from weft.text.tables.table import HubDataset

    place, _, split = name.removeprefix(HUB_PREFIX).partition(":")
    if not place:
        raise UserError(f"{name}: no dataset. Write hf:NAME, hf:NAME:SPLIT or hf:FOLDER.")
    return HubDataset(_choose_split(_load(place, name), split, name), name)


def _load(place: str, name: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{name}: this needs the library datasets: pip install 'weft[hub]'."
        ) from error
    try:
        if os.path.isdir(place):
            return _load_folder(datasets, place)
        if os.path.exists(place) or place.startswith((".", "/", "~")):
            raise UserError(f"{name}: not a folder. Pass a file without '{HUB_PREFIX}'.")
        return datasets.load_dataset(place)
    except UserError:
        raise
    except Exception as error:  # the library raises errors of a dozen kinds
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(f"{name}: cannot load the dataset: {reason}") from error


def _load_folder(datasets: Any, place: str) -> Any:
    """Return a folder of `save_to_disk`, or one of Parquet, CSV or JSON files."""
    if {"dataset_info.json", "dataset_dict.json", "state.json"} & set(os.listdir(place)):
        return datasets.load_from_disk(place)
    return datasets.load_dataset(place)


def _choose_split(loaded: Any, split: str, name: str) -> Any:
    if not isinstance(loaded, dict):
        if split:
            raise UserError(f"{name}: the dataset has no splits. Drop ':{split}'.")
        return loaded
    wanted = split or (next(iter(loaded)) if len(loaded) == 1 else DEFAULT_SPLIT)
    if wanted not in loaded:
        found = ", ".join(loaded)
        raise UserError(
            f"{name}: no split '{wanted}'; found {found}.{near_miss(wanted, list(loaded))} "
            f"Write {HUB_PREFIX}…:SPLIT."
        )
    return loaded[wanted]
