"""Words from their characters, read as UTF-8 bytes: a CNN with highway layers, or an LSTM.

B rows   T tokens   W bytes of a token   M real tokens of the batch   D distinct ones of them
C width of a byte   F filters   E embedding width
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.embed.highway import Highway
from weft.embed.spelling import NUM_SYMBOLS, ByteSpelling
from weft.errors import UserError
from weft.protocols import Embedder
from weft.registry import register

WORDS_PER_CHUNK = 1024  # words of about the same length that are read at once


def reverse_rows(data: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the real steps of each row, leaving padding in place; its own inverse."""
    steps = torch.arange(data.shape[1], device=data.device)
    mirrored = lengths.to(data.device)[:, None] - 1 - steps
    index = torch.where(mirrored >= 0, mirrored, steps)  # (B, T)
    if data.requires_grad:
        return data.gather(1, index[..., None].expand_as(data))
    # On a CPU, whole steps are copied four times as fast as single numbers are gathered.
    rows = torch.arange(len(data), device=data.device)[:, None] * data.shape[1]
    return data.flatten(0, 1).index_select(0, (index + rows).flatten()).view_as(data)


def unique_rows(spelled: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows (D, W) and the index of each row among them (M,)."""
    # Sorting whole rows is slow; a random hash of each distinguishes them, and is checked.
    factors = torch.randint(-(2**62), 2**62, spelled.shape[1:], generator=_fixed_generator())
    sums = (spelled * factors.to(spelled.device)).sum(1)  # (M,)
    unique_sums, kinds = sums.unique(return_inverse=True)
    positions = torch.arange(len(kinds), device=kinds.device)
    rows = spelled[torch.empty_like(unique_sums).scatter_(0, kinds, positions)]  # (D, W)
    if not torch.equal(rows[kinds], spelled):
        rows, kinds = spelled.unique(dim=0, return_inverse=True)
    return rows, kinds


def _fixed_generator() -> torch.Generator:
    """Return a seeded generator, so that training's random stream is untouched."""
    return torch.Generator().manual_seed(1)


class CharacterEmbedder(nn.Module, Embedder):
    """Base class of embedders that read the bytes of words.

    Padding tokens are skipped. Outside training each distinct word of a batch is embedded once,
    in chunks of words of similar length.
    """

    output_size: int
    max_bytes: int  # bytes of a word that are read
    # In training too, embed each distinct word once, with one dropout mask. CPU only: on a GPU
    # the number of distinct words would need a synchronisation.
    dedupe_in_training = False
    reads_subtokens = True

    @property
    def spelling(self) -> ByteSpelling:
        """Its spelling of words."""
        return ByteSpelling(self.max_bytes)

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the byte ids of each token, from 1; 0 is padding."""
        return self.spelling.subtoken_ids(words)

    def embed_words(self, spelled: Tensor) -> Tensor:
        """Embed the byte ids (M, W) of words as vectors (M, E)."""
        raise NotImplementedError

    def forward(self, x: Padded) -> Padded:
        B, T = x.data.shape[:2]
        if not B * T or not x.lengths.any():
            return x.with_data(torch.zeros(B, T, self.output_size, device=x.data.device))
        if x.full:
            return x.with_data(self._embed_words(x.data.flatten(0, 1)).view(B, T, -1))  # (B, T, E)
        # From the lengths on the host, so that the device is not waited for.
        real = (torch.arange(T) < x.lengths[:, None]).flatten().nonzero().squeeze(1)
        index = real.to(x.data.device)
        vectors = self._embed_words(x.data.flatten(0, 1)[index])  # (M, E)
        flat = vectors.new_zeros(B * T, self.output_size).index_copy(0, index, vectors)
        return x.with_data(flat.view(B, T, -1))  # (B, T, E)

    def _embed_words(self, spelled: Tensor) -> Tensor:
        """Embed words (M, W) as (M, E)."""
        every = self.training and not (self.dedupe_in_training and spelled.is_cpu)
        return self.embed_words(spelled) if every else self._embed_unique(spelled)

    def _embed_unique(self, spelled: Tensor) -> Tensor:
        """Embed M words, each distinct word once."""
        rows, kinds = unique_rows(spelled)  # (D, W), (M,)
        lengths, order = (rows != 0).sum(1).sort()
        chunks = []
        for first in range(0, len(rows), WORDS_PER_CHUNK):
            chunk = order[first : first + WORDS_PER_CHUNK]
            longest = max(int(lengths[first : first + WORDS_PER_CHUNK][-1]), 1)
            chunks.append(self.embed_words(rows[chunk, :longest]))
        sorted_ = torch.cat(chunks)  # (D, E)
        vectors = sorted_[order.argsort()[kinds]]  # (M, E)
        return vectors


@register("embedder", "character-cnn")
class CharacterCNN(CharacterEmbedder):
    """Bytes -> filters of several widths -> maximum over the word -> highway -> projection."""

    def __init__(
        self,
        width: int = 100,
        character_width: int = 16,
        filters: tuple[tuple[int, ...], ...] = ((1, 32), (2, 32), (3, 64), (4, 128)),
        highway_layers: int = 2,
        activation: Activation = "relu",
        dropout: float = 0.0,
        max_bytes: int = 50,
    ):
        super().__init__()
        where = "embedder 'character-cnn'"
        check_sizes(
            where, dropout, width=width, character_width=character_width, max_bytes=max_bytes
        )
        if not filters or any(len(pair) != 2 or min(pair) < 1 for pair in filters):
            pairs = [list(pair) for pair in filters]
            raise UserError(f"{where}: 'filters' should be pairs [width, count], got {pairs}.")
        self.output_size = width
        self.max_bytes = max_bytes
        self.table = nn.Embedding(NUM_SYMBOLS, character_width, padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(character_width, count, window) for window, count in filters
        )
        self.widest = max(window for window, _ in filters)
        total = sum(count for _, count in filters)
        self.activation = ACTIVATIONS[activation]()
        self.highway = Highway(total, highway_layers)
        self.project = nn.Linear(total, width)
        self.dropout = nn.Dropout(dropout)

    def embed_words(self, spelled: Tensor) -> Tensor:
        lengths = (spelled != 0).sum(1)
        spelled = F.pad(spelled, (0, max(self.widest - spelled.shape[1], 0)))
        letters = self.table(spelled).transpose(1, 2)  # (M, C, W)
        W = spelled.shape[1]
        strongest = [_max_over_windows(conv(letters), lengths, W) for conv in self.convolutions]
        features = self.activation(torch.cat(strongest, dim=1))  # (M, F)
        vectors: Tensor = self.project(self.dropout(self.highway(features)))
        return vectors


def _max_over_windows(responses: Tensor, lengths: Tensor, steps: int) -> Tensor:
    """Max-pool over windows inside the word; a word shorter than the window has one."""
    windows = responses.shape[2]
    inside = (lengths - (steps - windows)).clamp(min=1)
    outside = torch.arange(windows, device=responses.device) >= inside[:, None]
    return responses.masked_fill(outside[:, None], float("-inf")).amax(2)


@register("embedder", "character-lstm")
class CharacterLSTM(CharacterEmbedder):
    """Bytes -> an LSTM in each direction -> both last states, projected."""

    def __init__(
        self,
        width: int = 100,
        character_width: int = 16,
        hidden: int = 50,
        dropout: float = 0.0,
        max_bytes: int = 50,
    ):
        super().__init__()
        where = "embedder 'character-lstm'"
        sizes = {"width": width, "character_width": character_width, "hidden": hidden}
        check_sizes(where, dropout, max_bytes=max_bytes, **sizes)
        self.output_size = width
        self.max_bytes = max_bytes
        self.table = nn.Embedding(NUM_SYMBOLS, character_width, padding_idx=0)
        self.forwards = nn.LSTM(character_width, hidden, batch_first=True)
        self.backwards = nn.LSTM(character_width, hidden, batch_first=True)
        self.project = nn.Linear(2 * hidden, width)
        self.dropout = nn.Dropout(dropout)

    def embed_words(self, spelled: Tensor) -> Tensor:
        lengths = (spelled != 0).sum(1)
        letters = self.table(spelled)  # (M, W, C)
        ahead, _ = self.forwards(letters)
        back, _ = self.backwards(reverse_rows(letters, lengths))
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, ahead.shape[2])
        ends = torch.cat([ahead.gather(1, last), back.gather(1, last)], dim=2)
        states = ends.squeeze(1)  # (M, 2*H)
        vectors: Tensor = self.project(self.dropout(states))
        return vectors
