"""Read the tensors of a checkpoint folder: safetensors or weights-only pickles, or shards."""

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from weft import jsonio
from weft.errors import UserError
from weft.tensorfile import read_header

WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there is read
OLD_NORM_NAMES = {".gamma": ".weight", ".beta": ".bias"}  # how layer norms were called before 2019
MAX_NAMES_SHOWN = 5  # names listed in a message

Tensors = dict[str, Tensor]


def read(folder: Path) -> Tensors:
    """Read every tensor of a folder by name, in full precision."""
    files, placed = _weight_files(folder)
    found: Tensors = {}
    for file in files:
        here = _read_file(file)
        if twice := here.keys() & found.keys():
            raise UserError(
                f"{file}: {join_names(twice)} is in another shard, too. Download it again."
            )
        found |= here
    if lost := placed - found.keys():
        raise UserError(
            f"{folder}: the index lists {join_names(lost)}, but no shard contains it. "
            "Download the checkpoint again."
        )
    _check_other_format(files[0], found)
    return {_modern_name(name): _full_precision(tensor) for name, tensor in found.items()}


def _read_file(file: Path) -> Tensors:
    return read_safetensors(file) if file.suffix == ".safetensors" else _read_pickle(file)


def _check_other_format(file: Path, found: Tensors) -> None:
    """Raise UserError if a folder holds different weights in its two formats."""
    other = file.parent / WEIGHTS[1]
    if file.name != WEIGHTS[0] or not other.is_file():
        return
    try:
        theirs = _read_pickle(other)
    except UserError:
        return  # it is not used
    differ = {n for n in found.keys() & theirs.keys() if not _equal_tensors(found[n], theirs[n])}
    if differ:
        raise UserError(
            f"{file.parent}: {file.name} and {other.name} hold different weights: "
            f"{join_names(differ)}. Delete the one you do not want."
        )


def _equal_tensors(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal, up to rounding if their types differ."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype:
        return torch.equal(one, other)
    return torch.allclose(one.float(), other.float(), rtol=1e-2, atol=1e-4)


def join_names(names: Sequence[str] | set[str]) -> str:
    """Format names for a message: the first few, and the number of the rest."""
    shown = ", ".join(f"{name:.60}" for name in sorted(names)[:MAX_NAMES_SHOWN])
    rest = len(names) - MAX_NAMES_SHOWN
    return f"{shown}, … ({rest} more)" if rest > 0 else shown


def _weight_files(folder: Path) -> tuple[list[Path], set[str]]:
    """Return the weight files of a folder, and the tensors that an index of shards lists."""
    for name in WEIGHTS:
        if (folder / name).is_file():
            return [folder / name], set()
        index = folder / f"{name}.index.json"
        if not index.is_file():
            continue
        try:
            placed = jsonio.read(index)["weight_map"]
            shards = [folder / one for one in sorted(set(placed.values()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index}: damaged ({error!r:.200}). Download it again.") from None
        for shard in shards:
            if shard.parent != folder or not shard.is_file():
                raise UserError(f"{index} lists {shard.name}, which is missing. Download it again.")
        if not shards:
            raise UserError(f"{index}: lists no shard. Download it again.")
        return shards, set(placed)
    raise UserError(
        f"{folder}: no weights: neither {WEIGHTS[0]} nor {WEIGHTS[1]}, whole or in shards. "
        "(TensorFlow and Flax files are not supported.)"
    )


def read_safetensors(file: Path) -> Tensors:
    """Read the tensors of a .safetensors file."""
    try:
        read_header(file)
        return load_file(file)
    except FileNotFoundError:
        raise UserError(f"{file} is missing: the folder is incomplete.") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: damaged ({error}). Copy it from its source again.") from None


def _read_pickle(file: Path) -> Tensors:
    """Read a file of torch.save; anything but tensors and plain containers is refused."""
    try:
        # Only the newer format can be mapped into memory.
        saved = torch.load(
            file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file)
        )
    except pickle.UnpicklingError as error:
        reason = " ".join(str(error).split("\n")[0].split())
        raise UserError(
            f"{file}: refused, because it holds more than weights and could run code "
            f"({reason[:200]}). Nothing in it was run. Get a .safetensors file instead."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle makes torch's reader raise almost anything
        raise UserError(
            f"{file}: damaged ({type(error).__name__}: {error}). Download it again."
        ) from None
    if not isinstance(saved, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in saved.items()
    ):
        raise UserError(f"{file}: not a checkpoint: expected names with tensors.")
    # A stride of 0 makes terabytes of a few bytes; tied weights are there twice.
    claimed = sum(tensor.numel() * tensor.element_size() for tensor in saved.values())
    if claimed > 4 * file.stat().st_size:
        raise UserError(
            f"{file}: refused, because its tensors claim {claimed:,} bytes and the file has "
            f"{file.stat().st_size:,}."
        )
    return dict(saved)


def _modern_name(name: str) -> str:
    for old, new in OLD_NORM_NAMES.items():
        if name.endswith(f"LayerNorm{old}"):
            return name.removesuffix(old) + new
    return name


def _full_precision(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.float().contiguous() if tensor.is_floating_point() else tensor.contiguous()
