"""A state for every word -> the scores of its tags, by themselves or as a chain.

B rows   T words   H width of a state   C tags of a column   K columns
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.crf import CRF
from weft.embed.activations import sensible
from weft.errors import UserError
from weft.registry import register
from weft.text.annotation.schemes import allowed_transitions

TagColumn = tuple[tuple[str, ...], str]  # its tags, and the scheme they are written in, if any


@dataclass(frozen=True)
class TagOutput:
    """What a model says of the tags of every word, column by column."""

    columns: tuple[Padded, ...]  # (B, T, C) each
    chains: tuple[CRF | None, ...]

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """The summed loss of tags (B, T, K), and the number of words; a tag beyond C is left out.

        Words are independent, or in a chain the sequence is taken as a whole.
        """
        total = torch.zeros((), device=target.device)
        words = int(self.columns[0].lengths.sum())
        for k, (scores, chain) in enumerate(zip(self.columns, self.chains, strict=True)):
            steps, size = scores.data.shape[1:]
            wanted = target[:, :steps, k]  # (B, T)
            if chain is not None:
                total = total + chain.loss(scores, wanted)[0]
                continue
            wanted = wanted.masked_fill(wanted >= size, -1)
            total = total + F.cross_entropy(
                scores.data.float().transpose(1, 2), wanted, reduction="sum", ignore_index=-1
            )
        return total, words

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each row the best tags (T, K), and the probability of each (T, K)."""
        tags, chances = [], []
        for scores, chain in zip(self.columns, self.chains, strict=True):
            if chain is None:
                shares = scores.data.float().softmax(2)  # (B, T, C)
                best = shares.argmax(2)  # (B, T)
            else:
                shares, best = chain.marginals(scores), chain.viterbi(scores)[0]
            tags.append(best)
            chances.append(shares.gather(2, best[:, :, None])[:, :, 0])
        lengths = self.columns[0].lengths.tolist()
        together = (torch.stack(tags, 2).cpu().numpy(), torch.stack(chances, 2).cpu().numpy())
        return [
            (best[:length], share[:length])
            for best, share, length in zip(*together, lengths, strict=True)
        ]


@register("head", "tags")
class TagHead(nn.Module):
    """A tag for every word, each chosen by itself; one matrix a column of tags."""

    task = "tag"
    chained = False

    def __init__(self, input_size: int, outputs: Sequence[TagColumn], dropout: float = 0.0):
        super().__init__()
        sensible("head 'tags'", dropout)
        if not isinstance(outputs, (list, tuple)):
            raise UserError("A head for tags needs the task 'tag'. Set task.kind to 'tag'.")
        self.dropout = nn.Dropout(dropout)
        self.score = nn.ModuleList(nn.Linear(input_size, len(labels)) for labels, _ in outputs)
        self.chains = nn.ModuleList(
            CRF(len(labels), allowed_transitions(labels, scheme) if scheme else None, labels)
            for labels, scheme in outputs
            if self.chained
        )

    def forward(self, states: Padded) -> TagOutput:
        if not isinstance(states, Padded):
            raise UserError("A head for tags reads every word. Set pool.kind to 'none'.")
        data = self.dropout(states.data)  # (B, T, H)
        columns = tuple(states.with_data(score(data)) for score in self.score)
        chains: tuple = tuple(self.chains) if self.chained else (None,) * len(columns)
        return TagOutput(columns, chains)


@register("head", "crf")
class CRFHead(TagHead):
    """A tag for every word, chosen as one sequence: a linear-chain CRF for each column.

    Where tags mark spans, only sequences that the scheme allows come out.
    """

    chained = True

    def __init__(self, input_size: int, outputs: Sequence[TagColumn], dropout: float = 0.0):
        super().__init__(input_size, outputs, dropout)
