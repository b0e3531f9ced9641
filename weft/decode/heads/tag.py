"""Tagging heads: one state per word -> tag logits, independent or with a linear-chain CRF.

B rows   T words   H width of a state   C tags of a column   K columns
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.loss_balance import LossBalance
from weft.decode.heads.averaging import TagProbs
from weft.decode.heads.crf import CRF
from weft.decode.label_losses import label_loss
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.kernels.cpu.linear import project
from weft.protocols import Head
from weft.registry import register
from weft.text.annotation.schemes import allowed_transitions

TagColumn = tuple[tuple[str, ...], str]  # tags, and their span scheme ("" for none)


@dataclass(frozen=True)
class TagOutput:
    """Tag logits of every word, column by column."""

    columns: tuple[Padded, ...]  # (B, T, C) each
    chains: tuple[CRF | None, ...]

    def loss(
        self,
        target: Tensor,
        kind: str = "cross-entropy",
        balance: LossBalance | None = None,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, int]:
        """Return the summed loss of tags (B, T, K) and the number of words; ids ≥ C are ignored.

        Words are independent, or a CRF scores the whole sequence. `kind` is cross-entropy, margin
        or margin-sum; the last is not for a CRF, nor is the focal loss of `balance`. `row_weights`
        (B,) multiply the losses of sentences.
        """
        total = torch.zeros((), device=target.device)
        words = int(self.columns[0].lengths.sum())
        for k, (logits, chain) in enumerate(zip(self.columns, self.chains, strict=True)):
            gold = target[:, : logits.data.shape[1], k]  # (B, T)
            if chain is None:
                scores = logits.data.float().flatten(0, 1)  # (B·T, C)
                each = None
                if row_weights is not None:
                    each = row_weights[:, None].expand_as(gold).flatten()  # (B·T,)
                gold = gold.masked_fill(gold >= scores.shape[1], -1).flatten()  # (B·T,)
                total = total + label_loss(scores, gold, kind, balance, k, row_weights=each)
            else:
                loss = chain.loss if kind == "cross-entropy" else chain.margin_loss
                weights = None if balance is None else balance.class_weights(k, target.device)
                total = total + loss(logits, gold, weights, row_weights)[0]
        return total, words

    def probs(self) -> tuple[Tensor, ...]:
        """Return the probabilities (B, T, C) of the tags of each column; of a CRF, marginals."""
        return tuple(
            logits.data.float().softmax(2) if chain is None else chain.marginals(logits)
            for logits, chain in zip(self.columns, self.chains, strict=True)
        )

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row the best tags (T, K) and their probabilities (T, K)."""
        tags, probs = [], []
        for logits, chain, marginals in zip(self.columns, self.chains, self.probs(), strict=True):
            best = marginals.argmax(2) if chain is None else chain.viterbi(logits)[0]  # (B, T)
            tags.append(best)
            probs.append(marginals.gather(2, best[:, :, None])[:, :, 0])
        lengths = self.columns[0].lengths.tolist()
        columns = (torch.stack(tags, 2).cpu().numpy(), torch.stack(probs, 2).cpu().numpy())
        return [
            (row_tags[:length], row_probs[:length])
            for row_tags, row_probs, length in zip(*columns, lengths, strict=True)
        ]

    def distributions(self) -> list[TagProbs]:
        """Return per row the probabilities of all tags."""
        columns = [probs.cpu().numpy() for probs in self.probs()]
        chained = any(chain is not None for chain in self.chains)
        return [
            TagProbs(tuple(probs[row, :length] for probs in columns), chained)
            for row, length in enumerate(self.columns[0].lengths.tolist())
        ]


@register("head", "tags")
class TagHead(nn.Module, Head):
    """Tag every word independently; one linear layer per column of tags."""

    task = "tag"
    chained = False

    def __init__(self, input_size: int, outputs: Sequence[TagColumn], dropout: float = 0.0):
        super().__init__()
        check_sizes("head 'tags'", dropout)
        if not isinstance(outputs, (list, tuple)):
            raise UserError("A head for tags needs the task 'tag'. Set task.kind to 'tag'.")
        self.dropout = nn.Dropout(dropout)
        self.score = nn.ModuleList(nn.Linear(input_size, len(labels)) for labels, _ in outputs)
        self.chains = nn.ModuleList(
            CRF(len(labels), allowed_transitions(labels, scheme) if scheme else None, labels)
            for labels, scheme in outputs
            if self.chained
        )

    @property
    def crfs(self) -> tuple[CRF, ...]:
        """The CRF of each column; empty if tags are independent."""
        return tuple(chain for chain in self.chains if isinstance(chain, CRF))

    def forward(self, states: Padded) -> TagOutput:
        if not isinstance(states, Padded):
            raise UserError("A head for tags needs a state per word. Set pool.kind to 'none'.")
        data = self.dropout(states.data)  # (B, T, H)
        columns = tuple(states.with_data(project(score, data)) for score in self.score)
        return TagOutput(columns, self.crfs if self.chained else (None,) * len(columns))


@register("head", "crf")
class CRFHead(TagHead):
    """Tag every word with a linear-chain CRF per column.

    If tags mark spans, only sequences that the scheme allows are predicted.
    """

    chained = True
    losses = ("cross-entropy", "margin")
    balances = ("weights", "sampling")

    def __init__(self, input_size: int, outputs: Sequence[TagColumn], dropout: float = 0.0):
        super().__init__(input_size, outputs, dropout)
