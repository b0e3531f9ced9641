"""Gradient diagnostics: how strongly gradients reach each layer and each step of a text.

B rows   T steps   H width of a state   R steps of a layer, T but for strides and [CLS]
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import LabelledBatch, Padded, TokenStore, labelled_batch
from weft.config import section_kinds
from weft.embed.contextual import Contextual
from weft.embed.elmo import Elmo
from weft.encode.cnn import Convolution
from weft.encode.mlp import MLP
from weft.encode.rnn import Recurrent
from weft.encode.stack import encoder_members
from weft.model import EncoderModel
from weft.model.compositions import JointPairModel
from weft.runtime import Runtime
from weft.tasks.task import AnyTask
from weft.train.gradients.measure import (
    BOUNDED,
    ForwardHook,
    ForwardTrace,
    LayerActivations,
    count_layers,
    encoder_cell,
    encoder_layers,
    eval_with_gradients,
    gradient_norms,
    layer_name,
    layer_statistics,
    median_by_distance,
    output_tensor,
    parameter_norm,
    vector_norms,
)
from weft.train.gradients.verdict import Curve, Evidence, GradientHealth, interpret

TANH_CELLS = ("rnn", "tanh-sum")  # whose states are values of tanh
MAX_ROWS, MAX_STEPS, MAX_ROW_STEPS = 64, 8192, 256  # of the sampled batch


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
    start: Mapping[str, Curve] = {},
) -> GradientHealth:
    """Diagnose the gradients of a batch; model, gradients and random state stay unchanged.

    Dropout is off, precision is full, and rows are truncated to 256 steps. `before` holds the
    weights before the last update, `clip` is the maximum gradient norm of training, and `start`
    has the curves before the first update.
    """
    batch = _truncate(batch).to(runtime.device)
    count = max(batch.count, 1)
    with eval_with_gradients(model, runtime):
        trace, embedded, states, loss = _forward(model, task, batch)
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        parameters = dict(model.named_parameters())
        inner = [state for track in trace.tracks.values() for state in track.states]
        inputs = [embedded, states, *inner, *(parameters[name] for name in names)]
        grads = torch.autograd.grad(loss, inputs, allow_unused=True)
    outer, rest = grads[:2], iter(grads[2:])
    norms = {name: gradient_norms(track, rest) for name, track in trace.tracks.items()}
    gradients = {
        name: parameter_norm(gradient) / count for name, gradient in zip(names, rest, strict=True)
    }
    lengths = batch.source.lengths
    second = batch.source.second if model.traits.is_bi_encoder else None
    distances = {
        name: median_by_distance(*_split_pairs(norms[name], track.lengths, second), track.stride)
        for name, track in trace.tracks.items()
    }
    distances["input"] = median_by_distance(
        *_split_pairs(vector_norms(outer[0], embedded), lengths, second)
    )
    layers = layer_statistics(model, parameters, gradients, before, trace)
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
        encoder="+".join(section_kinds(model.parts["encoder"])),
        cell=encoder_cell(model.encoder),
        pool=model.traits.pooling,
        direct=_pool_reads_inner_steps(vector_norms(outer[1], states)),
        context=_contextual_embedder(model),
        start=start,
    )
    return GradientHealth(step, layers, distances, *interpret(evidence), dict(start))


def _contextual_embedder(model: EncoderModel) -> str:
    """Return the kind of the contextual embedder, or ""."""
    specs = model.parts["embedder"]
    kinds = [spec["kind"] for spec in (specs if isinstance(specs, list) else [specs])]
    pairs = zip(kinds, model.embedders, strict=True)
    return next((kind for kind, e in pairs if isinstance(e, (Contextual, Elmo))), "")


def _split_pairs(
    norms: np.ndarray, lengths: Tensor, second: Tensor | None
) -> tuple[np.ndarray, Tensor]:
    """Split rows of two texts into rows of one: distances are within a text."""
    if second is None:
        return norms, lengths
    sides = Padded(torch.from_numpy(norms), lengths, second=second).split_pair()
    wide = [np.pad(s.data.numpy(), ((0, 0), (0, norms.shape[1] - s.data.shape[1]))) for s in sides]
    return np.concatenate(wide), torch.cat([side.lengths for side in sides])


def _truncate(batch: LabelledBatch) -> LabelledBatch:
    """Truncate long rows."""
    x = batch.source
    if x.data.shape[1] <= MAX_ROW_STEPS or x.second is not None:  # the second text would be lost
        return batch
    pieces = tuple(piece[:, :MAX_ROW_STEPS] for piece in x.subtokens)
    source = Padded(x.data[:, :MAX_ROW_STEPS], x.lengths.clamp(max=MAX_ROW_STEPS), pieces)
    return replace(batch, source=source)


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
        if model.traits.is_bi_encoder:
            states = model.encode(embedded)
        else:
            states = _encode(model, embedded, trace)
        if not trace.tracks:
            track = _as_activations(model, batch.source, states.data)
            trace.tracks = {"layer 1": track} if track else {}
        vector, _ = model.pool_states(states)
        loss = task.loss(model.apply_head(vector, batch.source), batch).total
    return trace, embedded.data, states.data, loss


def _encode(model: EncoderModel, embedded: Padded, trace: ForwardTrace) -> Padded:
    """Encode one text, or two in a row; recurrent encoders are unrolled, step by step."""
    x = embedded
    if isinstance(model, JointPairModel) and x.second is not None:
        x = model.pair(x)
    below, stride = 0, 1
    for member in encoder_members(model.encoder):
        if isinstance(member, Recurrent):
            states, steps_by_layer = member.unroll(x)
            for name, steps in steps_by_layer.items():
                _, number, *rest = name.split(" ")
                name = " ".join(["layer", str(int(number) + below), *rest])
                trace.tracks[name] = LayerActivations(steps, x.lengths, stride)
                if member.cell in TANH_CELLS:
                    values = torch.stack([s.detach() for s in steps], dim=1)[x.mask]
                    trace.units[name] = [(nn.Tanh(), values)]
        else:
            states = member(x)
        x, below, stride = states, below + count_layers(member), stride * member.stride
    return x


def _register_hooks(
    model: EncoderModel, source: Padded, trace: ForwardTrace
) -> Iterator[Callable[[], None]]:
    """Capture the outputs of encoder layers and activations; yield what removes each hook."""

    def layer(below: int) -> Callable[[nn.Module, object, object], None]:
        captured: list[int] = []

        def hook(module: nn.Module, inputs: object, out: object) -> None:
            track = _as_activations(model, source, output_tensor(out))
            if track is not None:
                captured.append(1)
                trace.tracks[f"layer {below + len(captured)}"] = track

        return hook

    def activation(name: str, below: int | None) -> ForwardHook:
        calls: list[int] = []

        def hook(module: nn.Module, inputs: object, out: Tensor) -> None:
            calls.append(1)
            group = layer_name(model, name) if below is None else f"layer {below + len(calls)}"
            track = _as_activations(model, source, out)
            values = out.detach() if track is None else out.detach()[_step_mask(track, out)]
            trace.units.setdefault(group, []).append((module, values))

        return hook

    shared: dict[nn.Module, int] = {}  # one activation module that serves all layers in turn
    below, members = 0, encoder_members(model.encoder)
    for member in members:
        assert isinstance(member, nn.Module)
        layers = encoder_layers(member)
        if isinstance(member, MLP):  # a linear layer is half a layer: its activation is the other
            shared[member.activation] = below
            layers = [member.activation]
        elif not layers and len(members) > 1 and not isinstance(member, Recurrent):
            layers = [member]
        hook = layer(below)
        for module in layers:
            yield module.register_forward_hook(hook).remove
        below += count_layers(member)
    for name, module in model.named_modules():
        if isinstance(module, (nn.ReLU, *BOUNDED)):
            hook_ = activation(name, shared.get(module))
            yield module.register_forward_hook(hook_).remove


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
    for layer in [None, *encoder_layers(model.get_submodule("encoder"))]:
        stride *= layer.stride if isinstance(layer, Convolution) else 1
        if -(-T // stride) == R:
            return LayerActivations([states], (source.lengths + stride - 1) // stride, stride)
    return None


def _step_mask(track: LayerActivations, states: Tensor) -> Tensor:
    """Return a mask (B, R), True at real steps."""
    steps = torch.arange(states.shape[1], device=states.device)
    return steps < (track.lengths + track.leading).to(states.device)[:, None]


def _pool_reads_inner_steps(norms: np.ndarray) -> bool:
    """Return True if the pool passes gradients to steps between the first and the last."""
    return bool((norms[:, 1:] > 0).sum(1).max(initial=0) > 1)
