"""Dynamic programs of a linear-chain CRF: forward–backward, Viterbi, n-best (Lafferty et al. 2001).

Sums run in exponential space, where a step is one matrix product, rescaled at every step. Forward
and backward passes run together, so the gradient (the marginals) needs no second loop.
B rows   T steps   C labels
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor


class CRFWeights(NamedTuple):
    """Scores of transitions, of the first and of the last label; -inf if forbidden."""

    transitions: Tensor  # (C, C) from row to column
    start: Tensor  # (C,)
    end: Tensor  # (C,)


class ForwardTable(NamedTuple):
    """Forward (α) and backward (β) tables, in exponential or logarithmic space."""

    total: Tensor  # (B,) log partition function
    alpha: Tensor  # (T, B, C) forward sums, including the step's emission
    beta: Tensor  # (T, B, C) backward sums, including the step's emission
    emissions: Tensor  # (T, B, C)
    scales: Tensor  # (T, B, 1) divisor of `alpha` at each step


class LogPartition(torch.autograd.Function):
    """Log partition function (B,) in the accumulation dtype; its gradient is expected counts."""

    @staticmethod
    def forward(
        ctx: Any,  # of autograd: holds whatever is assigned to it
        emissions: Tensor,  # (B, T, C), zero in the padding
        transitions: Tensor,
        start: Tensor,
        end: Tensor,
        lengths: Tensor,  # (B,) on the host
        exact: bool,
    ) -> Tensor:
        weights = CRFWeights(transitions, start, end)
        table = forward_backward(emissions, weights, lengths, exact, any(ctx.needs_input_grad))
        ctx.save_for_backward(*weights, lengths, *table)
        ctx.exact, ctx.dtypes = exact, [emissions.dtype, *(w.dtype for w in weights)]
        return table.total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        transitions, start, end, lengths, *rest = ctx.saved_tensors
        table = ForwardTable(*rest)
        weights = CRFWeights(transitions, start, end)
        grad = grads[0].to(table.total.dtype)[:, None]  # (B, 1)
        single = marginals(table, lengths, ctx.exact).mul_(grad)  # (T, B, C)
        pairs = _expected_transitions(table, weights, lengths, ctx.exact, grad)  # (C, C)
        rows = torch.arange(len(lengths), device=single.device)
        last = single[_to_device(lengths, single) - 1, rows]  # (B, C)
        out = (single.transpose(0, 1), pairs, single[0].sum(0), last.sum(0))
        return (*(x.to(dtype) for x, dtype in zip(out, ctx.dtypes, strict=True)), None, None)


def forward_backward(
    emissions: Tensor, weights: CRFWeights, lengths: Tensor, exact: bool, both: bool = True
) -> ForwardTable:
    """Run the forward (and, with `both`, backward) pass over emissions (B, T, C).

    Exponential space loses values more than e^700 times smaller than the best of their step. With
    `exact` the pass runs in log space, which loses nothing and is slower.
    """
    dtype = accumulation_dtype(emissions.device)
    with torch.autocast(emissions.device.type, enabled=False):
        by_step = emissions.detach().to(dtype).transpose(0, 1)  # (T, B, C)
        wide = CRFWeights(*(w.detach().to(dtype) for w in weights))
        return (_in_log_space if exact else _in_exponential_space)(by_step, wide, lengths, both)


@lru_cache
def accumulation_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on devices without it."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (TypeError, RuntimeError):
        return torch.float32
    return torch.float64


def _in_exponential_space(
    by_step: Tensor, weights: CRFWeights, lengths: Tensor, both: bool
) -> ForwardTable:
    """Multiply instead of adding logarithms: αₜ = (αₜ₋₁ A) ⊙ eₜ, rescaled at every step."""
    steps, rows, _ = by_step.shape
    # exp(x - max x), so that no exponential overflows; the maxima return in the total.
    tops = by_step.amax(2, keepdim=True)  # (T, B, 1)
    by_step = (by_step - tops).exp_()
    weight_tops = [w.amax() for w in weights]
    step, start, end = ((w - top).exp_() for w, top in zip(weights, weight_tops, strict=True))
    # The backward pass is a forward pass over reversed rows with the transposed matrix, so both
    # passes share one loop.
    sides = 2 if both else 1
    matrices = torch.stack([step, step.T])[:sides]  # (S, C, C)
    back = _reversal_index(lengths, by_step)
    inputs = torch.stack([by_step, by_step[back]][:sides], 1)  # (T, S, B, C)
    sums = torch.empty_like(inputs)
    sizes = torch.empty_like(inputs[..., :1])
    # The first step: α₁ = start ⊙ e₁, and from the other side end ⊙ e of the last step.
    first = torch.stack([start, end])[:sides, None]
    torch.mul(inputs[0], first, out=sums[0])
    for t in range(steps):
        now = sums[t]
        if t:
            # Sum over the label before, for every label at once: one matrix product.
            torch.bmm(sums[t - 1], matrices, out=now)
            # Then the emission of this step.
            now.mul_(inputs[t])
        # Divide by the largest sum, or long rows would underflow; remember the divisor.
        torch.amax(now, 2, keepdim=True, out=sizes[t])
        # Padding after a label without successors would divide by zero.
        now.div_(sizes[t].clamp_(min=torch.finfo(now.dtype).tiny))
    alpha, sizes = sums[:, 0], sizes[:, 0]
    beta = sums[:, 1][back] if both else alpha[:0]
    # log Z = log Σ α_last ⊙ end, plus the logarithms of everything that was divided out.
    ends, each = _to_device(lengths, by_step), torch.arange(rows, device=by_step.device)
    scaled = (sizes.log() + tops).cumsum(0)[ends - 1, each, 0]  # (B,)
    closed = (alpha[ends - 1, each] @ end).log()  # (B,)
    total = scaled + closed + weight_tops[1] + weight_tops[2] + (ends - 1) * weight_tops[0]  # (B,)
    return ForwardTable(total, alpha, beta, by_step, sizes)


def _in_log_space(
    by_step: Tensor, weights: CRFWeights, lengths: Tensor, both: bool
) -> ForwardTable:
    """Add logarithms: αₜ[j] = log Σᵢ exp(αₜ₋₁[i] + A[i, j]) + eₜ[j]."""
    rows = torch.arange(by_step.shape[1], device=by_step.device)
    back = _reversal_index(lengths, by_step)

    def pass_over(inputs: Tensor, first: Tensor, matrix: Tensor) -> Tensor:
        sums = [inputs[0] + first]
        for now in inputs[1:]:
            # (B, from, to) scores of every pair of labels; sum over the label before.
            pairs = sums[-1][:, :, None] + matrix
            sums.append(pairs.logsumexp(1) + now)
        return torch.stack(sums)

    alpha = pass_over(by_step, weights.start, weights.transitions)  # (T, B, C)
    beta = alpha[:0]
    if both:
        beta = pass_over(by_step[back], weights.end, weights.transitions.T)[back]
    total = (alpha[_to_device(lengths, by_step) - 1, rows] + weights.end).logsumexp(1)  # (B,)
    return ForwardTable(total, alpha, beta, by_step, alpha[..., :1])


def marginals(table: ForwardTable, lengths: Tensor, exact: bool) -> Tensor:
    """Return the probability of each label at each step (T, B, C), zero in the padding.

    α and β both contain the step's emission, so one of the two is taken out again.
    """
    if exact:
        probs = (table.alpha + table.beta - table.emissions - table.total[:, None]).exp_()
    else:
        probs = (table.alpha * table.beta).div_(table.emissions)
        # The scales cancel: the labels of a step sum to 1.
        probs.div_(probs.sum(2, keepdim=True))
    return probs.masked_fill_(~_step_mask(lengths, probs), 0)


def _expected_transitions(
    table: ForwardTable, weights: CRFWeights, lengths: Tensor, exact: bool, row_weights: Tensor
) -> Tensor:
    """Return expected transition counts (C, C), rows weighted by (B, 1) incoming gradients.

    P(i at t-1, j at t) = αₜ₋₁[i] A[i, j] βₜ[j] / Z, summed over steps and rows.
    """
    alpha, beta, by_step = table.alpha, table.beta, table.emissions
    wide = weights.transitions.to(alpha.dtype)
    real = _step_mask(lengths, alpha)[1:]
    if exact:
        counts = torch.zeros_like(wide)  # (C, C)
        for t in range(1, len(alpha)):
            after = (beta[t] - table.total[:, None]).masked_fill_(~real[t - 1], -torch.inf)
            joint = (alpha[t - 1][:, :, None] + wide + after[:, None]).exp_()  # (B, C, C)
            counts += (joint * row_weights[:, :, None]).sum(0)
        return counts
    if len(alpha) == 1:
        return torch.zeros_like(wide)
    # Z in the scales of this step: Σ α β / e, times the divisor of αₜ.
    size = (alpha[1:] * beta[1:]).div_(by_step[1:]).sum(2, keepdim=True).mul_(table.scales[1:])
    after = (beta[1:] * (row_weights / size)).masked_fill_(~real, 0)
    # All steps and rows in one product; A is the same for all of them.
    counts = alpha[:-1].flatten(0, 1).T @ after.flatten(0, 1)  # (C, C)
    return counts.mul_((wide - wide.amax()).exp_())


def viterbi(emissions: Tensor, weights: CRFWeights, lengths: Tensor) -> Tensor:
    """Return the labels of each row's best sequence (B, T), zero in the padding."""
    by_step = (
        emissions.detach().to(torch.promote_types(emissions.dtype, torch.float32)).transpose(0, 1)
    )
    step, start, end = (w.detach().to(by_step.dtype) for w in weights)
    into = step.T.contiguous()  # (C, C) to row, from column
    best = torch.empty_like(by_step, memory_format=torch.contiguous_format)  # (T, B, C)
    best[0] = by_step[0] + start
    for t in range(1, len(by_step)):
        # The best label before each label. Only the maxima are kept: back-pointers are recomputed
        # along the best path.
        now = (best[t - 1][:, None] + into).amax(2).add_(by_step[t])
        # Relative to the best label, so that long rows lose no precision.
        best[t] = now.sub_(now.amax(1, keepdim=True))
    # Backtrack. A row starts at its last step; before that, its label stays 0.
    ends = _to_device(lengths, by_step)
    label = torch.zeros_like(ends)
    path = []
    for t in reversed(range(len(by_step))):
        last = ends == t + 1
        follows = torch.where(last[:, None], end, into[label])  # (B, C)
        label = torch.where(ends > t, (best[t] + follows).argmax(1), 0)
        path.append(label)
    return torch.stack(path[::-1], 1)


def nbest(emissions: Tensor, weights: CRFWeights, length: int, count: int) -> tuple[Tensor, Tensor]:
    """Return at most `count` best sequences of one row (count, T) and their scores, best first."""
    by_step = emissions[:length].detach().to(accumulation_dtype(emissions.device))
    step, start, end = (w.detach().to(by_step.dtype) for w in weights)
    score = (by_step[0] + start)[None]  # (K, C) best paths to each label, best first
    origins = []
    for now in by_step[1:]:
        # Extend all K paths of every label by every label, and keep the K best of each.
        paths = (score[:, :, None] + step).flatten(0, 1)  # (K*C, C)
        score, origin = paths.topk(min(count, len(paths)), 0)
        score = score + now
        origins.append(origin)
    scores, index = (score + end).flatten().topk(min(count, score.numel()))
    index = index[scores > -torch.inf]  # without forbidden paths
    # Backtrack: a flat index is path · C + label.
    labels = by_step.shape[1]
    path = [index % labels]
    for origin in reversed(origins):
        index = origin.flatten()[index]
        path.append(index % labels)
    return torch.stack(path[::-1], 1), scores[: len(index)]


def _to_device(lengths: Tensor, like: Tensor) -> Tensor:
    return lengths.to(like.device)


def _step_mask(lengths: Tensor, like: Tensor) -> Tensor:
    """Return True at the real steps of (T, B, ...), as (T, B, 1)."""
    steps = torch.arange(len(like), device=like.device)[:, None]
    return (steps < _to_device(lengths, like))[..., None]


def _reversal_index(lengths: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return an index that reverses the real steps of each row of (T, B, ...)."""
    steps = torch.arange(len(like), device=like.device)[:, None]
    ends = _to_device(lengths, like)
    rows = torch.arange(len(ends), device=like.device)
    return torch.where(steps < ends, ends - 1 - steps, steps), rows
