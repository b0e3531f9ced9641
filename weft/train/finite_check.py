"""Detect a loss or gradient that is NaN or infinite, without waiting for the device."""

import math

import torch
from torch import Tensor

from weft.errors import UserError
from weft.runtime import Runtime
from weft.train.state import PendingCheck, Progress, TrainState


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


def check_finite(state: TrainState) -> None:
    """Raise NonFiniteLoss if a loss or gradient since the last check is not finite."""
    _finish_finite_check(state)
    updates = state.unchecked
    if updates:
        state.unchecked = []
        state.pending = PendingCheck(updates, _are_finite(updates).tolist)
        _finish_finite_check(state)


def start_finite_check(state: TrainState, runtime: Runtime) -> None:
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
