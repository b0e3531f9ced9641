"""A linear-chain conditional random field: scores of whole label sequences (Lafferty et al. 2001).

B rows   T steps   C labels
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch.padded import Padded
from weft.decode.heads import crf_dp
from weft.errors import UserError

AllowedTransitions = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # booleans: start (C,), pairs (C, C), end (C,)


class CRF(nn.Module):
    """Scores of label sequences: emissions, and what follows, begins and ends each sequence.

    `allowed` says which labels may begin, follow each other and end; sequences that break it have
    no probability and never come out. `names` of the labels are for messages. All computing is in
    double precision where the device has it, whatever the emissions are in.
    """

    may_start: Tensor  # (C,)
    may_follow: Tensor  # (C, C)
    may_end: Tensor  # (C,)

    def __init__(
        self, labels: int, allowed: AllowedTransitions | None = None, names: Sequence[str] = ()
    ):
        super().__init__()
        assert labels >= 1
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # (C, C) from row to column
        self.start = nn.Parameter(torch.zeros(labels))  # (C,)
        self.end = nn.Parameter(torch.zeros(labels))  # (C,)
        self.names = list(names) or [str(i) for i in range(labels)]
        assert len(self.names) == labels
        self.free = allowed is None or all(bool(np.all(each)) for each in allowed)
        start, pairs, end = allowed or (np.ones(labels), np.ones((labels, labels)), np.ones(labels))
        self.rules = tuple(np.asarray(each, bool) for each in (start, pairs, end))
        assert [r.shape for r in self.rules] == [(labels,), (labels, labels), (labels,)]
        for name, rule in zip(("may_start", "may_follow", "may_end"), self.rules, strict=True):
            self.register_buffer(name, torch.from_numpy(rule), persistent=False)
        self.mixing = _mixing_time(*self.rules)
        self._possible: list[bool] = [False]  # whether any sequence of that length is allowed
        self._ahead = self.rules[0]  # labels that an allowed sequence of the next length can end in

    def log_partition(self, emissions: Padded) -> Tensor:
        """Log of the summed exponentials of the scores of all allowed sequences (B,)."""
        return _match_dtype(self._log_partition(emissions), emissions)

    def score(self, emissions: Padded, tags: Tensor) -> Tensor:
        """The score of these sequences (B,); a UserError where one is not allowed."""
        return _match_dtype(self._score(emissions, tags), emissions)

    def loss(self, emissions: Padded, tags: Tensor) -> tuple[Tensor, int]:
        """The negative log-likelihoods of these sequences, summed, and how many steps they have."""
        # The difference of two large numbers, so it is taken before they are made narrow.
        total = (self._log_partition(emissions) - self._score(emissions, tags)).sum()
        return _match_dtype(total, emissions), int(emissions.lengths.sum())

    @torch.no_grad()
    def viterbi(self, emissions: Padded) -> tuple[Tensor, Tensor]:
        """The best allowed sequence of each row (B, T), zero in the padding, and its score (B,)."""
        self._check_lengths(emissions)
        tags = crf_dp.viterbi(self._clean(emissions), self._weights(), emissions.lengths)  # (B, T)
        return tags, self.score(emissions, tags)

    @torch.no_grad()
    def best(self, emissions: Padded, count: int) -> list[tuple[Tensor, Tensor]]:
        """The `few` best allowed sequences of each row, (few, T) without padding, and scores."""
        self._check_lengths(emissions)
        weights = self._weights()
        rows = zip(emissions.data, emissions.lengths.tolist(), strict=True)
        return [crf_dp.nbest(row, weights, length, count) for row, length in rows]

    @torch.no_grad()
    def marginals(self, emissions: Padded) -> Tensor:
        """The probability of each label at each step (B, T, C), zero in the padding."""
        self._check_lengths(emissions)
        data, weights, lengths = self._clean(emissions), self._weights(), emissions.lengths
        exact = self._exact(data, weights)
        swept = crf_dp.forward_backward(data, weights, lengths, exact)
        found = crf_dp.marginals(swept, lengths, exact).transpose(0, 1)  # (B, T, C)
        return _match_dtype(found, emissions)

    def _log_partition(self, emissions: Padded) -> Tensor:
        self._check_lengths(emissions)
        data, weights = self._clean(emissions), self._weights()
        exact = self._exact(data.detach(), weights)
        return crf_dp.LogPartition.apply(data, *weights, emissions.lengths, exact)  # (B,)

    def _score(self, emissions: Padded, tags: Tensor) -> Tensor:
        real, lengths = emissions.mask, emissions.lengths.to(tags.device)
        tags = tags.masked_fill(~real, 0)  # (B, T)
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]  # (B,)
        if not self.free:
            self._check_tags(tags, last, real)
        wide = crf_dp.accumulation_dtype(tags.device)
        own = self._clean(emissions).gather(2, tags[:, :, None])[:, :, 0].to(wide)  # (B, T)
        # One place of a flat table a pair: its gradient is cheaper than that of two indices.
        pairs = tags[:, :-1] * len(self.start) + tags[:, 1:]  # (B, T-1)
        moves = self.transitions.flatten()[pairs].to(wide).masked_fill(~real[:, 1:], 0)
        total = own.sum(1) + moves.sum(1)  # (B,)
        return total + self.start[tags[:, 0]] + self.end[last]

    def _weights(self) -> crf_dp.CRFWeights:
        if self.free:
            return crf_dp.CRFWeights(self.transitions, self.start, self.end)
        learned = (self.transitions, self.start, self.end)
        rules = (self.may_follow, self.may_start, self.may_end)
        pairs = zip(learned, rules, strict=True)
        return crf_dp.CRFWeights(*(w.masked_fill(~rule, -torch.inf) for w, rule in pairs))

    def _clean(self, emissions: Padded) -> Tensor:
        """The emissions with zeros in the padding, so that garbage there cannot become NaN."""
        if emissions.full:
            return emissions.data
        return emissions.data.masked_fill(~emissions.mask[:, :, None], 0)

    def _exact(self, data: Tensor, weights: crf_dp.CRFWeights) -> bool:
        """Whether scores lie so far apart that the fast way could lose the best sequence.

        From any label every other is `mixing` steps away or less. So whatever the sums of a step
        are, the smallest that matters is at most that many steps' spread below the largest.
        """
        with torch.no_grad():
            spread = (data.amax(2) - data.amin(2)).amax().to(crf_dp.accumulation_dtype(data.device))
            for each, times in zip(weights, (1, 0.5, 0.5), strict=True):
                low = each.masked_fill(each == -torch.inf, torch.inf).amin()
                spread = spread + (each.amax() - low) * times
        room = 0.8 * math.log(torch.finfo(crf_dp.accumulation_dtype(data.device)).max)
        steps = self.mixing + 1
        # `not <`, so that NaN goes the safe way as well.
        return not (float(spread) + math.log(len(self.start))) * steps < room

    def _check_lengths(self, emissions: Padded) -> None:
        """A UserError for a length at which nothing is allowed."""
        lengths = emissions.lengths.tolist()
        assert min(lengths, default=1) >= 1, "a row without steps has no labels"
        if self.free:
            return
        _, pairs, end = self.rules
        while len(self._possible) <= max(lengths, default=0):
            self._possible.append(bool((self._ahead & end).any()))
            self._ahead = self._ahead @ pairs
        for row, length in enumerate(lengths):
            if not self._possible[length]:
                raise UserError(
                    f"Row {row}: no sequence of {length} labels is allowed by the transitions. "
                    "Loosen them, or leave out such sentences."
                )

    def _check_tags(self, tags: Tensor, last: Tensor, real: Tensor) -> None:
        """A UserError for the first sequence that breaks the rules."""
        begins = self.may_start[tags[:, 0]]  # (B,)
        follows = self.may_follow[tags[:, :-1], tags[:, 1:]] | ~real[:, 1:]  # (B, T-1)
        ends = self.may_end[last]  # (B,)
        good = begins & follows.all(1) & ends  # (B,)
        if bool(good.all()):
            return
        row = int(good.logical_not().nonzero()[0, 0])
        if not begins[row]:
            what = f"step 0 is '{self.names[int(tags[row, 0])]}', which may not begin a sequence"
        elif not follows[row].all():
            step = 1 + int(follows[row].logical_not().nonzero()[0, 0])
            before, here = (self.names[int(tags[row, step - k])] for k in (1, 0))
            what = f"step {step} is '{here}', which may not follow '{before}'"
        else:
            what = f"the last label is '{self.names[int(last[row])]}', which may not end a sequence"
        raise UserError(
            f"Row {row} of the labels breaks the allowed transitions: {what}. "
            "Repair the labels, or allow it."
        )


def _match_dtype(found: Tensor, emissions: Padded) -> Tensor:
    """In the precision of the emissions, at least single."""
    return found.to(torch.promote_types(emissions.data.dtype, torch.float32))


def _mixing_time(start: np.ndarray, pairs: np.ndarray, end: np.ndarray) -> float:
    """In how many steps exactly one comes from any label to any other; inf: in no number of them.

    Labels that no allowed sequence can hold do not count.
    """
    begins, ends = start, end
    for _ in start:
        begins, ends = begins | (begins @ pairs), ends | (pairs @ ends)
    useful = begins & ends
    if not useful.any():
        return math.inf
    step = pairs[np.ix_(useful, useful)]
    reached = step
    for steps in range(1, 65):
        if reached.all():
            return steps
        reached = reached @ step
    return math.inf
