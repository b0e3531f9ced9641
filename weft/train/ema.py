"""The exponential moving average (EMA) of the weights, which is evaluated and saved."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from weft.train.parallel import local_shard
from weft.train.state import TrainState


def update_ema(state: TrainState, decay: float) -> None:
    """Move the average towards the weights, if an average is kept."""
    if state.ema is None:
        return
    # Early on, weight all updates equally, or the random start would stay in the average for long.
    decay = min(decay, state.step / (state.step + 10))
    with torch.no_grad():
        now = dict(state.model.named_parameters())
        names = [n for n, p in now.items() if p.requires_grad]
        torch._foreach_lerp_(
            [local_shard(state.ema[n]) for n in names],
            [local_shard(now[n].detach()) for n in names],
            1 - decay,
        )


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
