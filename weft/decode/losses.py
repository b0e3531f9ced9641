"""How far a decoder's words are from the right ones, and inputs that are not always right.

B rows   T steps   V words   F width of what is scored   R words that count   C of them at a time
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from weft.batch import Padded

# Scores that exist at one time. 2,048 words of 30,000 at width 512, forward and backward on one
# core: 2.96 s and 658 MB in one piece, 2.66 s and 112 MB with 2**22, 2.55 s and 208 MB with 2**24;
# with the scores computed a second time for the gradient, 3.58 s.
CPU_CHUNK_LOGITS = 2**24
GPU_CHUNK_LOGITS = (
    2**29
)  # the same on a GPU, where a product must be large to be fast: 1 GB in half precision
VOCABULARY_MULTIPLE = 64  # words at a time that a GPU multiplies well


def shift_right(targets: Padded, bos: int) -> Padded:
    """What a decoder reads to write the targets: BOS, then all but their last step."""
    front = torch.full_like(targets.data[:, :1], bos)
    return targets.with_data(torch.cat([front, targets.data[:, :-1]], dim=1))


def sequence_loss(
    scores: Tensor, targets: Padded, smoothing: float = 0.0, counted: Tensor | None = None
) -> tuple[Tensor, int]:
    """The summed cross-entropy of scores (B, T, V), and how many words it is a sum over.

    With `smoothing` a share of the right answer is spread over all words (Szegedy et al. 2016).
    `counted` (B, T) leaves real steps out.
    """
    rows, wanted, count = _select_steps(scores, targets, counted)
    total = F.cross_entropy(rows.float(), wanted, reduction="sum", label_smoothing=smoothing)
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
    """`sequence_loss` of features (B, T, F) times a matrix (V, F), without all scores in memory.

    No more than `chunk` scores exist at a time, 0 for what suits the device. Gradients are made in
    the forward pass, while the scores are there: as many products as without chunks, and nothing
    computed twice. A target below 0 costs nothing.
    """
    rows, wanted, count = _select_steps(features, targets, counted)
    return _TotalLoss.apply(
        rows, weight, bias, wanted, smoothing, chunk or _default_chunk(rows)
    ), count


def token_log_probs(
    features: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, chunk: int = 0
) -> Tensor:
    """The log-probability (R,) of one word a row of features (R, F), in chunks as above.

    Each may be weighed differently, so the scores are computed again for the gradient.
    """
    return _TokenLogProbs.apply(features, weight, bias, ids, chunk or CPU_CHUNK_LOGITS)


def mix_inputs(given: Padded, written: Tensor, share: float) -> Padded:
    """The given inputs with a share of them replaced by written ones; the first stays.

    `written` (B, T) are the words that stand in for each input. With what a first pass over the
    given inputs predicts, this is scheduled sampling in two passes (Mihaylova and Martins 2019).
    """
    swap = torch.rand(given.data.shape, device=given.data.device) < share
    swap[:, :1] = False
    return given.with_data(torch.where(swap, written, given.data))


def scheduled_sampling(
    decoder: Any, given: Padded, state: Any, share: float, sample: bool = True
) -> Tensor:
    """The features (B, T, F) when each input is, by chance, the decoder's own last word.

    Scheduled sampling (Bengio et al. 2015) with any decoder, one step at a time from its first
    state; the word is drawn from its distribution or, without `sample`, the best one. Gradients
    flow through the states, not through the choice.
    """
    reads: list[Tensor] = []
    ids = given.data[:, 0]  # (B,)
    for t in range(given.data.shape[1]):
        if t:
            with torch.no_grad():
                own = _choose_words(decoder.words.logits(reads[-1][:, 0]), sample)  # (B,)
                swap = torch.rand(own.shape, device=own.device) < share
                ids = torch.where(swap, own, given.data[:, t])  # (B,)
        read, state = decoder.step_features(ids, state)
        reads.append(read.features)
    return torch.cat(reads, dim=1)


def _choose_words(scores: Tensor, sample: bool) -> Tensor:
    if not sample:
        return scores.argmax(-1)
    return torch.multinomial(scores.float().softmax(-1), 1).squeeze(1)


def _select_steps(
    data: Tensor, targets: Padded, counted: Tensor | None
) -> tuple[Tensor, Tensor, int]:
    """The steps that count, in one row: (R, …) of the data and (R,) of the targets."""
    flat, wanted = data.flatten(0, 1), targets.data.flatten()
    if counted is not None:
        keep = (counted & targets.mask).flatten().nonzero().squeeze(1)
        return flat[keep], wanted[keep], len(keep)
    count = int(targets.lengths.sum())
    if targets.full:
        return flat, wanted, count
    # Made from the lengths on the host, so that nothing waits for a device.
    steps = torch.arange(targets.data.shape[1])
    keep = (steps < targets.lengths[:, None]).flatten().nonzero().squeeze(1)
    keep = keep.to(data.device, non_blocking=True)
    return flat[keep], wanted[keep], count


class _TotalLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
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
            part, ids = x[start : start + size], wanted[start : start + size]
            if kernel is None:
                lost, slope = _cross_entropy_backward(
                    _log_probs(part, w, b), ids, smoothing, needed
                )
            else:
                slope = _logits(part, w, b)  # (C, V')
                lost = kernel(slope, ids, len(weight), smoothing, needed).sum()
            total += lost
            if needed:
                _accumulate_gradients(slope, part, w, grad_x, grad_w, grad_b, start)
        grad_w = None if grad_w is None else grad_w[: len(weight)]
        grad_b = None if grad_b is None else grad_b[: len(weight)]
        ctx.save_for_backward(*(g for g in (grad_x, grad_w, grad_b) if g is not None))
        ctx.kinds = (features.dtype, weight.dtype, None if bias is None else bias.dtype)
        ctx.have = tuple(g is not None for g in (grad_x, grad_w, grad_b))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = iter(ctx.saved_tensors)
        made = [next(saved) if have else None for have in ctx.have]
        out = [
            None if grad is None else (grad * grads[0]).to(kind)
            for grad, kind in zip(made, ctx.kinds, strict=True)
        ]
        return (*out, None, None, None)


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, chunk: int
    ) -> Tensor:
        x, w, b = _cast_operands(features, weight, bias)
        size = _chunk_rows(chunk, w)
        found = [
            _log_probs(x[i : i + size], w, b).gather(1, ids[i : i + size, None]).squeeze(1)
            for i in range(0, len(x), size)
        ]
        ctx.save_for_backward(features, weight, bias, ids)
        ctx.working, ctx.size = (x.dtype, w.dtype), size
        return torch.cat(found) if found else x.new_zeros(0, dtype=_accumulation_dtype(w))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        features, weight, bias, ids = ctx.saved_tensors
        x, w = features.to(ctx.working[0]), weight.to(ctx.working[1])
        b = None if bias is None else bias.to(ctx.working[1])
        grad_x = torch.empty_like(x)
        grad_w = torch.zeros_like(weight, dtype=_accumulation_dtype(w))
        grad_b = None if bias is None else torch.zeros_like(bias, dtype=_accumulation_dtype(w))
        for start in range(0, len(x), ctx.size):
            rows = slice(start, start + ctx.size)
            slope = _log_probs(x[rows], w, b).exp_().neg_()  # (C, V)
            slope.scatter_add_(1, ids[rows, None], torch.ones_like(slope[:, :1]))
            slope *= grads[0][rows, None]
            _accumulate_gradients(slope, x[rows], w, grad_x, grad_w, grad_b, start)
        last = None if bias is None or grad_b is None else grad_b.to(bias.dtype)
        return grad_x.to(features.dtype), grad_w.to(weight.dtype), last, None, None


def _cross_entropy_backward(
    logp: Tensor, ids: Tensor, smoothing: float, wanted: bool
) -> tuple[Tensor, Tensor]:
    """The summed loss of log-probabilities (C, V); by their scores its slope, in their place."""
    counts = (ids >= 0)[:, None]  # (C, 1)
    free = (ids < 0).nonzero().squeeze(1)
    ids = ids.clamp(min=0)[:, None]  # (C, 1)
    right = logp.gather(1, ids)  # (C, 1)
    lost = -(1 - smoothing) * (right * counts).sum()
    if smoothing:
        lost = lost - smoothing * (logp.mean(1, keepdim=True) * counts).sum()
    if not wanted:
        return lost, logp
    slope = logp.exp_()  # (C, V)
    if smoothing:
        slope -= smoothing / slope.shape[1]
    slope.scatter_add_(1, ids, torch.full_like(right, smoothing - 1))
    return lost, slope.index_fill_(0, free, 0.0)


def _default_chunk(x: Tensor) -> int:
    return CPU_CHUNK_LOGITS if x.is_cpu else GPU_CHUNK_LOGITS


def _fused_kernel(w: Tensor) -> Callable[..., Tensor] | None:
    """What computes losses and gradients in one pass over the scores; None where nothing does."""
    if w.is_cpu or w.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return None
    try:
        from weft.kernels.triton.cross_entropy import fused_cross_entropy
    except ImportError:
        return None  # Triton comes with torch for NVIDIA GPUs on Linux
    return fused_cross_entropy


def _pad_vocabulary(w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Matrix and bias with rows of zeros behind the words: a GPU is slow at 50,257 of them."""
    more = -len(w) % VOCABULARY_MULTIPLE
    if not more:
        return w, b
    return F.pad(w, (0, 0, 0, more)), None if b is None else F.pad(b, (0, more))


def _cast_operands(x: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The three in the precision that a product would have here, cast once and not every chunk."""
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
    """Log-probabilities (C, V), at least in single precision."""
    return _logits(x, w, b).to(_accumulation_dtype(w)).log_softmax(1)


def _accumulate_gradients(
    slope: Tensor,
    x: Tensor,
    w: Tensor,
    grad_x: Tensor | None,
    grad_w: Tensor | None,
    grad_b: Tensor | None,
    start: int,
) -> None:
    """Add the gradients that the slope (C, V) of one chunk's scores gives."""
    with torch.autocast(x.device.type, enabled=False):
        low = slope.to(w.dtype)
        if grad_x is not None:
            torch.mm(low, w, out=grad_x[start : start + len(x)])
        if grad_w is not None:
            if grad_w.dtype == low.dtype:
                grad_w.addmm_(low.T, x)
            elif not x.is_cpu and hasattr(torch.ops.aten.addmm, "dtype_out"):
                # Summed up in single precision inside the product, which never exists by itself.
                torch.addmm(grad_w, low.T, x, out_dtype=grad_w.dtype, out=grad_w)
            else:
                grad_w += low.T @ x
        if grad_b is not None:
            grad_b += slope.sum(0, dtype=grad_b.dtype)
