"""The rules of one search, beyond its settings. Importable without torch.

N rows   t tokens so far   B prompts   S source steps   V vocabulary
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.protocols import State

if TYPE_CHECKING:
    from torch import Tensor

# Ids so far (N, t) and their batch rows (N,) -> allowed next tokens (N, V).
AllowedTokens = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Constraints:
    """Per-call constraints beyond the settings; an empty sequence constrains nothing.

    Forced tokens are neither chosen nor counted: limits and logits concern what follows them.
    """

    prefix: Sequence[Sequence[int]] = ()  # forced prefix of each row, of any length
    limit: Sequence[int] = ()  # per row, overrides the settings
    minimum: Sequence[int] = ()  # per row, overrides the settings
    # (V,) or (B, V) True = allowed, or by what came before
    allowed: "Tensor | AllowedTokens | None" = None
    forbidden: Sequence[int] = ()  # ids that are never chosen
    seeds: Sequence[int] = ()  # per row, so that samples do not depend on the rest of the batch
    attention: "Callable[[State], Tensor] | None" = None  # reads weights (N, S) from a state
    source: "Tensor | None" = None  # (B, S) True = real source step; required with attention
