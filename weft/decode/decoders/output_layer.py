"""The vocabulary at both ends of a decoder: ids in, a score for every word out.

B rows   T steps   V words   E width of a word   F width of what is scored   S steps of the memory
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.decode.search.state import PerPrompt

HALF_DTYPES = (torch.bfloat16, torch.float16)
ROW_MULTIPLE = 8  # numbers in half precision that matrix units of a GPU write at once


class DecoderOutput(NamedTuple):
    """What a decoder made of some steps, before words are scored."""

    features: Tensor  # (B, T, F) what the scores are a matrix times
    hidden: Tensor  # (B, T, H) the decoder's own state
    weights: Tensor | None  # (B, T, S) where it looked


def unwrap(part: Any) -> Any:
    """A part of a state, whether or not the rows of a prompt share it."""
    return part.value if isinstance(part, PerPrompt) else part


def fold_beams(x: Tensor, rows: int) -> Tensor:
    """Steps (B, T, H) of rows that share a memory of fewer rows, one row of steps for each."""
    return x if len(x) == rows else x.reshape(rows, -1, x.shape[2])


class OutputLayer(nn.Module):
    """A vector for every id, and a score for every word; with `tied`, from one table.

    Without `tied` the scores have a matrix of their own. Tied tables of another width than the
    features are reached through one more matrix (Press and Wolf 2017; Inan et al. 2017).
    """

    def __init__(
        self,
        vocabulary_size: int,
        width: int,
        features: int,
        tied: bool = False,
        deviation: float = 0.1,
        bias: bool = True,
    ):
        super().__init__()
        self.size = vocabulary_size
        self.table = nn.Embedding(vocabulary_size, width, padding_idx=0)
        nn.init.normal_(self.table.weight, std=deviation)
        with torch.no_grad():
            self.table.weight[0] = 0
        same = not tied or features == width
        self.narrow = nn.Identity() if same else nn.Linear(features, width, bias=False)
        self.scored = None if tied else nn.Parameter(torch.empty(vocabulary_size, features))
        if self.scored is not None:
            nn.init.uniform_(self.scored, -(features**-0.5), features**-0.5)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size)) if bias else None

    @property
    def weight(self) -> Tensor:
        """The matrix of the scores, (V, F)."""
        return self.table.weight if self.scored is None else self.scored

    def embed(self, ids: Tensor) -> Tensor:
        """The vector of each id, (..., E)."""
        return self.table(ids)

    def logits(self, features: Tensor) -> Tensor:
        """The score of every word, (..., V)."""
        if _needs_row_padding(features, self.weight) and not torch.is_grad_enabled():
            made = _padded_logits(features, self.weight)  # (B, V)
            return made if self.bias is None else made + self.bias
        return F.linear(features, self.weight, self.bias)


def _needs_row_padding(features: Tensor, weight: Tensor) -> bool:
    """Whether a GPU would make rows of features (B, F) that begin where its units cannot write.

    Not under autocast, where the two are of different kinds until they meet.
    """
    half = features.dtype in HALF_DTYPES and weight.dtype == features.dtype
    return half and features.is_cuda and features.dim() == 2 and len(weight) % ROW_MULTIPLE != 0


# To a compiler one operation, because it would write what it makes into rows of its own.
@torch.library.custom_op("weft::scores", mutates_args=())
def _padded_logits(features: Tensor, weight: Tensor) -> Tensor:
    """Features (B, F) times a matrix (V, F), in rows that begin where matrix units can write.

    Most vocabularies are of odd sizes, for which there are only kernels of old: on an H200 32 rows
    of 50,257 words take 109 µs by them.
    """
    made = _allocate_padded(features, weight)
    torch.mm(features, weight.t(), out=made)
    return made


@_padded_logits.register_fake
def _allocate_padded(features: Tensor, weight: Tensor) -> Tensor:
    B, V = len(features), len(weight)
    return features.new_empty_strided((B, V), (-(-V // ROW_MULTIPLE) * ROW_MULTIPLE, 1))
