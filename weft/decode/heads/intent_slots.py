"""Joint intent classification and slot filling: one label of the text, and a tag for every word.

B rows   T words   H width of a state   C tags   I intents
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.averaging import TagProbs
from weft.decode.heads.crf import CRF
from weft.decode.heads.tag import CRFHead, TagColumn, TagHead, TagOutput
from weft.decode.label_losses import label_loss
from weft.embed.activations import check_sizes
from weft.encode.pool import AttentionPool, MaxPool, MeanPool
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register

POOLS = {"attention": AttentionPool, "max": MaxPool, "mean": MeanPool}


@dataclass(frozen=True)
class IntentSlotOutput:
    """Tag logits of every word, and logits of the intent."""

    tags: TagOutput
    intents: Tensor  # (B, I)

    def loss(
        self, target: Tensor, intent_weight: float = 1.0, row_weights: Tensor | None = None
    ) -> tuple[Tensor, int]:
        """Return −log p(slots) − w log p(intent) of targets (B, T, 2), summed, and the words.

        The second column of a target repeats the intent; ids that training never saw cost none.
        """
        total, words = self.tags.loss(target[:, :, :1], row_weights=row_weights)
        gold = target[:, 0, 1]  # (B,)
        gold = gold.masked_fill(gold >= self.intents.shape[1], -1)
        intents = label_loss(self.intents.float(), gold, row_weights=row_weights)
        return total + intent_weight * intents, words

    def intent_probs(self) -> Tensor:
        """Return the probabilities (B, I) of the intents."""
        return self.intents.float().softmax(1)

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return per row tags and intent (T, 2), the intent at every word, and probabilities."""
        sure, best = (x.tolist() for x in self.intent_probs().max(1))
        return [
            (
                np.concatenate([tags, np.full((len(tags), 1), intent)], axis=1),
                np.concatenate([probs, np.full((len(tags), 1), prob)], axis=1),
            )
            for (tags, probs), intent, prob in zip(self.tags.decode(), best, sure, strict=True)
        ]

    def distributions(self) -> list[TagProbs]:
        """Return per row the probabilities of all tags, and of all intents at every word."""
        intents = self.intent_probs().cpu().numpy()
        return [
            TagProbs((*slots.columns, np.repeat(row[None], len(slots), axis=0)), slots.chained)
            for slots, row in zip(self.tags.distributions(), intents, strict=True)
        ]


@register("head", "intent-slots")
class IntentSlotHead(nn.Module, Head):
    """The intent from the pooled states, and slots from the state of each word, in one pass.

    `tags` is "softmax" for independent tags or "crf" for a linear-chain CRF over them; `pool` is
    "attention", "max" or "mean", over the words.
    """

    task = "intent-slots"
    losses = ("cross-entropy",)
    needs_full_sentence = True  # the intent is of all words
    sentence_columns = 1

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        tags: Literal["softmax", "crf"] = "softmax",
        pool: Literal["attention", "max", "mean"] = "max",
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("head 'intent-slots'", dropout)
        if not isinstance(outputs, (list, tuple)):
            raise UserError(
                "The head 'intent-slots' needs the task 'intent-slots'. Set task.kind to "
                "'intent-slots'."
            )
        slots, (intents, _) = outputs
        self.dropout = nn.Dropout(dropout)
        self.slots = (CRFHead if tags == "crf" else TagHead)(input_size, [slots], dropout)
        self.pool = POOLS[pool](input_size)
        self.intent = nn.Linear(input_size, len(intents))

    @property
    def crfs(self) -> tuple[CRF, ...]:
        """The CRF of the slots; empty if tags are independent."""
        return self.slots.crfs

    def forward(self, states: Padded) -> IntentSlotOutput:
        if not isinstance(states, Padded):
            raise UserError(
                "The head 'intent-slots' needs a state per word, and pools them itself. Set "
                "pool.kind to 'none', and head.pool to 'max', 'mean' or 'attention'."
            )
        vector, _ = self.pool(states)  # (B, H)
        intents = self.intent(self.dropout(vector))  # (B, I)
        return IntentSlotOutput(self.slots(states), intents)
