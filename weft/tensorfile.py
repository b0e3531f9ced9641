"""Compare a .safetensors file with a network before either takes memory."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import jsonio
from weft.errors import UserError

if TYPE_CHECKING:
    from torch import nn

MAX_HEADER_BYTES = 100_000_000  # bytes, by the definition of the format
DTYPE_BYTES = {
    **{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "BOOL": 1},
    **{"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1},
}
METADATA = "__metadata__"
EXTRA_BUFFER_BYTES = (
    64 << 20
)  # bytes that a network may need beside its weights, whatever their size
MAX_LISTED = 3  # tensors named in a message


class DamagedFile(UserError):
    """A file of tensors that is not what its format demands; `reason` says why."""

    def __init__(self, path: Path, reason: str):
        super().__init__(f"{path}: damaged ({reason}). Restore it, or copy it again.")
        self.reason = reason


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file: its type, its shape, and where its bytes begin and end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def read_header(path: str | Path) -> dict[str, TensorEntry]:
    """Return the tensors of a file by name, after checking their sizes against the file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(MAX_HEADER_BYTES, size - 8):
                raise DamagedFile(
                    path, f"its header should have {length:,} bytes, the file has {size:,}"
                )
            header = jsonio.parse(file.read(length), path)
    except IsADirectoryError:
        raise DamagedFile(path, "it is a folder") from None
    except DamagedFile:
        raise
    except UserError as error:
        raise DamagedFile(path, str(error).removeprefix(f"{path}:").rstrip(".")) from None
    if not isinstance(header, dict):
        raise DamagedFile(path, "its header is not an object")
    header.pop(METADATA, None)
    begin = 8 + length
    entries = {str(name): _parse_entry(path, name, one, begin) for name, one in header.items()}
    end = begin
    for name, one in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if one.start != end:
            raise DamagedFile(
                path, f"tensor {name!r} should begin at byte {end:,}, not {one.start:,}"
            )
        end = one.end
    if end != size:
        raise DamagedFile(path, f"its tensors end at byte {end:,}, the file has {size:,}")
    return entries


def _parse_entry(path: Path, name: str, one: Any, begin: int) -> TensorEntry:
    try:
        dtype, shape, (start, end) = one["dtype"], one["shape"], one["data_offsets"]
        numbers = (*shape, start, end)
    except (TypeError, KeyError, ValueError):
        raise DamagedFile(path, f"tensor {name!r} has no dtype, shape and data_offsets") from None
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise DamagedFile(
            path, f"tensor {name!r} is of type {dtype!r}; {', '.join(DTYPE_BYTES)} are read"
        )
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise DamagedFile(path, f"tensor {name!r} has a shape or a place that is no whole number")
    needed = prod(shape) * DTYPE_BYTES[dtype]
    if needed != end - start:
        raise DamagedFile(path, f"tensor {name!r} needs {needed:,} bytes, and has {end - start:,}")
    return TensorEntry(dtype, tuple(shape), begin + start, begin + end)


def check_network(
    make: Callable[[], "nn.Module"],
    shapes: Mapping[str, tuple[int, ...]],
    path: str | Path,
    settings: str = "model.json",
    trusted: bool = False,
) -> None:
    """Refuse a network unless its tensors are those of the file, without taking memory for it.

    `shapes` are the tensors of the file. A part from outside Weft (`trusted`) may need real numbers
    to be built; then the comparison is left to the real thing.
    """
    try:
        network = build_on_meta(make, len(shapes), path, settings)
    except UnbuildableNetwork:
        if trusted:
            return
        raise
    state = network.state_dict()
    _compare(dict(state), shapes, path, settings)
    more = sum(b.numel() * b.element_size() for n, b in network.named_buffers() if n not in state)
    if more > EXTRA_BUFFER_BYTES + 16 * sum(map(prod, shapes.values())):
        raise UserError(
            f"{path} does not fit {settings}: tables of {more:,} bytes beside the weights are more "
            "than such a network needs."
        )


class UnbuildableNetwork(UserError):
    """Settings of which no network can be built."""


def build_on_meta(
    make: Callable[[], "nn.Module"], tensors: int, path: str | Path, settings: str = "model.json"
) -> "nn.Module":
    """Return a network that has shapes but no memory.

    The work ends once there are many more parts than the `tensors` of the file at `path`.
    """
    import torch

    try:
        with torch.device("meta"), _limit_modules(tensors, path, settings):
            return make()
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UnbuildableNetwork(
            f"{path} does not fit {settings}: no network can be built of its settings "
            f"({type(error).__name__}: {reason})."
        ) from None


def _compare(
    wanted: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: str | Path, about: str
) -> None:
    """Refuse tensors that are missing, left over, or of another shape."""
    missing, extra = sorted(wanted.keys() - shapes.keys()), sorted(shapes.keys() - wanted.keys())
    other = [n for n, t in wanted.items() if n in shapes and tuple(t.shape) != shapes[n]]
    reasons = [f"missing: {_list_names(missing)}"] if missing else []
    reasons += [f"not expected: {_list_names(extra)}"] if extra else []
    reasons += [
        f"size mismatch for {name}: the file has {list(shapes[name])}, {about} asks for "
        f"{list(wanted[name].shape)}"
        for name in other[:MAX_LISTED]
    ]
    if reasons:
        raise UserError(f"{path} does not fit {about}: {'; '.join(reasons)}.")


def _list_names(names: list[str]) -> str:
    rest = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {rest} more" if rest > 0 else "")


@contextlib.contextmanager
def _limit_modules(tensors: int, path: str | Path, settings: str) -> Iterator[None]:
    """Stop the building of a network that has many more parts than a file has tensors."""
    from torch.nn.modules import module as hooks

    here, counts = threading.get_ident(), {"parameters": 0, "modules": 0}
    most = {"parameters": 2 * tensors + 64, "modules": 16 * tensors + 1024}

    def count(kind: str) -> None:
        if threading.get_ident() == here:  # hooks are called for every thread
            counts[kind] += 1
            if counts[kind] > most[kind]:
                raise UserError(
                    f"{path} does not fit {settings}: it holds {tensors} tensors, and the settings "
                    f"ask for more than {most[kind]:,} {kind}."
                )

    handles = [
        hooks.register_module_parameter_registration_hook(lambda *_: count("parameters")),
        hooks.register_module_module_registration_hook(lambda *_: count("modules")),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
