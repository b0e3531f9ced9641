"""One model trained by several processes: DDP, or FSDP2 for what does not fit on one device.

The plan of batches is the same for any number of processes, and so is the result: the micro-batches
of an update are dealt out, each process back-propagates its own over the count of the whole update,
and the gradients are summed. Where there are fewer batches than processes, their rows are split.
"""

import contextlib
import math
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed import all_reduce, broadcast
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from weft.attend.transformer_block import TransformerBlock
from weft.batch import LabelledBatch
from weft.decode.search.state import map_tensors
from weft.errors import UserError
from weft.protocols import State
from weft.runtime import Runtime
from weft.tasks.task import Loss


class Objective(Protocol):
    """The part of a task that a training step needs."""

    def loss(self, scores: Any, batch: LabelledBatch) -> Loss: ...


class LossModule(nn.Module):
    """A model and its loss in one forward pass: a loss may use weights that the model has not."""

    def __init__(self, model: nn.Module, task: Objective):
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: LabelledBatch) -> tuple[Tensor, State]:
        loss = self.task.loss(self.model(batch.source), batch)
        return loss.total, loss.carried


class Parallel:
    """Computes the gradient of an update together with the other processes of the runtime."""

    def __init__(self, model: nn.Module, task: Objective, runtime: Runtime, shard: bool):
        self.model, self.runtime, self.is_sharded = model, runtime, shard
        self.rank, self.size = runtime.world.rank, runtime.world.size
        self.is_stateful = bool(getattr(getattr(model, "head", None), "is_stateful", False))
        for tensor in model.state_dict().values():
            broadcast(tensor, 0)
        torch.manual_seed(torch.initial_seed() + self.rank)  # other dropout masks for other rows
        self.step: nn.Module = LossModule(model, task)
        if shard:
            _check_shardable(model)
            for module in model.modules():
                # A decoder's block is also used in parts, outside of its forward pass.
                if type(module) is TransformerBlock:
                    fully_shard(module)
            fully_shard(self.step)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                self.step = DistributedDataParallel(
                    self.step,
                    broadcast_buffers=False,  # its other name is not known to torch 2.11
                    find_unused_parameters=True,  # frozen for a while, or a part that few rows use
                    gradient_as_bucket_view=True,
                )

    def backward(
        self, group: list[LabelledBatch], count: float, carried: State
    ) -> tuple[Tensor, State]:
        """Back-propagate this process's part of an update; return the loss of all of it."""
        total = torch.zeros((), device=self.runtime.device)
        pieces = self._deal(group)
        for number, piece in enumerate(pieces, 1):
            # All have the same number of passes: one without rows repeats a row at weight 0.
            batch = piece or group[0].split(len(group[0]))[0]
            batch = replace(batch, carried=carried if piece else None).to(self.runtime.device)
            with self._sum_gradients(number == len(pieces)):
                with self.runtime.autocast():
                    loss, after = self.step(batch)
                # Gradients are averaged over the processes, and the loss is a sum over them.
                (loss * (self.size / count if piece else 0.0)).backward()
            if piece:
                total, carried = total + loss.detach(), after
        all_reduce(total)
        return total, carried

    def _deal(self, group: list[LabelledBatch]) -> list[LabelledBatch | None]:
        """Return every N-th micro-batch of an update; None stands for no rows."""
        # The state of a row stays with the process that reads the row.
        parts = self.size if self.is_stateful else -(-self.size // len(group))
        dealt: list[LabelledBatch | None] = []
        for batch in group:
            split = batch.split(parts)
            dealt += [*split, *[None] * (parts - len(split))]
        dealt += [None] * (-len(dealt) % self.size)
        return dealt[self.rank :: self.size]

    @contextlib.contextmanager
    def _sum_gradients(self, now: bool) -> Iterator[None]:
        """Sum gradients over the processes in the backward pass of the last micro-batch only."""
        if isinstance(self.step, FSDPModule):
            self.step.set_requires_gradient_sync(now)
            yield
        else:
            ddp = cast(DistributedDataParallel, self.step)
            with nullcontext() if now else ddp.no_sync():
                yield

    @contextlib.contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold all weights on every device for a while, for work outside of a training step."""
        if not self.is_sharded:
            yield
            return
        parts = [part for part in self.step.modules() if isinstance(part, FSDPModule)]
        for part in parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        try:
            yield
        finally:
            for part in parts:
                part.reshard()
                part.set_reshard_after_forward(part is not self.step, recurse=False)

    def gather_state(self, carried: State) -> State:
        """Return the recurrent state of all rows; each process has that of its own."""
        if carried is None:
            parts = self.runtime.world.gather(None)
        else:
            parts = self.runtime.world.gather(map_tensors(lambda t: t.cpu(), carried))
        return [part for part in parts if part is not None]

    def own_rows(self, rows: int) -> slice:
        """Return the rows of a batch that this process reads, where they have a state."""
        size = math.ceil(rows / self.size)
        return slice(self.rank * size, (self.rank + 1) * size)


def is_sharded(tensor: Tensor) -> bool:
    """Return True if each process holds a part of the tensor."""
    return isinstance(tensor, DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """Return the part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_tensor(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(tensor: Tensor, reference: Tensor) -> Tensor:
    """Return a tensor sharded as the reference is, on its device."""
    if not isinstance(reference, DTensor) or isinstance(tensor, DTensor):
        return tensor
    mesh = reference.device_mesh
    return distribute_tensor(tensor.to(reference.device), mesh, reference.placements)


def global_norm(values: list[Tensor]) -> Tensor:
    """Return the norm of all gradients: over all shards, where they are sharded."""
    norm: Tensor = torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm([local_shard(value) for value in values]))
    )
    if any(isinstance(value, DTensor) for value in values):
        square = norm.square()
        all_reduce(square)
        norm = square.sqrt()
    return norm


def _check_shardable(model: nn.Module) -> None:
    if any(getattr(module, "sparse", False) for module in model.modules()):
        raise UserError(
            "train.shard cannot shard a table with sparse gradients: set embedder.sparse=false, or "
            "leave train.shard out."
        )
