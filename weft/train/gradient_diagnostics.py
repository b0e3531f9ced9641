"""How gradients reach the layers of a model and the steps of its texts, read on one batch.

B rows   T steps   H width of a state   R steps of a layer, T but for strides and [CLS]
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import LabelledBatch, Padded, TokenStore, labelled_batch
from weft.embed.contextual import Contextual
from weft.embed.elmo import Elmo
from weft.encode.rnn import DIRECTION_NAMES, Recurrent
from weft.model import Model
from weft.runtime import Runtime
from weft.tasks.task import Task
from weft.train.gradient_verdict import Curve, Evidence, GradientHealth, interpret

MAX_ROWS, MAX_STEPS, MAX_ROW_STEPS = (
    64,
    8192,
    256,
)  # rows, steps in all, and steps of a row that are looked at
MIN_MEDIAN_ROWS = 5  # rows that a median needs, where there are as many
BOUNDED: dict[type[nn.Module], tuple[float, float]] = {nn.Tanh: (-1, 1), nn.Sigmoid: (0, 1)}
SATURATION_MARGIN = 0.005  # of the range: beyond 0.99 of a tanh


@dataclass(frozen=True)
class LayerActivations:
    """States of one layer, whose steps are `stride` steps of the text apart."""

    states: list[Tensor]  # one (B, R, H), or R of (B, H)
    lengths: Tensor  # (B,)
    stride: int = 1
    leading: int = 0  # steps in front that are not the text's


@dataclass
class ForwardTrace:
    """What was caught on the way from a batch to its loss."""

    tracks: dict[str, LayerActivations] = field(default_factory=dict)
    units: dict[str, list[tuple[nn.Module, Tensor]]] = field(default_factory=dict)


def sample_batch(store: TokenStore) -> LabelledBatch:
    """Up to 64 training rows out of the longest third: always the same ones."""
    order = np.argsort(store.lengths, kind="stable")
    longest = order[-max(len(order) // 3, MAX_ROWS) :]
    steps = min(int(store.lengths[longest].max(initial=1)), MAX_ROW_STEPS)
    count = min(MAX_ROWS, max(MAX_STEPS // max(steps, 1), 1), len(longest))
    spread = np.linspace(0, len(longest) - 1, count).round().astype(np.int64)
    return labelled_batch(store, longest[spread])


def examine(
    model: Model,
    task: Task,
    batch: LabelledBatch,
    runtime: Runtime,
    step: int = 0,
    before: dict[str, Tensor] | None = None,
    clip: float = 0.0,
) -> GradientHealth:
    """Read the gradients of a batch's loss, leaving the model, its gradients and chance untouched.

    Dropout is off and numbers have full precision; rows are read up to 256 steps. `before` holds
    the weights before the last update, and `clip` the longest gradient that training allows.
    """
    batch = _truncate(batch).to(runtime.device)
    count = max(batch.count, 1)
    with _eval_with_gradients(model, runtime):
        trace, embedded, states, loss = _forward(model, task, batch)
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        parameters = dict(model.named_parameters())
        inner = [state for track in trace.tracks.values() for state in track.states]
        wanted = [embedded, states, *inner, *(parameters[name] for name in names)]
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
    heads, rest = found[:2], iter(found[2:])
    norms = {name: _gradient_norms(track, rest) for name, track in trace.tracks.items()}
    gradients = {name: _norm(gradient) / count for name, gradient in zip(names, rest, strict=True)}
    lengths, second = batch.source.lengths, batch.source.second if model.is_bi_encoder else None
    distances = {
        name: median_by_distance(*_split_pairs(norms[name], track.lengths, second), track.stride)
        for name, track in trace.tracks.items()
    }
    distances["input"] = median_by_distance(
        *_split_pairs(_vector_norms(heads[0], embedded), lengths, second)
    )
    layers = _layer_statistics(model, parameters, gradients, before, trace)
    encoder, parts = model.encoder, model.parts
    seen = Evidence(
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
        pool=model.pooling,
        direct=_pool_reads_inner_steps(_vector_norms(heads[1], states)),
        context=_contextual_embedder(model),
    )
    return GradientHealth(step, layers, distances, *interpret(seen))


def _contextual_embedder(model: Model) -> str:
    """The kind of the embedder that knows the context of every token; empty where none does."""
    specs = model.parts["embedder"]
    kinds = [spec["kind"] for spec in (specs if isinstance(specs, list) else [specs])]
    known = zip(kinds, model.embedders, strict=True)
    return next((kind for kind, one in known if isinstance(one, (Contextual, Elmo))), "")


def median_by_distance(norms: np.ndarray, lengths: Tensor, stride: int = 1) -> Curve:
    """(B, R) lengths of gradients as their median at each distance from a row's end.

    Each row counts relative to its own last step; rows that have no gradient there are left out
    unless all are, and then each counts relative to its largest. Where some rows have a gradient
    and others none, a maximum chose other steps of those: that is no matter of distance.
    """
    sizes, R = lengths.numpy(), norms.shape[1]
    if not R or not np.isfinite(norms).all():
        return []
    back = sizes[:, None] - 1 - np.arange(R)  # (B, R) the step that lies so far from the end
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
        some = values[values > 0]
        out.append((distance * stride, float(f"{np.median(some):.4g}") if len(some) else 0.0))
    return out


def _split_pairs(
    norms: np.ndarray, lengths: Tensor, second: Tensor | None
) -> tuple[np.ndarray, Tensor]:
    """Rows that hold two texts as rows of one each: a distance is one within a text."""
    if second is None:
        return norms, lengths
    sides = Padded(torch.from_numpy(norms), lengths, second=second).split_pair()
    wide = [np.pad(s.data.numpy(), ((0, 0), (0, norms.shape[1] - s.data.shape[1]))) for s in sides]
    return np.concatenate(wide), torch.cat([side.lengths for side in sides])


def find_non_finite(model: Model, task: Task, batch: LabelledBatch, runtime: Runtime) -> str | None:
    """The first part whose output, or failing that whose gradient, is not finite for a batch."""
    bad: list[str] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, given: Any, out: Any) -> None:
            tensor = _output_tensor(out)
            if tensor is not None and not bad and not torch.isfinite(tensor).all():
                bad.append(name)

        return hook

    batch = batch.to(runtime.device)
    names = {name: _layer_name(model, name) for name, _ in model.named_modules() if name}
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if name and not isinstance(module, nn.ModuleList):
                handle = module.register_forward_hook(watch(name))
                hooks.callback(handle.remove)
        with runtime.autocast():
            loss = task.loss(model(batch.source), batch).total
    if bad:
        return f"the output of {names[bad[0]]} ({bad[0]})"
    if not torch.isfinite(loss):
        return "the loss itself, though all scores are finite"
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    # Gradients are made from the last layer to the first.
    for name, gradient in reversed(list(zip(named, found, strict=True))):
        if not math.isfinite(float(_norm(gradient))):
            return f"the gradient of {_layer_name(model, name)} ({name})"
    return None


def _truncate(batch: LabelledBatch) -> LabelledBatch:
    """The first steps of rows that would take long."""
    x = batch.source
    if x.data.shape[1] <= MAX_ROW_STEPS or x.second is not None:  # the second text would be lost
        return batch
    pieces = tuple(piece[:, :MAX_ROW_STEPS] for piece in x.subtokens)
    source = Padded(x.data[:, :MAX_ROW_STEPS], x.lengths.clamp(max=MAX_ROW_STEPS), pieces)
    return replace(batch, source=source)


@contextlib.contextmanager
def _eval_with_gradients(model: Model, runtime: Runtime) -> Iterator[None]:
    """No dropout and gradients on; afterwards everything is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    chance = runtime.random_state()
    try:
        model.eval()
        for module, _ in modes:
            if isinstance(module, nn.RNNBase):
                module.training = True  # cuDNN goes back through time in training mode only
        with torch.enable_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        runtime.restore_random(chance)


def _forward(
    model: Model, task: Task, batch: LabelledBatch
) -> tuple[ForwardTrace, Tensor, Tensor, Tensor]:
    """The trace, the embedded text, the states that are pooled, and the loss."""
    trace = ForwardTrace()
    with contextlib.ExitStack() as hooks:
        for remove in _register_hooks(model, batch.source, trace):
            hooks.callback(remove)
        embedded = model.embed(batch.source)
        if not embedded.data.requires_grad:
            embedded.data.requires_grad_()
        if isinstance(model.encoder, Recurrent) and not model.is_bi_encoder:
            states, taken = model.encoder.unroll(embedded)
            for name, steps in taken.items():
                trace.tracks[name] = LayerActivations(steps, batch.source.lengths)
                if model.encoder.cell == "rnn":
                    kept = torch.stack([s.detach() for s in steps], dim=1)[embedded.mask]
                    trace.units[name] = [(nn.Tanh(), kept)]
        else:
            states = model.encode(embedded)
            if not trace.tracks:
                track = _as_activations(model, batch.source, states.data)
                trace.tracks = {"layer 1": track} if track else {}
        vector, _ = model.pool_states(states)
        loss = task.loss(model.apply_head(vector, batch.source), batch).total
    return trace, embedded.data, states.data, loss


def _register_hooks(model: Model, source: Padded, trace: ForwardTrace) -> Iterator[Any]:
    """Catch the outputs of an encoder's layers and of all activations; yields what undoes it."""
    layers = _layer_list(model.encoder)

    def layer(module: nn.Module, given: Any, out: Any) -> None:
        track = _as_activations(model, source, _output_tensor(out))
        if track is not None:
            trace.tracks[f"layer {len(trace.tracks) + 1}"] = track

    def activation(name: str) -> Any:
        calls: list[int] = []

        def hook(module: nn.Module, given: Any, out: Tensor) -> None:
            calls.append(1)
            # One activation may serve all layers in turn, as in the perceptron.
            shared = name == "encoder.activation" and bool(layers)
            group = f"layer {len(calls)}" if shared else _layer_name(model, name)
            track = _as_activations(model, source, out)
            kept = out.detach() if track is None else out.detach()[_step_mask(track, out)]
            trace.units.setdefault(group, []).append((module, kept))

        return hook

    # A bare matrix is half a layer: its activation is the other half.
    bare = bool(layers) and isinstance(layers[0], nn.Linear)
    own = getattr(model.encoder, "activation", None)
    for module in [own] if bare and isinstance(own, nn.Module) else layers:
        yield module.register_forward_hook(layer).remove
    for name, module in model.named_modules():
        if isinstance(module, (nn.ReLU, *BOUNDED)):
            yield module.register_forward_hook(activation(name)).remove


def _layer_list(encoder: nn.Module) -> Sequence[nn.Module]:
    """An encoder's layers, where it keeps them in a list."""
    if isinstance(encoder, Recurrent):
        return []
    lists = [child for child in encoder.children() if isinstance(child, nn.ModuleList)]
    return list(lists[0]) if lists else []


def _output_tensor(out: Any) -> Tensor | None:
    """The tensor in what a module gave: itself, the first of several, or a padded one's data."""
    first = out[0] if isinstance(out, tuple) and out else out
    found = first.data if isinstance(first, Padded) else first
    return found if isinstance(found, Tensor) and found.is_floating_point() else None


def _as_activations(model: Model, source: Padded, states: Tensor | None) -> LayerActivations | None:
    """The states (B, R, H) with what their steps mean for the text; None for anything else."""
    B, T = source.data.shape[:2]
    if states is None or states.dim() != 3 or len(states) != B:
        return None
    R, stride = states.shape[1], 1
    leading = getattr(model.encoder, "leading", 0)
    if leading and T + leading == R:
        return LayerActivations([states], source.lengths, leading=leading)
    for layer in [None, *_layer_list(model.encoder)]:
        stride *= getattr(layer, "stride", 1)
        if -(-T // stride) == R:
            return LayerActivations([states], (source.lengths + stride - 1) // stride, stride)
    return None


def _step_mask(track: LayerActivations, states: Tensor) -> Tensor:
    """True at real steps: (B, R)."""
    steps = torch.arange(states.shape[1], device=states.device)
    return steps < (track.lengths + track.leading).to(states.device)[:, None]


def _gradient_norms(track: LayerActivations, gradients: Iterator[Tensor | None]) -> np.ndarray:
    """(B, R) lengths of the gradients of a track, of the text's own steps."""
    found = [_vector_norms(next(gradients), state) for state in track.states]
    norms = found[0] if found[0].ndim == 2 else np.stack(found, axis=1)
    return norms[:, track.leading :]


def _vector_norms(gradient: Tensor | None, like: Tensor) -> np.ndarray:
    """The lengths of vectors in the last axis."""
    if gradient is None:
        return np.zeros(like.shape[:-1])
    return torch.linalg.vector_norm(gradient.double().cpu(), dim=-1).numpy()


def _pool_reads_inner_steps(norms: np.ndarray) -> bool:
    """Whether steps between the first and the last have a gradient of their own from the pool."""
    return bool((norms[:, 1:] > 0).sum(1).max(initial=0) > 1)


def _norm(gradient: Tensor | None) -> Tensor:
    """How long a gradient is."""
    if gradient is None:
        return torch.zeros(())
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return torch.linalg.vector_norm(values.float()).cpu()


def _layer_statistics(
    model: Model,
    parameters: dict[str, nn.Parameter],
    gradients: dict[str, Tensor],
    before: dict[str, Tensor] | None,
    trace: ForwardTrace,
) -> dict[str, dict[str, float | None]]:
    """Each group of weights with its size, gradient, last change and silent units."""
    groups: dict[str, list[str]] = {}
    for name in parameters:
        groups.setdefault(_layer_name(model, name), []).append(name)
    out: dict[str, dict[str, float | None]] = {}
    with torch.no_grad():
        for group, names in groups.items():
            kept = [parameters[name] for name in names]
            old = [before[name] for name in names] if before is not None else []
            changes = [p - q for p, q in zip(kept, old, strict=False)]
            change, size = _joint_norm(changes), _joint_norm(old)
            gradient = math.sqrt(sum(float(gradients.get(name, 0.0)) ** 2 for name in names))
            out[group] = {
                "gradient": _round(gradient),
                "weight": _round(_joint_norm(kept)),
                "ratio": _round(change / size) if size else None,
                **_inactive_fractions(trace.units.get(group, [])),
            }
    return out


def _inactive_fractions(units: list[tuple[nn.Module, Tensor]]) -> dict[str, float | None]:
    """Shares of units that are zero throughout, and of bounded values at their bounds."""
    zero = [(out.flatten(0, -2) == 0).all(0) for kind, out in units if isinstance(kind, nn.ReLU)]
    edge = []
    for kind, out in units:
        if type(kind) in BOUNDED:
            low, high = BOUNDED[type(kind)]
            margin = SATURATION_MARGIN * (high - low)
            edge.append(((out > high - margin) | (out < low + margin)).flatten())
    return {"dead": _true_fraction(zero), "saturated": _true_fraction(edge)}


def _true_fraction(found: list[Tensor]) -> float | None:
    every = torch.cat(found) if found else torch.zeros(0)
    return _round(float(every.float().mean())) if len(every) else None


def _joint_norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(torch.linalg.vector_norm(t.float())) ** 2 for t in tensors))


def _round(value: float) -> float | None:
    """Four digits; None for what is no number, which JSON cannot write."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _layer_name(model: Model, name: str) -> str:
    """The layer, in words, that a parameter or module belongs to."""
    part, *rest = name.split(".")
    if part == "embedders":
        several = len(model.embedders) > 1 and rest
        return f"embedder {int(rest[0]) + 1}" if several else "embedder"
    if part != "encoder":
        return part
    if isinstance(model.encoder, Recurrent):
        if not rest or rest[0] != "net" or len(rest) < 2:
            return "encoder"
        which, _, reverse = rest[1].rpartition("_l")[2].partition("_")
        side = DIRECTION_NAMES[bool(reverse)] if model.encoder.directions == 2 else ""
        return f"layer {int(which) + 1}{side}"
    layers = _layer_list(model.encoder)
    if not layers:
        return "layer 1"
    held = {n for n, child in model.encoder.named_children() if isinstance(child, nn.ModuleList)}
    return f"layer {int(rest[1]) + 1}" if len(rest) > 1 and rest[0] in held else "encoder"
