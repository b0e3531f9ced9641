"""One sequence for each row of a state, a token at a time: greedy search and sampling.

N rows, the samples of a prompt next to each other   T steps   V vocabulary   S source steps
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft.decode.search.constraints import (
    ConstraintTensors,
    constrained_log_probs,
    fast_topk,
    forced_prefix,
)
from weft.decode.search.sampling import sample_tokens, uniform
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import State, beam_indices, reorder, select_prompts


@dataclass(frozen=True)
class GreedyState:
    """Everything that a step of the walk reads and writes, as tensors."""

    time: Tensor  # () steps taken
    asked: ConstraintTensors
    stream: Tensor  # (N,) where the random numbers of a row begin
    ids: Tensor  # (N,) what goes in next
    tokens: Tensor  # (N, T) what came out; written in place
    logps: Tensor  # (N, T) its log-probability by the model itself; written in place
    attention: Tensor | None  # (N, T, S) written in place
    length: Tensor  # (N,) tokens of the sequence, with eos
    done: Tensor  # (N,)
    stuck: Tensor  # (N,) nothing was allowed, or the scores were no numbers
    state: State
    width: int  # samples of a prompt

    @classmethod
    def start(
        cls,
        state: State,
        asked: ConstraintTensors,
        *,
        ids: Tensor,
        stream: Tensor,
        steps: int,
        width: int,
    ) -> "GreedyState":
        """Before the first step; `state` has its rows spread already."""
        rows, device = len(ids), ids.device
        source = asked.source
        return cls(
            time=torch.zeros((), dtype=torch.int64, device=device),
            asked=asked,
            stream=stream,
            ids=ids,
            tokens=torch.zeros(rows, steps, dtype=torch.int64, device=device),
            logps=torch.zeros(rows, steps, device=device),
            attention=None
            if source is None
            else torch.zeros(rows, steps, source.shape[1], device=device),
            length=torch.zeros(rows, dtype=torch.int64, device=device),
            done=torch.zeros(rows, dtype=torch.bool, device=device),
            stuck=torch.zeros(rows, dtype=torch.bool, device=device),
            state=state,
            width=width,
        )

    @property
    def past(self) -> Tensor:
        return self.tokens

    def flags(self) -> tuple[Tensor, Tensor]:
        """Which prompts are finished and which went wrong, each (B,) on the host."""
        both = torch.stack([self.done, self.stuck]).cpu().view(2, -1, self.width)
        return both[0].all(1), both[1].any(1)

    def kept(self, prompts: Tensor) -> "GreedyState":
        """The walk of some prompts only."""
        index = beam_indices(prompts, self.width)
        state = select_prompts(self.state, prompts, self.width)
        return replace(reorder(replace(self, state=None), index), state=state)


def advance(
    walk: GreedyState,
    step: Callable[[Tensor, State], tuple[Tensor, State]],
    settings: SearchSettings,
    *,
    eos: int,
    read: Callable[[State], Tensor] | None,
    mask: Tensor | None = None,
) -> GreedyState:
    """One token more for each row that is not done."""
    scores, state = step(walk.ids, walk.state)
    wish, time = walk.asked, walk.time
    force = forced_prefix(wish, time)
    logp, own, forced = constrained_log_probs(
        scores, wish, settings, eos=eos, time=time, past=walk.tokens, mask=mask, force=force
    )
    if settings.method == "greedy":
        token = fast_topk(logp, 1)[1][:, 0]  # (N,)
    else:
        token = sample_tokens(logp, uniform(walk.stream, time), settings)  # (N,)
    chosen = logp.gather(1, token[:, None])[:, 0]  # (N,)
    stuck = ~(chosen > -torch.inf)  # (N,) True for NaN as well
    gained = own.gather(1, token[:, None])[:, 0]  # (N,)
    length = time + 1 - wish.forced  # (N,)
    over = (token == eos) | (length >= wish.limit)  # (N,)
    if force is not None and forced is not None:
        inside, wanted = force
        token = torch.where(inside, wanted, token)  # (N,)
        gained = torch.where(inside, forced, gained)  # (N,)
        over, stuck = over & ~inside, stuck & ~inside | forced.isnan()
    walk.tokens.index_copy_(1, time, token[:, None])
    walk.logps.index_copy_(1, time, gained[:, None])
    if walk.attention is not None and read is not None:
        walk.attention.index_copy_(1, time, read(state)[:, None].to(walk.attention.dtype))
    return replace(
        walk,
        time=time + 1,
        ids=token,
        length=torch.where(walk.done, walk.length, time + 1),
        done=walk.done | over,
        stuck=walk.stuck | stuck & ~walk.done,
        state=state,
    )
