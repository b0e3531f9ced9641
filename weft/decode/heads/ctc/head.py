"""CTC head: a text for more steps than it has tokens, without a decoder (Graves et al. 2006).

B rows   T steps   V tokens, of which id 0 (padding elsewhere) is the blank   L tokens of a text
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.ctc.search import (
    BLANK,
    TokenLM,
    best_path,
    min_steps,
    prefix_beam_search,
    score_tokens,
)
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register
from weft.tokens.vocabulary import SPECIALS, UNK

MAX_BEAMS = 1000


@dataclass(frozen=True)
class CTCOutput:
    """Logits of every step, and the head that decodes them."""

    head: "CTCHead"
    logits: Padded  # (B, T, V)

    @cached_property
    def log_probs(self) -> Tensor:
        """Log-probabilities (B, T, V)."""
        return self.logits.data.float().log_softmax(-1)

    def loss(
        self, target: Tensor, smoothing: float = 0.0, sampling: float = 0.0
    ) -> tuple[Tensor, int]:
        """Return the summed −log P of texts (B, L, 1), EOS included, and their tokens.

        Both numbers of a decoder's loss have no meaning here; the run refuses them.
        """
        ids = target[:, :, 0]
        lengths = (ids >= 0).sum(1) - 1  # the end is not a token here
        # Augmentation may leave a recording too few steps for its text.
        nats = -self.log_likelihood(ids.clamp(min=0), lengths, skip_impossible=True)
        return nats.sum(), max(int(lengths.sum()), 1)

    def log_likelihood(self, ids: Tensor, lengths: Tensor, skip_impossible: bool = False) -> Tensor:
        """Return log P (B,) of texts (B, L), summed over all their paths.

        With `skip_impossible`, texts without a path have 0 and no gradient.
        """
        nats: Tensor = F.ctc_loss(
            self.log_probs.transpose(0, 1), ids, self.logits.lengths.to(ids.device), lengths,
            blank=BLANK, reduction="none", zero_infinity=skip_impossible,
        )  # fmt: skip
        return -nats

    def decode(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the ids (L, 1) of each row's text, and their probabilities (L, 1)."""
        return [score_tokens(row, self.head.search(row)) for row in self.rows()]

    def rows(self) -> list[np.ndarray]:
        """Return the log-probabilities (T, V) of each row, without tokens that stand in no text."""
        table = self.logits.data.detach().float().clone()
        table[:, :, self.head.unwritten] = -torch.inf
        whole = table.log_softmax(-1).cpu().numpy()
        return [row[:n] for row, n in zip(whole, self.logits.lengths.tolist(), strict=True)]


@register("head", "ctc")
class CTCHead(nn.Module, Head):
    """Probabilities of a token or a blank at every step; a text sums those of its paths.

    Texts are found by prefix beam search with `num_beams`, 1 for the best path. A text needs a
    step for each token, and one more between equal neighbours.
    """

    task = "seq2seq"
    can_average = False

    def __init__(
        self,
        input_size: int,
        outputs: tuple[int, int, int],
        num_beams: int = 8,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("head 'ctc'", dropout, num_beams=num_beams)
        if num_beams > MAX_BEAMS:
            raise UserError(f"head 'ctc': num_beams is {num_beams}; at most {MAX_BEAMS}.")
        size, bos, eos = outputs
        self.unwritten = sorted({SPECIALS.index(UNK), bos, eos} - {BLANK})
        self.num_beams = num_beams
        self.lm: TokenLM | None = None
        self.lm_weight, self.token_reward = 0.0, 0.0
        self.dropout = nn.Dropout(dropout)
        self.score = nn.Linear(input_size, size)

    def min_steps(self, target: np.ndarray) -> int:
        """Return the fewest steps that can hold a target (L, 1), EOS included."""
        return min_steps(target[:-1, 0].tolist())

    def search(self, log_probs: np.ndarray) -> list[int]:
        """Return the best text for log-probabilities (T, V)."""
        if self.num_beams == 1 and self.lm is None:
            return best_path(log_probs)
        found = prefix_beam_search(
            log_probs, self.num_beams, self.lm, self.lm_weight, self.token_reward
        )
        return found[0][0]

    def attach(self, lm: TokenLM | None, weight: float = 0.5, token_reward: float = 0.0) -> None:
        """Add the weighted log-probabilities of a language model to the search."""
        self.lm, self.lm_weight, self.token_reward = lm, weight, token_reward

    @contextmanager
    def greedy_decoding(self) -> Iterator[None]:
        """Decode the best path inside the context."""
        kept = self.num_beams, self.lm
        self.num_beams, self.lm = 1, None
        try:
            yield
        finally:
            self.num_beams, self.lm = kept

    def forward(self, states: Padded) -> CTCOutput:
        return CTCOutput(self, states.with_data(self.score(self.dropout(states.data))))


def answer_log_prob(output: CTCOutput, ids: Sequence[int]) -> Tensor:
    """Return log P (B,) of one text for every row."""
    rows, device = len(output.logits), output.logits.data.device
    text = torch.tensor([list(ids)], device=device).expand(rows, -1)
    return output.log_likelihood(text, torch.full((rows,), len(ids), device=device))
