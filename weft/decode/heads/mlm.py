"""What stands at hidden places, and whether one segment follows another (Devlin et al. 2019).

B rows   T steps   M places of a row   H hidden width   E width of the table   V words
K places that are asked for   C of them at a time
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.batch.mlm_collator import Target
from weft.decode.losses import chunked_loss
from weft.embed.activations import ACTIVATIONS
from weft.errors import UserError
from weft.registry import register

MAX_LOGITS = 2**24  # scores that exist at one time while a model is measured


@dataclass(frozen=True)
class MLMOutput:
    """The states of some rows, and the head that looks at some of them."""

    head: "MLMHead"
    states: Padded  # (B, T, H)
    vector: Tensor  # (B, H) what [CLS] was pooled into

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Rows times the mean loss of a hidden token and the mean loss of what follows what.

        A sum over rows, so that a batch in pieces adds up: each knows how many tokens were hidden
        in the whole.
        """
        wanted, head = Target.of(target), self.head
        features = head.features(self._at(wanted.places))[None]  # (1, B*M, E)
        right = Padded(wanted.ids.reshape(1, -1), torch.tensor([features.shape[1]]))
        total, _ = chunked_loss(features, head.table.weight, head.bias, right)
        total = total * (wanted.rows[0] / wanted.chosen[0].clamp(min=1))
        if head.next is not None:
            total = total + F.cross_entropy(self.follows(), wanted.strange, reduction="sum")
        return total, len(target)

    @torch.no_grad()
    def judged(self, target: Tensor) -> Tensor:
        """(B, 6) of each row: nats, number and right ones of its hidden tokens; nats of whether a
        segment follows, 1 where that was asked, and 1 where it was right."""
        wanted, head = Target.of(target), self.head
        asked = wanted.ids >= 0  # (B, M)
        ids = wanted.ids[asked]  # (K,)
        out = self.vector.new_zeros(len(target), 6, dtype=torch.float64)
        owner = asked.nonzero()[:, 0]  # (K,)
        states = self._at(wanted.places).unflatten(0, asked.shape)[asked]  # (K, H)
        size = max(MAX_LOGITS // head.bias.numel(), 1)
        for i in range(0, len(ids), size):
            logp = head.logps(states[i : i + size])  # (C, V)
            right = ids[i : i + size, None]
            nats = -logp.gather(1, right).squeeze(1)
            hit = logp.argmax(1) == right.squeeze(1)
            found = torch.stack([nats, torch.ones_like(nats), hit.to(nats.dtype)], 1)  # (C, 3)
            out[:, :3].index_add_(0, owner[i : i + size], found.double())
        if head.next is not None:
            scores = self.follows()  # (B, 2)
            out[:, 3] = F.cross_entropy(scores, wanted.strange, reduction="none").double()
            out[:, 4] = 1
            out[:, 5] = (scores.argmax(1) == wanted.strange).double()
        return out

    @torch.no_grad()
    def words(self, rows: Tensor, steps: Tensor) -> Tensor:
        """(K, V) the log-probability of every word at some steps of some rows, both (K,)."""
        return self.head.logps(self.states.data[rows, steps])

    def follows(self) -> Tensor:
        """(B, 2) how much speaks for a second segment that follows, and for one that does not."""
        assert self.head.next is not None
        return self.head.next(self.vector).float()

    def _at(self, places: Tensor) -> Tensor:
        """(B*M, H) the states at some places (B, M); behind the last, anything."""
        states = self.states.data
        index = places.clamp(min=0)[..., None].expand(-1, -1, states.shape[2])
        return states.gather(1, index).flatten(0, 1)


@register("head", "masked")
class MLMHead(nn.Module):
    """A dense layer and a layer norm, then the embedder's own table of words as scores.

    Words are scored at hidden places only. Whether the second segment follows the first is read
    off the pooled [CLS].
    """

    reads, task, fills = "text", "masked", True

    def __init__(
        self,
        input_size: int,
        outputs: Any,
        activation: Literal["gelu", "relu", "gelu-tanh"] = "gelu",
        eps: float = 1e-12,
    ):
        super().__init__()
        words, follows = outputs
        self.input_size, self.eps = input_size, eps
        self.table = nn.Embedding(0, input_size)
        self.activation = ACTIVATIONS[activation]()
        self.bias = nn.Parameter(torch.zeros(words))
        self.next = _init_layer(nn.Linear(input_size, 2)) if follows else None
        self._widen(input_size)

    def borrow(self, embedder: Any) -> None:
        """Score by the embedder's table, which stays the embedder's to move and to save."""
        table = getattr(embedder, "table", None)
        if not isinstance(table, nn.Embedding) or table.num_embeddings != len(self.bias):
            raise UserError(
                "The head 'masked' scores words by the table of the embedder, and this one has "
                "none of whole tokens. Use the embedder 'bert'."
            )
        del self.table
        self.__dict__["table"] = table  # not as a module of its own, or it would be saved twice
        if table.embedding_dim != self.dense.out_features:
            self._widen(table.embedding_dim)

    def _widen(self, width: int) -> None:
        self.dense = _init_layer(nn.Linear(self.input_size, width))
        self.norm = nn.LayerNorm(width, self.eps)

    def features(self, states: Tensor) -> Tensor:
        """(K, H) -> (K, E), what is multiplied with the table."""
        return self.norm(self.activation(self.dense(states)))

    def logps(self, states: Tensor) -> Tensor:
        """(K, H) -> (K, V) log-probabilities of all words."""
        scores = F.linear(self.features(states), self.table.weight, self.bias)  # (K, V)
        return scores.float().log_softmax(1)

    def forward(self, states: Padded, vector: Tensor) -> MLMOutput:
        return MLMOutput(self, states, vector)


def _init_layer(layer: nn.Linear) -> nn.Linear:
    """Normal weights of deviation 0.02, as BERT begins."""
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
