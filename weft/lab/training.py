"""Small models on generated rows of ids: build, train for some updates, measure.

The loop of `weft.train` reads files, keeps checkpoints and can resume; an experiment of a few
hundred updates needs none of that. The models, losses and searches are Weft's own.

B rows   T steps   C labels
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.decode.heads.seq2seq import Seq2SeqOutput
from weft.decode.heads.tag import TagOutput
from weft.decode.losses import sequence_loss, shift_right
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.settings import SearchSettings
from weft.model.build import build_model
from weft.model.compositions import Model
from weft.protocols import LanguageModelDecoder, OutputSize

EVALUATION_ROWS = 256  # rows in a batch that is only measured
Parts = Mapping[str, Any]  # the sections of a configuration


@dataclass(frozen=True)
class Rows:
    """Rows of ids, with one label each, or one per step (-1: no label)."""

    ids: Sequence[np.ndarray]
    labels: Sequence[Any]  # an int, or an array of one per step

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, chosen: Sequence[int] | np.ndarray) -> tuple[Padded, Tensor]:
        """Return some rows as a batch with their labels, (B,) or (B, T) padded with -1."""
        source = Padded.from_rows([self.ids[i] for i in chosen])
        labels = [self.labels[i] for i in chosen]
        if np.ndim(labels[0]) == 0:
            return source, torch.tensor(np.array(labels, dtype=np.int64))
        return source, Padded.from_rows(labels, fill=-1).data


def build(vocabulary_size: int, outputs: OutputSize, **parts: Any) -> Model:
    """Build a model of Weft's parts; each argument is a section of a configuration.

    Defaults: a lookup table of width 32, no encoder, mean pooling, a linear head.
    """
    sections = {
        "embedder": {"kind": "lookup", "width": 32},
        "encoder": {"kind": "none"},
        "pool": {"kind": "mean"},
        "head": {"kind": "linear"},
    }
    if "decoder" in parts:
        del sections["pool"], sections["head"]
    return build_model({**sections, **parts}, vocabulary_size=vocabulary_size, outputs=outputs)


def tagging(tags: int) -> dict[str, Any]:
    """Return the arguments of `build` for a tagger: a label at every step."""
    names = tuple(f"tag{i}" for i in range(tags))
    return {"outputs": [(names, "")], "pool": {"kind": "none"}, "head": {"kind": "tags"}}


def minimise(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    updates: int,
    *,
    learning_rate: float = 3e-3,
    clip_norm: float = 1.0,
    warmup: int = 0,
    weight_decay: float = 0.0,
    decay: bool = False,
) -> list[float]:
    """Take Adam steps on `loss(update)`, and return the loss of every update.

    The rate rises over the first `warmup` updates; with `decay` it then falls linearly to zero.
    """
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(
        parameters, lr=learning_rate, weight_decay=weight_decay, fused=True
    )
    losses = []
    for update in range(updates):
        rate = learning_rate * min(1.0, (update + 1) / warmup if warmup else 1.0)
        if decay:
            rate *= 1 - max(0, update - warmup) / max(1, updates - warmup)
        for group in optimiser.param_groups:
            group["lr"] = rate
        value = loss(update)
        value.backward()
        if clip_norm:
            nn.utils.clip_grad_norm_(parameters, clip_norm)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(value.item())
    model.eval()
    return losses


def logits_of(scores: Tensor | TagOutput) -> Tensor:
    """Return the logits of texts (B, C), or of steps (B, T, C)."""
    return scores.columns[0].data if isinstance(scores, TagOutput) else scores


def label_loss(scores: Tensor | TagOutput, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of texts, or of the labelled steps."""
    logits = logits_of(scores)
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-1)


def fit_rows(
    model: Model, rows: Rows, seed: int, updates: int, batch_size: int = 32, **options: Any
) -> list[float]:
    """Train a classifier or tagger on random batches of rows; options are those of `minimise`."""
    rng = np.random.default_rng(seed)

    def loss(update: int) -> Tensor:
        source, labels = rows.batch(rng.integers(len(rows), size=batch_size))
        return label_loss(model(source), labels)

    return minimise(model, loss, updates, **options)


@torch.no_grad()
def predict(model: Model, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and gold labels of all rows, flat, without unlabelled steps."""
    model.eval()
    predicted, gold = [], []
    for start in range(0, len(rows), EVALUATION_ROWS):
        source, labels = rows.batch(range(start, min(start + EVALUATION_ROWS, len(rows))))
        logits = logits_of(model(source))
        keep = labels >= 0
        predicted.append(logits.argmax(-1)[keep].numpy())
        gold.append(labels[keep].numpy())
    return np.concatenate(predicted), np.concatenate(gold)


def accuracy(model: Model, rows: Rows) -> float:
    """Return the fraction of labels that the model gets right."""
    predicted, gold = predict(model, rows)
    return float((predicted == gold).mean())


def language_model_loss(
    decoder: LanguageModelDecoder, rows: Sequence[np.ndarray], bos: int
) -> Tensor:
    """Return the mean cross-entropy of the next token, each row read from `bos` on."""
    targets = Padded.from_rows(rows)
    features = decoder.features(shift_right(targets, bos))  # (B, T, F)
    total, count = sequence_loss(decoder.words.logits(features), targets)
    return total / count


def seq2seq_loss(
    model: Model, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> Tensor:
    """Return the mean cross-entropy of target tokens under teacher forcing."""
    output: Seq2SeqOutput = model(Padded.from_rows(sources))
    gold = Padded.from_rows(targets, fill=-1).data[..., None]  # (B, T, 1)
    total, count = output.loss(gold)
    return total / count


@torch.no_grad()
def token_accuracy(
    model: Model, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]
) -> float:
    """Return the fraction of target tokens that the model would choose after the gold ones."""
    model.eval()
    output: Seq2SeqOutput = model(Padded.from_rows(sources))
    gold = Padded.from_rows(targets)
    decoder = output.head.decoder
    assert not isinstance(decoder, PointerGenerator)
    chosen = decoder(shift_right(gold, output.head.bos), output.memory).argmax(-1)
    return float((chosen == gold.data)[gold.mask].float().mean())


def write(model: Model, sources: Sequence[np.ndarray], **settings: Any) -> list[list[Hypothesis]]:
    """Return the hypotheses for each source; the settings are those of `generate`."""
    model.eval()
    output: Seq2SeqOutput = model(Padded.from_rows(sources))
    return output.generate(SearchSettings(**settings))
