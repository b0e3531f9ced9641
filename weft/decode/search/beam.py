"""Beam search with length normalisation, optionally in diverse groups.

B prompts   W beams per prompt   G groups of w = W / G beams   N = B*W rows of the state
K candidates   T steps   V vocabulary   S source steps
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from weft.decode.search.constraints import ConstraintTensors, constrained_topk, forced_prefix
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import Step, beam_indices, reorder, select_prompts
from weft.protocols import State

MIN_COVERAGE = 1e-10  # coverage is clamped to this, so that its logarithm is finite
MAX_COMPARED_VALUES = 128  # up to here, comparing all pairs is faster than sorting


@dataclass(frozen=True)
class FinishedPool:
    """The best finished hypotheses of each prompt, best first in each group; each (B, W)."""

    rank: Tensor  # normalised score, -inf for an empty entry
    spent: Tensor | None  # accumulated diversity penalty, not normalised; None: one group
    time: Tensor  # step of the last token
    slot: Tensor  # the beam it continued
    token: Tensor  # last token: eos, or another one at the length limit
    logp: Tensor  # of the last token, by the model alone


@dataclass(frozen=True)
class BeamState:
    """The tensors that a step of the search reads and writes."""

    time: Tensor  # () steps taken
    constraints: ConstraintTensors  # of N rows
    ids: Tensor  # (N,) next inputs
    past: Tensor | None  # (N, T) tokens so far, if a constraint needs them
    totals: Tensor  # (B, W) log-probability minus diversity penalty; -inf for an unused beam
    spent: Tensor | None  # (B, W) accumulated diversity penalty; None: one group
    covered: Tensor | None  # (B, W, S) attention received by each source step so far
    tokens: Tensor  # (B, T, W) outputs; written in place
    logps: Tensor  # (B, T, W) their log-probabilities by the model alone; written in place
    parents: Tensor  # (B, T, W) the beams they continued; written in place
    attention: Tensor | None  # (B, T, W, S) of the beams before selection; written in place
    pool: FinishedPool
    done: Tensor  # (B,)
    state: State
    width: int

    @classmethod
    def start(
        cls,
        state: State,
        constraints: ConstraintTensors,
        settings: SearchSettings,
        *,
        ids: Tensor,
        steps: int,
        past: bool,
    ) -> "BeamState":
        """Return the state before the first step; `state` is already expanded to all rows."""
        width, device = settings.num_beams, ids.device
        batch = len(ids) // width
        source = None if constraints.source is None else constraints.source.shape[1]

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        real = torch.float32
        # All beams of a group start equal, so only one is active at first.
        totals = torch.full((batch, width), -torch.inf, device=device)
        totals[:, :: width // settings.num_beam_groups] = 0
        return cls(
            time=zeros(),
            constraints=constraints,
            ids=ids,
            past=zeros(len(ids), steps) if past else None,
            totals=totals,
            spent=zeros(batch, width, dtype=real) if settings.num_beam_groups > 1 else None,
            covered=zeros(batch, width, source, dtype=real)
            if source and settings.coverage_penalty
            else None,
            tokens=zeros(batch, steps, width),
            logps=zeros(batch, steps, width, dtype=real),
            parents=zeros(batch, steps, width),
            attention=zeros(batch, steps, width, source, dtype=real) if source else None,
            pool=FinishedPool(
                rank=torch.full((batch, width), -torch.inf, device=device),
                spent=zeros(batch, width, dtype=real) if settings.num_beam_groups > 1 else None,
                time=zeros(batch, width),
                slot=zeros(batch, width),
                token=zeros(batch, width),
                logp=zeros(batch, width, dtype=real),
            ),
            done=zeros(batch, dtype=torch.bool),
            state=state,
            width=width,
        )

    def flags(self) -> tuple[Tensor, Tensor]:
        """Return the finished and the failed prompts, each (B,) on the host."""
        parts = (self.done[:, None].to(self.totals.dtype), self.totals, self.pool.rank)
        flags = torch.cat(parts, 1).cpu()  # (B, 1+2*W) one transfer: each one synchronises
        return flags[:, 0] > 0, flags[:, 1:].isnan().any(1)

    def select(self, prompts: Tensor) -> "BeamState":
        """Return the beams of the selected prompts."""
        index, out = beam_indices(prompts, self.width), {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "state":
                out[field.name] = select_prompts(value, prompts, self.width)
            else:
                of_rows = field.name in ("constraints", "ids", "past")
                out[field.name] = reorder(value, index if of_rows else prompts)
        return replace(self, **out)


@dataclass(frozen=True)
class TopTokens:
    """The best tokens of each beam; each (B, W, K)."""

    total: Tensor
    token: Tensor
    logp: Tensor


@dataclass(frozen=True)
class Candidates:
    """Selected continuations of beams; each (B, W)."""

    total: Tensor
    spent: Tensor | None
    slot: Tensor  # the continued beam
    token: Tensor
    logp: Tensor


def advance(
    beams: BeamState,
    step: Step,
    settings: SearchSettings,
    *,
    eos: int,
    read_attention: Callable[[State], Tensor] | None,
    mask: Tensor | None = None,
) -> BeamState:
    """Extend every beam by its best tokens, move finished ones to the pool, keep the best open."""
    logits, state = step(beams.ids, beams.state)
    options, inside = _top_tokens(beams, logits, settings, eos, mask)
    ended, kept = _choose_candidates(beams, options, inside, settings, eos)
    covered = _record_attention(beams, state, read_attention)
    length = beams.time + 1 - beams.constraints.forced[:: beams.width]  # (B,)
    cut = length >= beams.constraints.limit[:: beams.width]  # (B,)
    over = (ended.token == eos) | cut[:, None]  # (B, W)
    if inside is not None:
        cut, over = cut & ~inside, over & ~inside[:, None]
    rank = ended.total / length_norm(length, settings)[:, None]  # (B, W)
    if covered is not None:
        rank = rank + _coverage_penalty(beams, covered, settings).gather(1, ended.slot)  # (B, W)
    rank = rank.masked_fill(~over, -torch.inf)  # (B, W)
    pool = _update_finished(beams, ended, rank, settings.num_beam_groups)
    done = beams.done | cut | _is_finished(beams, pool, kept.total, length, settings)  # (B,)
    return _reorder_beams(beams, state, kept, covered, pool, done)


def length_norm(length: Tensor, settings: SearchSettings) -> Tensor:
    """Return the divisor of a log-probability of `length` tokens (Wu et al. 2016, equation 14)."""
    if settings.length_normalisation == "none":
        return torch.ones_like(length, dtype=torch.float32)
    size = (5 + length) / 6 if settings.length_normalisation == "wu" else length.float()
    return size**settings.length_penalty


def _top_tokens(
    beams: BeamState, scores: Tensor, settings: SearchSettings, eos: int, mask: Tensor | None
) -> tuple[TopTokens, Tensor | None]:
    """Return the best tokens of each beam, and the prompts kept inside their prefix (B,)."""
    force = forced_prefix(beams.constraints, beams.time)
    group_width = beams.width // settings.num_beam_groups
    # A beam yields at most 2w candidates, and earlier groups penalise at most W - w tokens.
    values, tokens, logps, forced = constrained_topk(
        scores,
        beams.constraints,
        settings,
        beams.width + group_width,
        eos=eos,
        time=beams.time,
        past=beams.past,
        mask=mask,
        force=force,
    )  # the first three (N, K)
    inside = None
    if force is not None and forced is not None:
        at = force[0][:, None]  # (N, 1)
        first = torch.arange(values.shape[1], device=values.device) == 0  # (K,)
        # A forced token is free, and the only choice.
        free = torch.zeros_like(values).masked_fill(~first, -torch.inf)  # (N, K)
        values = torch.where(at, free, values)  # (N, K)
        tokens = torch.where(at, force[1][:, None], tokens)  # (N, K)
        logps = torch.where(at, forced[:, None], logps)  # (N, K)
        inside = force[0][:: beams.width]  # (B,)
    shape = (len(beams.totals), beams.width)
    values, tokens, logps = (x.unflatten(0, shape) for x in (values, tokens, logps))
    return TopTokens(beams.totals[..., None] + values, tokens, logps), inside


def _choose_candidates(
    beams: BeamState, options: TopTokens, inside: Tensor | None, settings: SearchSettings, eos: int
) -> tuple[Candidates, Candidates]:
    """Return the w best candidates of each group, and the w best that do not end.

    Eos counts only among the w best of its group; the best 2w contain w that continue. With
    several groups, each beam of an earlier group that chose a token in this step makes it more
    expensive (Hamming diversity, Vijayakumar et al. 2016).
    """
    group_width = beams.width // settings.num_beam_groups
    ended: list[Candidates] = []
    kept: list[Candidates] = []
    for first in range(0, beams.width, group_width):
        group = slice(first, first + group_width)
        total, cost = options.total[:, group], None  # (B, w, K)
        if kept:
            cost = _diversity_cost(
                options.token[:, group], kept, settings.diversity_penalty
            )  # (B, w, K)
            if inside is not None:
                cost = cost.masked_fill(inside[:, None, None], 0)  # forced tokens are free
            total = total - cost  # (B, w, K)
        best, index = _padded_topk(total.flatten(1), 2 * group_width)  # both (B, 2*w)
        ends = options.token[:, group].flatten(1).gather(1, index) == eos  # (B, 2*w)
        open_total, order = _topk(best.masked_fill(ends, -torch.inf), group_width)  # both (B, w)
        ended.append(
            _gather_candidates(
                beams, options, first, best[:, :group_width], index[:, :group_width], cost
            )
        )
        kept.append(
            _gather_candidates(beams, options, first, open_total, index.gather(1, order), cost)
        )
    return _concat_groups(ended), _concat_groups(kept)


def _diversity_cost(token: Tensor, earlier: list[Candidates], diversity: float) -> Tensor:
    """Return the penalty of each token for earlier groups that chose it (B, w, K)."""
    chosen = torch.cat([each.token for each in earlier], 1)[:, None, None]  # (B, 1, 1, first)
    live = torch.cat([each.total for each in earlier], 1)[:, None, None] > -torch.inf
    return ((token[..., None] == chosen) & live).sum(-1) * diversity


def _padded_topk(total: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the top values of each row, padded with -inf for small vocabularies."""
    best, index = _topk(total, min(count, total.shape[1]))
    short = count - total.shape[1]
    if short <= 0:
        return best, index
    return pad(best, (0, short), value=-torch.inf), pad(index, (0, short))


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest values of the last axis and their indices, descending."""
    if (
        torch.compiler.is_compiling()
        and not values.is_cpu
        and values.shape[-1] <= MAX_COMPARED_VALUES
    ):
        return topk_by_comparison(values, count)
    return values.topk(count)


def topk_by_comparison(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the same as `topk` by comparing all pairs; among equal values the first is first.

    The compiler fuses this with its surroundings, while sorting takes several kernels.
    """
    key = values.masked_fill(values.isnan(), torch.inf)  # as in `topk`, (..., K)
    position = torch.arange(values.shape[-1], device=values.device)  # (K,)
    this, other = key[..., None], key[..., None, :]
    precedes = (other > this) | ((other == this) & (position < position[:, None]))  # (..., K, K)
    rank = precedes.sum(-1)  # (..., K)
    top_ranks = torch.arange(count, device=values.device)[:, None]  # (count, 1)
    index = torch.where(rank[..., None, :] == top_ranks, position, 0).amax(-1)  # (..., count)
    # Ranks are unique, so this changes nothing; but compiled kernels also bounds-check idle
    # threads, whose values are out of range.
    index = index.clamp(0, values.shape[-1] - 1)
    return values.gather(-1, index), index


def _gather_candidates(
    beams: BeamState,
    options: TopTokens,
    first: int,
    total: Tensor,
    index: Tensor,
    cost: Tensor | None,
) -> Candidates:
    """Return the candidates of a group at flat indices into its options."""
    size = options.token.shape[2]
    slot = index.div(size, rounding_mode="floor") + first  # (B, w)
    flat_index = index + first * size
    spent = None
    if beams.spent is not None:
        spent = beams.spent.gather(1, slot)  # (B, w)
        spent = spent if cost is None else spent + cost.flatten(1).gather(1, index)
    token, logp = (part.flatten(1).gather(1, flat_index) for part in (options.token, options.logp))
    return Candidates(total, spent, slot, token, logp)


def _record_attention(
    beams: BeamState, state: State, read_attention: Callable[[State], Tensor] | None
) -> Tensor | None:
    """Store this step's attention; return the updated coverage (B, W, S)."""
    if beams.attention is None or read_attention is None:
        return None
    weights = read_attention(state).to(beams.attention.dtype).unflatten(0, beams.totals.shape)
    beams.attention.index_copy_(1, beams.time, weights[:, None])
    return None if beams.covered is None else beams.covered + weights


def _coverage_penalty(beams: BeamState, covered: Tensor, settings: SearchSettings) -> Tensor:
    """Return the penalty for source steps with less than one word's attention (B, W)."""
    assert beams.constraints.source is not None
    real = beams.constraints.source.unflatten(0, beams.totals.shape)  # (B, W, S)
    logs = covered.clamp(MIN_COVERAGE, 1).log().masked_fill(~real, 0)  # (B, W, S)
    return settings.coverage_penalty * logs.sum(-1)


def _update_finished(
    beams: BeamState, ended: Candidates, rank: Tensor, groups: int
) -> FinishedPool:
    """Merge the hypotheses that ended in this step into the pool."""
    eager_cpu = rank.device.type == "cpu" and not torch.compiler.is_compiling()
    if eager_cpu and bool((rank == -torch.inf).all()):
        return beams.pool  # a cheap check here, and at most steps nothing ends
    old, shape = beams.pool, (groups, beams.width // groups)

    def both(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a.unflatten(1, shape), b.unflatten(1, shape)], 2)  # (B, G, 2*w)

    ranks, index = _topk(both(old.rank, rank), shape[1])  # both (B, G, w)

    def best(a: Tensor, b: Tensor) -> Tensor:
        return both(a, b).gather(2, index).flatten(1)  # (B, W)

    return FinishedPool(
        rank=ranks.flatten(1),
        spent=None if old.spent is None or ended.spent is None else best(old.spent, ended.spent),
        time=best(old.time, beams.time.expand_as(old.time)),
        slot=best(old.slot, ended.slot),
        token=best(old.token, ended.token),
        logp=best(old.logp, ended.logp),
    )


def _is_finished(
    beams: BeamState, pool: FinishedPool, totals: Tensor, length: Tensor, settings: SearchSettings
) -> Tensor:
    """Return the prompts (B,) whose result no open beam can change any more.

    Log-probabilities, diversity and coverage only lower a score, so an open beam is bounded by its
    total under the most favourable normalisation.
    """
    shape = (settings.num_beam_groups, beams.width // settings.num_beam_groups)
    best = totals.unflatten(1, shape).amax(2)  # (B, G)
    ranks = pool.rank.unflatten(1, shape)  # (B, G, w)
    # With one group, only the returned hypotheses count; with several, any may be returned.
    exact = settings.early_stopping == "never" and settings.num_beam_groups == 1
    bar = ranks[..., settings.num_return - 1 if exact else -1]  # (B, G)
    if settings.early_stopping == "full":
        finished: Tensor = (bar > -torch.inf) | (best == -torch.inf)  # (B, G)
    else:
        best_length = length
        if settings.early_stopping == "never":
            best_length = length + 1
            if settings.length_penalty > 0:
                best_length = beams.constraints.limit[:: beams.width]
            elif beams.constraints.minimum is not None:
                best_length = best_length.maximum(beams.constraints.minimum[:: beams.width])
        finished = bar >= best / length_norm(best_length, settings)[:, None]  # (B, G)
    return finished.all(1)


def _reorder_beams(
    beams: BeamState,
    state: State,
    kept: Candidates,
    covered: Tensor | None,
    pool: FinishedPool,
    done: Tensor,
) -> BeamState:
    """Return the beams after the step, with the state and past of the beams they continue."""
    for buffer, new in (
        (beams.tokens, kept.token),
        (beams.logps, kept.logp),
        (beams.parents, kept.slot),
    ):
        buffer.index_copy_(1, beams.time, new[:, None])
    first = torch.arange(len(done), device=done.device)[:, None] * beams.width  # (B, 1)
    origin = (kept.slot + first).flatten()  # (N,)
    ids, past = kept.token.flatten(), beams.past
    if past is not None:
        past = past.index_select(0, origin).index_copy_(1, beams.time, ids[:, None])
    if covered is not None:
        covered = covered.flatten(0, 1).index_select(0, origin).view_as(covered)
    return replace(
        beams,
        time=beams.time + 1,
        ids=ids,
        past=past,
        totals=kept.total.masked_fill(
            done[:, None], -torch.inf
        ),  # finished prompts end nothing more
        spent=kept.spent,
        covered=covered,
        pool=pool,
        done=done,
        state=state if beams.width == 1 else reorder(state, origin),
    )


def _concat_groups(groups: list[Candidates]) -> Candidates:
    if len(groups) == 1:
        return groups[0]
    parts = [[getattr(part, field.name) for part in groups] for field in fields(groups[0])]
    return Candidates(*(torch.cat(part, 1) for part in parts))
