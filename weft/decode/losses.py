"""Sequence cross-entropy, in chunks or in one piece, and scheduled sampling.

B rows   T steps   V words   F feature width   R scored words   C of them at a time
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.batch import Padded
from weft.protocols import Decoder, State

# Logits in memory at one time. 2,048 words of 30,000 at width 512, forward and backward on one
# core: 2.96 s and 658 MB unchunked, 2.66 s and 112 MB with 2**22, 2.55 s and 208 MB with 2**24;
# recomputing the logits for the gradient, 3.58 s.
CPU_CHUNK_LOGITS = 2**24
# The same on a GPU, where a product must be large to be fast: 1 GB in half precision.
GPU_CHUNK_LOGITS = 2**29
VOCABULARY_MULTIPLE = 64  # vocabulary sizes that GPUs multiply well


def shift_right(targets: Padded, bos: int) -> Padded:
    """Return the decoder inputs for the targets: BOS, then all but their last step."""
    front = torch.full_like(targets.data[:, :1], bos)
    return targets.with_data(torch.cat([front, targets.data[:, :-1]], dim=1))


def sequence_loss(
    logits: Tensor, targets: Padded, smoothing: float = 0.0, counted: Tensor | None = None
) -> tuple[Tensor, int]:
    """Return the summed cross-entropy of logits (B, T, V), and the number of words.

    `smoothing` is label smoothing (Szegedy et al. 2016). `counted` (B, T) selects real steps.
    """
    rows, gold, count = _select_steps(logits, targets, counted)
    total = F.cross_entropy(rows.float(), gold, reduction="sum", label_smoothing=smoothing)
    return total, count


def chunked_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Padded,
    smoothing: float = 0.0,
    counted: Tensor | None = None,
    chunk: int = 0,
) -> tuple[Tensor, int]:
    """Return `sequence_loss` of features (B, T, F) times a matrix (V, F), without storing logits.

    At most `chunk` logits exist at a time; 0 suits the device. Gradients are computed in the
    forward pass, while the logits exist: as many products as without chunks, none repeated.
    Targets below 0 are ignored.
    """
    rows, gold, count = _select_steps(features, targets, counted)
    size = chunk or _default_chunk(rows)
    arguments = (rows, weight, bias, gold, smoothing, size)
    total: Tensor = _TotalLoss.apply(*arguments)  # type: ignore[no-untyped-call]  # not annotated by torch
    return total, count


def token_log_probs(
    features: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, chunk: int = 0
) -> Tensor:
    """Return the log-probability (R,) of one word per row of features (R, F), chunked as above.

    Each may be weighted differently, so the logits are recomputed for the gradient.
    """
    arguments = (features, weight, bias, ids, chunk or CPU_CHUNK_LOGITS)
    logps: Tensor = _TokenLogProbs.apply(*arguments)  # type: ignore[no-untyped-call]  # not annotated by torch
    return logps


def mix_inputs(gold: Padded, predicted: Tensor, fraction: float) -> Padded:
    """Replace a random fraction of the gold inputs by predictions (B, T); the first step stays.

    With the predictions of a first pass over the gold inputs, this is two-pass scheduled sampling
    (Mihaylova and Martins 2019).
    """
    swap = torch.rand(gold.data.shape, device=gold.data.device) < fraction
    swap[:, :1] = False
    return gold.with_data(torch.where(swap, predicted, gold.data))


def scheduled_sampling(
    decoder: Decoder, gold: Padded, state: State, fraction: float, sample: bool = True
) -> Tensor:
    """Return features (B, T, F) when each input is, at random, the decoder's last prediction.

    Scheduled sampling (Bengio et al. 2015) for any decoder, step by step from its initial state.
    The prediction is sampled or, without `sample`, the argmax. Gradients flow through the states,
    not through the choice.
    """
    features: list[Tensor] = []
    ids = gold.data[:, 0]  # (B,)
    for t in range(gold.data.shape[1]):
        if t:
            with torch.no_grad():
                predicted = _choose_words(decoder.words.logits(features[-1][:, 0]), sample)  # (B,)
                swap = torch.rand(predicted.shape, device=predicted.device) < fraction
                ids = torch.where(swap, predicted, gold.data[:, t])  # (B,)
        output, state = decoder.step_features(ids, state)
        features.append(output.features)
    return torch.cat(features, dim=1)


def _choose_words(logits: Tensor, sample: bool) -> Tensor:
    if not sample:
        return logits.argmax(-1)
    return torch.multinomial(logits.float().softmax(-1), 1).squeeze(1)


def _select_steps(
    data: Tensor, targets: Padded, counted: Tensor | None
) -> tuple[Tensor, Tensor, int]:
    """Return the scored steps, flattened: (R, …) of the data and (R,) of the targets."""
    flat, gold = data.flatten(0, 1), targets.data.flatten()
    if counted is not None:
        keep = (counted & targets.mask).flatten().nonzero().squeeze(1)
        return flat[keep], gold[keep], len(keep)
    count = int(targets.lengths.sum())
    if targets.full:
        return flat, gold, count
    # Computed from the lengths on the host, to avoid synchronising with the device.
    steps = torch.arange(targets.data.shape[1])
    keep = (steps < targets.lengths[:, None]).flatten().nonzero().squeeze(1)
    keep = keep.to(data.device, non_blocking=True)
    return flat[keep], gold[keep], count


class _TotalLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # of autograd: holds whatever is assigned to it
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        gold: Tensor,
        smoothing: float,
        chunk: int,
    ) -> Tensor:
        need_x, need_w, need_b = ctx.needs_input_grad[:3]
        x, w, b = _cast_operands(features, weight, bias)
        kernel = _fused_kernel(w)
        if kernel is not None:
            w, b = _pad_vocabulary(w, b)  # (V', F), (V',)
        grad_x = torch.empty_like(x) if need_x else None
        grad_w = torch.zeros_like(w, dtype=_accumulation_dtype(w)) if need_w else None
        grad_b = (
            torch.zeros_like(b, dtype=_accumulation_dtype(w)) if b is not None and need_b else None
        )
        total = torch.zeros((), dtype=_accumulation_dtype(w), device=x.device)
        size = _chunk_rows(chunk, w)
        needed = need_x or need_w or need_b
        for start in range(0, len(x), size):
            part, ids = x[start : start + size], gold[start : start + size]
            if kernel is None:
                loss, grad = _cross_entropy_backward(_log_probs(part, w, b), ids, smoothing, needed)
            else:
                grad = _logits(part, w, b)  # (C, V')
                loss = kernel(grad, ids, len(weight), smoothing, needed).sum()
            total += loss
            if needed:
                _accumulate_gradients(grad, part, w, grad_x, grad_w, grad_b, start)
        grad_w = None if grad_w is None else grad_w[: len(weight)]
        grad_b = None if grad_b is None else grad_b[: len(weight)]
        ctx.save_for_backward(*(g for g in (grad_x, grad_w, grad_b) if g is not None))
        ctx.dtypes = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.have = tuple(g is not None for g in (grad_x, grad_w, grad_b))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        computed = [next(saved) if have else None for have in ctx.have]
        out = [
            None if grad is None else (grad * grads[0]).to(dtype)
            for grad, dtype in zip(computed, ctx.dtypes, strict=True)
        ]
        return (*out, None, None, None)


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, chunk: int
    ) -> Tensor:
        x, w, b = _cast_operands(features, weight, bias)
        size = _chunk_rows(chunk, w)
        parts = [
            _log_probs(x[i : i + size], w, b).gather(1, ids[i : i + size, None]).squeeze(1)
            for i in range(0, len(x), size)
        ]
        ctx.save_for_backward(features, weight, bias, ids)
        ctx.dtypes, ctx.size = (x.dtype, w.dtype), size
        return torch.cat(parts) if parts else x.new_zeros(0, dtype=_accumulation_dtype(w))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, weight, bias, ids = ctx.saved_tensors
        x, w = features.to(ctx.dtypes[0]), weight.to(ctx.dtypes[1])
        b = None if bias is None else bias.to(ctx.dtypes[1])
        grad_x = torch.empty_like(x)
        grad_w = torch.zeros_like(weight, dtype=_accumulation_dtype(w))
        grad_b = None if bias is None else torch.zeros_like(bias, dtype=_accumulation_dtype(w))
        for start in range(0, len(x), ctx.size):
            rows = slice(start, start + ctx.size)
            grad = _log_probs(x[rows], w, b).exp_().neg_()  # (C, V)
            grad.scatter_add_(1, ids[rows, None], torch.ones_like(grad[:, :1]))
            grad *= grads[0][rows, None]
            _accumulate_gradients(grad, x[rows], w, grad_x, grad_w, grad_b, start)
        last = None if bias is None or grad_b is None else grad_b.to(bias.dtype)
        return grad_x.to(features.dtype), grad_w.to(weight.dtype), last, None, None


def _cross_entropy_backward(
    logp: Tensor, ids: Tensor, smoothing: float, need_grad: bool
) -> tuple[Tensor, Tensor]:
    """Return the summed loss of log-probabilities (C, V), and its gradient by logits, in place."""
    counts = (ids >= 0)[:, None]  # (C, 1)
    ignored = (ids < 0).nonzero().squeeze(1)
    ids = ids.clamp(min=0)[:, None]  # (C, 1)
    gold_logp = logp.gather(1, ids)  # (C, 1)
    loss = -(1 - smoothing) * (gold_logp * counts).sum()
    if smoothing:
        loss = loss - smoothing * (logp.mean(1, keepdim=True) * counts).sum()
    if not need_grad:
        return loss, logp
    grad = logp.exp_()  # (C, V)
    if smoothing:
        grad -= smoothing / grad.shape[1]
    grad.scatter_add_(1, ids, torch.full_like(gold_logp, smoothing - 1))
    return loss, grad.index_fill_(0, ignored, 0.0)


def _default_chunk(x: Tensor) -> int:
    return CPU_CHUNK_LOGITS if x.is_cpu else GPU_CHUNK_LOGITS


def _fused_kernel(w: Tensor) -> Callable[..., Tensor] | None:
    """Return the kernel that computes losses and gradients in one pass, or None."""
    if w.is_cpu or w.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None
    try:
        from weft.kernels.triton.cross_entropy import fused_cross_entropy
    except ImportError:
        return None  # Triton comes with torch for NVIDIA GPUs on Linux
    return fused_cross_entropy


def _pad_vocabulary(w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Pad matrix and bias with zero rows: GPUs are slow at sizes such as 50,257."""
    extra = -len(w) % VOCABULARY_MULTIPLE
    if not extra:
        return w, b
    return F.pad(w, (0, 0, 0, extra)), None if b is None else F.pad(b, (0, extra))


def _cast_operands(x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Cast all three to the dtype a product would use here, once rather than per chunk."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else w.dtype
    return x.to(dtype), w.to(dtype), None if b is None else b.to(dtype)


def _accumulation_dtype(w: Tensor) -> torch.dtype:
    return torch.float32 if w.dtype in (torch.float16, torch.bfloat16) else w.dtype


def _chunk_rows(chunk: int, w: Tensor) -> int:
    return max(chunk // max(len(w), 1), 1)


def _logits(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    with torch.autocast(x.device.type, enabled=False):
        return F.linear(x, w, b)


def _log_probs(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Return log-probabilities (C, V), at least in float32."""
    return _logits(x, w, b).to(_accumulation_dtype(w)).log_softmax(1)


def _accumulate_gradients(
    grad: Tensor,
    x: Tensor,
    w: Tensor,
    grad_x: Tensor | None,
    grad_w: Tensor | None,
    grad_b: Tensor | None,
    start: int,
) -> None:
    """Accumulate the gradients from the gradient (C, V) of one chunk's logits."""
    with torch.autocast(x.device.type, enabled=False):
        low = grad.to(w.dtype)
        if grad_x is not None:
            torch.mm(low, w, out=grad_x[start : start + len(x)])
        if grad_w is not None:
            if grad_w.dtype == low.dtype:
                grad_w.addmm_(low.T, x)
            elif not x.is_cpu and hasattr(torch.ops.aten.addmm, "dtype_out"):
                # Accumulates in float32 inside the product, without a temporary.
                torch.addmm(grad_w, low.T, x, out_dtype=grad_w.dtype, out=grad_w)
            else:
                grad_w += low.T @ x
        if grad_b is not None:
            grad_b += grad.sum(0, dtype=grad_b.dtype)
