"""Decoding constraints: turn the logits of a step into constrained log-probabilities.

N rows, the beams or samples of a prompt adjacent   T steps   V vocabulary   S source
P prefix   F forbidden
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from weft.decode.search.rules import AllowedTokens as AllowedTokens
from weft.decode.search.rules import Constraints as Constraints
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import Nest, expand_beams, map_tensors
from weft.errors import UserError

BLOCK_SIZE = 64  # vocabulary entries whose maximum is taken first
MAX_KERNEL_ROWS = 1024  # rows up to which the GPU's top-k kernel is used
MAX_KERNEL_K = 64  # and values of k: it selects them one by one
CPU_CHUNK_LOGITS = 1 << 20  # logits processed at once on a CPU: they fit in its cache


@dataclass(frozen=True)
class ConstraintTensors:
    """The constraints as tensors, one row per row of the state."""

    row: Tensor  # (N,) row of the batch
    limit: Tensor  # (N,)
    minimum: Tensor | None  # (N,) None: no minimum length
    prefix: Tensor | None  # (N, P) None: no forced prefix
    forced: Tensor  # (N,) length of the prefix
    barred: Tensor | None  # (N, V) True = not allowed
    forbidden: Tensor | None  # (N, F)
    source: Tensor | None  # (N, S)


def build_constraints(
    constraints: Constraints,
    settings: SearchSettings,
    *,
    batch: int,
    eos: int,
    width: int,
    device: torch.device,
) -> ConstraintTensors:
    """Validate the constraints of a batch and expand each row `width` times."""
    for name in ("prefix", "limit", "minimum", "seeds"):
        if (count := len(getattr(constraints, name))) not in (0, batch):
            raise UserError(f"{count} values of '{name}' for {batch} rows; give one per row.")
    _check_attention(constraints, settings, batch)
    limit = list(constraints.limit) or [settings.max_length] * batch
    minimum = list(constraints.minimum) or [settings.min_length] * batch
    for row, (short, long) in enumerate(zip(minimum, limit, strict=True)):
        if long < 1 or short > long:
            raise UserError(
                f"Row {row}: the minimum is {short} and the limit {long}. "
                "The limit must be at least 1 and not below the minimum."
            )
    prefix = [list(ids) for ids in constraints.prefix] or [[]] * batch
    for row, ids in enumerate(prefix):
        if eos in ids:
            raise UserError(f"Row {row}: the prefix {ids} contains eos ({eos}). Remove it.")
    longest = max(map(len, prefix), default=0)
    padded = [[*ids, *[0] * (longest - len(ids))] for ids in prefix]
    barred = None
    if isinstance(constraints.allowed, Tensor):
        barred = ~constraints.allowed.to(device).expand(batch, -1)  # (B, V)

    def tensor(values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    tensors = ConstraintTensors(
        row=torch.arange(batch, device=device),
        limit=tensor(limit),
        minimum=tensor(minimum) if max(minimum, default=0) > 1 else None,
        prefix=tensor(padded) if longest else None,
        forced=tensor([len(each) for each in prefix]),
        barred=barred,
        forbidden=tensor(constraints.forbidden).expand(batch, -1)
        if len(constraints.forbidden)
        else None,
        source=None if constraints.source is None else constraints.source.to(device),
    )
    return expand_beams(tensors, width)


def _check_attention(constraints: Constraints, settings: SearchSettings, batch: int) -> None:
    if settings.coverage_penalty and constraints.attention is None:
        raise UserError(
            f"generate.coverage_penalty is {settings.coverage_penalty}, but this decoder has no "
            "attention to compute coverage from. Set it to 0, or use a decoder with attention."
        )
    assert constraints.attention is None or constraints.source is not None, (
        "attention needs a source mask"
    )
    assert constraints.source is None or len(constraints.source) == batch


def forced_prefix(constraints: ConstraintTensors, time: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the rows still inside their prefix (N,) and the token forced on each (N,)."""
    if constraints.prefix is None:
        return None
    step = time.clamp(max=constraints.prefix.shape[1] - 1).expand(len(constraints.row), 1)
    return time < constraints.forced, constraints.prefix.gather(1, step)[:, 0]


def constrained_log_probs(
    logits: Tensor,
    constraints: ConstraintTensors,
    settings: SearchSettings,
    *,
    eos: int,
    time: Tensor,
    past: Tensor | None,
    mask: Tensor | None,
    force: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return constrained and model log-probabilities (N, V), and those of forced tokens (N,).

    The repetition penalty changes the distribution; disallowed tokens become impossible while the
    others keep their probability. The model's values are valid only for allowed tokens.
    """
    logits = logits.float()
    model_logp = logits.log_softmax(-1)  # (N, V)
    forced = None if force is None else model_logp.gather(1, force[1][:, None])[:, 0]
    # Without a penalty both are one tensor, and constraints are written into it.
    logp = model_logp
    if settings.repetition_penalty != 1:
        assert past is not None
        penalised = penalise_repetition(logits, past, time, settings.repetition_penalty)  # (N, V)
        logp = penalised.log_softmax(-1)  # (N, V)
    if settings.no_repeat_ngram_size:
        assert past is not None
        block_repeated_ngrams(logp, past, time, settings.no_repeat_ngram_size)
    for barred in (constraints.barred, None if mask is None else ~mask):
        if barred is not None:
            logp.masked_fill_(barred, -torch.inf)
    early = None
    if constraints.minimum is not None:
        early = time + 1 - constraints.forced < constraints.minimum  # (N,)
    if torch.compiler.is_compiling():
        return _mask_by_comparison(logp, constraints.forbidden, early, eos), model_logp, forced
    if constraints.forbidden is not None:
        logp.scatter_(1, constraints.forbidden, -torch.inf)
    if early is not None:
        logp[:, eos].masked_fill_(early, -torch.inf)
    return logp, model_logp, forced


def _mask_by_comparison(
    logp: Tensor, forbidden: Tensor | None, early: Tensor | None, eos: int
) -> Tensor:
    """Mask forbidden tokens and an early eos by comparing every token id.

    The compiler fuses this and never materialises the log-probabilities (N, V); an indexed write
    would force it to.
    """
    ids = torch.arange(logp.shape[1], device=logp.device)  # (V,)
    if forbidden is not None:
        for id in forbidden[:1].unbind(1):  # the same for all rows
            logp = logp.masked_fill(ids == id, -torch.inf)
    if early is not None:
        logp = logp.masked_fill(early[:, None] & (ids == eos), -torch.inf)
    return logp


def constrained_topk(
    logits: Tensor,
    constraints: ConstraintTensors,
    settings: SearchSettings,
    count: int,
    *,
    eos: int,
    time: Tensor,
    past: Tensor | None,
    mask: Tensor | None,
    force: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the top constrained log-probabilities (N, count), tokens, model values, and forced.

    On a CPU a few rows at a time, so that intermediates stay in its cache.
    """
    rows = max(len(logits), 1)
    if logits.device.type == "cpu":
        rows = min(rows, max(CPU_CHUNK_LOGITS // logits.shape[1], 1))
    inputs, outputs = (logits, constraints, past, mask, force), []
    for first in range(0, max(len(logits), 1), rows):
        part = inputs if rows >= len(logits) else _slice_rows(inputs, first, rows)
        logp, model_logp, forced = constrained_log_probs(
            part[0], part[1], settings,
            eos=eos, time=time, past=part[2], mask=part[3], force=part[4],
        )  # fmt: skip
        values, tokens = fast_topk(logp, count)  # both (rows, count)
        model_values = values if model_logp is logp else model_logp.gather(1, tokens)
        outputs.append((values, tokens, model_values, forced))
    if len(outputs) == 1:
        return outputs[0]
    all_values, all_tokens, all_model_values, all_forced = zip(*outputs, strict=True)
    forced = None if force is None else torch.cat(all_forced)
    return torch.cat(all_values), torch.cat(all_tokens), torch.cat(all_model_values), forced


def _slice_rows(nest: Nest, first: int, rows: int) -> Nest:
    """Slice rows of a nest without copying."""
    return map_tensors(lambda part: part[first : first + rows], nest)


def penalise_repetition(logits: Tensor, past: Tensor, time: Tensor, penalty: float) -> Tensor:
    """Return logits with past tokens divided by the penalty (Keskar et al. 2019).

    Negative logits are multiplied, so that the penalty never makes a token more probable.
    """
    filled = torch.arange(past.shape[1], device=past.device) < time  # (T,)
    seen = logits.gather(1, past)  # (N, T)
    lower = torch.where(seen > 0, seen / penalty, seen * penalty)  # (N, T)
    lower = lower.masked_fill(~filled, torch.inf)  # (N, T)
    return logits.scatter_reduce(1, past, lower, "amin")


def block_repeated_ngrams(logp: Tensor, past: Tensor, time: Tensor, size: int) -> None:
    """Make tokens impossible that would complete an n-gram of the past again."""
    if past.shape[1] < size:
        return
    grams = past.unfold(1, size, 1)  # (N, T-size+1, size)
    tail = time - size + 1 + torch.arange(size - 1, device=past.device)  # (size-1,)
    last = past.gather(1, tail.clamp(min=0).expand(len(past), -1))  # (N, size-1)
    same = (grams[..., :-1] == last[:, None]).all(-1)  # (N, T-size+1)
    complete = torch.arange(same.shape[1], device=past.device) + size <= time  # (T-size+1,)
    bound = torch.full_like(same, torch.inf, dtype=logp.dtype)  # (N, T-size+1)
    bound = bound.masked_fill(same & complete, -torch.inf)  # (N, T-size+1)
    logp.scatter_reduce_(1, grams[..., -1], bound, "amin")


def fast_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of each row and their indices, descending: a faster `topk`.

    The largest values lie in the blocks with the largest maxima, which are cheap to find. Small
    vocabularies use `topk`.
    """
    rows, size = values.shape
    count = min(count, size)
    if (
        values.is_cuda
        and rows <= MAX_KERNEL_ROWS
        and count <= MAX_KERNEL_K
        and 4 * BLOCK_SIZE * count <= size
    ):
        top, index = _kernel_topk(values, count)
        return top, index
    if count == 1 and not values.is_cpu:  # no sort, and the compiler fuses it
        maximum = values.max(1, keepdim=True)
        return maximum.values, maximum.indices
    if size < 4 * BLOCK_SIZE * count:
        return values.topk(count)
    whole = size // BLOCK_SIZE * BLOCK_SIZE
    maxima = values[:, :whole].unflatten(1, (-1, BLOCK_SIZE)).amax(-1)  # (N, V/BLOCK)
    first = maxima.topk(count).indices * BLOCK_SIZE  # (N, count)
    inside = torch.arange(BLOCK_SIZE, device=values.device)
    candidates = (first[:, :, None] + inside).flatten(1)  # (N, count*BLOCK)
    if whole < size:
        last = torch.arange(whole, size, device=values.device)
        candidates = torch.cat([candidates, last.expand(rows, -1)], 1)
    top, index = values.gather(1, candidates).topk(count)  # both (N, count)
    return top, candidates.gather(1, index)


# An opaque operation to the compiler.
@torch.library.custom_op("weft::topk", mutates_args=())
def _kernel_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if _has_kernel(values.device):
        from weft.kernels.triton.topk import topk

        return topk(values, count)
    top, index = values.topk(count)
    return top, index


@_kernel_topk.register_fake
def _fake_kernel_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    shape = (len(values), count)
    return values.new_empty(shape), values.new_empty(shape, dtype=torch.int64)


@cache
def _has_kernel(device: torch.device) -> bool:
    """Return True if the device has a correct top-k kernel; tested once."""
    values = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0))
    try:
        from weft.kernels.triton.topk import topk

        indices = topk(values.to(device), 5)[1].cpu()
    except Exception:  # no Triton, or one that fails: fall back to `topk`
        return False
    return bool((indices == values.topk(5).indices).all())
