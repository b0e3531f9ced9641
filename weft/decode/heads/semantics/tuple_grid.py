"""Iterative grid labelling of extracted tuples (IGL, OpenIE6: Kolluru et al. 2020).

Each row of the grid is a tuple: every word is its subject, its relation, its object, or none of
these. The same self-attention layers run once a row, and the words read the labels that they had
in the row before, so that a row is not written twice.

B rows of a batch   T words   I implied words   H width of a state   D rows of the grid   C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.decode.heads.tag import TagColumn, TagOutput
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register
from weft.text.annotation.word_tuples import IMPLIED, NONE, RELATION, SUBJECT

IGNORED = -1  # label of lines behind the words of a sentence


@dataclass(frozen=True)
class GridOutput:
    """The states of a batch; rows of the grid are labelled on demand."""

    head: "TupleGridHead"
    states: Padded

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the cross-entropy of labels (B, L, D), summed over words and rows, and the words.

        The first I lines of a target are those of the implied words.
        """
        steps = self.states.data.shape[1] + len(IMPLIED)
        gold = F.pad(target[:, :steps], (0, 0, 0, max(0, steps - target.shape[1])), value=IGNORED)
        mask = self.head.with_implied(self.states).mask
        gold = gold.masked_fill(~mask[:, :, None], IGNORED)  # (B, I + T, D)
        logits = self.head.label_rows(self.states, gold if self.head.gold_labels else None)
        losses = [
            F.cross_entropy(
                row.flatten(0, 1), gold[:, :, k].flatten(), reduction="sum", ignore_index=IGNORED
            )
            for k, row in enumerate(logits)
        ]
        return torch.stack(losses).sum(), int(self.states.lengths.sum())

    @torch.no_grad()
    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row of the batch the labels (I + T, D) and their probabilities.

        Behind the first row of the grid that is no tuple, all labels are none.
        """
        grid = self.head.label_rows(self.states, until_empty=True)
        logits = torch.stack(grid, dim=2)  # (B, I + T, rows, C)
        probs, labels = logits.softmax(3).max(3)
        table, sure = labels.cpu().numpy(), probs.cpu().numpy()
        out = []
        for own, prob, length in zip(table, sure, self.states.lengths.tolist(), strict=True):
            size = length + len(IMPLIED)
            some = np.full((size, self.head.rows), NONE, np.int64)
            chance = np.ones((size, self.head.rows), np.float32)
            rows = int(_has_tuple(own[:size]).cumprod().sum())
            some[:, :rows], chance[:, :rows] = own[:size, :rows], prob[:size, :rows]
            out.append((some, chance))
        return out

    @property
    def tags(self) -> TagOutput:
        """The logits of the words as one column of tags for each row of the grid."""
        grid = self.head.label_rows(self.states)
        columns = tuple(self.states.with_data(row[:, len(IMPLIED) :]) for row in grid)
        return TagOutput(columns, (None,) * len(columns))


@register("head", "tuple-grid")
class TupleGridHead(nn.Module, Head):
    """Labels of the words, row by row of the grid, from self-attention layers that are shared.

    x₀ = the encoder's states; for each row, x = layers(x), its labels are a linear function of x,
    and the embeddings of the labels are added to x. The rows before are those that the model
    labelled itself, in training too, as in OpenIE6; with `gold_labels`, training reads the gold
    ones. Beside the words of the sentence there are three learned ones, [is], [of] and [from], for
    predicates that are not worded. They enter before the layers, not before the encoder. `heads` is
    one for 64 dimensions if 0, as in BERT.
    """

    task = "openie"
    kind = "tuple-grid"
    needs_full_sentence = True
    max_positions = 500  # words
    can_average = False

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        layers: int = 2,
        heads: int = 0,
        feed_forward: int = 0,
        dropout: float = 0.1,
        gold_labels: bool = False,
    ):
        super().__init__()
        name = f"head '{self.kind}'"
        if not isinstance(outputs, (list, tuple)) or not isinstance(outputs[0], (list, tuple)):
            raise UserError(f"The {name} needs the task 'openie'. Set task.kind to 'openie'.")
        heads = heads or _default_heads(input_size)
        check_sizes(name, dropout, layers=layers, heads=heads)
        if feed_forward < 0:
            raise UserError(
                f"{name}: 'feed_forward' should be 0 (4 times the states) or more, got "
                f"{feed_forward}."
            )
        if input_size % heads:
            raise UserError(
                f"{name}: states of width {input_size} cannot be divided among {heads} heads. Set "
                "head.heads to a divisor of it."
            )
        self.rows, self.gold_labels = len(outputs), gold_labels
        labels = len(outputs[0][0])
        self.implied = nn.Embedding(len(IMPLIED), input_size)
        nn.init.normal_(self.implied.weight, std=0.1)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                input_size, heads, feed_forward or 4 * input_size, "post", dropout, "gelu"
            )
            for _ in range(layers)
        )
        self.table = nn.Embedding(labels, input_size)
        nn.init.normal_(self.table.weight, std=0.1)
        self.score = nn.Linear(input_size, labels)

    def forward(self, states: Padded) -> GridOutput:
        if not isinstance(states, Padded):
            raise UserError(
                f"The head '{self.kind}' needs a state per word. Set pool.kind to 'none'."
            )
        return GridOutput(self, states)

    def with_implied(self, states: Padded) -> Padded:
        """Return rows (B, I + T, H) that begin with the implied words."""
        data = states.data
        implied = self.implied.weight.to(data.dtype).expand(len(states), -1, -1)
        return Padded(torch.cat([implied, data], dim=1), states.lengths + len(IMPLIED))

    def label_rows(
        self, states: Padded, gold: Tensor | None = None, until_empty: bool = False
    ) -> list[Tensor]:
        """Return the logits (B, I + T, C) of each row of the grid.

        Rows read the gold labels (B, I + T, D) of those before, or the likeliest ones. With
        `until_empty`, the first row without a tuple in any sentence is the last.
        """
        read = self.with_implied(states)
        x, mask = self.dropout(read.data), None if read.full else read.mask
        out: list[Tensor] = []
        for row in range(self.rows):
            for block in self.blocks:
                x, _ = block(x, mask)  # (B, I + T, H)
            logits = self.score(self.dropout(x)).float()  # (B, I + T, C)
            out.append(logits)
            labels = logits.argmax(2) if gold is None else gold[:, :, row].clamp(min=0)
            if until_empty and not _may_hold_tuple(labels, read.mask):
                break
            x = x + self.table(labels).to(x.dtype)
        return out


def _default_heads(size: int) -> int:
    """Return how many heads of about 64 dimensions states of this width can be divided among."""
    return next(heads for heads in range(max(1, size // 64), 0, -1) if size % heads == 0)


def _may_hold_tuple(labels: Tensor, mask: Tensor) -> bool:
    """Return whether a sentence of labels (B, T) has both a subject and a relation."""
    parts = [((labels == wanted) & mask).any(1) for wanted in (SUBJECT, RELATION)]
    return bool((parts[0] & parts[1]).any())


def _has_tuple(labels: np.ndarray) -> np.ndarray:
    """Return which rows of the grid (I + T, D) are tuples, (D,)."""
    has_subject = (labels[len(IMPLIED) :] == SUBJECT).any(0)
    found: np.ndarray = has_subject & (labels == RELATION).any(0)
    return found
