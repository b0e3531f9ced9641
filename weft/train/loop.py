"""The training loop: batches in, one update at a time.

for batches of one update:
    set the learning rate of this update
    back-propagate loss / count        (micro-batches add up their gradients)
    clip the gradient norm
    step the optimisers, zero the gradients
    update the moving average of the weights
    yield the progress
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from weft.batch import BatchLoader, LabelledBatch, Position
from weft.decode.search.state import iter_tensors, map_tensors
from weft.errors import is_out_of_memory
from weft.protocols import State
from weft.runtime import Runtime, free_memory
from weft.train.cuda_graphs import give_up_compiling, make_train_step, maybe_compile, updates_ahead
from weft.train.ema import update_ema
from weft.train.finite_check import check_finite, start_finite_check
from weft.train.optim import Unfreezing, clip_gradients, set_learning_rate
from weft.train.parallel import Objective
from weft.train.schedule import Schedule
from weft.train.settings import Settings
from weft.train.state import Progress, TrainState

REHEARSAL_PASSES = 3  # over the gradients: about as long as a step of Adam
CHECK_INTERVAL = 16  # updates between checks for NaN; on a GPU one ends when the next starts


def fit(
    state: TrainState,
    task: Objective,
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
    trained = state.trained_parameters()
    maybe_compile(model, settings, runtime, batches)
    unfreezing = Unfreezing(model, trained, settings.unfreeze_epochs)

    def update(group: list[LabelledBatch], count: float) -> tuple[Tensor, Tensor]:
        total = _compute_gradients(state, task, group, count, runtime)
        norm = clip_gradients(trained, settings.clip_norm)
        for optimiser in state.optimisers:
            optimiser.step()
        state.zero_grads()
        # Fused optimisers do not mark weights as changed, and packed copies made for an evaluation
        # are kept until they are.
        torch.autograd.graph.increment_version(trained)
        return total, norm

    train_step = make_train_step(update, state, settings, runtime, batches)
    schedule = Schedule(settings, state.decay_left)
    for group, position in _accumulation_groups(batches, settings.accumulate):
        done = batches.fraction_done(batches.position)
        ahead = updates_ahead(batches, settings)
        rate = schedule.next_rate(state.step, done, ahead, updates_that_fit())
        state.decay_left = schedule.decay_left
        state.step += 1
        unfreezing.step(done * settings.epochs)
        set_learning_rate(state.optimisers, rate)

        count = sum(batch.count for batch in group)
        total, norm = train_step(group, count)
        update_ema(state, settings.ema_decay)

        batches.position = position
        ends_epoch = position.batch == 0
        if ends_epoch:
            state.carried = None  # the next epoch starts the text again
        rows = tuple(row for batch in group for row in batch.rows.tolist())
        fraction = batches.fraction_done(position)
        progress = Progress(
            state.step, position, fraction, rate, count, total, norm, rows, ends_epoch
        )
        state.unchecked.append(progress)
        if runtime.device.type == "cpu" or ends_epoch:
            check_finite(state)
        elif len(state.unchecked) >= CHECK_INTERVAL:
            start_finite_check(state, runtime)
        on_update(progress)
        yield progress
        if not model.training:  # the caller may have evaluated
            model.train()


def _accumulation_groups(
    batches: BatchLoader, size: int
) -> Iterator[tuple[list[LabelledBatch], Position]]:
    """Yield the batches of each update and the position after them.

    An update never reaches into the next epoch.
    """
    group = []
    for batch, position in batches:
        group.append(batch)
        if len(group) == size or position.batch == 0:
            yield group, position
            group = []


def _compute_gradients(
    state: TrainState, task: Objective, group: list[LabelledBatch], count: float, runtime: Runtime
) -> Tensor:
    """Back-propagate a group of batches as one, in micro-batches once memory has run out."""
    while True:
        try:
            return _backward(state, task, group, count, runtime)
        except (RuntimeError, MemoryError) as error:
            if give_up_compiling(state.model, error):
                state.speedup_failure = f"blocks could not be compiled: {type(error).__name__}"
                state.zero_grads()
                continue
            if (
                not is_out_of_memory(error)
                or state.micro_batches >= max(len(b) for b in group)
                or state.parallel is not None  # the other processes would not try again
            ):
                raise
        state.zero_grads()
        free_memory()
        state.micro_batches *= 2


def _backward(
    state: TrainState, task: Objective, group: list[LabelledBatch], count: float, runtime: Runtime
) -> Tensor:
    """Try once. If it fails, its autograd graph is freed before the next try."""
    if state.parallel is not None:
        loss_sum, state.carried = state.parallel.backward(group, count, state.carried)
        return loss_sum
    total: Tensor | float = 0.0
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
    assert isinstance(total, Tensor)  # a group has at least one batch
    return total


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


def concat_states(states: list[State]) -> State:
    """Concatenate the states of micro-batches along the batch axis."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    parts = zip(*map(iter_tensors, states), strict=True)
    return rebuild_state(states[0], [torch.cat(rows) for rows in parts])


def rebuild_state(state: State, tensors: Iterable[Tensor]) -> State:
    """Return a state of the same structure with other tensors, in traversal order."""
    rest = iter(tensors)
    return map_tensors(lambda part: next(rest), state)


def rehearse_update(
    state: TrainState, task: Objective, batch: LabelledBatch, settings: Settings, runtime: Runtime
) -> None:
    """Do the work of an update with a batch, and leave the model and its state unchanged."""
    model, carried, random = state.model, state.carried, runtime.random_state()
    training = model.training
    model.train()
    _compute_gradients(state, task, [batch], batch.count, runtime)
    trained = state.trained_parameters()
    clip_gradients(trained, settings.clip_norm)
    # An optimiser reads and writes the weights and up to two moments. Here only the gradients are
    # written, and then dropped.
    dense = [p.grad for p in trained if p.grad is not None and not p.grad.is_sparse]
    for _ in range(REHEARSAL_PASSES if dense else 0):
        torch._foreach_mul_(dense, 0.5)
    state.zero_grads()
    state.carried = carried
    runtime.restore_random(random)
    model.train(training)
