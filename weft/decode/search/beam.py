"""Beam search: the likeliest sequences under a normalisation, in one group or several diverse ones.

B prompts   W beams of a prompt   G groups of w = W / G beams   N = B*W rows of the state
K candidates   T steps   V vocabulary   S source steps
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from weft.decode.search.constraints import ConstraintTensors, constrained_topk, forced_prefix
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import State, beam_indices, reorder, select_prompts

MIN_COVERAGE = 1e-10  # attention that counts as none: its logarithm must stay a number
MAX_COMPARED_VALUES = 128  # values that are sooner compared with each other than sorted


@dataclass(frozen=True)
class FinishedPool:
    """The best finished hypotheses of each prompt, best first in each group; each (B, W)."""

    rank: Tensor  # normalised score, -inf where there is none yet
    spent: Tensor | None  # what diversity has cost, before it was normalised; None: one group
    time: Tensor  # the step of the last token
    slot: Tensor  # the beam that it continued
    token: Tensor  # the last token: eos, or another where the limit cut it off
    logp: Tensor  # of the last token, by the model itself


@dataclass(frozen=True)
class BeamState:
    """Everything that a step of the search reads and writes, as tensors."""

    time: Tensor  # () steps taken
    asked: ConstraintTensors  # of N rows
    ids: Tensor  # (N,) what goes in next
    past: Tensor | None  # (N, T) tokens so far, where a rule wants them
    totals: Tensor  # (B, W) log-probability less diversity; -inf where a beam is not in use
    spent: Tensor | None  # (B, W) what diversity has cost; None: there is one group
    covered: Tensor | None  # (B, W, S) attention that each source step has had
    tokens: Tensor  # (B, T, W) what came out; written in place
    logps: Tensor  # (B, T, W) its log-probability by the model itself; written in place
    parents: Tensor  # (B, T, W) the beam that it continued; written in place
    attention: Tensor | None  # (B, T, W, S) of the beams before the choice; written in place
    pool: FinishedPool
    done: Tensor  # (B,)
    state: State
    width: int

    @classmethod
    def start(
        cls,
        state: State,
        asked: ConstraintTensors,
        settings: SearchSettings,
        *,
        ids: Tensor,
        steps: int,
        past: bool,
    ) -> "BeamState":
        """Before the first step; `state` has its rows spread already."""
        width, device = settings.num_beams, ids.device
        batch = len(ids) // width
        source = None if asked.source is None else asked.source.shape[1]

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        real = torch.float32
        # All beams of a group start equal: one is kept, so that they do not repeat it.
        totals = torch.full((batch, width), -torch.inf, device=device)
        totals[:, :: width // settings.num_beam_groups] = 0
        return cls(
            time=zeros(),
            asked=asked,
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
        """Which prompts are finished and which went wrong, each (B,) on the host."""
        scores = (self.done[:, None].to(self.totals.dtype), self.totals, self.pool.rank)
        seen = torch.cat(scores, 1).cpu()  # (B, 1+2*W) in one piece: every part would be waited for
        return seen[:, 0] > 0, seen[:, 1:].isnan().any(1)

    def kept(self, prompts: Tensor) -> "BeamState":
        """The beams of some prompts only."""
        index, out = beam_indices(prompts, self.width), {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "state":
                out[field.name] = select_prompts(value, prompts, self.width)
            else:
                of_rows = field.name in ("asked", "ids", "past")
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
    """Chosen continuations of beams; each (B, W)."""

    total: Tensor
    spent: Tensor | None
    slot: Tensor  # the beam that is continued
    token: Tensor
    logp: Tensor


def advance(
    beams: BeamState,
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    settings: SearchSettings,
    *,
    eos: int,
    read: Callable[[State], Tensor] | None,
    mask: Tensor | None = None,
) -> BeamState:
    """Continue every beam by its best tokens, move what ended to the pool, keep the best open."""
    scores, state = step(beams.ids, beams.state)
    options, inside = _top_tokens(beams, scores, settings, eos, mask)
    ended, still = _choose_candidates(beams, options, inside, settings, eos)
    covered = _record_attention(beams, state, read)
    length = beams.time + 1 - beams.asked.forced[:: beams.width]  # (B,)
    cut = length >= beams.asked.limit[:: beams.width]  # (B,)
    over = (ended.token == eos) | cut[:, None]  # (B, W)
    if inside is not None:
        cut, over = cut & ~inside, over & ~inside[:, None]
    rank = ended.total / length_norm(length, settings)[:, None]  # (B, W)
    if covered is not None:
        rank = rank + _coverage_penalty(beams, covered, settings).gather(1, ended.slot)  # (B, W)
    rank = rank.masked_fill(~over, -torch.inf)  # (B, W)
    pool = _update_finished(beams, ended, rank, settings.num_beam_groups)
    done = beams.done | cut | _is_finished(beams, pool, still.total, length, settings)  # (B,)
    return _reorder_beams(beams, state, still, covered, pool, done)


def length_norm(length: Tensor, settings: SearchSettings) -> Tensor:
    """What a log-probability of so many tokens is divided by (Wu et al. 2016, equation 14)."""
    if settings.length_normalisation == "none":
        return torch.ones_like(length, dtype=torch.float32)
    size = (5 + length) / 6 if settings.length_normalisation == "wu" else length.float()
    return size**settings.length_penalty


def _top_tokens(
    beams: BeamState, scores: Tensor, settings: SearchSettings, eos: int, mask: Tensor | None
) -> tuple[TopTokens, Tensor | None]:
    """The best tokens of each beam, and which prompts are in their prefix (B,)."""
    force = forced_prefix(beams.asked, beams.time)
    share = beams.width // settings.num_beam_groups
    # A beam gives at most 2w candidates, and earlier groups make at most W - w tokens dearer.
    values, tokens, logps, forced = constrained_topk(
        scores,
        beams.asked,
        settings,
        beams.width + share,
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
        # A forced token costs nothing, and is the only choice.
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
    """Of each group the w best candidates, and the w best that go on.

    An end counts only among the w best of its group; 2w of them hold w that do not end. With
    several groups a token costs more for each beam of an earlier group that took it in this step
    (Hamming diversity, Vijayakumar et al. 2016).
    """
    share = beams.width // settings.num_beam_groups
    ended: list[Candidates] = []
    still: list[Candidates] = []
    for first in range(0, beams.width, share):
        mine = slice(first, first + share)
        total, cost = options.total[:, mine], None  # (B, w, K)
        if still:
            cost = _diversity_cost(
                options.token[:, mine], still, settings.diversity_penalty
            )  # (B, w, K)
            if inside is not None:
                cost = cost.masked_fill(inside[:, None, None], 0)  # what is forced is no choice
            total = total - cost  # (B, w, K)
        best, index = _padded_topk(total.flatten(1), 2 * share)  # both (B, 2*w)
        ends = options.token[:, mine].flatten(1).gather(1, index) == eos  # (B, 2*w)
        going, order = _topk(best.masked_fill(ends, -torch.inf), share)  # both (B, w)
        ended.append(
            _gather_candidates(beams, options, first, best[:, :share], index[:, :share], cost)
        )
        still.append(_gather_candidates(beams, options, first, going, index.gather(1, order), cost))
    return _concat_groups(ended), _concat_groups(still)


def _diversity_cost(token: Tensor, earlier: list[Candidates], diversity: float) -> Tensor:
    """What each token costs for the beams of earlier groups that took it (B, w, K)."""
    taken = torch.cat([each.token for each in earlier], 1)[:, None, None]  # (B, 1, 1, first)
    live = torch.cat([each.total for each in earlier], 1)[:, None, None] > -torch.inf
    return ((token[..., None] == taken) & live).sum(-1) * diversity


def _padded_topk(total: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The best of each row, filled up with impossible ones where the vocabulary is small."""
    best, index = _topk(total, min(count, total.shape[1]))
    short = count - total.shape[1]
    if short <= 0:
        return best, index
    return pad(best, (0, short), value=-torch.inf), pad(index, (0, short))


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of the last axis and their places, largest first."""
    if (
        torch.compiler.is_compiling()
        and not values.is_cpu
        and values.shape[-1] <= MAX_COMPARED_VALUES
    ):
        return topk_by_comparison(values, count)
    return values.topk(count)


def topk_by_comparison(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """What `topk` finds, by comparing all with all; of equal values the first comes first.

    A compiler fuses this with what is around, while sorting is several kernels of a device.
    """
    key = values.masked_fill(values.isnan(), torch.inf)  # as in `topk`, (..., K)
    place = torch.arange(values.shape[-1], device=values.device)  # (K,)
    one, other = key[..., None], key[..., None, :]
    sooner = (other > one) | ((other == one) & (place < place[:, None]))  # (..., K, K)
    rank = sooner.sum(-1)  # (..., K)
    wanted = torch.arange(count, device=values.device)[:, None]  # (count, 1)
    index = torch.where(rank[..., None, :] == wanted, place, 0).amax(-1)  # (..., count)
    # Every value has a rank of its own, so that this changes nothing; but a compiled kernel also
    # checks threads that have nothing to do, and what those hold is out of range.
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
    """The candidates of a group at flat places among its options."""
    size = options.token.shape[2]
    slot = index.div(size, rounding_mode="floor") + first  # (B, w)
    place = index + first * size
    spent = None
    if beams.spent is not None:
        spent = beams.spent.gather(1, slot)  # (B, w)
        spent = spent if cost is None else spent + cost.flatten(1).gather(1, index)
    token, logp = (part.flatten(1).gather(1, place) for part in (options.token, options.logp))
    return Candidates(total, spent, slot, token, logp)


def _record_attention(
    beams: BeamState, state: State, read: Callable[[State], Tensor] | None
) -> Tensor | None:
    """Note the attention of this step; what each source step has had with it, (B, W, S)."""
    if beams.attention is None or read is None:
        return None
    weights = read(state).to(beams.attention.dtype).unflatten(0, beams.totals.shape)
    beams.attention.index_copy_(1, beams.time, weights[:, None])
    return None if beams.covered is None else beams.covered + weights


def _coverage_penalty(beams: BeamState, covered: Tensor, settings: SearchSettings) -> Tensor:
    """The penalty for source steps that had less attention than one word's (B, W)."""
    assert beams.asked.source is not None
    real = beams.asked.source.unflatten(0, beams.totals.shape)  # (B, W, S)
    logs = covered.clamp(MIN_COVERAGE, 1).log().masked_fill(~real, 0)  # (B, W, S)
    return settings.coverage_penalty * logs.sum(-1)


def _update_finished(
    beams: BeamState, ended: Candidates, rank: Tensor, groups: int
) -> FinishedPool:
    """The pool with what ended in this step, the best of both."""
    looks = rank.device.type == "cpu" and not torch.compiler.is_compiling()
    if looks and bool((rank == -torch.inf).all()):
        return beams.pool  # a look is cheap here, and at most steps nothing ends
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
    """Which prompts need no further step (B,): no open beam can change what comes back.

    Log-probabilities, diversity and coverage only ever lower a score, so that what an open beam
    can still reach is its total under the kindest normalisation.
    """
    shape = (settings.num_beam_groups, beams.width // settings.num_beam_groups)
    best = totals.unflatten(1, shape).amax(2)  # (B, G)
    ranks = pool.rank.unflatten(1, shape)  # (B, G, w)
    # The returned ones of one beam; of several groups any may come back.
    exact = settings.stop == "exact" and settings.num_beam_groups == 1
    bar = ranks[..., settings.num_return - 1 if exact else -1]  # (B, G)
    if settings.stop == "full":
        settled = (bar > -torch.inf) | (best == -torch.inf)  # (B, G)
    else:
        kindest = length
        if settings.stop == "exact":
            kindest = length + 1
            if settings.length_penalty > 0:
                kindest = beams.asked.limit[:: beams.width]
            elif beams.asked.minimum is not None:
                kindest = kindest.maximum(beams.asked.minimum[:: beams.width])
        settled = bar >= best / length_norm(kindest, settings)[:, None]  # (B, G)
    return settled.all(1)


def _reorder_beams(
    beams: BeamState,
    state: State,
    still: Candidates,
    covered: Tensor | None,
    pool: FinishedPool,
    done: Tensor,
) -> BeamState:
    """The beams after the step, each with the state and the past of the one that it continues."""
    for store, new in (
        (beams.tokens, still.token),
        (beams.logps, still.logp),
        (beams.parents, still.slot),
    ):
        store.index_copy_(1, beams.time, new[:, None])
    first = torch.arange(len(done), device=done.device)[:, None] * beams.width  # (B, 1)
    origin = (still.slot + first).flatten()  # (N,)
    ids, past = still.token.flatten(), beams.past
    if past is not None:
        past = past.index_select(0, origin).index_copy_(1, beams.time, ids[:, None])
    if covered is not None:
        covered = covered.flatten(0, 1).index_select(0, origin).view_as(covered)
    return replace(
        beams,
        time=beams.time + 1,
        ids=ids,
        past=past,
        totals=still.total.masked_fill(done[:, None], -torch.inf),  # nothing more can end
        spent=still.spent,
        covered=covered,
        pool=pool,
        done=done,
        state=state if beams.width == 1 else reorder(state, origin),
    )


def _concat_groups(groups: list[Candidates]) -> Candidates:
    if len(groups) == 1:
        return groups[0]
    parts = [[getattr(group, field.name) for group in groups] for field in fields(groups[0])]
    return Candidates(*(torch.cat(part, 1) for part in parts))
