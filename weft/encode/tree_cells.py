"""Cells of recursive networks, computed level by level, with a manual backward pass.

Autograd over the levels would add up the gradient of the weights once a level and keep a graph of
all of them. Here each level is a gather, a matrix product and what follows it, in buffers made
once; the gradient of a weight is a single product over all nodes of the batch. On SST, batch 64,
`bench/trees.py` has the measurements.

N nodes   I inner nodes   A children of a node   H width of a state   M places for children
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from weft.encode.tree_levels import Levels

# Both take the gradient and the result of the forward function.
tanh_backward, sigmoid_backward = torch.ops.aten.tanh_backward, torch.ops.aten.sigmoid_backward
OUTER_CHUNK_NUMBERS = (
    500_000  # numbers of a tensor's outer products made at once: 2 MB, which a cache holds
)


class TreeRNNCell(torch.autograd.Function):
    """h = tanh(W c + b), and + cᵀ V c where there is a tensor; c the states of the children."""

    @staticmethod
    def forward(
        ctx: Any, leaves: Tensor, W: Tensor, b: Tensor, V: Tensor | None, levels: Levels
    ) -> Tensor:
        H, wide = W.shape
        nodes, inner = levels.size + 1, len(levels.offsets)
        flat = (inner, H, wide) if V is not None else (0, H, wide)
        states, below, half = _allocate(leaves, (nodes, H), (inner, wide), flat)
        _fill_leaves(states, leaves)
        # Only the symmetric part of V counts; with it, S c is also half the gradient of cᵀ V c.
        S = None if V is None else ((V + V.transpose(1, 2)) / 2).reshape(H * wide, wide).t()
        for ranks, rows, slots in levels.inner():
            c, here = below[rows], states[ranks]
            torch.index_select(states, 0, levels.children[slots], out=c.view(-1, H))
            torch.addmm(b, c, W.t(), out=here)
            if S is not None:
                torch.mm(c, S, out=half[rows].flatten(1))
                # A quarter of the time of a batched product with one column, on a CPU.
                here.add_((half[rows] * c[:, None]).sum(2))
            here.tanh_()
        ctx.levels, ctx.tensor = levels, V is not None
        ctx.save_for_backward(W, states, below, half)
        return states.index_select(0, levels.steps)  # (B*T, H)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        levels, grad = ctx.levels, grad.index_select(0, ctx.levels.order)  # (N, H)
        W, states, below, half = ctx.saved_tensors
        H, wide = W.shape
        up, deltas = _slot_gradients(grad, levels), grad.new_empty(len(below), H)
        for ranks, rows, slots in reversed(levels.inner()):
            incoming = up.index_select(0, levels.above[ranks]).add_(grad[ranks])
            here = deltas[rows]
            tanh_backward(incoming, states[ranks], grad_input=here)
            down = up[slots].view(-1, wide)
            torch.mm(here, W, out=down)
            if ctx.tensor:
                down[:, None].baddbmm_(here[:, None], half[rows], alpha=2)
        first = slice(0, levels.leaves)
        leaves = up.index_select(0, levels.above[first]).add_(grad[first])
        V = _tensor_gradient(deltas, below) if ctx.tensor else None
        return leaves, deltas.t() @ below, deltas.sum(0), V, None


class NaryTreeLSTMCell(torch.autograd.Function):
    """The N-ary Tree-LSTM (Tai et al. 2015, equations 9 to 14) above the leaves.

    Gates lie in the order input, output, a forget gate for each child, candidate. `base` is what
    does not come from the children: the bias (G,), or with words at inner nodes (I, G). `keep`
    holds the dropout of the candidates, or nothing.
    """

    @staticmethod
    def forward(
        ctx: Any,
        leaves: Tensor,
        memory: Tensor,
        base: Tensor,
        U: Tensor,
        keep: Tensor,
        levels: Levels,
    ) -> Tensor:
        H, inner = leaves.shape[1], len(levels.offsets)
        A, soft = U.shape[1] // H, len(U) - H  # columns before `soft` are sigmoids
        nodes, children = (levels.size + 1, H), (inner, A, H)
        states, cells, below, kept, gates, bounded = _allocate(
            leaves, nodes, nodes, (inner, A * H), children, (inner, len(U)), (inner, H)
        )
        _fill_leaves(states, leaves)
        _fill_leaves(cells, memory)
        for ranks, rows, slots in levels.inner():
            child, g, cell = levels.children[slots], gates[rows], cells[ranks]
            torch.index_select(states, 0, child, out=below[rows].view(-1, H))
            torch.index_select(cells, 0, child, out=kept[rows].view(-1, H))
            torch.addmm(base if base.dim() == 1 else base[rows], below[rows], U.t(), out=g)
            g[:, :soft].sigmoid_()
            g[:, soft:].tanh_()
            forget = g[:, 2 * H : soft].unflatten(1, (A, H))
            torch.sum(forget * kept[rows], 1, out=cell)
            candidate = g[:, soft:] * keep[rows] if len(keep) else g[:, soft:]
            cell.addcmul_(g[:, :H], candidate)
            torch.tanh(cell, out=bounded[rows])
            torch.mul(g[:, H : 2 * H], bounded[rows], out=states[ranks])
        ctx.levels, ctx.each = levels, base.dim() == 2
        ctx.save_for_backward(U, keep, below, kept, gates, bounded)
        return states.index_select(0, levels.steps)  # (B*T, H)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        levels, grad = ctx.levels, grad.index_select(0, ctx.levels.order)  # (N, H)
        U, keep, below, kept, gates, bounded = ctx.saved_tensors
        H = grad.shape[1]
        A, soft = U.shape[1] // H, len(U) - H
        up, past, deltas = (
            _slot_gradients(grad, levels),
            _slot_gradients(grad, levels),
            torch.empty_like(gates),
        )
        for ranks, rows, slots in reversed(levels.inner()):
            above, g, d = levels.above[ranks], gates[rows], deltas[rows]
            incoming = up.index_select(0, above).add_(grad[ranks])
            enter, leave, candidate = g[:, :H], g[:, H : 2 * H], g[:, soft:]
            cell = past.index_select(0, above)
            cell.add_(tanh_backward(incoming * leave, bounded[rows]))
            torch.mul(incoming, bounded[rows], out=d[:, H : 2 * H])
            forget = g[:, 2 * H : soft].unflatten(1, (A, H))
            torch.mul(cell[:, None], kept[rows], out=d[:, 2 * H : soft].unflatten(1, (A, H)))
            torch.mul(cell[:, None], forget, out=past[slots].view(-1, A, H))
            if len(keep):
                cell.mul_(keep[rows])
            torch.mul(cell, candidate, out=d[:, :H])
            tanh_backward(cell * enter, candidate, grad_input=d[:, soft:])
            sigmoid_backward(d[:, :soft], g[:, :soft], grad_input=d[:, :soft])
            torch.mm(d, U, out=up[slots].view(-1, A * H))
        first = levels.above[: levels.leaves]
        leaves = up.index_select(0, first).add_(grad[: levels.leaves])
        base = deltas if ctx.each else deltas.sum(0)
        return leaves, past.index_select(0, first), base, deltas.t() @ below, None, None


class ChildSumTreeLSTMCell(torch.autograd.Function):
    """The child-sum Tree-LSTM (Tai et al. 2015, equations 2 to 8) above the leaves.

    Gates lie in the order input, output, candidate, forget; the last is one for each child.
    `base` and `keep` as in `Ordered`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        leaves: Tensor,
        memory: Tensor,
        base: Tensor,
        U: Tensor,
        keep: Tensor,
        levels: Levels,
    ) -> Tensor:
        H, inner = leaves.shape[1], len(levels.offsets)
        nodes, edges = (levels.size + 1, H), (len(levels.children), H)
        states, cells, below, kept, forget, sums, gates, bounded = _allocate(
            leaves, nodes, nodes, edges, edges, edges, (inner, H), (inner, 3 * H), (inner, H)
        )
        _fill_leaves(states, leaves)
        _fill_leaves(cells, memory)
        each = base.dim() == 2
        for ranks, rows, slots in levels.inner():
            child, g, cell, f = levels.children[slots], gates[rows], cells[ranks], forget[slots]
            torch.index_select(states, 0, child, out=below[slots])
            torch.index_select(cells, 0, child, out=kept[slots])
            sums[rows] = _segment_sums(below[slots], levels.offsets[rows])
            start = base[rows] if each else base
            torch.addmm(start[..., : 3 * H], sums[rows], U[: 3 * H].t(), out=g)
            forget_base = start[..., 3 * H :]
            forget_base = forget_base.index_select(0, levels.owners[slots]) if each else forget_base
            torch.addmm(forget_base, below[slots], U[3 * H :].t(), out=f)
            f.sigmoid_()
            g[:, : 2 * H].sigmoid_()
            g[:, 2 * H :].tanh_()
            candidate = g[:, 2 * H :] * keep[rows] if len(keep) else g[:, 2 * H :]
            cell.copy_(_segment_sums(f * kept[slots], levels.offsets[rows]))
            cell.addcmul_(g[:, :H], candidate)
            torch.tanh(cell, out=bounded[rows])
            torch.mul(g[:, H : 2 * H], bounded[rows], out=states[ranks])
        ctx.levels, ctx.each = levels, each
        ctx.save_for_backward(U, keep, below, kept, sums, gates, forget, bounded)
        return states.index_select(0, levels.steps)  # (B*T, H)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        levels, grad = ctx.levels, grad.index_select(0, ctx.levels.order)  # (N, H)
        U, keep, below, kept, sums, gates, forget, bounded = ctx.saved_tensors
        H = grad.shape[1]
        up, past = _slot_gradients(grad, levels), _slot_gradients(grad, levels)
        deltas, forgot = torch.empty_like(gates), torch.empty_like(forget)
        for ranks, rows, slots in reversed(levels.inner()):
            above, owner, g, d = (
                levels.above[ranks],
                levels.owners[slots],
                gates[rows],
                deltas[rows],
            )
            incoming = up.index_select(0, above).add_(grad[ranks])
            enter, leave, candidate = g.chunk(3, dim=1)
            cell = past.index_select(0, above)
            cell.add_(tanh_backward(incoming * leave, bounded[rows]))
            torch.mul(incoming, bounded[rows], out=d[:, H : 2 * H])
            spread, f = cell.index_select(0, owner), forget[slots]
            sigmoid_backward(spread * kept[slots], f, grad_input=forgot[slots])
            torch.mul(spread, f, out=past[slots])
            if len(keep):
                cell.mul_(keep[rows])
            torch.mul(cell, candidate, out=d[:, :H])
            tanh_backward(cell * enter, candidate, grad_input=d[:, 2 * H :])
            sigmoid_backward(d[:, : 2 * H], g[:, : 2 * H], grad_input=d[:, : 2 * H])
            shared = (d @ U[: 3 * H]).index_select(0, owner)
            torch.addmm(shared, forgot[slots], U[3 * H :], out=up[slots])
        first = levels.above[: levels.leaves]
        leaves = up.index_select(0, first).add_(grad[: levels.leaves])
        base = _base_gradient(deltas, forgot, levels) if ctx.each else None
        if base is None:
            base = torch.cat([deltas.sum(0), forgot.sum(0)])
        weight = torch.cat([deltas.t() @ sums, forgot.t() @ below])
        return leaves, past.index_select(0, first), base, weight, None, None


def _allocate(like: Tensor, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Tensors to be filled, out of one allocation.

    Separate buffers of a few MB would be freed and reallocated by the system at every step.
    """
    sizes = [math.prod(shape) for shape in shapes]
    parts = like.new_empty(sum(sizes)).split(sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _fill_leaves(buffer: Tensor, leaves: Tensor) -> None:
    """Fill in the leaves; the row after the last node is a child that is none."""
    buffer[: len(leaves)] = leaves
    buffer[-1] = 0


def _slot_gradients(grad: Tensor, levels: Levels) -> Tensor:
    """Allocate gradients for each child slot; the row after the last is that of a root."""
    out = grad.new_empty(len(levels.children) + 1, grad.shape[1])
    out[-1] = 0
    return out


def _segment_sums(values: Tensor, offsets: Tensor) -> Tensor:
    """Sums of the runs of rows that begin at the offsets.

    As bags of embeddings: a third of the time of `index_add_` on a CPU, and on a GPU always added
    in the same order.
    """
    every = torch.arange(len(values), device=values.device)
    return F.embedding_bag(every, values, offsets, mode="sum")


def _base_gradient(deltas: Tensor, forgot: Tensor, levels: Levels) -> Tensor:
    """The gradient at every inner node of what does not come from its children."""
    starts = [slots.start for _, _, slots in levels.inner()]
    sizes = [rows.stop - rows.start for _, rows, _ in levels.inner()]
    if not starts:
        return deltas.new_zeros(0, 4 * forgot.shape[1])
    every = torch.repeat_interleave(torch.tensor(starts), torch.tensor(sizes))
    offsets = levels.offsets + every.to(deltas.device)
    return torch.cat([deltas, _segment_sums(forgot, offsets)], dim=1)


def _tensor_gradient(deltas: Tensor, below: Tensor) -> Tensor:
    """Σ over nodes of delta ⊗ c ⊗ c, the gradient of a tensor."""
    H, wide = deltas.shape[1], below.shape[1]
    out = deltas.new_zeros(wide, H * wide)
    size = max(1, OUTER_CHUNK_NUMBERS // (H * wide))
    buffer = deltas.new_empty(min(size, len(below)), H, wide)
    for d, c in zip(deltas.split(size), below.split(size), strict=True):
        product = torch.mul(d[:, :, None], c[:, None], out=buffer[: len(d)])
        out.addmm_(c.t(), product.flatten(1))
    return out.view(wide, H, wide).transpose(0, 1)
