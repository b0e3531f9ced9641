"""The one training loop."""

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

REHEARSAL_PASSES = 3  # over the gradients, which take about as long as a step of Adam
CHECK_INTERVAL = (
    16  # updates between looks at the loss for NaN; on a GPU each is judged at the next one
)


@dataclass(frozen=True)
class Progress:
    """What one update did. Numbers stay on the device until somebody reads them."""

    step: int
    position: Position  # where the next batch begins
    share: float  # of the training that lies behind
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
    """The loss or its gradient became NaN or infinite; `update` says where."""

    def __init__(self, update: Progress):
        self.update = update
        what = (
            f"loss became {update.loss}"
            if not math.isfinite(update.loss)
            else "gradient overflowed"
        )
        super().__init__(f"The {what} at update {update.step} (learning rate {update.rate:.3g}).")


@dataclass(frozen=True)
class PendingCheck:
    """Updates, and what says of each whether its numbers are finite."""

    updates: list[Progress]
    are_finite: Callable[[], list[bool]]


@dataclass
class TrainState:
    """A model in training with everything that must be saved to go on exactly where it stood."""

    model: nn.Module
    optimisers: list[Optimizer]
    step: int = 0
    pieces: int = 1  # micro-batches a batch is cut into, doubled when memory runs out
    average: dict[str, Tensor] | None = None  # running mean of the weights
    unchecked: list[Progress] = field(default_factory=list)  # updates not yet looked at for NaN
    looked: PendingCheck | None = None  # the last look, which nobody has waited for
    carried: Any = None  # the state in which the next batch begins, where one goes on from another
    trouble: str = ""  # in words, what was to make it faster and could not
    decay_left: float | None = None  # of the learning rate, where time is short (see Schedule)

    @classmethod
    def fresh(cls, model: nn.Module, settings: Settings) -> "TrainState":
        average = None
        if settings.ema_decay > 0:
            average = {n: p.detach().clone() for n, p in model.named_parameters()}
        return cls(model, build_optimisers(model, settings), average=average)


def fit(
    trainee: TrainState,
    task: Any,
    batches: BatchLoader,
    settings: Settings,
    runtime: Runtime,
    watch: Callable[[Progress], None] = lambda progress: None,
    updates_that_fit: Callable[[], float] = lambda: math.inf,
) -> Iterator[Progress]:
    """Train from where `batches` stand until they run out, yielding after every update.

    `updates_that_fit` says how many more updates there is time for: where those are fewer than
    planned, the schedule of the learning rate ends with them.
    Raises NotFinite at once on a processor; on a GPU at the latest 2·CHECK updates after a loss
    went NaN, always before the end of an epoch, and whenever the caller asks with `check(trainee)`.
    """
    model = trainee.model.train()
    learned = _trained_parameters(trainee)
    maybe_compile(model, settings, runtime, batches)
    frozen = Unfreezing(model, learned, settings.unfreeze_epochs)

    def update(group: list[LabelledBatch], count: int) -> tuple[Tensor, Tensor]:
        total = _compute_gradients(trainee, task, group, count, runtime)
        norm = clip_gradients(learned, settings.clip_norm)
        for optimiser in trainee.optimisers:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        # Fused optimisers do not say that weights have changed, and what was laid out of them for
        # an evaluation is kept until they do.
        torch.autograd.graph.increment_version(learned)
        return total, norm

    faster = make_train_step(update, trainee, settings, runtime, batches)
    schedule = Schedule(settings, trainee.decay_left)
    often = 1 if runtime.device.type == "cpu" else CHECK_INTERVAL
    for group in _accumulation_groups(iter(batches), settings.accumulate):
        position = group[-1][1]
        count = sum(batch.count for batch, _ in group)
        behind = batches.fraction_done(batches.position)
        ahead = updates_ahead(batches, settings)
        now = schedule.next_rate(trainee.step, behind, ahead, updates_that_fit())
        trainee.decay_left = schedule.decay_left
        trainee.step += 1
        frozen.until(behind * settings.epochs)
        for optimiser in trainee.optimisers:
            for settings_group in optimiser.param_groups:
                settings_group["lr"] = now * settings_group.get(RATE_FACTOR, 1.0)
        total, norm = faster([batch for batch, _ in group], count)
        if trainee.average is not None:
            _update_ema(trainee, settings.ema_decay)
        batches.position = position
        if position.batch == 0:
            trainee.carried = None  # the next batch begins the text anew
        progress = Progress(
            trainee.step,
            position,
            batches.fraction_done(position),
            now,
            count,
            total,
            norm,
            tuple(row for batch, _ in group for row in batch.rows.tolist()),
            position.batch == 0,
        )
        trainee.unchecked.append(progress)
        if often == 1 or progress.ends_epoch:
            check_finite(trainee)
        elif len(trainee.unchecked) >= often:
            _start_finite_check(trainee, runtime)
        watch(progress)
        yield progress
        if not model.training:  # the caller may have evaluated
            model.train()


def rehearse_update(
    trainee: TrainState, task: Any, batch: LabelledBatch, settings: Settings, runtime: Runtime
) -> None:
    """Compute what an update with a batch computes, and leave everything as it was."""
    model, carried, random = trainee.model, trainee.carried, runtime.random_state()
    training = model.training
    model.train()
    _compute_gradients(trainee, task, [batch], batch.count, runtime)
    learned = _trained_parameters(trainee)
    clip_gradients(learned, settings.clip_norm)
    # An optimiser reads and writes the weights and up to two means of the gradients. Here only the
    # gradients are written, and dropped.
    dense = [p.grad for p in learned if p.grad is not None and not p.grad.is_sparse]
    for _ in range(REHEARSAL_PASSES if dense else 0):
        torch._foreach_mul_(dense, 0.5)
    _zero_grads(trainee)
    trainee.carried = carried
    runtime.restore_random(random)
    model.train(training)


def _trained_parameters(trainee: TrainState) -> list[nn.Parameter]:
    """What the optimisers move, in the order of the model."""
    groups = (group for one in trainee.optimisers for group in one.param_groups)
    held = {id(p) for group in groups for p in group["params"]}
    return [p for p in trainee.model.parameters() if id(p) in held]


def check_finite(trainee: TrainState) -> None:
    """Raise if an update since the last check had a loss or gradient that is not finite."""
    _finish_finite_check(trainee)
    updates = trainee.unchecked
    if updates:
        trainee.unchecked = []
        trainee.looked = PendingCheck(updates, _are_finite(updates).tolist)
        _finish_finite_check(trainee)


def _start_finite_check(trainee: TrainState, runtime: Runtime) -> None:
    """Begin to check the latest updates without waiting for them; judge the look before."""
    _finish_finite_check(trainee)
    updates, trainee.unchecked = trainee.unchecked, []
    trainee.looked = PendingCheck(updates, runtime.fetch(_are_finite(updates)))


def _finish_finite_check(trainee: TrainState) -> None:
    looked, trainee.looked = trainee.looked, None
    if looked is not None:
        for update, good in zip(looked.updates, looked.are_finite(), strict=True):
            if not good:
                raise NonFiniteLoss(update)


def _are_finite(updates: list[Progress]) -> Tensor:
    return torch.isfinite(torch.stack([u.total + u.norm for u in updates]))


def _compute_gradients(
    trainee: TrainState, task: Any, group: list[LabelledBatch], count: int, runtime: Runtime
) -> Tensor:
    """Back-propagate a group of batches as one, in smaller pieces once memory has run out."""
    while True:
        try:
            return _backward(trainee, task, group, count, runtime)
        except (RuntimeError, MemoryError) as error:
            if give_up_compiling(trainee.model, error):
                trainee.trouble = f"blocks could not be compiled: {type(error).__name__}"
                _zero_grads(trainee)
                continue
            if not is_out_of_memory(error) or trainee.pieces >= max(len(b) for b in group):
                raise
        _zero_grads(trainee)
        free_memory()
        trainee.pieces *= 2


def _backward(
    trainee: TrainState, task: Any, group: list[LabelledBatch], count: int, runtime: Runtime
) -> Tensor:
    """One try. What it holds of a graph is gone when it has failed, before the next one begins."""
    total: Any = 0.0
    carried = trainee.carried  # kept until all went well, or a second try would go on twice
    for batch in group:
        after = []
        for piece in _split_batch(replace(batch, carried=carried), trainee.pieces):
            piece = piece.to(runtime.device)
            with runtime.autocast():
                loss = task.loss(trainee.model(piece.source), piece)
            # Dividing by everything that is counted, before going back, makes the update
            # independent of how the examples were cut into pieces.
            (loss.total / count).backward()
            total = total + loss.total.detach()
            after.append(loss.carried)
        carried = concat_states(after)
    trainee.carried = carried
    return total


def _zero_grads(trainee: TrainState) -> None:
    """Drop the gradients of an update that failed."""
    for optimiser in trainee.optimisers:
        optimiser.zero_grad(set_to_none=True)


def _split_batch(batch: LabelledBatch, parts: int) -> Iterator[LabelledBatch]:
    """Up to `parts` smaller batches, each with the carried state of its own rows."""
    if parts == 1:
        yield batch
        return
    start = 0
    for piece in batch.split(parts):
        stop = start + len(piece)
        own = [part[start:stop] for part in iter_tensors(batch.carried)]
        yield replace(piece, carried=rebuild_state(batch.carried, own))
        start = stop


def concat_states(states: list[Any]) -> Any:
    """The states of some rows as one of all of them."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    parts = zip(*map(iter_tensors, states), strict=True)
    return rebuild_state(states[0], [torch.cat(rows) for rows in parts])


def rebuild_state(state: Any, tensors: Iterable[Tensor]) -> Any:
    """A state of the same make with other tensors, in the order of `leaves`."""
    rest = iter(tensors)
    return map_tensors(lambda part: next(rest), state)


def _update_ema(trainee: TrainState, decay: float) -> None:
    """Move the running mean of the weights a little towards the weights."""
    # Early on, weight what was seen equally, or the random start would stay in the mean for long.
    decay = min(decay, trainee.step / (trainee.step + 10))
    assert trainee.average is not None
    with torch.no_grad():
        now = dict(trainee.model.named_parameters())
        names = [n for n, p in now.items() if p.requires_grad]
        torch._foreach_lerp_(
            [trainee.average[n] for n in names], [now[n].detach() for n in names], 1 - decay
        )


def _accumulation_groups(
    batches: Iterator[tuple[LabelledBatch, Position]], size: int
) -> Iterator[list[tuple[LabelledBatch, Position]]]:
    """Batches that make one update together; a group never reaches into the next epoch."""
    group = []
    for batch, position in batches:
        group.append((batch, position))
        if len(group) == size or position.batch == 0:
            yield group
            group = []


@contextlib.contextmanager
def ema_weights(trainee: TrainState) -> Iterator[nn.Module]:
    """The model with the running mean of its weights in place, where one is kept."""
    if trainee.average is None:
        yield trainee.model
        return
    parameters = dict(trainee.model.named_parameters())
    kept = {name: p.detach().clone() for name, p in parameters.items()}
    _copy_weights(trainee.average, parameters)
    try:
        yield trainee.model
    finally:
        _copy_weights(kept, parameters)


def _copy_weights(values: dict[str, Tensor], parameters: dict[str, nn.Parameter]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
