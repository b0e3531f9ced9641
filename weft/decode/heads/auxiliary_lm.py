"""Auxiliary language-model loss next to a classifier (Radford et al. 2018).

B rows   T steps   H hidden width   V words   C logits   K predicted tokens
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.batch import Padded
from weft.decode.losses import token_log_probs
from weft.errors import UserError
from weft.protocols import Embedder


@dataclass(frozen=True)
class WithAuxiliaryLM:
    """The logits of a batch, and the language-model states they were computed from."""

    scores: Tensor  # (B, C)
    states: Padded  # (B, T, H) causal
    ids: Tensor  # (B, T)
    table: Tensor  # (V, H) word vectors, tied to the output layer

    def nats(self) -> Tensor:
        """Return the mean negative log-likelihood per token (B,); the first token is free."""
        steps = torch.arange(self.ids.shape[1] - 1)
        predicted = (self.states.lengths - 1).clamp(min=0)  # (B,)
        row, step = (steps < predicted[:, None]).nonzero().to(self.ids.device).T  # (K,)
        next_ids = self.ids[row, step + 1]
        logps = token_log_probs(self.states.data[row, step], self.table, None, next_ids)  # (K,)
        nats = logps.new_zeros(len(self.ids)).index_add(0, row, -logps)
        return nats / predicted.clamp(min=1).to(nats.device)


def check_auxiliary(embedders: Sequence[Embedder], parts: Mapping[str, Any], apart: bool) -> None:
    """Raise a UserError if `task.auxiliary` is set for a model without a trained LM."""
    specs = parts["embedder"] if isinstance(parts["embedder"], list) else [parts["embedder"]]
    kind = specs[0]["kind"]
    reason = ""
    if len(specs) > 1 or not embedders[0].predicts_next:
        kinds = ", ".join(spec["kind"] for spec in specs)
        reason = f"but the embedder '{kinds}' is not a language model"
    elif embedders[0].scalar_mix is not None or specs[0].get("frozen"):
        name = "mix" if embedders[0].scalar_mix is not None else "frozen"
        reason = f"but the embedder '{kind}' with {name} = true does not train one"
    elif apart:
        reason = f"but [pair] kind '{parts['pair']['kind']}' encodes each text separately"
    if reason:
        raise UserError(
            f"task.auxiliary adds a language-model loss, {reason}. Start from a GPT "
            "(--recipe gpt-classify --pretrained FOLDER), or set task.auxiliary = 0."
        )
