"""Gradients of predicted tokens: how ∂loss_t/∂state falls with the distance from t, by layer.

B rows   T steps   H width of a state   F feature width   W sub-tokens of a token
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import LabelledBatch, Padded
from weft.batch.mlm_collator import MLMLabels
from weft.config import section_kinds
from weft.decode.decoders.elmo import BiLM
from weft.decode.decoders.language_models import BidirectionalLM, FeedForwardLM, RecurrentLM
from weft.decode.decoders.transformer import TransformerDecoder
from weft.decode.heads.lm import MASK_ID
from weft.embed.contextual import TransformerEmbedder
from weft.encode.rnn import Recurrent
from weft.model import Model
from weft.model.compositions import EncoderModel, LanguageModel, MaskedLanguageModel
from weft.protocols import LanguageModelDecoder
from weft.runtime import Runtime
from weft.tasks.task import AnyTask
from weft.train.gradients.measure import (
    ForwardTrace,
    encoder_cell,
    eval_with_gradients,
    layer_statistics,
    median_by_distance,
    output_tensor,
    parameter_norm,
    vector_norms,
)
from weft.train.gradients.verdict import Curve, Evidence, GradientHealth, interpret

MAX_ROWS, MAX_STEPS, MAX_TOKENS = 64, 256, 8192  # of the sampled batch


@dataclass
class PredictionTrace:
    """One predicted token per row: its loss, and the states that lead to it.

    `near` counts the steps, in the order a direction reads them, up to the state that is nearest
    to the prediction. `both` has the row lengths for states on both sides of it.
    """

    loss: Tensor  # () summed over rows
    states: dict[str, list[Tensor]] = field(default_factory=dict)  # one (B, T, H), or T of (B, H)
    near: dict[str, Tensor] = field(default_factory=dict)  # (B,)
    both: dict[str, Tensor] = field(default_factory=dict)  # (B,)


def examine_predictions(
    model: Model,
    task: AnyTask,
    batch: LabelledBatch,
    runtime: Runtime,
    step: int = 0,
    before: dict[str, Tensor] | None = None,
    clip: float = 0.0,
    start: Mapping[str, Curve] = {},
) -> GradientHealth:
    """Diagnose a language model or masked model on a batch; everything stays unchanged.

    A causal model predicts the last token of each row, one that reads both sides a token in the
    middle. Dropout is off, precision is full. See `examine` for the others.
    """
    batch = batch.to(runtime.device)
    with eval_with_gradients(model, runtime):
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        result = task.loss(model(batch.source), batch)
        grads = torch.autograd.grad(result.total, list(named.values()), allow_unused=True)
        traces = _trace(model, batch)
        distances, flow = _measure(traces)
    count = max(result.count, 1)
    gradients = {
        name: parameter_norm(g) / count for name, g in zip(named, grads, strict=True)
    }  # fmt: skip
    layers = layer_statistics(
        model, dict(model.named_parameters()), gradients, before, _bounded_units(model, traces)
    )
    evidence = Evidence(
        layers=layers,
        distances=distances,
        flow=flow,
        loss=float(result.total.detach()) / count,
        norm=math.sqrt(sum(float(g) ** 2 for g in gradients.values())),
        clip=clip,
        encoder=_network_kind(model),
        cell=memory_cell(model),
        pool="",
        direct=False,
        predicts=True,
        attends=_attends(model),
        start=start,
        window=batch.source.data.shape[1],
    )
    return GradientHealth(step, layers, distances, *interpret(evidence), dict(start))


def _measure(traces: list[PredictionTrace]) -> tuple[dict[str, Curve], dict[str, float]]:
    """Return the gradient by distance of each track, and the strength at each layer."""
    distances: dict[str, Curve] = {}
    flow: dict[str, float] = {}
    for trace in traces:
        flat = [state for states in trace.states.values() for state in states]
        grads = iter(torch.autograd.grad(trace.loss, flat, allow_unused=True))
        for name, states in trace.states.items():
            parts = [vector_norms(next(grads), state) for state in states]
            stepwise = len(states) > 1 or parts[0].ndim == 1
            norms = np.stack([part.ravel() for part in parts], 1) if stepwise else parts[0]
            if name.startswith("layer") and not name.endswith("cell"):
                flow[name] = float(np.median(np.sqrt((norms**2).sum(1))))
            near = trace.near[name]
            if name in trace.both:
                norms, near = _fold_sides(norms, near - 1, trace.both[name])
            distances[name] = median_by_distance(norms, near)
    return distances, flow


def _fold_sides(norms: np.ndarray, at: Tensor, lengths: Tensor) -> tuple[np.ndarray, Tensor]:
    """Return the steps left of `at` and those right of it, reversed, as rows that end there."""
    out, sizes = np.zeros((2 * len(norms), norms.shape[1])), []
    for i, (row, position, length) in enumerate(
        zip(norms, at.tolist(), lengths.tolist(), strict=True)
    ):
        for j, side in enumerate((row[: position + 1], row[position:length][::-1])):
            out[2 * i + j, : len(side)] = side
            sizes.append(len(side))
    return out, torch.tensor(sizes)


def _trace(model: Model, batch: LabelledBatch) -> list[PredictionTrace]:
    """Run the model with every state as a tensor of its own, and predict one token per row."""
    if isinstance(model, MaskedLanguageModel):
        return [_trace_masked(model, batch)]
    assert isinstance(model, LanguageModel)
    decoder = model.head.decoder
    if isinstance(decoder, BiLM):
        data, target = batch.source.data, batch.target  # (B, T, 2, 1+W), (B, T, 2)
        run = (decoder.features, decoder.backward_features)
        sides = [batch.source.with_data(data[:, :, side]) for side in range(2)]
        return [
            _trace_elmo(decoder, run[side], sides[side], target[:, -1, side], name)
            for side, name in enumerate((" forward", " backward"))
        ]
    if isinstance(decoder, BidirectionalLM):
        return [_trace_bidirectional(decoder, batch)]
    with _capture(_modules(decoder)) as captured:
        if isinstance(decoder, RecurrentLM):
            features, states = decoder.unroll(batch.source)
        else:
            features, states = decoder.features(batch.source), {}
    states = {**states, **captured}
    loss = _token_loss(decoder, features[:, -1], batch.target[:, -1])
    near = {name: _steps_in(steps, batch.source) for name, steps in states.items()}
    return [PredictionTrace(loss, states, near)]


def _steps_in(states: list[Tensor], source: Padded) -> Tensor:
    """Return the steps (B,) of each row; an n-gram model also reads padding in front."""
    steps = len(states) if len(states) > 1 or states[0].dim() == 2 else states[0].shape[1]
    return torch.full((len(source),), steps)


def _modules(decoder: LanguageModelDecoder) -> dict[str, nn.Module]:
    """Return the modules whose outputs are states: the embedding and Transformer blocks."""
    assert isinstance(decoder, (FeedForwardLM, RecurrentLM, TransformerDecoder))
    modules: dict[str, nn.Module] = {"input": decoder.words.table}
    if isinstance(decoder, TransformerDecoder):
        modules |= {f"layer {i + 1}": block for i, block in enumerate(decoder.blocks)}
    return modules


def _trace_bidirectional(decoder: BidirectionalLM, batch: LabelledBatch) -> PredictionTrace:
    """Predict the middle word of each row; a decoder that would see it gets a mask there."""
    source, T = batch.source, batch.source.data.shape[1]
    at, skipped = T // 2, int(not decoder.needs_masking)
    if decoder.needs_masking:
        data = source.data.clone()
        data[:, at] = MASK_ID
        source = source.with_data(data)
    with _capture({"input": decoder.words.table}) as captured:
        features, states = decoder.unroll(source)
    loss = _token_loss(decoder, features[:, at], batch.target[:, at])
    ends = {name: T - at if "backward" in name else at + 1 for name in states}
    near = {name: torch.full((len(source),), end - skipped) for name, end in ends.items()}
    near["input"] = torch.full((len(source),), at + 1)
    return PredictionTrace(loss, states | captured, near, {"input": source.lengths})


def _trace_elmo(
    decoder: BiLM,
    features: Callable[[Padded], Tensor],
    source: Padded,
    target: Tensor,
    side: str,
) -> PredictionTrace:
    """Predict the last token of each row in one direction; its memory is in the cells."""
    states: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Callable[[nn.Module, object, tuple[Tensor, list[Tensor]]], None]:
        def hook(module: nn.Module, inputs: object, out: tuple[Tensor, list[Tensor]]) -> None:
            states[name] = list(out[1])  # T of (1, B, H)

        return hook

    with contextlib.ExitStack() as hooks:
        for i, layer in enumerate(decoder.network.layers):
            handle = layer.register_forward_hook(keep(f"layer {i + 1}{side} cell"))
            hooks.callback(handle.remove)
        last = features(source)[:, -1]  # (B, F)
    loss = _token_loss(decoder, last, target)
    near = {name: torch.full((len(source),), len(steps)) for name, steps in states.items()}
    return PredictionTrace(loss, states, near)


def _trace_masked(model: MaskedLanguageModel, batch: LabelledBatch) -> PredictionTrace:
    """Predict of each row the masked token that is nearest to its middle."""
    source, labels = batch.source, MLMLabels.of(batch.target)
    lengths = source.lengths
    far = (labels.positions.cpu() - lengths[:, None] // 2).abs()  # (B, M)
    chosen = far.masked_fill(labels.positions.cpu() < 0, 10**9).argmin(1)  # (B,)
    rows = torch.arange(len(source))
    at = labels.positions.cpu()[rows, chosen].clamp(min=0)  # (B,)
    target = labels.ids[rows.to(labels.ids.device), chosen.to(labels.ids.device)]  # (B,)
    modules: dict[str, nn.Module] = {}
    for part in model.embedders:
        if isinstance(part, TransformerEmbedder):
            modules |= {"input": part.table}
            modules |= {f"layer {i + 1}": block for i, block in enumerate(part.blocks)}
    with _capture(modules) as captured:
        embedded = model.embed(source)
        if isinstance(model.encoder, Recurrent):
            encoded, states = model.encoder.unroll(embedded)
        else:
            encoded, states = model.encode(embedded), {}
    if not captured:
        captured["input"] = [embedded.data]
    device = encoded.data.device
    found = model.head.logps(encoded.data[rows.to(device), at.to(device)])  # (B, V)
    valid = target >= 0
    loss = F.nll_loss(found[valid], target[valid], reduction="sum")
    if isinstance(model.encoder, Recurrent):
        near = {n: lengths - at if "backward" in n else at + 1 for n in states}
        return PredictionTrace(loss, states, near)
    near, both = dict.fromkeys(captured, at + 1), dict.fromkeys(captured, lengths)
    return PredictionTrace(loss, captured, near, both)


@contextlib.contextmanager
def _capture(modules: dict[str, nn.Module]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the outputs (B, T, H) of modules, as they are computed."""
    captured: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, out: object) -> None:
            tensor = output_tensor(out)
            if tensor is not None and tensor.requires_grad:
                captured[name] = [tensor]

        return hook

    with contextlib.ExitStack() as hooks:
        for name, module in modules.items():
            hooks.callback(module.register_forward_hook(keep(name)).remove)
        yield captured


def _token_loss(decoder: LanguageModelDecoder, features: Tensor, target: Tensor) -> Tensor:
    """Return the summed loss of one token per row, from features (B, F)."""
    words = decoder.words
    return F.cross_entropy(F.linear(features, words.weight, words.bias), target, reduction="sum")


def _bounded_units(model: Model, traces: list[PredictionTrace]) -> ForwardTrace:
    """Return the states of Elman layers as values of tanh, to see how many are saturated."""
    out = ForwardTrace()
    if memory_cell(model) == "rnn":
        for trace in traces:
            for name, states in trace.states.items():
                if name.startswith("layer"):
                    out.units[name] = [(nn.Tanh(), torch.stack(states, 1).detach())]
    return out


def _network_kind(model: Model) -> str:
    part = "decoder" if model.traits.is_lm else "encoder"
    return "+".join(section_kinds(model.parts[part]))


def memory_cell(model: Model) -> str:
    """Return the recurrent cell that carries the memory from step to step, or ""."""
    if isinstance(model, EncoderModel):
        return "" if model.traits.is_bi_encoder else encoder_cell(model.encoder)
    if not isinstance(model, LanguageModel):
        return ""
    decoder = model.head.decoder
    if isinstance(decoder, BidirectionalLM):
        first = decoder.nets[0]
        assert isinstance(first, Recurrent)
        return first.cell
    if isinstance(decoder, RecurrentLM):
        return decoder.cell
    return "lstm" if isinstance(decoder, BiLM) else ""


def _attends(model: Model) -> bool:
    """Return True if attention connects every step with the prediction."""
    if isinstance(model, MaskedLanguageModel):
        return model.encoder.has_attention or any(
            isinstance(part, TransformerEmbedder) for part in model.embedders
        )
    return isinstance(model.head.decoder, TransformerDecoder)
