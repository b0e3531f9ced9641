"""Ids -> vectors by table lookup.

B rows   T steps   E embedding width
"""

from collections.abc import Sequence

import torch
from torch import nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.vector_files.text import read_vectors
from weft.errors import UserError
from weft.protocols import Embedder
from weft.registry import register


@register("embedder", "lookup")
class Lookup(nn.Module, Embedder):
    """A table with one row a vocabulary entry, random or from a file of word vectors.

    The constructor never opens `vectors`: a saved model holds its table and needs no file. The
    caller that makes a fresh model calls `initialise` once. `scale` is the standard deviation of
    random rows. `word_dropout` is the fraction of words whose vector is zeroed in training, so that
    the rest of the model learns to do without unknown words. With `scale_by_sqrt_dim`
    the rows start √E times smaller than `scale` and are multiplied by √E on the way out (Vaswani
    et al. 2017): as large, but they learn √E times as fast. With `shared` a decoder's table is
    read, and no other is kept.
    """

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 100,
        dropout: float = 0.0,
        vectors: str = "",
        frozen: bool = False,
        scale: float = 0.1,
        word_dropout: float = 0.0,
        scale_by_sqrt_dim: bool = False,
        shared: bool = False,
    ):
        super().__init__()
        check_sizes("embedder 'lookup'", dropout, width=width)
        if not 0 <= word_dropout < 1:
            raise UserError(
                "embedder 'lookup': 'word_dropout' should be from 0 to below 1, "
                f"got {word_dropout}."
            )
        if shared and (vectors or frozen or scale_by_sqrt_dim):
            other = "vectors" if vectors else "frozen" if frozen else "scale_by_sqrt_dim"
            raise UserError(
                f"embedder 'lookup': '{other}' does not go with 'shared', which reads the table "
                "of the decoder as it is. Remove one."
            )
        self.output_size, self.shared = width, shared
        self.factor = width**0.5 if scale_by_sqrt_dim else 1.0  # of every vector on the way out
        self.vectors = vectors
        self.coverage = 0.0  # fraction of the vocabulary that `initialise` found in the file
        self.table = nn.Embedding(vocabulary_size, width, padding_idx=0)
        nn.init.normal_(self.table.weight, std=scale / self.factor)
        with torch.no_grad():
            self.table.weight[0] = 0
        self.table.weight.requires_grad_(not frozen)
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = word_dropout

    @property
    def token_table(self) -> nn.Embedding:
        return self.table

    def initialise(self, vocabulary: Sequence[str]) -> int:
        """Copy the file's vectors of known entries; return how many there are."""
        if not self.vectors:
            return 0
        vectors, width = read_vectors(self.vectors, set(vocabulary))
        if width != self.output_size:
            raise UserError(
                f"The vectors in {self.vectors} are {width} wide, but embedder 'lookup' has "
                f"width = {self.output_size}. Set width = {width}."
            )
        matched = [i for i, entry in enumerate(vocabulary) if i > 0 and entry in vectors]
        with torch.no_grad():
            for i in matched:
                self.table.weight[i] = torch.from_numpy(vectors[vocabulary[i]]) / self.factor
        self.coverage = len(matched) / max(len(vocabulary), 1)
        return len(matched)

    def borrow(self, table: nn.Embedding, factor: float) -> None:
        """Read another part's table from now on, which stays that part's to move and to save."""
        if table.embedding_dim != self.output_size:
            raise UserError(
                f"embedder 'lookup' with 'shared' has width = {self.output_size}, but the "
                f"decoder's table is {table.embedding_dim} wide. "
                f"Set embedder.width = {table.embedding_dim}."
            )
        del self.table
        self.__dict__["table"] = table  # not as a module of its own, or it would be saved twice
        self.factor = factor

    def forward(self, ids: Padded) -> Padded:
        vectors = self.table(ids.data)  # (B, T, E)
        if self.factor != 1:
            vectors = vectors * self.factor  # (B, T, E)
        vectors = self.dropout(vectors)
        if self.training and self.word_dropout:
            # Not scaled up: a word that is there looks as it will after training.
            kept = torch.rand(ids.data.shape, device=ids.data.device) >= self.word_dropout
            vectors = vectors * kept[..., None]  # (B, T, E)
        return ids.with_data(vectors)
