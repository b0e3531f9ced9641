"""Linear-chain conditional random field over label sequences (Lafferty et al. 2001).

B rows   T steps   C labels
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch.padded import Padded
from weft.decode.heads import crf_dp
from weft.decode.label_losses import weighted_sum
from weft.errors import UserError

AllowedTransitions = tuple[
    np.ndarray, np.ndarray, np.ndarray
]  # booleans: start (C,), pairs (C, C), end (C,)


class CRF(nn.Module):
    """A CRF with emission, transition, start and end scores.

    `allowed` lists the labels that may begin, follow each other and end; sequences that violate it
    have zero probability and are never predicted. `names` are for messages. All computation is in
    double precision if the device has it, whatever the emissions' dtype.
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
        self._possible: list[bool] = [False]  # by length: is any sequence allowed
        self._ahead = self.rules[0]  # labels an allowed sequence of the next length can end in

    def log_partition(self, emissions: Padded) -> Tensor:
        """Return the log partition function over all allowed sequences (B,)."""
        return _match_dtype(self._log_partition(emissions), emissions)

    def score(self, emissions: Padded, tags: Tensor) -> Tensor:
        """Return the score of label sequences (B,); raise a UserError if one is forbidden."""
        return _match_dtype(self._score(emissions, tags), emissions)

    def loss(
        self,
        emissions: Padded,
        tags: Tensor,
        weights: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, int]:
        """Return the summed negative log-likelihood of label sequences, and their steps.

        With `weights` of the labels (C,) it is the softmax-margin loss (Gimpel and Smith 2010),
        log Σ_y exp[s(y) + cost(y)] − s(g), where cost(y) = Σ_t (y_t ≠ g_t) log w(g_t): whatever
        differs from the gold label g_t is w(g_t) times as probable while it learns. For a word
        that fits well, the gradient is w(g_t) times that of the likelihood. `row_weights` (B,)
        multiply the losses of sequences.
        """
        rivals = emissions
        if weights is not None:
            rivals = _add_cost(emissions, tags, weights.log())
        # The difference of two large numbers: subtract before casting down.
        nats = self._log_partition(rivals) - self._score(emissions, tags)  # (B,)
        total = weighted_sum(nats, row_weights)
        return _match_dtype(total, emissions), int(emissions.lengths.sum())

    def margin_loss(
        self,
        emissions: Padded,
        tags: Tensor,
        weights: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> tuple[Tensor, int]:
        """Return the summed structured hinge loss of label sequences, and their steps.

        max_y [s(y) + Σ_t (y_t ≠ g_t)] − s(g): the gold sequence g must beat every other by as many
        points as steps differ (Taskar et al. 2003), or with `weights` of the labels (C,) by
        Σ_t (y_t ≠ g_t) w(g_t). The search needs no gradient.
        """
        if weights is None:
            weights = torch.ones_like(self.start)
        with torch.no_grad():
            best, _ = self.viterbi(_add_cost(emissions, tags, weights))  # (B, T)
        gold = tags.masked_fill(~emissions.mask, 0)  # (B, T)
        missed = (best != gold) & emissions.mask  # (B, T)
        wrong = torch.where(missed, weights[gold], 0).sum(1)  # (B,)
        margins = self._score(emissions, best) + wrong - self._score(emissions, tags)
        # Ties in rounding could fall below 0.
        total = weighted_sum(margins.clamp(min=0), row_weights)
        return _match_dtype(total, emissions), int(emissions.lengths.sum())

    @torch.no_grad()
    def viterbi(self, emissions: Padded) -> tuple[Tensor, Tensor]:
        """Return the best allowed sequence of each row (B, T), zero-padded, and its score (B,)."""
        self._check_lengths(emissions)
        tags = crf_dp.viterbi(self._clean(emissions), self._weights(), emissions.lengths)  # (B, T)
        return tags, self.score(emissions, tags)

    @torch.no_grad()
    def best(self, emissions: Padded, count: int) -> list[tuple[Tensor, Tensor]]:
        """Return the `count` best allowed sequences of each row (count, T) and their scores."""
        self._check_lengths(emissions)
        weights = self._weights()
        rows = zip(emissions.data, emissions.lengths.tolist(), strict=True)
        return [crf_dp.nbest(row, weights, length, count) for row, length in rows]

    @torch.no_grad()
    def marginals(self, emissions: Padded) -> Tensor:
        """Return the probability of each label at each step (B, T, C), zero in the padding."""
        self._check_lengths(emissions)
        data, weights, lengths = self._clean(emissions), self._weights(), emissions.lengths
        exact = self._exact(data, weights)
        table = crf_dp.forward_backward(data, weights, lengths, exact)
        probs = crf_dp.marginals(table, lengths, exact).transpose(0, 1)  # (B, T, C)
        return _match_dtype(probs, emissions)

    def _log_partition(self, emissions: Padded) -> Tensor:
        self._check_lengths(emissions)
        data, weights = self._clean(emissions), self._weights()
        exact = self._exact(data.detach(), weights)
        arguments = (data, *weights, emissions.lengths, exact)
        total: Tensor = crf_dp.LogPartition.apply(*arguments)  # type: ignore[no-untyped-call]  # not annotated by torch
        return total  # (B,)

    def _score(self, emissions: Padded, tags: Tensor) -> Tensor:
        real, lengths = emissions.mask, emissions.lengths.to(tags.device)
        tags = tags.masked_fill(~real, 0)  # (B, T)
        last = tags.gather(1, lengths[:, None] - 1)[:, 0]  # (B,)
        if not self.free:
            self._check_tags(tags, last, real)
        wide = crf_dp.accumulation_dtype(tags.device)
        chosen = self._clean(emissions).gather(2, tags[:, :, None])[:, :, 0].to(wide)  # (B, T)
        # One flat index per pair: its gradient is cheaper than that of two indices.
        pairs = tags[:, :-1] * len(self.start) + tags[:, 1:]  # (B, T-1)
        moves = self.transitions.flatten()[pairs].to(wide).masked_fill(~real[:, 1:], 0)
        total = chosen.sum(1) + moves.sum(1)  # (B,)
        return total + self.start[tags[:, 0]] + self.end[last]

    def _weights(self) -> crf_dp.CRFWeights:
        if self.free:
            return crf_dp.CRFWeights(self.transitions, self.start, self.end)
        learned = (self.transitions, self.start, self.end)
        rules = (self.may_follow, self.may_start, self.may_end)
        pairs = zip(learned, rules, strict=True)
        return crf_dp.CRFWeights(*(w.masked_fill(~rule, -torch.inf) for w, rule in pairs))

    def _clean(self, emissions: Padded) -> Tensor:
        """Return the emissions with zeros in the padding, so garbage there cannot become NaN."""
        if emissions.full:
            return emissions.data
        return emissions.data.masked_fill(~emissions.mask[:, :, None], 0)

    def _exact(self, data: Tensor, weights: crf_dp.CRFWeights) -> bool:
        """Return True if scores are so far apart that exponential space could lose the best path.

        Every label reaches every other within `mixing` steps. So the smallest relevant sum of a
        step is at most that many steps' spread below the largest.
        """
        with torch.no_grad():
            spread = (data.amax(2) - data.amin(2)).amax().to(crf_dp.accumulation_dtype(data.device))
            for each, times in zip(weights, (1, 0.5, 0.5), strict=True):
                low = each.masked_fill(each == -torch.inf, torch.inf).amin()
                spread = spread + (each.amax() - low) * times
        max_spread = 0.8 * math.log(torch.finfo(crf_dp.accumulation_dtype(data.device)).max)
        steps = self.mixing + 1
        # `not <`, so that NaN is exact too.
        return not (float(spread) + math.log(len(self.start))) * steps < max_spread

    def _check_lengths(self, emissions: Padded) -> None:
        """Raise a UserError for a length without any allowed sequence."""
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
                    f"Row {row}: the transitions allow no sequence of {length} labels. "
                    "Loosen them, or leave out such sentences."
                )

    def _check_tags(self, tags: Tensor, last: Tensor, real: Tensor) -> None:
        """Raise a UserError for the first forbidden sequence."""
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
            f"Row {row} of the labels violates the allowed transitions: {what}. "
            "Fix the labels, or allow it."
        )


def _add_cost(emissions: Padded, tags: Tensor, cost: Tensor) -> Padded:
    """Return the emissions plus the cost (C,) of missing the gold label, but at the gold label."""
    gold = tags.masked_fill(~emissions.mask, 0)[:, :, None]  # (B, T, 1)
    added = cost.to(emissions.data.dtype)[gold]  # (B, T, 1)
    return emissions.with_data((emissions.data + added).scatter_add(2, gold, -added))


def _match_dtype(values: Tensor, emissions: Padded) -> Tensor:
    """Cast to the dtype of the emissions, at least float32."""
    return values.to(torch.promote_types(emissions.data.dtype, torch.float32))


def _mixing_time(start: np.ndarray, pairs: np.ndarray, end: np.ndarray) -> float:
    """Return the number of steps in which every label reaches every other; inf if none does.

    Labels that no allowed sequence contains are ignored.
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
