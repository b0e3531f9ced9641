"""An answer beside what its language model foretells of the same text (Radford et al. 2018).

B rows   T steps   H hidden width   V words   C scores   K tokens that are foretold
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.batch import Padded
from weft.decode.losses import token_log_probs
from weft.errors import UserError


@dataclass(frozen=True)
class WithAuxiliaryLM:
    """The scores of some texts, and the states of the language model that has read them."""

    scores: Tensor  # (B, C)
    states: Padded  # (B, T, H) each of what was read so far
    ids: Tensor  # (B, T)
    table: Tensor  # (V, H) the vectors of words, by which they are scored, too

    def nats(self) -> Tensor:
        """(B,) what a token of each row costs, on average; the first is given, and free."""
        steps = torch.arange(self.ids.shape[1] - 1)
        foretold = (self.states.lengths - 1).clamp(min=0)  # (B,)
        row, step = (steps < foretold[:, None]).nonzero().to(self.ids.device).T  # (K,)
        right = self.ids[row, step + 1]
        logps = token_log_probs(self.states.data[row, step], self.table, None, right)  # (K,)
        nats = logps.new_zeros(len(self.ids)).index_add(0, row, -logps)
        return nats / foretold.clamp(min=1).to(nats.device)


def check_auxiliary(embedders: Any, parts: Mapping[str, Any], apart: bool) -> None:
    """A UserError where `task.auxiliary` is asked of what does not foretell words."""
    specs = parts["embedder"] if isinstance(parts["embedder"], list) else [parts["embedder"]]
    kind = specs[0]["kind"]
    told = ""
    if len(specs) > 1 or not getattr(embedders[0], "foretells", False):
        kinds = ", ".join(spec["kind"] for spec in specs)
        told = f"and the embedder '{kinds}' is no language model"
    elif embedders[0].mix is not None or specs[0].get("frozen"):
        name = "mix" if embedders[0].mix is not None else "frozen"
        told = f"which the embedder '{kind}' with {name} = true does not learn"
    elif apart:
        told = f"and [pair] kind '{parts['pair']['kind']}' reads each text by itself"
    if told:
        raise UserError(
            f"task.auxiliary also teaches to foretell words, {told}. Start from a GPT "
            "(--recipe gpt-classify --pretrained FOLDER), or set task.auxiliary = 0."
        )
