"""Where a model looks: the weights of its pool, and of every head of every layer.

B rows   T steps   H hidden width   N heads   L layers
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.encode.transformer import Transformer
from weft.errors import UserError
from weft.explain.words import Piece
from weft.model import Model
from weft.predict.neural import Neural
from weft.predict.predictor import Predictor


@dataclass(frozen=True)
class Heads:
    """Where each head of each layer looks in one text."""

    tokens: tuple[str, ...]  # (T,) as they stand in the text, "[CLS]" in front where there is one
    weights: np.ndarray  # (L, N, T, T) rows look at columns, each row sums to 1


def attends(model: Model) -> bool:
    """Whether there are weights on the tokens of a text."""
    return isinstance(model.encoder, Transformer) or _weighs(model)


def _weighs(model: Model) -> bool:
    """Whether the pool gives each token a weight; after a stride, a step is no single token."""
    one_by_one = getattr(model.encoder, "stride", 1) == 1
    return one_by_one and "attention" in model.pooling


def token_weights(engine: Neural, texts: Sequence[str]) -> list[list[Piece]]:
    """(start, end, weight) of each token of each text; the weights of a text sum to 1.

    The weights of the pool as they are; in a Transformer, by attention rollout (Abnar and Zuidema
    2020) down to the tokens. The windows of a long text count equally.
    """
    pieces: list[list[Piece]] = [[] for _ in texts]
    for rows, source in engine.batches(texts):
        with torch.inference_mode():
            weights = _flow(engine.model, source)  # (B, T)
        for row, values in zip(rows, weights.tolist(), strict=True):
            assert row.spans is not None
            kept = values[: len(row.spans)]
            pieces[row.text] += [
                (*span, weight) for span, weight in zip(row.spans.tolist(), kept, strict=True)
            ]
    return [_shares(found) for found in pieces]


def heads(predictor: Predictor, text: str) -> Heads:
    """The attention maps of a Transformer for one text, or for its first window."""
    engine = predictor.engine
    if not isinstance(engine, Neural) or not isinstance(engine.model.encoder, Transformer):
        raise UserError("Only a model with a 'transformer' encoder has heads and layers to show.")
    rows, source = next(engine.batches([text]))
    with torch.inference_mode():
        layers = engine.model.encoder.weights(engine.model.embed(source))
    spans = rows[0].spans
    assert spans is not None
    front = engine.model.encoder.leading
    tokens = ["[CLS]"] * front + [text[start:end] for start, end in spans.tolist()]
    size = len(tokens)
    maps = torch.stack([layer[0, :, :size, :size] for layer in layers])  # (L, N, T, T)
    return Heads(tuple(tokens), maps.float().cpu().numpy())


def rollout(layers: Sequence[Tensor], mask: Tensor) -> Tensor:
    """(B, T, T) how much of each output step came from each input step.

    Abnar and Zuidema (2020): heads averaged, half of a step passed on by the residual, layers
    multiplied.
    """
    flow = torch.eye(mask.shape[1], device=mask.device).expand(len(mask), -1, -1)
    for layer in layers:
        mean = layer.float().mean(1)  # (B, T, T)
        flow = (0.5 * mean + 0.5 * torch.eye(mask.shape[1], device=mask.device)) @ flow
    return flow


def _flow(model: Model, source: Padded) -> Tensor:
    """(B, T) the share of each token in the pooled vector."""
    embedded = model.embed(source)
    states = model.encoder(embedded)
    final = _read_by_pool(model, states)  # (B, T)
    encoder = model.encoder
    if not isinstance(encoder, Transformer):
        return final
    flow = rollout(encoder.weights(embedded), states.mask)  # (B, T, T)
    return (final[:, None] @ flow).squeeze(1)[:, encoder.leading :]


def _read_by_pool(model: Model, states: Padded) -> Tensor:
    """(B, T) how much of the vector the pool takes from each step; all alike if it cannot say."""
    _, weights = model.pool(states)
    if weights is not None:
        return weights.float()
    kind = model.pooling
    even = torch.zeros(states.mask.shape, device=states.mask.device)
    if kind in ("first", "last"):
        at = torch.zeros_like(states.lengths) if kind == "first" else states.lengths - 1
        even[torch.arange(len(states)), at.to(even.device)] = 1
        return even
    return even.masked_fill(states.mask, 1) / states.mask.sum(1, keepdim=True).clamp(min=1)


def _shares(pieces: list[Piece]) -> list[Piece]:
    """The same weights with sum 1: [CLS] keeps some for itself, and windows each have a sum."""
    whole = sum(weight for _, _, weight in pieces) or 1.0
    return [(start, end, weight / whole) for start, end, weight in pieces]
