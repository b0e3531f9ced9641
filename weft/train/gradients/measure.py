"""Measurements behind gradient diagnostics: states with their gradients, layers with theirs.

B rows   T steps   H width of a state   R steps of a layer, T but for strides and [CLS]
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.encode.rnn import DIRECTION_NAMES, Recurrent
from weft.encode.stack import EncoderStack, encoder_members
from weft.model import Model
from weft.protocols import Encoder
from weft.runtime import Runtime
from weft.train.gradients.verdict import Curve

MIN_MEDIAN_ROWS = 5  # fewer only if the batch has fewer
ForwardHook = Callable[[nn.Module, object, Tensor], None]  # module, inputs, output
BOUNDED: dict[type[nn.Module], tuple[float, float]] = {nn.Tanh: (-1, 1), nn.Sigmoid: (0, 1)}
BLOCK = re.compile(r"(?:^|\.)(?:blocks|layers)\.(\d+)(?:\.|$)")  # of a Transformer or ELMo
RNN_WEIGHT = re.compile(r"(?:nets\.(\d)\.)?net\.\w+_l(\d+)(_reverse)?$")
SATURATION_MARGIN = 0.005  # of the range: a tanh beyond ±0.99


@dataclass(frozen=True)
class LayerActivations:
    """The states of one layer; its steps are `stride` steps of the text apart."""

    states: list[Tensor]  # one (B, R, H), or R of (B, H)
    lengths: Tensor  # (B,)
    stride: int = 1
    leading: int = 0  # steps before the text, such as [CLS]


@dataclass
class ForwardTrace:
    """Activations captured between a batch and its loss."""

    tracks: dict[str, LayerActivations] = field(default_factory=dict)
    units: dict[str, list[tuple[nn.Module, Tensor]]] = field(default_factory=dict)


def median_by_distance(norms: np.ndarray, lengths: Tensor, stride: int = 1) -> Curve:
    """Return the median of gradient norms (B, R) at each distance from the end of a row.

    Each row counts relative to its last step. Rows without a gradient there are left out, unless
    all are: then each counts relative to its largest. If only some rows have a gradient, max
    pooling chose other steps in the others, which has nothing to do with distance.
    """
    sizes, R = lengths.numpy(), norms.shape[1]
    if not R or not np.isfinite(norms).all():
        return []
    back = sizes[:, None] - 1 - np.arange(R)  # (B, R) the step at each distance from the end
    aligned = np.where(back >= 0, np.take_along_axis(norms, back.clip(0), 1), np.nan)
    unit = aligned[:, 0].copy()
    if not (unit > 0).any():
        unit = norms.max(1)
    usable = (sizes > 0) & (unit > 0)
    relative = aligned[usable] / unit[usable, None]
    fewest = min(MIN_MEDIAN_ROWS, len(relative))
    out: Curve = []
    for distance in range(R):
        values = relative[~np.isnan(relative[:, distance]), distance]
        if not len(values) or len(values) < fewest:
            break
        positive = values[values > 0]
        out.append(
            (distance * stride, float(f"{np.median(positive):.7g}") if len(positive) else 0.0)
        )
    return out


@contextlib.contextmanager
def eval_with_gradients(model: Model, runtime: Runtime) -> Iterator[None]:
    """Switch dropout off and gradients on; restore modes and random state afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    random = runtime.random_state()
    try:
        model.eval()
        for module, _ in modes:
            if isinstance(module, nn.RNNBase):
                module.training = True  # cuDNN runs its backward pass in training mode only
        with torch.enable_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        runtime.restore_random(random)


def output_tensor(out: object) -> Tensor | None:
    """Return the tensor of a module's output: itself, the first of a tuple, or padded data."""
    first = out[0] if isinstance(out, tuple) and out else out
    tensor = first.data if isinstance(first, Padded) else first
    return tensor if isinstance(tensor, Tensor) and tensor.is_floating_point() else None


def gradient_norms(track: LayerActivations, gradients: Iterator[Tensor | None]) -> np.ndarray:
    """Return the gradient norms (B, R) at the steps of the text."""
    parts = [vector_norms(next(gradients), state) for state in track.states]
    norms = parts[0] if parts[0].ndim == 2 else np.stack(parts, axis=1)
    return norms[:, track.leading :]


def vector_norms(gradient: Tensor | None, like: Tensor) -> np.ndarray:
    """Return the norms of vectors in the last axis."""
    if gradient is None:
        return np.zeros(like.shape[:-1])
    norms: Tensor = torch.linalg.vector_norm(gradient.double().cpu(), dim=-1)
    return norms.numpy()


def parameter_norm(gradient: Tensor | None) -> Tensor:
    """Return the norm of a gradient, dense or sparse."""
    if gradient is None:
        return torch.zeros(())
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    norm: Tensor = torch.linalg.vector_norm(values.float())
    return norm.cpu()


def layer_statistics(
    model: Model,
    parameters: dict[str, nn.Parameter],
    gradients: dict[str, Tensor],
    before: dict[str, Tensor] | None,
    trace: ForwardTrace,
) -> dict[str, dict[str, float | None]]:
    """Return gradient, weight norm, relative update and inactive units of each layer."""
    groups: dict[str, list[str]] = {}
    for name in parameters:
        groups.setdefault(layer_name(model, name), []).append(name)
    out: dict[str, dict[str, float | None]] = {}
    with torch.no_grad():
        for group, names in groups.items():
            current = [parameters[name] for name in names]
            old = [before[name] for name in names] if before is not None else []
            changes = [p - q for p, q in zip(current, old, strict=False)]
            change, size = _joint_norm(changes), _joint_norm(old)
            gradient = math.sqrt(sum(float(gradients.get(name, 0.0)) ** 2 for name in names))
            out[group] = {
                "gradient": _round(gradient),
                "weight": _round(_joint_norm(current)),
                "ratio": _round(change / size) if size else None,
                **_inactive_fractions(trace.units.get(group, [])),
            }
    return out


def _inactive_fractions(units: list[tuple[nn.Module, Tensor]]) -> dict[str, float | None]:
    """Return the fractions of dead units and of saturated activations."""
    zero = [(out.flatten(0, -2) == 0).all(0) for kind, out in units if isinstance(kind, nn.ReLU)]
    edge = []
    for kind, out in units:
        if type(kind) in BOUNDED:
            low, high = BOUNDED[type(kind)]
            margin = SATURATION_MARGIN * (high - low)
            edge.append(((out > high - margin) | (out < low + margin)).flatten())
    return {"dead": _true_fraction(zero), "saturated": _true_fraction(edge)}


def _true_fraction(flags: list[Tensor]) -> float | None:
    joined = torch.cat(flags) if flags else torch.zeros(0)
    return _round(float(joined.float().mean())) if len(joined) else None


def _joint_norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(torch.linalg.vector_norm(t.float())) ** 2 for t in tensors))


def _round(value: float) -> float | None:
    """Round to four digits; return None for NaN and infinity, which JSON lacks."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def layer_name(model: Model, name: str) -> str:
    """Return the readable name of the layer that a parameter or module belongs to."""
    part, *rest = name.split(".")
    if model.traits.is_lm:
        return _decoder_layer(name)
    if part == "embedders":
        if model.traits.is_mlm and (block := BLOCK.search(name)):
            return f"layer {int(block[1]) + 1}"
        several = len(model.embedders) > 1 and rest
        return f"embedder {int(rest[0]) + 1}" if several else "embedder"
    if part != "encoder":
        return part
    encoder = model.get_submodule("encoder")
    if not isinstance(encoder, EncoderStack):
        return _encoder_layer(encoder, rest) or "encoder"
    if len(rest) < 2:
        return "encoder"
    which = int(rest[1])  # "stack.0.layers.2": the first encoder of the stack
    below = sum(count_layers(member) for member in encoder.members[:which])
    inner = _encoder_layer(encoder.stack[which], rest[2:], below)
    return inner or f"encoder {which + 1}"


def _encoder_layer(encoder: nn.Module, names: list[str], below: int = 0) -> str:
    """Return the layer of a module of one encoder, over `below` layers; "" if it is in none."""
    if isinstance(encoder, Recurrent):
        if len(names) < 2 or names[0] != "net":
            return ""
        which, _, reverse = names[1].rpartition("_l")[2].partition("_")
        side = DIRECTION_NAMES[bool(reverse)] if encoder.directions == 2 else ""
        return f"layer {int(which) + 1 + below}{side}"
    if not encoder_layers(encoder):
        return f"layer {1 + below}"
    lists = {n for n, child in encoder.named_children() if isinstance(child, nn.ModuleList)}
    inside = len(names) > 1 and names[0] in lists
    return f"layer {int(names[1]) + 1 + below}" if inside else ""


def _decoder_layer(name: str) -> str:
    """Return the layer of a language model's parameter or module, such as "layer 2 backward"."""
    own = name.removeprefix("head.decoder.")
    if block := BLOCK.search(own):
        return f"layer {int(block[1]) + 1}"
    if weight := RNN_WEIGHT.search(own):
        net, layer, reverse = weight.groups()
        # "skip" has a net per direction, "mask" one net for both: only there is a reverse.
        side = "" if net is None else DIRECTION_NAMES[int(net) or bool(reverse)]
        return f"layer {int(layer) + 1}{side}"
    part = own.split(".")[0]
    return {"words": "words", "hidden": "layer 1"}.get(part, part)


def encoder_layers(encoder: nn.Module) -> Sequence[nn.Module]:
    """Return an encoder's layers if it keeps them in a list, else []; those of a stack in turn."""
    if isinstance(encoder, EncoderStack):
        return [layer for member in encoder.stack for layer in encoder_layers(member)]
    if isinstance(encoder, Recurrent):
        return []
    lists = [child for child in encoder.children() if isinstance(child, nn.ModuleList)]
    return list(lists[0]) if lists else []


def count_layers(encoder: object) -> int:
    """Return the number of layers of one encoder; one without a list of layers is one."""
    assert isinstance(encoder, nn.Module)
    if isinstance(encoder, Recurrent):
        return int(encoder.net.num_layers)
    return len(encoder_layers(encoder)) or 1


def encoder_cell(encoder: Encoder) -> str:
    """Return the cell of the topmost recurrent encoder, or ""."""
    members = reversed(encoder_members(encoder))
    return next((member.cell for member in members if isinstance(member, Recurrent)), "")
