"""Gradient diagnostics: how strongly gradients reach each layer and each step of a text.

B rows   T steps   H width of a state   R steps of a layer, T but for strides and [CLS]
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import LabelledBatch, Padded, TokenStore, labelled_batch
from weft.embed.contextual import Contextual
from weft.embed.elmo import Elmo
from weft.encode.cnn import Convolution
from weft.encode.mlp import MLP
from weft.encode.rnn import DIRECTION_NAMES, Recurrent
from weft.model import EncoderModel, Model
from weft.runtime import Runtime
from weft.tasks.task import AnyTask
from weft.train.gradient_verdict import Curve, Evidence, GradientHealth, interpret

MAX_ROWS, MAX_STEPS, MAX_ROW_STEPS = 64, 8192, 256  # of the sampled batch
MIN_MEDIAN_ROWS = 5  # fewer only if the batch has fewer
ForwardHook = Callable[[nn.Module, object, Tensor], None]  # module, inputs, output
BOUNDED: dict[type[nn.Module], tuple[float, float]] = {nn.Tanh: (-1, 1), nn.Sigmoid: (0, 1)}
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


def sample_batch(store: TokenStore) -> LabelledBatch:
    """Return up to 64 training rows from the longest third, always the same ones."""
    order = np.argsort(store.lengths, kind="stable")
    longest = order[-max(len(order) // 3, MAX_ROWS) :]
    steps = min(int(store.lengths[longest].max(initial=1)), MAX_ROW_STEPS)
    count = min(MAX_ROWS, max(MAX_STEPS // max(steps, 1), 1), len(longest))
    spread = np.linspace(0, len(longest) - 1, count).round().astype(np.int64)
    return labelled_batch(store, longest[spread])


def examine(
    model: EncoderModel,
    task: AnyTask,
    batch: LabelledBatch,
    runtime: Runtime,
    step: int = 0,
    before: dict[str, Tensor] | None = None,
    clip: float = 0.0,
) -> GradientHealth:
    """Diagnose the gradients of a batch; model, gradients and random state stay unchanged.

    Dropout is off, precision is full, and rows are truncated to 256 steps. `before` holds the
    weights before the last update, and `clip` is the maximum gradient norm of training.
    """
    batch = _truncate(batch).to(runtime.device)
    count = max(batch.count, 1)
    with _eval_with_gradients(model, runtime):
        trace, embedded, states, loss = _forward(model, task, batch)
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        parameters = dict(model.named_parameters())
        inner = [state for track in trace.tracks.values() for state in track.states]
        inputs = [embedded, states, *inner, *(parameters[name] for name in names)]
        grads = torch.autograd.grad(loss, inputs, allow_unused=True)
    outer, rest = grads[:2], iter(grads[2:])
    norms = {name: _gradient_norms(track, rest) for name, track in trace.tracks.items()}
    gradients = {name: _norm(gradient) / count for name, gradient in zip(names, rest, strict=True)}
    lengths = batch.source.lengths
    second = batch.source.second if model.traits.is_bi_encoder else None
    distances = {
        name: median_by_distance(*_split_pairs(norms[name], track.lengths, second), track.stride)
        for name, track in trace.tracks.items()
    }
    distances["input"] = median_by_distance(
        *_split_pairs(_vector_norms(outer[0], embedded), lengths, second)
    )
    layers = _layer_statistics(model, parameters, gradients, before, trace)
    encoder, parts = model.encoder, model.parts
    evidence = Evidence(
        layers=layers,
        distances=distances,
        flow={
            name: float(np.median(np.sqrt((norms[name] ** 2).sum(1)))) / count
            for name in trace.tracks
            if not name.endswith("cell")
        },
        loss=float(loss.detach()) / count,
        norm=math.sqrt(sum(float(g) ** 2 for g in gradients.values())),
        clip=clip,
        encoder=parts["encoder"]["kind"],
        cell=encoder.cell if isinstance(encoder, Recurrent) else "",
        pool=model.traits.pooling,
        direct=_pool_reads_inner_steps(_vector_norms(outer[1], states)),
        context=_contextual_embedder(model),
    )
    return GradientHealth(step, layers, distances, *interpret(evidence))


def _contextual_embedder(model: EncoderModel) -> str:
    """Return the kind of the contextual embedder, or ""."""
    specs = model.parts["embedder"]
    kinds = [spec["kind"] for spec in (specs if isinstance(specs, list) else [specs])]
    pairs = zip(kinds, model.embedders, strict=True)
    return next((kind for kind, e in pairs if isinstance(e, (Contextual, Elmo))), "")


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
            (distance * stride, float(f"{np.median(positive):.4g}") if len(positive) else 0.0)
        )
    return out


def _split_pairs(
    norms: np.ndarray, lengths: Tensor, second: Tensor | None
) -> tuple[np.ndarray, Tensor]:
    """Split rows of two texts into rows of one: distances are within a text."""
    if second is None:
        return norms, lengths
    sides = Padded(torch.from_numpy(norms), lengths, second=second).split_pair()
    wide = [np.pad(s.data.numpy(), ((0, 0), (0, norms.shape[1] - s.data.shape[1]))) for s in sides]
    return np.concatenate(wide), torch.cat([side.lengths for side in sides])


def find_non_finite(
    model: Model, task: AnyTask, batch: LabelledBatch, runtime: Runtime
) -> str | None:
    """Return the first module whose output, else whose gradient, is not finite."""
    bad: list[str] = []

    def check(name: str) -> ForwardHook:
        def hook(module: nn.Module, inputs: object, out: object) -> None:
            tensor = _output_tensor(out)
            if tensor is not None and not bad and not torch.isfinite(tensor).all():
                bad.append(name)

        return hook

    batch = batch.to(runtime.device)
    names = {name: _layer_name(model, name) for name, _ in model.named_modules() if name}
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if name and not isinstance(module, nn.ModuleList):
                handle = module.register_forward_hook(check(name))
                hooks.callback(handle.remove)
        with runtime.autocast():
            loss = task.loss(model(batch.source), batch).total
    if bad:
        return f"the output of {names[bad[0]]} ({bad[0]})"
    if not torch.isfinite(loss):
        return "the loss itself, though all logits are finite"
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    # Gradients are computed from the last layer to the first.
    for name, gradient in reversed(list(zip(named, grads, strict=True))):
        if not math.isfinite(float(_norm(gradient))):
            return f"the gradient of {_layer_name(model, name)} ({name})"
    return None


def _truncate(batch: LabelledBatch) -> LabelledBatch:
    """Truncate long rows."""
    x = batch.source
    if x.data.shape[1] <= MAX_ROW_STEPS or x.second is not None:  # the second text would be lost
        return batch
    pieces = tuple(piece[:, :MAX_ROW_STEPS] for piece in x.subtokens)
    source = Padded(x.data[:, :MAX_ROW_STEPS], x.lengths.clamp(max=MAX_ROW_STEPS), pieces)
    return replace(batch, source=source)


@contextlib.contextmanager
def _eval_with_gradients(model: Model, runtime: Runtime) -> Iterator[None]:
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


def _forward(
    model: EncoderModel, task: AnyTask, batch: LabelledBatch
) -> tuple[ForwardTrace, Tensor, Tensor, Tensor]:
    """Return the trace, the embedded text, the states before pooling, and the loss."""
    trace = ForwardTrace()
    with contextlib.ExitStack() as hooks:
        for remove in _register_hooks(model, batch.source, trace):
            hooks.callback(remove)
        embedded = model.embed(batch.source)
        if not embedded.data.requires_grad:
            embedded.data.requires_grad_()
        if isinstance(model.encoder, Recurrent) and not model.traits.is_bi_encoder:
            states, steps_by_layer = model.encoder.unroll(embedded)
            for name, steps in steps_by_layer.items():
                trace.tracks[name] = LayerActivations(steps, batch.source.lengths)
                if model.encoder.cell == "rnn":
                    values = torch.stack([s.detach() for s in steps], dim=1)[embedded.mask]
                    trace.units[name] = [(nn.Tanh(), values)]
        else:
            states = model.encode(embedded)
            if not trace.tracks:
                track = _as_activations(model, batch.source, states.data)
                trace.tracks = {"layer 1": track} if track else {}
        vector, _ = model.pool_states(states)
        loss = task.loss(model.apply_head(vector, batch.source), batch).total
    return trace, embedded.data, states.data, loss


def _register_hooks(
    model: EncoderModel, source: Padded, trace: ForwardTrace
) -> Iterator[Callable[[], None]]:
    """Capture the outputs of encoder layers and activations; yield what removes each hook."""
    layers = _layer_list(model.get_submodule("encoder"))

    def layer(module: nn.Module, inputs: object, out: object) -> None:
        track = _as_activations(model, source, _output_tensor(out))
        if track is not None:
            trace.tracks[f"layer {len(trace.tracks) + 1}"] = track

    def activation(name: str) -> ForwardHook:
        calls: list[int] = []

        def hook(module: nn.Module, inputs: object, out: Tensor) -> None:
            calls.append(1)
            # One activation module may serve all layers in turn, as in the MLP encoder.
            shared = name == "encoder.activation" and bool(layers)
            group = f"layer {len(calls)}" if shared else _layer_name(model, name)
            track = _as_activations(model, source, out)
            values = out.detach() if track is None else out.detach()[_step_mask(track, out)]
            trace.units.setdefault(group, []).append((module, values))

        return hook

    # A linear layer is half a layer: its activation is the other half.
    bare = bool(layers) and isinstance(layers[0], nn.Linear)
    shared = model.encoder.activation if isinstance(model.encoder, MLP) else None
    for module in layers if shared is None or not bare else [shared]:
        yield module.register_forward_hook(layer).remove
    for name, module in model.named_modules():
        if isinstance(module, (nn.ReLU, *BOUNDED)):
            yield module.register_forward_hook(activation(name)).remove


def _layer_list(encoder: nn.Module) -> Sequence[nn.Module]:
    """Return an encoder's layers if it keeps them in a list, else []."""
    if isinstance(encoder, Recurrent):
        return []
    lists = [child for child in encoder.children() if isinstance(child, nn.ModuleList)]
    return list(lists[0]) if lists else []


def _output_tensor(out: object) -> Tensor | None:
    """Return the tensor of a module's output: itself, the first of a tuple, or padded data."""
    first = out[0] if isinstance(out, tuple) and out else out
    tensor = first.data if isinstance(first, Padded) else first
    return tensor if isinstance(tensor, Tensor) and tensor.is_floating_point() else None


def _as_activations(
    model: EncoderModel, source: Padded, states: Tensor | None
) -> LayerActivations | None:
    """Return states (B, R, H) with their alignment to the text; None for anything else."""
    B, T = source.data.shape[:2]
    if states is None or states.dim() != 3 or len(states) != B:
        return None
    R, stride = states.shape[1], 1
    leading = model.encoder.leading
    if leading and T + leading == R:
        return LayerActivations([states], source.lengths, leading=leading)
    for layer in [None, *_layer_list(model.get_submodule("encoder"))]:
        stride *= layer.stride if isinstance(layer, Convolution) else 1
        if -(-T // stride) == R:
            return LayerActivations([states], (source.lengths + stride - 1) // stride, stride)
    return None


def _step_mask(track: LayerActivations, states: Tensor) -> Tensor:
    """Return a mask (B, R), True at real steps."""
    steps = torch.arange(states.shape[1], device=states.device)
    return steps < (track.lengths + track.leading).to(states.device)[:, None]


def _gradient_norms(track: LayerActivations, gradients: Iterator[Tensor | None]) -> np.ndarray:
    """Return the gradient norms (B, R) at the steps of the text."""
    parts = [_vector_norms(next(gradients), state) for state in track.states]
    norms = parts[0] if parts[0].ndim == 2 else np.stack(parts, axis=1)
    return norms[:, track.leading :]


def _vector_norms(gradient: Tensor | None, like: Tensor) -> np.ndarray:
    """Return the norms of vectors in the last axis."""
    if gradient is None:
        return np.zeros(like.shape[:-1])
    norms: Tensor = torch.linalg.vector_norm(gradient.double().cpu(), dim=-1)
    return norms.numpy()


def _pool_reads_inner_steps(norms: np.ndarray) -> bool:
    """Return True if the pool passes gradients to steps between the first and the last."""
    return bool((norms[:, 1:] > 0).sum(1).max(initial=0) > 1)


def _norm(gradient: Tensor | None) -> Tensor:
    """Return the norm of a gradient, dense or sparse."""
    if gradient is None:
        return torch.zeros(())
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    norm: Tensor = torch.linalg.vector_norm(values.float())
    return norm.cpu()


def _layer_statistics(
    model: EncoderModel,
    parameters: dict[str, nn.Parameter],
    gradients: dict[str, Tensor],
    before: dict[str, Tensor] | None,
    trace: ForwardTrace,
) -> dict[str, dict[str, float | None]]:
    """Return gradient, weight norm, relative update and inactive units of each layer."""
    groups: dict[str, list[str]] = {}
    for name in parameters:
        groups.setdefault(_layer_name(model, name), []).append(name)
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


def _layer_name(model: Model, name: str) -> str:
    """Return the readable name of the layer that a parameter or module belongs to."""
    part, *rest = name.split(".")
    if part == "embedders":
        several = len(model.embedders) > 1 and rest
        return f"embedder {int(rest[0]) + 1}" if several else "embedder"
    if part != "encoder":
        return part
    encoder = model.get_submodule("encoder")
    if isinstance(encoder, Recurrent):
        if not rest or rest[0] != "net" or len(rest) < 2:
            return "encoder"
        which, _, reverse = rest[1].rpartition("_l")[2].partition("_")
        side = DIRECTION_NAMES[bool(reverse)] if encoder.directions == 2 else ""
        return f"layer {int(which) + 1}{side}"
    layers = _layer_list(encoder)
    if not layers:
        return "layer 1"
    lists = {n for n, child in encoder.named_children() if isinstance(child, nn.ModuleList)}
    return f"layer {int(rest[1]) + 1}" if len(rest) > 1 and rest[0] in lists else "encoder"
