"""The state of a model in training, and the result of each update."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.optim import Optimizer

from weft.batch import Position
from weft.protocols import State
from weft.train.optim import build_optimisers
from weft.train.parallel import Parallel
from weft.train.settings import Settings


@dataclass(frozen=True)
class Progress:
    """The result of one update. Numbers stay on the device until they are read."""

    step: int
    position: Position  # of the next batch
    fraction: float  # of the run completed
    rate: float
    count: float
    total: Tensor  # the loss, summed over `count`
    norm: Tensor  # of the gradient, before clipping
    rows: tuple[int, ...]
    ends_epoch: bool

    @property
    def loss(self) -> float:
        return float(self.total) / self.count


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
    carried: State = None  # recurrent state for the next batch, in truncated BPTT
    speedup_failure: str = ""  # why compiling or CUDA graphs were given up
    parallel: Parallel | None = None  # computes gradients together with other processes
    decay_left: float | None = None  # of the learning rate, if time is short (see Schedule)

    @classmethod
    def fresh(
        cls, model: nn.Module, settings: Settings, parallel: Parallel | None = None
    ) -> "TrainState":
        ema = None
        if settings.ema_decay > 0:
            ema = {n: p.detach().clone() for n, p in model.named_parameters()}
        return cls(model, build_optimisers(model, settings), ema=ema, parallel=parallel)

    def trained_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the optimisers update, in the model's order."""
        groups = (group for optimiser in self.optimisers for group in optimiser.param_groups)
        trained = {id(p) for group in groups for p in group["params"]}
        return [p for p in self.model.parameters() if id(p) in trained]

    def zero_grads(self) -> None:
        """Drop all gradients."""
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
