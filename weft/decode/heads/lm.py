"""What a language model says of running text: its loss, or how probable every token is.

B rows   T steps   V words   F width of what is scored   R tokens that are asked for
W pieces of a token
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.language_models import mask_tokens
from weft.decode.losses import chunked_loss, token_log_probs
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.tokens.subtoken_table import with_pieces
from weft.tokens.vocabulary import PAD, SPECIALS

MASK_ID = SPECIALS.index(PAD)  # what stands for a hidden word: its vector is zero
MASK_STRIDE = 7  # tokens from one that is hidden to the next: about as many as in training
DEFAULT_WINDOW = 35  # steps of a piece, for a decoder without a limit
PSEUDO_PERPLEXITY_NOTE = (
    "this model sees both sides of a word: its figures are pseudo-perplexities, not to be compared "
    "with those of models that see what stands before only"
)
WARMUP_STEPS, STATEFUL_ROW_STEPS = (
    256,
    1280,
)  # steps that bring a carried state up to date, and of a row with them


@dataclass(frozen=True)
class LMOutput:
    """Tokens, and the decoder that reads them.

    The tokens are those before the ones that are foretold; of both sides, themselves. Each is an
    id, (B, T), or an id and pieces, (B, T, 1+W).
    """

    head: "LanguageModelHead"
    source: Padded
    back: bool = False  # the tokens come from the end, for the decoder that reads so

    def loss(self, target: Tensor, carried: Any = None) -> tuple[Tensor, int, Any]:
        """The summed loss of target tokens (B, T), how many there are, and the state after them.

        Where words are hidden, all count as much as those that are do on average.
        """
        decoder, words = self.head.decoder, self.head.decoder.words
        right = Padded(target, self.source.lengths)
        if hasattr(decoder, "loss"):
            return decoder.loss(self.source, target, carried)
        if self.head.needs_masking:
            given, chosen = mask_tokens(self.source, MASK_ID, range(1, words.size))
            features = decoder.features(given)  # (B, T, F)
            total, count = chunked_loss(features, words.weight, words.bias, right, counted=chosen)
            return total * (target.numel() / max(count, 1)), target.numel(), None
        if not self.head.is_stateful:
            features = decoder.features(self.source)  # (B, T, F)
            return *chunked_loss(features, words.weight, words.bias, right), None
        made = decoder.carry(self.source, carried)
        total, count = chunked_loss(made.features, words.weight, words.bias, right)
        if hasattr(decoder, "penalty"):
            total = total + decoder.penalty(made, self.source)
        return total, count, made.state

    @torch.no_grad()
    def logps(self, target: Tensor, wanted: Tensor) -> Tensor:
        """(R,) log-probabilities of the target tokens (B, T) that are wanted (B, T), row by row."""
        if not self.head.needs_masking:
            return self._asked(self.source, target, wanted)
        out = target.new_zeros(target.shape, dtype=torch.float32)
        steps = torch.arange(target.shape[1], device=target.device)
        for turn in range(MASK_STRIDE):
            now = self.source.mask & (steps % MASK_STRIDE == turn)  # (B, T)
            given = self.source.with_data(self.source.data.masked_fill(now, MASK_ID))
            now = now & wanted
            out[now] = self._asked(given, target, now).float()
        return out[wanted]

    def _asked(self, given: Padded, target: Tensor, wanted: Tensor) -> Tensor:
        words = self.head.decoder.words
        own = {"back": True} if self.back else {}
        features = self.head.decoder.features(given, **own)[wanted]  # (R, F)
        return token_log_probs(features, words.weight, words.bias, target[wanted])


class LanguageModelHead(nn.Module):
    """A decoder that reads nothing but its own text, in the place of a head.

    A text is read in rows of `view` steps, of which the last `fresh` are new and the others
    context. A state that is carried in training is warmed up by that context instead: after so
    many steps it no longer matters where it began.
    """

    reads, task = "text", "language"

    def __init__(
        self,
        decoder: Any,
        search: SearchSettings,
        first: int,
        last: int,
        window: int,
        overlap: float,
    ):
        super().__init__()
        self.decoder, self.search = decoder, search
        self.first, self.last = first, last  # what stands before a text, and what ends it
        self.graphs: Any = None  # of the decoder's steps, where a device takes them
        limit = decoder.limit
        if limit is not None and window > limit:
            raise UserError(
                f"task.window is {window}, but the decoder sees at most {limit} steps. Lower it, "
                "or raise decoder.limit."
            )
        self.window = window or limit or DEFAULT_WINDOW
        long = self.is_stateful
        self.view = max(STATEFUL_ROW_STEPS, 2 * self.window) if long else self.window
        context = WARMUP_STEPS if long else min(int(overlap * self.window), self.window - 1)
        self.fresh = self.view - context

    @property
    def is_stateful(self) -> bool:
        """Whether its state goes on from piece to piece."""
        return hasattr(self.decoder, "carry")

    @property
    def both(self) -> bool:
        """Whether it sees both sides of a word."""
        return not self.decoder.causal

    @property
    def needs_masking(self) -> bool:
        """Whether a word must be hidden before it can be asked for."""
        return getattr(self.decoder, "by", "") == "mask"

    @property
    def turns(self) -> bool:
        """Whether it can also be asked what stands before, by text that comes from the end."""
        return getattr(self.decoder, "turns", False)

    @property
    def pieces(self) -> Callable[..., list[list[int]]] | None:
        """What turns tokens as they are written into pieces, for a decoder that reads those."""
        return getattr(self.decoder, "pieces", None)

    @property
    def front(self) -> np.ndarray:
        """What stands before a text: (1,) its id, or (1, 1+W) with its pieces."""
        if self.pieces is None:
            return np.array([self.first], np.int64)
        return with_pieces(np.array([self.first]), self.pieces([""]), self.decoder.widest)

    @property
    def note(self) -> str:
        """What one should know of its figures."""
        return PSEUDO_PERPLEXITY_NOTE if self.both else ""

    def start(self, rows: int, device: Any = None) -> Any:
        """The state before the first token."""
        return self.decoder.start(rows, device)

    def forward(self, source: Padded, back: bool = False) -> LMOutput:
        return LMOutput(self, source, back)
