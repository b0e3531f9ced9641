"""Greedy search and sampling: one sequence per row, token by token.

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
from weft.decode.search.state import Step, beam_indices, reorder, select_prompts
from weft.protocols import State


@dataclass(frozen=True)
class GreedyState:
    """The tensors that a step reads and writes."""

    time: Tensor  # () steps taken
    constraints: ConstraintTensors
    stream: Tensor  # (N,) initial state of each row's random numbers
    ids: Tensor  # (N,) next inputs
    tokens: Tensor  # (N, T) outputs; written in place
    logps: Tensor  # (N, T) their log-probabilities by the model alone; written in place
    attention: Tensor | None  # (N, T, S) written in place
    length: Tensor  # (N,) tokens of the sequence, including eos
    done: Tensor  # (N,)
    stuck: Tensor  # (N,) no token was allowed, or the logits were NaN
    state: State
    width: int  # samples per prompt

    @classmethod
    def start(
        cls,
        state: State,
        constraints: ConstraintTensors,
        *,
        ids: Tensor,
        stream: Tensor,
        steps: int,
        width: int,
    ) -> "GreedyState":
        """Return the state before the first step; `state` is already expanded to all rows."""
        rows, device = len(ids), ids.device
        source = constraints.source
        return cls(
            time=torch.zeros((), dtype=torch.int64, device=device),
            constraints=constraints,
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
        """Return the finished and the failed prompts, each (B,) on the host."""
        flags = torch.stack([self.done, self.stuck]).cpu().view(2, -1, self.width)
        return flags[0].all(1), flags[1].any(1)

    def select(self, prompts: Tensor) -> "GreedyState":
        """Return the state of the selected prompts."""
        index = beam_indices(prompts, self.width)
        state = select_prompts(self.state, prompts, self.width)
        return replace(reorder(replace(self, state=None), index), state=state)


def advance(
    run: GreedyState,
    step: Step,
    settings: SearchSettings,
    *,
    eos: int,
    read_attention: Callable[[State], Tensor] | None,
    mask: Tensor | None = None,
) -> GreedyState:
    """Add one token to each unfinished row."""
    logits, state = step(run.ids, run.state)
    constraints, time = run.constraints, run.time
    force = forced_prefix(constraints, time)
    logp, model_logp, forced = constrained_log_probs(
        logits, constraints, settings, eos=eos, time=time, past=run.tokens, mask=mask, force=force
    )
    if settings.method == "greedy":
        token = fast_topk(logp, 1)[1][:, 0]  # (N,)
    else:
        token = sample_tokens(logp, uniform(run.stream, time), settings)  # (N,)
    chosen = logp.gather(1, token[:, None])[:, 0]  # (N,)
    stuck = ~(chosen > -torch.inf)  # (N,) True for NaN as well
    gained = model_logp.gather(1, token[:, None])[:, 0]  # (N,)
    length = time + 1 - constraints.forced  # (N,)
    over = (token == eos) | (length >= constraints.limit)  # (N,)
    if force is not None and forced is not None:
        inside, forced_token = force
        token = torch.where(inside, forced_token, token)  # (N,)
        gained = torch.where(inside, forced, gained)  # (N,)
        over, stuck = over & ~inside, stuck & ~inside | forced.isnan()
    run.tokens.index_copy_(1, time, token[:, None])
    run.logps.index_copy_(1, time, gained[:, None])
    if run.attention is not None and read_attention is not None:
        run.attention.index_copy_(1, time, read_attention(state)[:, None].to(run.attention.dtype))
    return replace(
        run,
        time=time + 1,
        ids=token,
        length=torch.where(run.done, run.length, time + 1),
        done=run.done | over,
        stuck=run.stuck | stuck & ~run.done,
        state=state,
    )
