"""Input embedding and output projection of a decoder: ids in, logits of all words out.

B rows   T steps   V words   E embedding width   F feature width   S source steps
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.protocols import WeightMatrices

HALF_DTYPES = (torch.bfloat16, torch.float16)
ROW_MULTIPLE = 8  # half-precision numbers that tensor cores write at once


class DecoderOutput(NamedTuple):
    """The output of decoder steps, before the output layer."""

    features: Tensor  # (B, T, F) inputs of the output layer
    hidden: Tensor  # (B, T, H) hidden states
    weights: Tensor | None  # (B, T, S) attention weights


def fold_beams(x: Tensor, rows: int) -> Tensor:
    """Fold steps (B, T, H) of all beams of a prompt into one of `rows` rows."""
    return x if len(x) == rows else x.reshape(rows, -1, x.shape[2])


class OutputLayer(nn.Module, WeightMatrices):
    """Word embeddings and output logits; with `tied`, from one table.

    Without `tied` the logits have a separate matrix. If a tied table is not as wide as the
    features, a projection connects them (Press and Wolf 2017; Inan et al. 2017).
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

    def weight_matrices(self) -> list[Tensor]:
        """Return the output matrix, unless it is the table of words."""
        return [] if self.scored is None else [self.scored]

    @property
    def weight(self) -> Tensor:
        """The output matrix (V, F)."""
        return self.table.weight if self.scored is None else self.scored

    def embed(self, ids: Tensor) -> Tensor:
        """Return the vector of each id, (..., E)."""
        vectors: Tensor = self.table(ids)
        return vectors

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of all words, (..., V)."""
        if _needs_row_padding(features, self.weight) and not torch.is_grad_enabled():
            logits: Tensor = _padded_logits(features, self.weight)  # (B, V)
            return logits if self.bias is None else logits + self.bias
        return F.linear(features, self.weight, self.bias)


def _needs_row_padding(features: Tensor, weight: Tensor) -> bool:
    """Return True if logits of features (B, F) would have rows that tensor cores cannot write.

    Not under autocast, where features and weights differ in dtype until the product.
    """
    half = features.dtype in HALF_DTYPES and weight.dtype == features.dtype
    return half and features.is_cuda and features.dim() == 2 and len(weight) % ROW_MULTIPLE != 0


# An opaque operation: the compiler would allocate unpadded rows.
@torch.library.custom_op("weft::padded_logits", mutates_args=())
def _padded_logits(features: Tensor, weight: Tensor) -> Tensor:
    """Multiply features (B, F) by a matrix (V, F) into rows padded for tensor cores.

    Most vocabularies have odd sizes, which only legacy kernels support: on an H200 they take 109 µs
    for 32 rows of 50,257 words.
    """
    logits: Tensor = _allocate_padded(features, weight)
    torch.mm(features, weight.t(), out=logits)
    return logits


@_padded_logits.register_fake
def _allocate_padded(features: Tensor, weight: Tensor) -> Tensor:
    B, V = len(features), len(weight)
    return features.new_empty_strided((B, V), (-(-V // ROW_MULTIPLE) * ROW_MULTIPLE, 1))
