"""A state for every step of a passage -> where an answer begins and where it ends.

B rows   T steps   H width of a state   L steps that an answer may have
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import sensible
from weft.encode.rnn import Recurrent
from weft.errors import UserError
from weft.registry import register
from weft.tokens.special_tokens import BARE, Frame

IMPOSSIBLE = float("-inf")


class BestSpan(NamedTuple):
    """The best span of one row, as steps of its states, and how it compares with all others."""

    first: int
    last: int
    score: float  # of its first step and of its last, added
    nothing: float  # the same of "no answer"; -inf where that is not possible
    total: float  # log Σ exp of the scores of all spans


@dataclass(frozen=True)
class AnswerSpanOutput:
    """How well an answer begins and ends at each step; number 0 is that there is none."""

    starts: Tensor  # (B, 1+T), -inf where no answer can be
    ends: Tensor  # (B, 1+T)
    longest: int

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """The summed loss of (B, 2) first and last steps, -1 for none, and the number of rows.

        Of a row it is the mean of both cross-entropies.
        """
        both = zip((self.starts, self.ends), (target + 1).unbind(1), strict=True)
        total = torch.stack([F.cross_entropy(s, at, reduction="sum") for s, at in both]).sum()
        return total / 2, len(target)

    def decode(self) -> list[BestSpan]:
        """Of each row the span with the highest score that is not too long."""
        starts, ends = self.starts[:, 1:], self.ends[:, 1:]  # (B, T)
        wide = min(self.longest, starts.shape[1])
        # The ends that each start can have, side by side, so that there are T*L spans and not T*T.
        near = F.pad(ends, (0, wide - 1), value=IMPOSSIBLE).unfold(1, wide, 1)  # (B, T, L)
        spans = (starts[:, :, None] + near).flatten(1)  # (B, T*L)
        score, place = spans.max(1)  # (B,)
        nothing = self.starts[:, 0] + self.ends[:, 0]  # (B,)
        total = spans.logsumexp(1)  # (B,)
        first, length = place // wide, place % wide
        rows = (x.tolist() for x in (first, first + length, score, nothing, total))
        return [BestSpan(*row) for row in zip(*rows, strict=True)]


@register("head", "span")
class AnswerSpanHead(nn.Module):
    """A score for the first step of an answer and one for the last, each by a vector.

    With `own_end` the end has a BiLSTM of its own: M² over the part M that a `bidaf` calls its
    model, or over whole states; the score is w·[G; M²] (Seo et al. 2017). That there is no answer
    stands at the first step where the network has one in front ([CLS]), and otherwise is a learned
    score of its own (Levy et al. 2017).
    """

    task = "span"

    def __init__(
        self,
        input_size: int,
        outputs: tuple[int, bool],
        frame: Frame = BARE,
        modelled: int = 0,
        own_end: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        sensible("head 'span'", dropout)
        if not isinstance(outputs, (list, tuple)) or len(outputs) != 2:
            raise UserError("A head for spans needs the task 'span'. Set task.kind to 'span'.")
        self.longest, self.no_answer = outputs
        self.leading = len(frame.before) if frame.each else 0  # in front of the passage itself
        self.marked, self.trailing = bool(frame.before), len(frame.after)
        self.dropout = nn.Dropout(dropout)
        self.modelled = modelled or input_size
        self.start = nn.Linear(input_size, 1)
        self.reader: Recurrent | None = None
        wide = input_size
        if own_end:
            # As wide as what it reads, which is what both directions of a BiDAF's model make.
            self.reader = Recurrent(self.modelled, -(-self.modelled // 2))
            wide = input_size - self.modelled + self.reader.output_size
        self.end = nn.Linear(wide, 1)
        learned = self.no_answer and not self.marked
        self.nothing = nn.Parameter(torch.zeros(2)) if learned else None

    def forward(self, states: Padded) -> AnswerSpanOutput:
        if not isinstance(states, Padded):
            raise UserError("A head for spans reads every step. Set pool.kind to 'none'.")
        starts = self.start(self.dropout(states.data))[..., 0].float()  # (B, T)
        ends = self.end(self.dropout(self._last(states)))[..., 0].float()  # (B, T)
        inside = self._inside(states)  # (B, T)
        found = []
        for i, scores in enumerate((starts, ends)):
            none = scores.new_full((len(scores), 1), IMPOSSIBLE)  # (B, 1)
            if self.no_answer:
                learned = self.nothing[i].expand_as(none) if self.nothing is not None else None
                none = scores[:, :1] if learned is None else learned.float()
            found.append(
                torch.cat([none, scores.masked_fill(~inside, IMPOSSIBLE)], dim=1)
            )  # (B, 1+T)
        return AnswerSpanOutput(found[0], found[1], self.longest)

    def _last(self, states: Padded) -> Tensor:
        """What the end is scored by: the states, or those of its own BiLSTM."""
        if self.reader is None:
            return states.data
        own = states.data[..., -self.modelled :]  # (B, T, 2*H)
        read = self.reader(states.with_data(self.dropout(own))).data
        return torch.cat([states.data[..., : -self.modelled], read], dim=2)

    def _inside(self, states: Padded) -> Tensor:
        """(B, T) the steps of the passage, without the question and what stands around both."""
        steps = torch.arange(states.data.shape[1])
        first = self.leading + (0 if states.second is None else states.second[:, None])
        last = states.lengths[:, None] - self.trailing
        return ((steps >= first) & (steps < last)).to(states.data.device)
