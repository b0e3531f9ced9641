"""The training loop."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.batch import BatchLoader, LabelledBatch, Position
from weft.decode.search.state import iter_tensors, map_tensors
from weft.errors import UserError, is_out_of_memory
from weft.runtime import Runtime, free_memory
from weft.train.cuda_graphs import give_up_compiling, make_train_step, maybe_compile, updates_ahead
from weft.train.optim import RATE_FACTOR, Unfreezing, build_optimisers, clip_gradients
from weft.train.schedule import Schedule
from weft.train.settings import Settings

REHEARSAL_PASSES = 3  # over the gradients: about as long as a step of Adam
CHECK_INTERVAL = 16  # updates between checks for NaN; on a GPU one ends when the next starts


@dataclass(frozen=True)
class Progress:
    """The result of one update. Numbers stay on the device until they are read."""

    step: int
    position: Position  # of the next batch
    fraction: float  # of the run completed
    rate: float
    count: int
    total: Tensor  # the loss, summed over `count`
    norm: Tensor  # of the gradient, before clipping
    rows: tuple[int, ...]
    ends_epoch: bool

    @property
    def loss(self) -> float:
        return float(self.total) / self.count


class NonFiniteLoss(UserError):
    """The loss or its gradient became NaN or infinite at `update`."""

    def __init__(self, update: Progress):
        self.update = update
        problem = (
            f"loss became {update.loss}"
            if not math.isfinite(update.loss)
            else "gradient overflowed"
        )
        super().__init__(
            f"The {problem} at update {update.step} (learning rate {update.rate:.3g})."
        )


@dataclass(frozen=True)
class PendingCheck:
    """Updates whose finite check runs on the device, and the function that waits for it."""

    updates: list[Progress]
    are_finite: Callable[[], list[bool]]


@dataclass
class TrainState:
    """A model in training, with everything that a checkpoint needs to resume exactly."""

    model: nn.Module
    optimisers: list[Optimizer]
    step: int = 0
    micro_batches: int = 1  # per batch; doubled when memory runs out
    ema: dict[str, Tensor] | None = None  # exponential moving average of the weights
    unchecked: list[Progress] = field(default_factory=list)  # updates not yet checked for NaN
    pending: PendingCheck | None = None  # the last check, still running on the device
    carried: Any = None  # recurrent state for the next batch, in truncated BPTT
    speedup_failure: str = ""  # why compiling or CUDA graphs were given up
    decay_left: float | None = None  # of the learning rate, if time is short (see Schedule)

    @classmethod
    def fresh(cls, model: nn.Module, settings: Settings) -> "TrainState":
        ema = None
        if settings.ema_decay > 0:
            ema = {n: p.detach().clone() for n, p in model.named_parameters()}
        return cls(model, build_optimisers(model, settings), ema=ema)


def fit(
    state: TrainState,
    task: Any,
    batches: BatchLoader,
    settings: Settings,
    runtime: Runtime,
    on_update: Callable[[Progress], None] = lambda progress: None,
    updates_that_fit: Callable[[], float] = lambda: math.inf,
) -> Iterator[Progress]:
    """Train from the position of `batches` until they run out, yielding after every update.

    `updates_that_fit` returns how many more updates there is time for: if those are fewer than
    planned, the learning-rate schedule ends with them.
    Raises NonFiniteLoss at once on a CPU; on a GPU at most 2·CHECK_INTERVAL updates after a loss
    became NaN, always before the end of an epoch, and when the caller runs `check_finite(state)`.
    """
    model = state.model.train()
    learned = _trained_parameters(state)
    maybe_compile(model, settings, runtime, batches)
    unfreezing = Unfreezing(model, learned, settings.unfreeze_epochs)

    def update(group: list[LabelledBatch], count: int) -> tuple[Tensor, Tensor]:
        total = _compute_gradients(state, task, group, count, runtime)
        norm = clip_gradients(learned, settings.clip_norm)
        for optimiser in state.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        # Fused optimisers do not mark weights as changed, and packed copies made for an evaluation
        # are kept until they are.
        torch.autograd.graph.increment_version(learned)
        return total, norm

    train_step = make_train_step(update, state, settings, runtime, batches)
    schedule = Schedule(settings, state.decay_left)
    interval = 1 if runtime.device.type == "cpu" else CHECK_INTERVAL
    for group in _accumulation_groups(iter(batches), settings.accumulate):
        position = group[-1][1]
        count = sum(batch.count for batch, _ in group)
        done = batches.fraction_done(batches.position)
        ahead = updates_ahead(batches, settings)
        rate = schedule.next_rate(state.step, done, ahead, updates_that_fit())
        state.decay_left = schedule.decay_left
        state.step += 1
        unfreezing.step(done * settings.epochs)
        for optimiser in state.optimisers:
            for settings_group in optimiser.param_groups:
                settings_group["lr"] = rate * settings_group.get(RATE_FACTOR, 1.0)
        total, norm = train_step([batch for batch, _ in group], count)
        if state.ema is not None:
            _update_ema(state, settings.ema_decay)
        batches.position = position
        if position.batch == 0:
            state.carried = None  # the next epoch starts the text again
        progress = Progress(
            state.step,
            position,
            batches.fraction_done(position),
            rate,
            count,
            total,
            norm,
            tuple(row for batch, _ in group for row in batch.rows.tolist()),
            position.batch == 0,
        )
        state.unchecked.append(progress)
        if interval == 1 or progress.ends_epoch:
            check_finite(state)
        elif len(state.unchecked) >= interval:
            _start_finite_check(state, runtime)
        on_update(progress)
        yield progress
        if not model.training:  # the caller may have evaluated
            model.train()


def rehearse_update(
    state: TrainState, task: Any, batch: LabelledBatch, settings: Settings, runtime: Runtime
) -> None:
    """Do the work of an update with a batch, and leave the model and its state unchanged."""
    model, carried, random = state.model, state.carried, runtime.random_state()
    training = model.training
    model.train()
    _compute_gradients(state, task, [batch], batch.count, runtime)
    learned = _trained_parameters(state)
    clip_gradients(learned, settings.clip_norm)
    # An optimiser reads and writes the weights and up to two moments. Here only the gradients are
    # written, and then dropped.
    dense = [p.grad for p in learned if p.grad is not None and not p.grad.is_sparse]
    for _ in range(REHEARSAL_PASSES if dense else 0):
        torch._foreach_mul_(dense, 0.5)
    _zero_grads(state)
    state.carried = carried
    runtime.restore_random(random)
    model.train(training)


def _trained_parameters(state: TrainState) -> list[nn.Parameter]:
    """Return the parameters that the optimisers update, in the model's order."""
    groups = (group for optimiser in state.optimisers for group in optimiser.param_groups)
    trained = {id(p) for group in groups for p in group["params"]}
    return [p for p in state.model.parameters() if id(p) in trained]


def check_finite(state: TrainState) -> None:
    """Raise NonFiniteLoss if a loss or gradient since the last check is not finite."""
    _finish_finite_check(state)
    updates = state.unchecked
    if updates:
        state.unchecked = []
        state.pending = PendingCheck(updates, _are_finite(updates).tolist)
        _finish_finite_check(state)


def _start_finite_check(state: TrainState, runtime: Runtime) -> None:
    """Start to check the latest updates without waiting; finish the check before."""
    _finish_finite_check(state)
    updates, state.unchecked = state.unchecked, []
    state.pending = PendingCheck(updates, runtime.fetch(_are_finite(updates)))


def _finish_finite_check(state: TrainState) -> None:
    pending, state.pending = state.pending, None
    if pending is not None:
        for update, finite in zip(pending.updates, pending.are_finite(), strict=True):
            if not finite:
                raise NonFiniteLoss(update)


def _are_finite(updates: list[Progress]) -> Tensor:
    return torch.isfinite(torch.stack([u.total + u.norm for u in updates]))


def _compute_gradients(
    state: TrainState, task: Any, group: list[LabelledBatch], count: int, runtime: Runtime
) -> Tensor:
    """Back-propagate a group of batches as one, in micro-batches once memory has run out."""
    while True:
        try:
            return _backward(state, task, group, count, runtime)
        except (RuntimeError, MemoryError) as error:
            if give_up_compiling(state.model, error):
                state.speedup_failure = f"blocks could not be compiled: {type(error).__name__}"
                _zero_grads(state)
                continue
            if not is_out_of_memory(error) or state.micro_batches >= max(len(b) for b in group):
                raise
        _zero_grads(state)
        free_memory()
        state.micro_batches *= 2


def _backward(
    state: TrainState, task: Any, group: list[LabelledBatch], count: int, runtime: Runtime
) -> Tensor:
    """Try once. If it fails, its autograd graph is freed before the next try."""
    total: Any = 0.0
    carried = state.carried  # stored only on success, or a second try would advance it twice
    for batch in group:
        after = []
        for part in _split_batch(replace(batch, carried=carried), state.micro_batches):
            part = part.to(runtime.device)
            with runtime.autocast():
                loss = task.loss(state.model(part.source), part)
            # Dividing by the whole count before the backward pass makes the update independent
            # of how the examples were split into micro-batches.
            (loss.total / count).backward()
            total = total + loss.total.detach()
            after.append(loss.carried)
        carried = concat_states(after)
    state.carried = carried
    return total


def _zero_grads(state: TrainState) -> None:
    """Drop the gradients of a failed update."""
    for optimiser in state.optimisers:
        optimiser.zero_grad(set_to_none=True)


def _split_batch(batch: LabelledBatch, parts: int) -> Iterator[LabelledBatch]:
    """Yield up to `parts` smaller batches, each with the recurrent state of its rows."""
    if parts == 1:
        yield batch
        return
    start = 0
    for part in batch.split(parts):
        stop = start + len(part)
        rows = [tensor[start:stop] for tensor in iter_tensors(batch.carried)]
        yield replace(part, carried=rebuild_state(batch.carried, rows))
        start = stop


def concat_states(states: list[Any]) -> Any:
    """Concatenate the states of micro-batches along the batch axis."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    parts = zip(*map(iter_tensors, states), strict=True)
    return rebuild_state(states[0], [torch.cat(rows) for rows in parts])


def rebuild_state(state: Any, tensors: Iterable[Tensor]) -> Any:
    """Return a state of the same structure with other tensors, in traversal order."""
    rest = iter(tensors)
    return map_tensors(lambda part: next(rest), state)


def _update_ema(state: TrainState, decay: float) -> None:
    """Update the exponential moving average of the weights."""
    # Early on, weight all updates equally, or the random start would stay in the average for long.
    decay = min(decay, state.step / (state.step + 10))
    assert state.ema is not None
    with torch.no_grad():
        now = dict(state.model.named_parameters())
        names = [n for n, p in now.items() if p.requires_grad]
        torch._foreach_lerp_(
            [state.ema[n] for n in names], [now[n].detach() for n in names], 1 - decay
        )


def _accumulation_groups(
    batches: Iterator[tuple[LabelledBatch, Position]], size: int
) -> Iterator[list[tuple[LabelledBatch, Position]]]:
    """Yield the batches of each update; a group never reaches into the next epoch."""
    group = []
    for batch, position in batches:
        group.append((batch, position))
        if len(group) == size or position.batch == 0:
            yield group
            group = []


@contextlib.contextmanager
def ema_weights(state: TrainState) -> Iterator[nn.Module]:
    """Yield the model with its averaged weights in place, if an average is kept."""
    if state.ema is None:
        yield state.model
        return
    parameters = dict(state.model.named_parameters())
    current = {name: p.detach().clone() for name, p in parameters.items()}
    _copy_weights(state.ema, parameters)
    try:
        yield state.model
    finally:
        _copy_weights(current, parameters)


def _copy_weights(values: dict[str, Tensor], parameters: dict[str, nn.Parameter]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
