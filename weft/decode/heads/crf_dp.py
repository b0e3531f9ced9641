"""Sums and maxima over every label sequence of a linear chain (Lafferty et al. 2001).

Sums run in exponential space, where a step is one matrix product, rescaled at every step; forwards
and backwards together, so that the gradient, which is the marginals, needs no second loop.
B rows   T steps   C labels
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


class CRFWeights(NamedTuple):
    """Scores of one label after another, of the first and of the last; -inf where forbidden."""

    transitions: Tensor  # (C, C) from row to column
    start: Tensor  # (C,)
    end: Tensor  # (C,)


class ForwardTable(NamedTuple):
    """What is left of one pass over the steps, in exponential or logarithmic space."""

    total: Tensor  # (B,) log of the sum over all sequences
    left: Tensor  # (T, B, C) sums over what leads to a label, the step's own emission included
    right: Tensor  # (T, B, C) and over what follows it, the step's own emission included too
    own: Tensor  # (T, B, C) the emissions
    sizes: Tensor  # (T, B, 1) what `left` was divided by at each step


class LogPartition(torch.autograd.Function):
    """Log of the summed scores of all sequences (B,), wide; its gradient is the expected counts."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,  # (B, T, C), zero in the padding
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        lengths: Tensor,  # (B,) on the host
        exact: bool,
    ) -> Tensor:
        weights = CRFWeights(transitions, start, end)
        swept = forward_backward(emissions, weights, lengths, exact, any(ctx.needs_input_grad))
        ctx.save_for_backward(*weights, lengths, *swept)
        ctx.exact, ctx.kinds = exact, [emissions.dtype, *(w.dtype for w in weights)]
        return swept.total

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        transitions, start, end, lengths, *rest = ctx.saved_tensors
        swept = ForwardTable(*rest)
        weights = CRFWeights(transitions, start, end)
        share = given[0].to(swept.total.dtype)[:, None]  # (B, 1)
        single = marginals(swept, lengths, ctx.exact).mul_(share)  # (T, B, C)
        pairs = _expected_transitions(swept, weights, lengths, ctx.exact, share)  # (C, C)
        rows = torch.arange(len(lengths), device=single.device)
        last = single[_to_device(lengths, single) - 1, rows]  # (B, C)
        found = (single.transpose(0, 1), pairs, single[0].sum(0), last.sum(0))
        return (*(x.to(kind) for x, kind in zip(found, ctx.kinds, strict=True)), None, None)


def forward_backward(
    emissions: Tensor, weights: CRFWeights, lengths: Tensor, exact: bool, both: bool = True
) -> ForwardTable:
    """One pass over the steps of (B, T, C) emissions; without `both`, only from the left.

    In exponential space, what is more than e^700 times smaller than the best of its step is lost.
    With `exact` the pass runs in logarithmic space, where nothing is, and takes longer.
    """
    kind = accumulation_dtype(emissions.device)
    with torch.autocast(emissions.device.type, enabled=False):
        own = emissions.detach().to(kind).transpose(0, 1)  # (T, B, C)
        wide = CRFWeights(*(w.detach().to(kind) for w in weights))
        return (_in_log_space if exact else _in_exponential_space)(own, wide, lengths, both)


@lru_cache
def accumulation_dtype(device: torch.device) -> torch.dtype:
    """Double precision, except on the devices that have none."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return torch.float32
    return torch.float64


def _in_exponential_space(
    own: Tensor, weights: CRFWeights, lengths: Tensor, both: bool
) -> ForwardTable:
    steps, rows, _ = own.shape
    tops = own.amax(2, keepdim=True)  # (T, B, 1)
    own = (own - tops).exp_()
    tops_of = [w.amax() for w in weights]
    step, start, end = ((w - top).exp_() for w, top in zip(weights, tops_of, strict=True))
    sides = 2 if both else 1
    # The pass from the right is the one from the left over reversed rows, with the matrix turned.
    matrices = torch.stack([step, step.T])[:sides]  # (S, C, C)
    inputs = torch.stack([own, own[_reversal_index(lengths, own)]][:sides], 1)  # (T, S, B, C)
    sums = torch.empty_like(inputs)
    sizes = torch.empty_like(inputs[..., :1])
    first = torch.stack([start, end])[:sides, None]
    torch.mul(inputs[0], first, out=sums[0])
    for t in range(steps):
        now = sums[t]
        if t:
            torch.bmm(sums[t - 1], matrices, out=now)
            now.mul_(inputs[t])
        torch.amax(now, 2, keepdim=True, out=sizes[t])
        # Padding after a label that nothing may follow would divide by zero.
        now.div_(sizes[t].clamp_(min=torch.finfo(now.dtype).tiny))
    left, sizes = sums[:, 0], sizes[:, 0]
    right = sums[:, 1][_reversal_index(lengths, own)] if both else left[:0]
    place, each = _to_device(lengths, own), torch.arange(rows, device=own.device)
    grown = (sizes.log() + tops).cumsum(0)[place - 1, each, 0]  # (B,)
    closed = (left[place - 1, each] @ end).log()  # (B,)
    total = grown + closed + tops_of[1] + tops_of[2] + (place - 1) * tops_of[0]  # (B,)
    return ForwardTable(total, left, right, own, sizes)


def _in_log_space(own: Tensor, weights: CRFWeights, lengths: Tensor, both: bool) -> ForwardTable:
    rows = torch.arange(own.shape[1], device=own.device)
    back = _reversal_index(lengths, own)

    def pass_over(inputs: Tensor, first: Tensor, matrix: Tensor) -> Tensor:
        sums = [inputs[0] + first]
        for now in inputs[1:]:
            sums.append((sums[-1][:, :, None] + matrix).logsumexp(1) + now)
        return torch.stack(sums)

    left = pass_over(own, weights.start, weights.transitions)  # (T, B, C)
    right = left[:0]
    if both:
        right = pass_over(own[back], weights.end, weights.transitions.T)[back]
    total = (left[_to_device(lengths, own) - 1, rows] + weights.end).logsumexp(1)  # (B,)
    return ForwardTable(total, left, right, own, left[..., :1])


def marginals(swept: ForwardTable, lengths: Tensor, exact: bool) -> Tensor:
    """Probability of each label at each step (T, B, C), zero in the padding."""
    if exact:
        found = (swept.left + swept.right - swept.own - swept.total[:, None]).exp_()
    else:
        found = (swept.left * swept.right).div_(swept.own)
        found.div_(found.sum(2, keepdim=True))
    return found.masked_fill_(~_step_mask(lengths, found), 0)


def _expected_transitions(
    swept: ForwardTable, weights: CRFWeights, lengths: Tensor, exact: bool, share: Tensor
) -> Tensor:
    """Expected count of each label after each other (C, C), rows weighted by their share (B, 1)."""
    left, right, own = swept.left, swept.right, swept.own
    wide = weights.transitions.to(left.dtype)
    real = _step_mask(lengths, left)[1:]
    if exact:
        found = torch.zeros_like(wide)  # (C, C)
        for t in range(1, len(left)):
            after = (right[t] - swept.total[:, None]).masked_fill_(~real[t - 1], -torch.inf)
            joint = (left[t - 1][:, :, None] + wide + after[:, None]).exp_()  # (B, C, C)
            found += (joint * share[:, :, None]).sum(0)
        return found
    if len(left) == 1:
        return torch.zeros_like(wide)
    size = (left[1:] * right[1:]).div_(own[1:]).sum(2, keepdim=True).mul_(swept.sizes[1:])
    after = (right[1:] * (share / size)).masked_fill_(~real, 0)
    counts = left[:-1].flatten(0, 1).T @ after.flatten(0, 1)  # (C, C)
    return counts.mul_((wide - wide.amax()).exp_())


def viterbi(emissions: Tensor, weights: CRFWeights, lengths: Tensor) -> Tensor:
    """The labels of the best sequence of each row (B, T), zero in the padding."""
    own = emissions.detach().to(torch.promote_types(emissions.dtype, torch.float32)).transpose(0, 1)
    step, start, end = (w.detach().to(own.dtype) for w in weights)
    into = step.T.contiguous()
    best = torch.empty_like(own, memory_format=torch.contiguous_format)  # (T, B, C)
    best[0] = own[0] + start
    for t in range(1, len(own)):
        # Only the maximum here: which label it came from is looked up along the best path alone.
        now = (best[t - 1][:, None] + into).amax(2).add_(own[t])
        best[t] = now.sub_(now.amax(1, keepdim=True))
    place = _to_device(lengths, own)
    label = torch.zeros_like(place)
    path = []
    for t in reversed(range(len(own))):
        last = place == t + 1
        follows = torch.where(last[:, None], end, into[label])  # (B, C)
        label = torch.where(place > t, (best[t] + follows).argmax(1), 0)
        path.append(label)
    return torch.stack(path[::-1], 1)


def nbest(emissions: Tensor, weights: CRFWeights, length: int, count: int) -> tuple[Tensor, Tensor]:
    """The `few` best sequences of one row (few, T) and their scores, best first; fewer if so."""
    own = emissions[:length].detach().to(accumulation_dtype(emissions.device))
    step, start, end = (w.detach().to(own.dtype) for w in weights)
    score = (own[0] + start)[None]  # (K, C) best ways to a label, best first
    origins = []
    for now in own[1:]:
        ways = (score[:, :, None] + step).flatten(0, 1)  # (K*C, C)
        score, origin = ways.topk(min(count, len(ways)), 0)
        score = score + now
        origins.append(origin)
    scores, place = (score + end).flatten().topk(min(count, score.numel()))
    place = place[scores > -torch.inf]
    labels = own.shape[1]
    path = [place % labels]
    for origin in reversed(origins):
        place = origin.flatten()[place]
        path.append(place % labels)
    return torch.stack(path[::-1], 1), scores[: len(place)]


def _to_device(lengths: Tensor, like: Tensor) -> Tensor:
    return lengths.to(like.device)


def _step_mask(lengths: Tensor, like: Tensor) -> Tensor:
    """True at the real steps of (T, B, ...), as (T, B, 1)."""
    steps = torch.arange(len(like), device=like.device)[:, None]
    return (steps < _to_device(lengths, like))[..., None]


def _reversal_index(lengths: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """An index that turns the real steps of each row of (T, B, ...) round."""
    steps = torch.arange(len(like), device=like.device)[:, None]
    place = _to_device(lengths, like)
    rows = torch.arange(len(place), device=like.device)
    return torch.where(steps < place, place - 1 - steps, steps), rows
