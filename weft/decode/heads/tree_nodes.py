"""Tree-node head: one state per node -> logits of its label.

B trees   T nodes of the largest one   H width of a state   C labels
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.loss_balance import LossBalance
from weft.decode.heads.averaging import NodeProbs
from weft.decode.heads.tag import TagColumn
from weft.decode.label_losses import label_loss
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register


@dataclass(frozen=True)
class TreeNodeOutput:
    """Label logits of every node."""

    labels: Padded  # (B, T, C)

    def loss(self, target: Tensor, balance: LossBalance | None = None) -> tuple[Tensor, int]:
        """Return the summed loss of labels (B, T, ·), unlabelled nodes excluded, and all nodes."""
        logits = self.labels.data.float()  # (B, T, C)
        gold = target[:, : logits.shape[1], 0].clamp(min=-1)  # (B, T)
        total = label_loss(logits.flatten(0, 1), gold.flatten(), balance=balance)
        return total, int(self.labels.lengths.sum())

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row the best label (T, 1) of every node, and label probabilities (T, C)."""
        probs = self.labels.data.float().softmax(2).cpu().numpy()
        return [
            (row[:length].argmax(1)[:, None], row[:length])
            for row, length in zip(probs, self.labels.lengths.tolist(), strict=True)
        ]

    def distributions(self) -> list[NodeProbs]:
        """Return per row the probabilities of all labels of each node."""
        return [NodeProbs(probs) for _, probs in self.decode()]


@register("head", "nodes")
class TreeNodeHead(nn.Module, Head):
    """Label every node independently from its state."""

    task = "nodes"

    def __init__(self, input_size: int, outputs: Sequence[TagColumn], dropout: float = 0.0):
        super().__init__()
        check_sizes("head 'nodes'", dropout)
        if not isinstance(outputs, (list, tuple)):
            raise UserError("The head 'nodes' needs the task 'nodes'. Set task.kind to 'nodes'.")
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(input_size, len(outputs[0][0]))

    def forward(self, states: Padded) -> TreeNodeOutput:
        if not isinstance(states, Padded):
            raise UserError("The head 'nodes' needs a state per node. Set pool.kind to 'none'.")
        return TreeNodeOutput(states.with_data(self.score(self.dropout(states.data))))
