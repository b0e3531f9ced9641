"""Optimisers: torch's own, chosen by name."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from weft.errors import UserError
from weft.train.settings import Settings

RATE_FACTOR = "factor"  # of a group of parameters: how much faster than the rest it learns


def build_optimisers(model: nn.Module, settings: Settings) -> list[Optimizer]:
    """Optimisers for dense parameters and sparse tables, apart where their rates are."""
    sparse = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.sparse
    }
    biases = {id(p) for name, p in model.named_parameters() if name.split(".")[-1] == "bias"}
    learned = [p for p in model.parameters() if p.requires_grad]
    if not 0 < settings.layer_decay <= 1:
        raise UserError(
            f"train.layer_decay should be above 0 and at most 1, got {settings.layer_decay}."
        )
    if settings.unfreeze_epochs < 0:
        raise UserError(
            f"train.unfreeze_epochs should be 0 or more, got {settings.unfreeze_epochs}."
        )
    for name, usual in (("layer_decay", 1), ("unfreeze_epochs", 0)):
        if getattr(settings, name) != usual and not layer_groups(model):
            raise UserError(
                f"train.{name} is for the layers of a network such as BERT, and this model reads "
                f"words without one. Leave it at {usual}, or give --pretrained."
            )
    if not learned:
        raise UserError("Nothing to train: every parameter is frozen. Remove frozen = true.")
    out = []
    for factor, some in _group_by_rate(model, learned, settings):
        dense = [p for p in some if id(p) not in sparse]
        tables = [p for p in some if id(p) in sparse]
        made = [_dense_optimiser(dense, biases, settings)] if dense else []
        made += [_sparse_optimiser(tables, settings)] if tables else []
        for optimiser in made:
            for group in optimiser.param_groups:
                group[RATE_FACTOR] = factor
        out += made
    return out


def _group_by_rate(
    model: nn.Module, learned: list[nn.Parameter], settings: Settings
) -> list[tuple[float, list[nn.Parameter]]]:
    """Parameters that learn alike, with how much faster than `learning_rate` they do."""
    rates = {"embedders": settings.embedder_learning_rate, "head": settings.head_learning_rate}
    factors: dict[int, float] = {}  # of a parameter, by its id
    for name, own in rates.items():
        part = getattr(model, name, None)
        if own and part is not None:
            factors |= {id(p): own / settings.learning_rate for p in part.parameters()}
    for below, level in enumerate(reversed(layer_groups(model))):
        for p in level:
            factors[id(p)] = factors.get(id(p), 1.0) * settings.layer_decay**below
    found: dict[float, list[nn.Parameter]] = {}
    for p in learned:
        found.setdefault(factors.get(id(p), 1.0), []).append(p)
    return list(found.items())


def layer_groups(model: nn.Module) -> list[list[nn.Parameter]]:
    """The layers of its pre-trained embedders from the lowest to the highest, side by side."""
    own = [e.layer_groups() for e in getattr(model, "embedders", ()) if hasattr(e, "layer_groups")]
    most = max(map(len, own), default=0)
    # Counted from the top, where they end together.
    padded = [[[]] * (most - len(some)) + some for some in own]
    return [[p for level in side for p in level] for side in zip(*padded, strict=True)]


class Unfreezing:
    """Lets the layers of a pre-trained embedder learn one after the other, from the top down.

    Only those that are `learned` at all are let: what is frozen for good stays so.
    """

    def __init__(self, model: nn.Module, learned: Iterable[nn.Parameter], every: float):
        self.every = every
        known, some = set(map(id, learned)), layer_groups(model) if every else []
        self.levels = [[p for p in level if id(p) in known] for level in reversed(some)]
        self.open = len(self.levels)
        if self.levels:
            self.until(0.0)

    def until(self, epochs: float) -> None:
        """What learns after so many epochs."""
        now = min(int(epochs / self.every), len(self.levels)) if self.levels else self.open
        if now != self.open:
            self.open = now
            for i, level in enumerate(self.levels):
                for p in level:
                    p.requires_grad_(i < now)


def _dense_optimiser(
    parameters: list[nn.Parameter], biases: set[int], settings: Settings
) -> Optimizer:
    # Fused: on one core, a step over a table of 8,000 × 300 takes 4 ms instead of 33.
    rate, decay, betas = settings.learning_rate, settings.weight_decay, (0.9, settings.beta2)
    match settings.optimiser:
        case "sgd":
            momentum = settings.momentum
            # Fused, it cannot take in parameters that begin to learn later.
            fused = not settings.unfreeze_epochs
            return torch.optim.SGD(parameters, rate, momentum, weight_decay=decay, fused=fused)
        case "adagrad":
            return torch.optim.Adagrad(parameters, rate, weight_decay=decay)
        case "adam":
            return torch.optim.Adam(parameters, rate, betas, weight_decay=decay, fused=True)
        case _:
            # Decay is meant for matrices; shrinking biases and norms only costs accuracy. Biases of
            # two directions in one, as ELMo's, look like a matrix.
            small = {id(p) for p in parameters if p.dim() <= 1 or id(p) in biases}
            groups = [
                {"params": [p for p in parameters if id(p) not in small], "weight_decay": decay},
                {"params": [p for p in parameters if id(p) in small], "weight_decay": 0.0},
            ]
            return torch.optim.AdamW([g for g in groups if g["params"]], rate, betas, fused=True)


def _sparse_optimiser(parameters: list[nn.Parameter], settings: Settings) -> Optimizer:
    match settings.optimiser:
        case "sgd":
            return torch.optim.SGD(parameters, settings.learning_rate)
        case "adagrad":
            return torch.optim.Adagrad(parameters, settings.learning_rate)
        case _:
            return torch.optim.SparseAdam(parameters, settings.learning_rate, (0.9, settings.beta2))


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Shorten the gradient to `longest` if it is longer; give back how long it was."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    # A sparse gradient lists a row once per use; only the sum over uses has the right length.
    values = [g.coalesce().values() if g.is_sparse else g for g in gradients]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(values)))
    if max_norm > 0 and not (norm.is_cpu and norm <= max_norm):  # on a GPU, looking would wait
        shrink = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_([g._values() if g.is_sparse else g for g in gradients], shrink)
    return norm
