"""Rows of a state: any nest of tensors whose first axis is the batch.

A nest is made of tuples, lists, dictionaries and dataclasses; what is no tensor, and a tensor
without axes, belongs to all rows alike.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

State = Any
Nest = TypeVar("Nest")
TensorFunction = Callable[[Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class PerPrompt:
    """A part of a state with one row a prompt, however many beams or samples a prompt has.

    What all beams of a prompt have in common (the memory, its keys and values) is neither copied
    nor reordered when it is kept in here. A step then sees `len(ids)` rows that are a multiple of
    the rows in here, the beams of a prompt next to each other.
    """

    value: Any


@dataclasses.dataclass(frozen=True)
class Pinned:
    """A part of a state with a row for every beam that stays where it is when beams change places.

    Another part of the state says which row of the prompt is whose. In everything but `reorder`
    this is a part like any other.
    """

    value: Any


def reorder(state: Nest, index: Tensor) -> Nest:
    """Pick rows of a state; the beams of a prompt stay its own, so shared parts are left alone."""
    return map_tensors(lambda part: _select_rows(part, index), state, None, pinned=False)


def expand_beams(state: Nest, times: int) -> Nest:
    """Each row `times` times, next to each other; shared parts stay as they are."""
    if times == 1:
        return state
    return map_tensors(lambda part: part.repeat_interleave(times, 0) if part.dim() else part, state)


def select_prompts(state: Nest, prompts: Tensor, width: int) -> Nest:
    """The rows of some prompts, where each prompt has `width` rows and one row of shared parts."""
    index = beam_indices(prompts, width)
    return map_tensors(
        lambda part: _select_rows(part, index), state, lambda part: _select_rows(part, prompts)
    )


def beam_indices(prompts: Tensor, width: int) -> Tensor:
    """Indices of the rows of some prompts, where each has `width` of them."""
    return (prompts[:, None] * width + torch.arange(width, device=prompts.device)).flatten()


def iter_tensors(state: Any) -> Iterator[Tensor]:
    """Every tensor of a nest, in a fixed order."""
    found: list[Tensor] = []

    def note(part: Tensor) -> Tensor:
        found.append(part)
        return part

    map_tensors(note, state, note)
    return iter(found)


def copy_into(old: Any, new: Any) -> None:
    """Write the tensors of a nest into those of another of the same shape, for static memory."""
    pairs = [
        (a, b) for a, b in zip(iter_tensors(old), iter_tensors(new), strict=True) if a is not b
    ]
    if torch.compiler.is_compiling():
        for target, source in pairs:
            target.copy_(source)
        return
    # Those of one kind at once, because a device starts few kernels sooner than many.
    kinds: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in pairs:
        alike = target.stride() == source.stride()
        kind = (target.dtype, source.dtype, target.device, source.device, alike)
        targets, sources = kinds.setdefault(kind, ([], []))
        targets.append(target)
        sources.append(source)
    for targets, sources in kinds.values():
        torch._foreach_copy_(targets, sources)


def device_of(state: Any) -> torch.device:
    """Where the state lives; a state without tensors lives on the host."""
    first = next(iter_tensors(state), None)
    return torch.device("cpu") if first is None else first.device


def map_tensors(
    change: TensorFunction,
    nest: Nest,
    per_prompt: TensorFunction | None = None,
    *,
    pinned: bool = True,
) -> Nest:
    """The nest with every tensor changed; those in `Shared` by a change of their own, or not.

    Without `unmoved`, those in `Unmoved` stay as they are.
    """

    def walk(part: Any) -> Any:
        return map_tensors(change, part, per_prompt, pinned=pinned)

    if isinstance(nest, Tensor):
        return change(nest)  # type: ignore[return-value]
    if nest is None:
        return nest  # said apart, because a compiler cannot ask whether None is a dataclass
    if isinstance(nest, PerPrompt):
        return nest if per_prompt is None else PerPrompt(map_tensors(per_prompt, nest.value))  # type: ignore[return-value]
    if isinstance(nest, Pinned) and not pinned:
        return nest
    if isinstance(nest, tuple) and hasattr(nest, "_fields"):
        return type(nest)(*[walk(part) for part in nest])
    if isinstance(nest, (tuple, list)):
        return type(nest)([walk(part) for part in nest])  # type: ignore[call-arg]
    if isinstance(nest, dict):
        return {key: walk(part) for key, part in nest.items()}  # type: ignore[return-value]
    if dataclasses.is_dataclass(nest) and not isinstance(nest, type):
        names = [field.name for field in dataclasses.fields(nest) if field.init]
        return dataclasses.replace(nest, **{name: walk(getattr(nest, name)) for name in names})
    return nest


def _select_rows(part: Tensor, index: Tensor) -> Tensor:
    # Lengths may stay on the host while the rest of a state is on a device.
    return part.index_select(0, index.to(part.device)) if part.dim() else part
