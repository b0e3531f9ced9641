"""What a search may choose next: scores of a step -> log-probabilities under all rules.

N rows, the beams or samples of a prompt next to each other   T steps   V vocabulary   S source
P prefix   F forbidden
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import Nest, State, expand_beams, map_tensors
from weft.errors import UserError

# Ids so far (N, t) and the row each belongs to (N,) -> what may come next (N, V).
AllowedTokens = Callable[[Tensor, Tensor], Tensor]
BLOCK_SIZE = 64  # entries of the vocabulary that are looked at as one
MAX_KERNEL_ROWS = 1024  # rows up to which a GPU has a kernel for the largest values
MAX_KERNEL_K = 64  # values up to which it looks for them one by one
CPU_CHUNK_LOGITS = 1 << 20  # scores that are weighed at once on a processor: they stay in its cache


@dataclass(frozen=True)
class Constraints:
    """What one call asks of its rows, beyond the settings; an empty sequence asks nothing.

    Forced tokens are neither chosen nor counted: limits and scores are about what follows them.
    """

    prefix: Sequence[Sequence[int]] = ()  # a forced beginning for each row, of any lengths
    limit: Sequence[int] = ()  # for each row, instead of the settings'
    minimum: Sequence[int] = ()  # for each row, instead of the settings'
    allowed: Tensor | AllowedTokens | None = (
        None  # (V,) or (B, V) True = allowed, or by what came before
    )
    forbidden: Sequence[int] = ()  # ids that never come
    seeds: Sequence[int] = ()  # for each row, so that its sample does not depend on its neighbours
    attention: Callable[[State], Tensor] | None = None  # reads weights (N, S) out of a state
    source: Tensor | None = None  # (B, S) True = real step of the source; goes with attention


@dataclass(frozen=True)
class ConstraintTensors:
    """The rules as tensors, one row for each row of the state."""

    row: Tensor  # (N,) which row of the batch this is
    limit: Tensor  # (N,)
    minimum: Tensor | None  # (N,) None: any length will do
    prefix: Tensor | None  # (N, P) None: nothing is forced
    forced: Tensor  # (N,) length of the prefix
    barred: Tensor | None  # (N, V) True = not allowed
    forbidden: Tensor | None  # (N, F)
    source: Tensor | None  # (N, S)


def build_constraints(
    rules: Constraints,
    settings: SearchSettings,
    *,
    batch: int,
    eos: int,
    width: int,
    device: torch.device,
) -> ConstraintTensors:
    """The rules of a batch, checked, each row `width` times."""
    for name in ("prefix", "limit", "minimum", "seeds"):
        if (found := len(getattr(rules, name))) not in (0, batch):
            raise UserError(f"{found} values of '{name}' for {batch} rows; give one for each row.")
    _check_attention(rules, settings, batch)
    limit = list(rules.limit) or [settings.max_length] * batch
    minimum = list(rules.minimum) or [settings.min_length] * batch
    for row, (short, long) in enumerate(zip(minimum, limit, strict=True)):
        if long < 1 or short > long:
            raise UserError(
                f"Row {row}: the minimum is {short} and the limit {long}. "
                "The limit must be at least 1 and no lower than the minimum."
            )
    prefix = [list(ids) for ids in rules.prefix] or [[]] * batch
    for row, ids in enumerate(prefix):
        if eos in ids:
            raise UserError(f"Row {row}: the prefix {ids} holds the end {eos}; nothing can follow.")
    longest = max(map(len, prefix), default=0)
    padded = [[*ids, *[0] * (longest - len(ids))] for ids in prefix]
    barred = None
    if isinstance(rules.allowed, Tensor):
        barred = ~rules.allowed.to(device).expand(batch, -1)  # (B, V)

    def tensor(values: Sequence) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    made = ConstraintTensors(
        row=torch.arange(batch, device=device),
        limit=tensor(limit),
        minimum=tensor(minimum) if max(minimum, default=0) > 1 else None,
        prefix=tensor(padded) if longest else None,
        forced=tensor([len(each) for each in prefix]),
        barred=barred,
        forbidden=tensor(rules.forbidden).expand(batch, -1) if len(rules.forbidden) else None,
        source=None if rules.source is None else rules.source.to(device),
    )
    return expand_beams(made, width)


def _check_attention(rules: Constraints, settings: SearchSettings, batch: int) -> None:
    if settings.coverage_penalty and rules.attention is None:
        raise UserError(
            f"generate.coverage_penalty is {settings.coverage_penalty}, but this decoder gives no "
            "attention to measure coverage by. Set it to 0, or use a decoder with attention."
        )
    assert rules.attention is None or rules.source is not None, "attention needs a source mask"
    assert rules.source is None or len(rules.source) == batch


def forced_prefix(wish: ConstraintTensors, time: Tensor) -> tuple[Tensor, Tensor] | None:
    """Which rows are still in their prefix (N,) and the token that each is to take (N,)."""
    if wish.prefix is None:
        return None
    place = time.clamp(max=wish.prefix.shape[1] - 1).expand(len(wish.row), 1)
    return time < wish.forced, wish.prefix.gather(1, place)[:, 0]


def constrained_log_probs(
    scores: Tensor,
    wish: ConstraintTensors,
    settings: SearchSettings,
    *,
    eos: int,
    time: Tensor,
    past: Tensor | None,
    mask: Tensor | None,
    force: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-probabilities under the rules (N, V), the model's own (N, V), and of forced tokens (N,).

    The repetition penalty makes another distribution; what is not allowed becomes impossible
    while the rest keeps its probability. The model's own are right where a token is allowed.
    """
    scores = scores.float()
    own = scores.log_softmax(-1)  # (N, V)
    forced = None if force is None else own.gather(1, force[1][:, None])[:, 0]
    # Without a penalty both are the same, and one tensor serves: rules are written into it.
    weighed = own
    if settings.repetition_penalty != 1:
        assert past is not None
        penalty = settings.repetition_penalty
        weighed = penalise_repetition(scores, past, time, penalty).log_softmax(-1)  # (N, V)
    if settings.no_repeat_ngram_size:
        assert past is not None
        block_repeated_ngrams(weighed, past, time, settings.no_repeat_ngram_size)
    for barred in (wish.barred, None if mask is None else ~mask):
        if barred is not None:
            weighed.masked_fill_(barred, -torch.inf)
    early = None
    if wish.minimum is not None:
        early = time + 1 - wish.forced < wish.minimum  # (N,)
    if torch.compiler.is_compiling():
        return _mask_by_comparison(weighed, wish.forbidden, early, eos), own, forced
    if wish.forbidden is not None:
        weighed.scatter_(1, wish.forbidden, -torch.inf)
    if early is not None:
        weighed[:, eos].masked_fill_(early, -torch.inf)
    return weighed, own, forced


def _mask_by_comparison(
    logp: Tensor, forbidden: Tensor | None, early: Tensor | None, eos: int
) -> Tensor:
    """Forbidden tokens and early ends made impossible by looking at every token's number.

    A compiler does this on the way, and never writes log-probabilities (N, V) down: what is put
    at some places of a tensor, it has to write first.
    """
    ids = torch.arange(logp.shape[1], device=logp.device)  # (V,)
    if forbidden is not None:
        for id in forbidden[:1].unbind(1):  # all rows forbid the same
            logp = logp.masked_fill(ids == id, -torch.inf)
    if early is not None:
        logp = logp.masked_fill(early[:, None] & (ids == eos), -torch.inf)
    return logp


def constrained_topk(
    scores: Tensor,
    wish: ConstraintTensors,
    settings: SearchSettings,
    count: int,
    *,
    eos: int,
    time: Tensor,
    past: Tensor | None,
    mask: Tensor | None,
    force: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The largest of what `weigh` gives (N, count), their tokens and the model's own; and forced.

    On a processor a few rows at a time, so that what is made on the way stays in its cache.
    """
    rows = max(len(scores), 1)
    if scores.device.type == "cpu":
        rows = min(rows, max(CPU_CHUNK_LOGITS // scores.shape[1], 1))
    given, found = (scores, wish, past, mask, force), []
    for first in range(0, max(len(scores), 1), rows):
        part = given if rows >= len(scores) else _slice_rows(given, first, rows)
        logp, own, forced = constrained_log_probs(
            part[0], part[1], settings,
            eos=eos, time=time, past=part[2], mask=part[3], force=part[4],
        )  # fmt: skip
        values, tokens = fast_topk(logp, count)  # both (rows, count)
        found.append((values, tokens, values if own is logp else own.gather(1, tokens), forced))
    if len(found) == 1:
        return found[0]
    all_values, all_tokens, all_own, all_forced = zip(*found, strict=True)
    told = None if force is None else torch.cat(all_forced)
    return torch.cat(all_values), torch.cat(all_tokens), torch.cat(all_own), told


def _slice_rows(nest: Nest, first: int, rows: int) -> Nest:
    """Some rows of a nest, without a copy."""
    return map_tensors(lambda part: part[first : first + rows], nest)


def penalise_repetition(scores: Tensor, past: Tensor, time: Tensor, penalty: float) -> Tensor:
    """Scores in which tokens of the past are divided by the penalty (Keskar et al. 2019).

    Negative scores are multiplied, so that the penalty never makes a token likelier.
    """
    filled = torch.arange(past.shape[1], device=past.device) < time  # (T,)
    found = scores.gather(1, past)  # (N, T)
    lower = torch.where(found > 0, found / penalty, found * penalty)  # (N, T)
    lower = lower.masked_fill(~filled, torch.inf)  # (N, T)
    return scores.scatter_reduce(1, past, lower, "amin")


def block_repeated_ngrams(logp: Tensor, past: Tensor, time: Tensor, size: int) -> None:
    """Make the tokens impossible that would end an n-gram of the past once more."""
    if past.shape[1] < size:
        return
    grams = past.unfold(1, size, 1)  # (N, T-size+1, size)
    tail = time - size + 1 + torch.arange(size - 1, device=past.device)  # (size-1,)
    last = past.gather(1, tail.clamp(min=0).expand(len(past), -1))  # (N, size-1)
    same = (grams[..., :-1] == last[:, None]).all(-1)  # (N, T-size+1)
    whole = torch.arange(same.shape[1], device=past.device) + size <= time  # (T-size+1,)
    again = torch.full_like(same, torch.inf, dtype=logp.dtype)  # (N, T-size+1)
    again = again.masked_fill(same & whole, -torch.inf)  # (N, T-size+1)
    logp.scatter_reduce_(1, grams[..., -1], again, "amin")


def fast_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest values of each row and their places, largest first: `topk`, only faster.

    The largest ones lie in the blocks whose maxima are largest, and maxima are cheap to find; in
    small vocabularies it is `topk`.
    """
    rows, size = values.shape
    count = min(count, size)
    if (
        values.is_cuda
        and rows <= MAX_KERNEL_ROWS
        and count <= MAX_KERNEL_K
        and 4 * BLOCK_SIZE * count <= size
    ):
        return _kernel_topk(values, count)
    if count == 1 and not values.is_cpu:  # no sorting, and a compiler fuses it with what is before
        top = values.max(1, keepdim=True)
        return top.values, top.indices
    if size < 4 * BLOCK_SIZE * count:
        return values.topk(count)
    whole = size // BLOCK_SIZE * BLOCK_SIZE
    maxima = values[:, :whole].unflatten(1, (-1, BLOCK_SIZE)).amax(-1)  # (N, V/BLOCK)
    first = maxima.topk(count).indices * BLOCK_SIZE  # (N, count)
    inside = torch.arange(BLOCK_SIZE, device=values.device)
    place = (first[:, :, None] + inside).flatten(1)  # (N, count*BLOCK)
    if whole < size:
        last = torch.arange(whole, size, device=values.device)
        place = torch.cat([place, last.expand(rows, -1)], 1)
    found, index = values.gather(1, place).topk(count)  # both (N, count)
    return found, place.gather(1, index)


# To a compiler one operation, whatever does it.
@torch.library.custom_op("weft::largest", mutates_args=())
def _kernel_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if _has_kernel(values.device):
        from weft.kernels.triton.topk import largest

        return largest(values, count)
    found, places = values.topk(count)
    return found, places


@_kernel_topk.register_fake
def _fake_kernel_topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    shape = (len(values), count)
    return values.new_empty(shape), values.new_empty(shape, dtype=torch.int64)


@cache
def _has_kernel(device: torch.device) -> bool:
    """Whether a device has a kernel for `largest` that is right; tried once."""
    values = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0))
    try:
        from weft.kernels.triton.topk import largest

        found = largest(values.to(device), 5)[1].cpu()
    except Exception:  # without Triton, or with one that cannot: there is always `topk`
        return False
    return bool((found == values.topk(5).indices).all())
