"""Words from hashed n-grams: of their characters (fastText's sub-words) or of neighbouring words.

B rows   T tokens   W n-grams of a token   O orders of word n-grams   E embedding width
"""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.spelling import NgramSpelling
from weft.errors import UserError
from weft.protocols import Embedder
from weft.registry import register

MODULUS = 2**31 - 1  # below it, the products in `word_ngrams` stay inside 63 bits
SCRAMBLE_FACTOR, ROLLING_FACTOR = 1_073_741_827, 116_049_371


def word_ngrams(ids: Tensor, order: int, buckets: int) -> Tensor:
    """Hash the 2- to `order`-grams ending at each step to 1 … buckets; 0 where none ends.

    Only earlier steps are read and nothing overflows, so the answer depends on neither padding
    nor device.
    """
    T = ids.shape[1]
    spread = _scramble(ids + 1)  # (B, T)
    value = spread
    hashed = []
    for back in range(1, order):
        earlier = F.pad(spread, (back, 0))[:, :T]  # (B, T)
        value = (value * ROLLING_FACTOR + earlier) % MODULUS  # (B, T)
        complete = (torch.arange(T, device=ids.device) >= back) & (ids != 0)
        hashed.append(torch.where(complete, _scramble(value) % buckets + 1, 0))
    return torch.stack(hashed, dim=2)


def _scramble(value: Tensor) -> Tensor:
    """Scramble numbers below 2³¹; without it, neighbouring ids fall into the same few buckets."""
    value = (value ^ (value >> 16)) * SCRAMBLE_FACTOR % MODULUS
    return value ^ (value >> 15)


def _embed_bags(ids: Tensor, table: nn.EmbeddingBag) -> Tensor:
    """One pass over the table for all the steps of a batch."""
    B, T, W = ids.shape
    if not ids.numel():
        return table.weight.new_zeros(B, T, table.embedding_dim)
    summed = table(ids.reshape(B * T, W))
    vectors: Tensor = summed.view(B, T, -1)  # (B, T, E)
    return vectors


@register("embedder", "ngrams")
class Ngrams(nn.Module, Embedder):
    """A word is the mean (or sum) of its hashed character n-grams and itself; none is unknown."""

    reads_subtokens = True

    def __init__(
        self,
        width: int = 100,
        min_n: int = 3,
        max_n: int = 6,
        buckets: int = 100_000,
        combine: Literal["mean", "sum"] = "mean",
        sparse: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        where = "embedder 'ngrams'"
        check_sizes(where, dropout, width=width, min_n=min_n, buckets=buckets)
        if max_n < min_n:
            raise UserError(f"{where}: 'max_n' ({max_n}) is below 'min_n' ({min_n}).")
        self.output_size = width
        self.shortest, self.longest, self.buckets = min_n, max_n, buckets
        self.table = nn.EmbeddingBag(buckets + 1, width, mode=combine, sparse=sparse, padding_idx=0)
        _init_uniform(self.table.weight)
        self.dropout = nn.Dropout(dropout)

    @property
    def spelling(self) -> NgramSpelling:
        """Its spelling of words."""
        return NgramSpelling(self.shortest, self.longest, self.buckets)

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """The bucket of each n-gram and of the whole word, counted from 1; 0 is for padding."""
        return self.spelling.subtoken_ids(words)

    def forward(self, x: Padded) -> Padded:
        vectors = self.dropout(_embed_bags(x.data, self.table))  # (B, T, E)
        return x.with_data(vectors)


@register("embedder", "word-ngrams")
class WordNgrams(nn.Module, Embedder):
    """A word's row plus the rows of the hashed word n-grams that end at it.

    Under the mean pool this is fastText's classifier input, up to a constant. With `sparse`
    gradients only the rows of a batch are touched; the optimiser has to accept those.
    """

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 100,
        order: int = 2,
        buckets: int = 200_000,
        sparse: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("embedder 'word-ngrams'", dropout, width=width, order=order, buckets=buckets)
        self.output_size = width
        self.order, self.buckets = order, buckets
        self.table = nn.Embedding(vocabulary_size, width, padding_idx=0, sparse=sparse)
        _init_uniform(self.table.weight)
        self.ngrams = None
        if order > 1:
            self.ngrams = nn.EmbeddingBag(
                buckets + 1, width, mode="sum", sparse=sparse, padding_idx=0
            )
            _init_uniform(self.ngrams.weight)
        self.dropout = nn.Dropout(dropout)

    @property
    def token_table(self) -> nn.Embedding:
        return self.table

    def forward(self, x: Padded) -> Padded:
        vectors = self.table(x.data)  # (B, T, E)
        if self.ngrams is not None:
            ids = word_ngrams(x.data, self.order, self.buckets)  # (B, T, O)
            vectors = vectors + _embed_bags(ids, self.ngrams)  # (B, T, E)
        return x.with_data(self.dropout(vectors))


def _init_uniform(table: Tensor) -> None:
    """fastText's start: between −1/width and 1/width; nothing in the padding row."""
    bound = 1 / table.shape[1]
    nn.init.uniform_(table, -bound, bound)
    with torch.no_grad():
        table[0] = 0
