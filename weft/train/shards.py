"""Checkpoints of sharded weights: a folder of safetensors; each process writes its part."""

import contextlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.tensor import DTensor

from weft.errors import UserError
from weft.runtime import World

SHARDS = "shards-"  # how the names of folders of shards begin


def write_shards(parent: Path, tensors: Mapping[str, Tensor], step: int, world: World) -> str:
    """Write sharded tensors beside a checkpoint; return the name of their folder.

    Shards that a checkpoint refers to are left alone: a kill leaves the old ones or the new.
    """
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save

    name = None
    if world.rank == 0:
        used = {path.name for path in parent.glob(f"{SHARDS}*")}
        name = next(n for n in (f"{SHARDS}{step}", f"{SHARDS}{step}-again") if n not in used)
        (parent / name).mkdir()
    folder = parent / str(world.agree(name))
    with _quiet():
        save(
            dict(tensors),
            storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True),
        )
    world.wait()
    return folder.name


def remove_shards(parent: Path, kept: str) -> None:
    """Delete the shards of earlier checkpoints, and what a killed process left."""
    for folder in parent.glob(f"{SHARDS}*"):
        if folder.name != kept:
            shutil.rmtree(folder, ignore_errors=True)


def read_shards(folder: Path, like: Callable[[str], Tensor | None]) -> dict[str, Tensor]:
    """Return all tensors of a folder: sharded as those that `like` returns are, or whole."""
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    try:
        reader = HuggingFaceStorageReader(str(folder))
        known = reader.read_metadata().state_dict_metadata
        out: dict[str, Tensor] = {}
        for name, tensor in known.items():
            assert isinstance(tensor, TensorStorageMetadata), "safetensors hold tensors alone"
            model = like(name)
            out[name] = (
                torch.empty_like(model.detach(), dtype=tensor.properties.dtype)
                if isinstance(model, DTensor)
                else torch.empty(tensor.size, dtype=tensor.properties.dtype)
            )
        with _quiet():
            load(dict(out), storage_reader=reader, no_dist=True)
    except (OSError, SafetensorError, KeyError) as error:
        raise UserError(f"{folder}: damaged checkpoint ({error}). Delete it to start over.") from (
            error
        )
    return out


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the library says of one process and of plain tensors."""
    logger = logging.getLogger("torch.distributed.checkpoint")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
