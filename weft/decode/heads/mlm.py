"""MLM head: masked-token and next-sentence prediction (Devlin et al. 2019).

B rows   T steps   M masked positions of a row   H hidden width   E width of the table   V words
K scored positions   C of them at a time
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.mlm_collator import MLMLabels
from weft.decode.losses import chunked_loss
from weft.embed.activations import ACTIVATIONS
from weft.errors import UserError
from weft.protocols import Embedder, Head
from weft.registry import register

MAX_LOGITS = 2**24  # logits in memory at one time during evaluation


@dataclass(frozen=True)
class MLMOutput:
    """The states of a batch, and the head that scores the masked ones."""

    head: "MLMHead"
    states: Padded  # (B, T, H)
    vector: Tensor  # (B, H) pooled from [CLS]

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return rows times the mean masked-token loss, plus the summed next-sentence loss.

        The sum over rows lets micro-batches add up: each knows the number of masked tokens of the
        whole batch.
        """
        labels, head = MLMLabels.of(target), self.head
        features = head.features(self._at(labels.positions))[None]  # (1, B*M, E)
        targets = Padded(labels.ids.reshape(1, -1), torch.tensor([features.shape[1]]))
        total, _ = chunked_loss(features, head.table.weight, head.bias, targets)
        total = total * (labels.num_rows[0] / labels.num_masked[0].clamp(min=1))
        if head.next is not None:
            logits = self.next_sentence_logits()  # (B, 2)
            total = total + F.cross_entropy(logits, labels.is_random_next, reduction="sum")
        return total, len(target)

    @torch.no_grad()
    def score_rows(self, target: Tensor) -> Tensor:
        """Return (B, 6) per row: nats, count and correct predictions of masked tokens; then the
        same three of next-sentence prediction."""
        labels, head = MLMLabels.of(target), self.head
        scored = labels.ids >= 0  # (B, M)
        ids = labels.ids[scored]  # (K,)
        out = self.vector.new_zeros(len(target), 6, dtype=torch.float64)
        owner = scored.nonzero()[:, 0]  # (K,)
        states = self._at(labels.positions).unflatten(0, scored.shape)[scored]  # (K, H)
        size = max(MAX_LOGITS // head.bias.numel(), 1)
        for i in range(0, len(ids), size):
            logp = head.logps(states[i : i + size])  # (C, V)
            gold = ids[i : i + size, None]
            nats = -logp.gather(1, gold).squeeze(1)
            correct = logp.argmax(1) == gold.squeeze(1)
            row = torch.stack([nats, torch.ones_like(nats), correct.to(nats.dtype)], 1)  # (C, 3)
            out[:, :3].index_add_(0, owner[i : i + size], row.double())
        if head.next is not None:
            logits = self.next_sentence_logits()  # (B, 2)
            out[:, 3] = F.cross_entropy(logits, labels.is_random_next, reduction="none").double()
            out[:, 4] = 1
            out[:, 5] = (logits.argmax(1) == labels.is_random_next).double()
        return out

    @torch.no_grad()
    def words(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return log-probabilities (K, V) of all words at `rows` and `steps`, each (K,)."""
        return self.head.logps(self.states.data[rows, steps])

    def next_sentence_logits(self) -> Tensor:
        """Return next-sentence logits (B, 2): is next, is not next."""
        assert self.head.next is not None
        logits: Tensor = self.head.next(self.vector).float()
        return logits

    def _at(self, positions: Tensor) -> Tensor:
        """Return the states (B*M, H) at positions (B, M); arbitrary states for padding."""
        states = self.states.data
        index = positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[2])
        return states.gather(1, index).flatten(0, 1)


@register("head", "masked")
class MLMHead(nn.Module, Head):
    """A dense layer and a layer norm, then logits from the embedder's word table.

    Only masked positions are scored. Next-sentence prediction uses the pooled [CLS].
    """

    reads, task, is_mlm = "text", "masked", True

    def __init__(
        self,
        input_size: int,
        outputs: tuple[int, bool],
        activation: Literal["gelu", "relu", "gelu-tanh"] = "gelu",
        eps: float = 1e-12,
    ):
        super().__init__()
        words, next_sentence = outputs
        self.input_size, self.eps = input_size, eps
        self.table = nn.Embedding(0, input_size)
        self.activation = ACTIVATIONS[activation]()
        self.bias = nn.Parameter(torch.zeros(words))
        self.next = _init_layer(nn.Linear(input_size, 2)) if next_sentence else None
        self._widen(input_size)

    def borrow(self, embedder: Embedder) -> None:
        """Use the embedder's table for logits; the embedder still owns and saves it."""
        table = embedder.token_table
        if table is None or table.num_embeddings != len(self.bias):
            raise UserError(
                "The head 'masked' scores words with the embedder's table, and this embedder has "
                "no table of whole tokens. Use the embedder 'bert'."
            )
        del self.table
        self.__dict__["table"] = table  # not registered as a submodule, or it would be saved twice
        if table.embedding_dim != self.dense.out_features:
            self._widen(table.embedding_dim)

    def _widen(self, width: int) -> None:
        self.dense = _init_layer(nn.Linear(self.input_size, width))
        self.norm = nn.LayerNorm(width, self.eps)

    def features(self, states: Tensor) -> Tensor:
        """Return the features (K, E) that the table multiplies, from states (K, H)."""
        features: Tensor = self.norm(self.activation(self.dense(states)))
        return features

    def logps(self, states: Tensor) -> Tensor:
        """Return log-probabilities (K, V) of all words, from states (K, H)."""
        logits = F.linear(self.features(states), self.table.weight, self.bias)  # (K, V)
        return logits.float().log_softmax(1)

    def forward(self, states: Padded, vector: Tensor) -> MLMOutput:
        return MLMOutput(self, states, vector)


def _init_layer(layer: nn.Linear) -> nn.Linear:
    """Initialise weights as BERT does: normal with deviation 0.02, zero bias."""
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
