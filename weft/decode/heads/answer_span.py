"""Answer-span head for extractive QA: one state per step -> logits of the start and the end.

B rows   T steps   H width of a state   L longest answer
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.encode.rnn import Recurrent
from weft.errors import UserError
from weft.protocols import Head
from weft.registry import register
from weft.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens

IMPOSSIBLE = float("-inf")


class BestSpan(NamedTuple):
    """The best span of one row, as steps of its states, and its competitors."""

    first: int
    last: int
    score: float  # start logit plus end logit
    nothing: float  # the same for "no answer"; -inf if that is impossible
    total: float  # log Σ exp of the scores of all spans


@dataclass(frozen=True)
class AnswerSpanOutput:
    """Start and end logits of every step; index 0 is "no answer"."""

    starts: Tensor  # (B, 1+T), -inf outside the passage
    ends: Tensor  # (B, 1+T)
    longest: int

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of (B, 2) first and last steps, -1 for none, and the rows.

        The loss of a row is the mean of both cross-entropies.
        """
        both = zip((self.starts, self.ends), (target + 1).unbind(1), strict=True)
        total = torch.stack([F.cross_entropy(s, at, reduction="sum") for s, at in both]).sum()
        return total / 2, len(target)

    def boundary_logits(self) -> np.ndarray:
        """Return the logits (B, 2, 1+T) of starts and ends on the host."""
        logits: np.ndarray = torch.stack([self.starts, self.ends], 1).cpu().numpy()
        return logits

    def decode(self) -> list[BestSpan]:
        """Return the highest-scoring span of each row within the length limit."""
        starts, ends = self.starts[:, 1:], self.ends[:, 1:]  # (B, T)
        wide = min(self.longest, starts.shape[1])
        # For each start the L possible ends: T*L spans instead of T*T.
        near = F.pad(ends, (0, wide - 1), value=IMPOSSIBLE).unfold(1, wide, 1)  # (B, T, L)
        spans = (starts[:, :, None] + near).flatten(1)  # (B, T*L)
        score, index = spans.max(1)  # (B,)
        nothing = self.starts[:, 0] + self.ends[:, 0]  # (B,)
        total = spans.logsumexp(1)  # (B,)
        first, length = index // wide, index % wide
        rows = (x.tolist() for x in (first, first + length, score, nothing, total))
        return [BestSpan(*row) for row in zip(*rows, strict=True)]


@register("head", "span")
class AnswerSpanHead(nn.Module, Head):
    """Linear start and end logits.

    With `own_end` the end has a separate BiLSTM: M² over the modelling part M of a `bidaf`, or over
    whole states; its logit is w·[G; M²] (Seo et al. 2017). "No answer" uses the [CLS] step if there
    is one, else a learned logit (Levy et al. 2017).
    """

    task = "span"

    def __init__(
        self,
        input_size: int,
        outputs: tuple[int, bool],
        frame: SpecialTokens = NO_SPECIAL_TOKENS,
        modelled: int = 0,
        own_end: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes("head 'span'", dropout)
        if not isinstance(outputs, (list, tuple)) or len(outputs) != 2:
            raise UserError("A head for spans needs the task 'span'. Set task.kind to 'span'.")
        self.longest, self.no_answer = outputs
        self.leading = len(frame.before) if frame.each else 0  # special tokens before the passage
        self.marked, self.trailing = bool(frame.before), len(frame.after)
        self.dropout = nn.Dropout(dropout)
        self.modelled = modelled or input_size
        self.start = nn.Linear(input_size, 1)
        self.reader: Recurrent | None = None
        wide = input_size
        if own_end:
            # As wide as its input: the two directions of BiDAF's modelling layer.
            self.reader = Recurrent(self.modelled, -(-self.modelled // 2))
            wide = input_size - self.modelled + self.reader.output_size
        self.end = nn.Linear(wide, 1)
        learned = self.no_answer and not self.marked
        self.nothing = nn.Parameter(torch.zeros(2)) if learned else None

    def forward(self, states: Padded) -> AnswerSpanOutput:
        if not isinstance(states, Padded):
            raise UserError("A head for spans needs a state per step. Set pool.kind to 'none'.")
        starts = self.start(self.dropout(states.data))[..., 0].float()  # (B, T)
        ends = self.end(self.dropout(self._last(states)))[..., 0].float()  # (B, T)
        inside = self._inside(states)  # (B, T)
        with_none = []
        for i, logits in enumerate((starts, ends)):
            none = logits.new_full((len(logits), 1), IMPOSSIBLE)  # (B, 1)
            if self.no_answer:
                learned = self.nothing[i].expand_as(none) if self.nothing is not None else None
                none = logits[:, :1] if learned is None else learned.float()
            logits = logits.masked_fill(~inside, IMPOSSIBLE)  # (B, T)
            with_none.append(torch.cat([none, logits], dim=1))  # (B, 1+T)
        return AnswerSpanOutput(with_none[0], with_none[1], self.longest)

    def _last(self, states: Padded) -> Tensor:
        """Return the features of the end logits: the states, or with those of its BiLSTM."""
        if self.reader is None:
            return states.data
        modelled = states.data[..., -self.modelled :]  # (B, T, 2*H)
        read = self.reader(states.with_data(self.dropout(modelled))).data
        return torch.cat([states.data[..., : -self.modelled], read], dim=2)

    def _inside(self, states: Padded) -> Tensor:
        """Return the mask (B, T) of passage steps, without question and special tokens."""
        steps = torch.arange(states.data.shape[1])
        first = self.leading + (0 if states.second is None else states.second[:, None])
        last = states.lengths[:, None] - self.trailing
        return ((steps >= first) & (steps < last)).to(states.data.device)
