"""Batch operations on decoder states: any nest of tensors whose first axis is the batch.

A nest consists of tuples, lists, dictionaries and dataclasses. Values that are not tensors, and
tensors without axes, belong to all rows.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar, overload

import torch
from torch import Tensor

from weft.protocols import State

Nest = TypeVar("Nest")
Part = TypeVar("Part")
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # ids (N,), state -> logits (N, V), state
TensorFunction = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class PerPrompt(Generic[Nest]):
    """A part of a state with one row per prompt, for any number of beams or samples per prompt.

    It holds what all beams of a prompt share (encoder states, their keys and values): neither
    expanded nor reordered. A step sees `len(ids)` rows, a multiple of the rows in here; the beams
    of a prompt are adjacent.
    """

    value: Nest


@dataclasses.dataclass(frozen=True)
class Pinned(Generic[Nest]):
    """A part of a state with one row per beam that `reorder` leaves in place.

    Another part of the state maps beams to rows. All other operations treat it like any part.
    """

    value: Nest


SharedTensor = Tensor | PerPrompt[Tensor]  # one row per row of the state, or one per prompt


def unwrap(part: Nest | PerPrompt[Nest]) -> Nest:
    """Return a part of a state, unwrapped if it is `PerPrompt`."""
    return part.value if isinstance(part, PerPrompt) else part


@overload
def share(part: None) -> None: ...
@overload
def share(part: SharedTensor) -> PerPrompt[Tensor]: ...
@overload
def share(part: SharedTensor | None) -> PerPrompt[Tensor] | None: ...
def share(part: SharedTensor | None) -> PerPrompt[Tensor] | None:
    """Return a part of a state with one row per prompt as `PerPrompt`."""
    return None if part is None else PerPrompt(unwrap(part))


def reorder(state: Nest, index: Tensor) -> Nest:
    """Select rows of a state; `PerPrompt` and `Pinned` parts stay as they are."""
    return map_tensors(lambda part: _select_rows(part, index), state, None, pinned=False)


def expand_beams(state: Nest, times: int) -> Nest:
    """Repeat each row `times` times, copies adjacent; `PerPrompt` parts stay as they are."""
    if times == 1:
        return state
    return map_tensors(lambda part: part.repeat_interleave(times, 0) if part.dim() else part, state)


def select_prompts(state: Nest, prompts: Tensor, width: int) -> Nest:
    """Select the rows of prompts: `width` rows each, and one row of `PerPrompt` parts."""
    index = beam_indices(prompts, width)
    return map_tensors(
        lambda part: _select_rows(part, index), state, lambda part: _select_rows(part, prompts)
    )


def beam_indices(prompts: Tensor, width: int) -> Tensor:
    """Return the row indices of prompts that have `width` rows each."""
    return (prompts[:, None] * width + torch.arange(width, device=prompts.device)).flatten()


def iter_tensors(state: object) -> Iterator[Tensor]:
    """Yield every tensor of a nest, in a fixed order."""
    collected: list[Tensor] = []

    def collect(part: Tensor) -> Tensor:
        collected.append(part)
        return part

    map_tensors(collect, state, collect)
    return iter(collected)


def copy_into(old: object, new: object) -> None:
    """Copy the tensors of `new` into those of `old`, a nest of the same shape in static memory."""
    pairs = [
        (a, b) for a, b in zip(iter_tensors(old), iter_tensors(new), strict=True) if a is not b
    ]
    if torch.compiler.is_compiling():
        for target, source in pairs:
            target.copy_(source)
        return
    # One fused copy per dtype, device and layout: fewer kernel launches.
    kinds: dict[Hashable, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in pairs:
        same_strides = target.stride() == source.stride()
        kind = (target.dtype, source.dtype, target.device, source.device, same_strides)
        targets, sources = kinds.setdefault(kind, ([], []))
        targets.append(target)
        sources.append(source)
    for targets, sources in kinds.values():
        torch._foreach_copy_(targets, sources)


def device_of(state: object) -> torch.device:
    """Return the device of a state; CPU for a state without tensors."""
    first = next(iter_tensors(state), None)
    return torch.device("cpu") if first is None else first.device


def map_tensors(
    change: TensorFunction,
    nest: Nest,
    per_prompt: TensorFunction | None = None,
    *,
    pinned: bool = True,
) -> Nest:
    """Apply `change` to every tensor of a nest; `per_prompt`, if any, to those in `PerPrompt`.

    Without `pinned`, tensors in `Pinned` stay as they are.
    """

    def walk(part: Part) -> Part:
        return map_tensors(change, part, per_prompt, pinned=pinned)

    if isinstance(nest, Tensor):
        return change(nest)  # type: ignore[return-value]
    if nest is None:
        return nest  # tested first: the compiler cannot evaluate is_dataclass(None)
    if isinstance(nest, PerPrompt):
        return nest if per_prompt is None else PerPrompt(map_tensors(per_prompt, nest.value))  # type: ignore[return-value]
    if isinstance(nest, Pinned) and not pinned:
        return nest
    if isinstance(nest, tuple) and type(nest) is not tuple:  # a NamedTuple
        return type(nest)(*[walk(part) for part in nest])
    if isinstance(nest, (tuple, list)):
        return type(nest)([walk(part) for part in nest])
    if isinstance(nest, dict):
        return {key: walk(part) for key, part in nest.items()}  # type: ignore[return-value]
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        names = [field.name for field in dataclasses.fields(nest) if field.init]
        return dataclasses.replace(nest, **{name: walk(getattr(nest, name)) for name in names})
    return nest


def _select_rows(part: Tensor, index: Tensor) -> Tensor:
    # Lengths may live on the host while the rest of a state is on a device.
    return part.index_select(0, index.to(part.device)) if part.dim() else part
