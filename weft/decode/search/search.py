"""Turning the scores of steps into sequences; knows nothing of the network behind `step`.

Greedy search, beam search and sampling are three ways of taking a step (`search_walk`,
`search_beam`); what they share is here: the loop, rows that leave it, and what comes out.

B prompts   W beams or samples of a prompt   N = B*W rows of the state   T steps   S source steps
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from weft.decode.search import beam, greedy
from weft.decode.search.beam import BeamState
from weft.decode.search.constraints import AllowedTokens, Constraints, build_constraints
from weft.decode.search.greedy import GreedyState
from weft.decode.search.hypotheses import (
    Hypothesis,
    StreamDelta,
    backtrack,
    collect_samples,
    no_hypothesis_error,
    stream_deltas,
)
from weft.decode.search.sampling import random_streams
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import (
    PerPrompt,
    State,
    beam_indices,
    copy_into,
    device_of,
    expand_beams,
    reorder,
)
from weft.errors import UserError

__all__ = [
    "Constraints",
    "Hypothesis",
    "PerPrompt",
    "SearchSettings",
    "StreamDelta",
    "copy_into",
    "reorder",
    "search",
    "stream",
]

Step = Callable[[Tensor, State], tuple[Tensor, State]]  # ids (N,), state -> scores (N, V), state
Run = TypeVar("Run", GreedyState, BeamState)
# Takes the function of one step, of tensors only and without a look at the host, and returns one
# that does the same faster: compiled, or as a graph of the device.
StepWrapper = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
NO_CONSTRAINTS = Constraints()
SHRINK_BELOW = 7 / 8  # when fewer of the rows are open, the others leave the batch


@dataclass(frozen=True)
class _SearchJob:
    """One call of a search."""

    step: Step
    state: State
    settings: SearchSettings
    batch: int
    bos: int | Tensor
    eos: int
    rules: Constraints
    faster: StepWrapper | None
    begun: Any = None


def search(
    step: Step,
    state: State,
    settings: SearchSettings,
    *,
    batch: int,
    bos: int | Tensor,
    eos: int,
    constraints: Constraints = NO_CONSTRAINTS,
    wrap_step: StepWrapper | None = None,
    initial: GreedyState | BeamState | None = None,
) -> list[list[Hypothesis]]:
    """The sequences of each row by the method of the settings, best first.

    `bos` is what goes in first, for all rows or (B,) for each. Samples stay in the order in which
    they are drawn. `begun` is a search of the same settings and rules before its first step, where
    there is one already; then `state` is not asked for.
    """
    job = _SearchJob(step, state, settings, batch, bos, eos, constraints, wrap_step, initial)
    found: list[list[Hypothesis]] = [[] for _ in range(batch)]
    if settings.method == "beam":
        for beams, _, leaving in _run_beam(job):
            for row, hypotheses in backtrack(beams, leaving, settings, eos):
                found[row] = hypotheses
    else:
        for walk, _, leaving in _run_greedy(job):
            for row, hypothesis in collect_samples(walk, leaving, settings, eos):
                found[row].append(hypothesis)
    return found


def stream(
    step: Step,
    state: State,
    settings: SearchSettings,
    *,
    batch: int,
    bos: int | Tensor,
    eos: int,
    constraints: Constraints = NO_CONSTRAINTS,
    wrap_step: StepWrapper | None = None,
) -> Iterator[list[StreamDelta]]:
    """The newest tokens of each row as they come, every `settings.check_every` steps."""
    if settings.method == "beam":
        raise UserError(
            "A beam cannot be streamed: its first token is known only at the end. "
            "Use method = 'greedy' or 'sample'."
        )
    done = np.zeros((batch, _sample_count(settings)), bool)
    job = _SearchJob(step, state, settings, batch, bos, eos, constraints, wrap_step)
    for walk, begin, _ in _run_greedy(job):
        yield stream_deltas(walk, begin, done, eos)


def _sample_count(settings: SearchSettings) -> int:
    return settings.num_samples if settings.method == "sample" else 1


def _run_greedy(job: _SearchJob) -> Iterator[tuple[GreedyState, int, Tensor]]:
    if job.begun is not None:
        yield from _run_steps(job.begun, greedy.advance, job)
        return
    settings, rules = job.settings, job.rules
    device, width = device_of(job.state), _sample_count(settings)
    wish = build_constraints(
        rules, settings, batch=job.batch, eos=job.eos, width=width, device=device
    )
    seeds = list(rules.seeds) or [settings.seed + row for row in range(job.batch)]
    walk = GreedyState.start(
        expand_beams(job.state, width),
        wish,
        ids=_first_ids(job, width, device),
        stream=random_streams(seeds, width, device),
        steps=_max_steps(job),
        width=width,
    )
    yield from _run_steps(walk, greedy.advance, job)


def _run_beam(job: _SearchJob) -> Iterator[tuple[BeamState, int, Tensor]]:
    if job.begun is not None:
        yield from _run_steps(job.begun, beam.advance, job)
        return
    settings, rules = job.settings, job.rules
    device, width = device_of(job.state), settings.num_beams
    wish = build_constraints(
        rules, settings, batch=job.batch, eos=job.eos, width=width, device=device
    )
    beams = BeamState.start(
        expand_beams(job.state, width),
        wish,
        settings,
        ids=_first_ids(job, width, device),
        steps=_max_steps(job),
        past=_stepwise_constraint(rules) is not None
        or settings.repetition_penalty != 1
        or settings.no_repeat_ngram_size > 0,
    )
    yield from _run_steps(beams, beam.advance, job)


def _first_ids(job: _SearchJob, width: int, device: torch.device) -> Tensor:
    ids = torch.as_tensor(job.bos, dtype=torch.int64, device=device).expand(job.batch)
    return ids.repeat_interleave(width)  # (N,)


def _max_steps(job: _SearchJob) -> int:
    """After how many steps every row has reached its limit."""
    limit = list(job.rules.limit) or [job.settings.max_length] * job.batch
    forced = [len(ids) for ids in job.rules.prefix] or [0] * job.batch
    return max((a + b for a, b in zip(limit, forced, strict=True)), default=0)


def _stepwise_constraint(rules: Constraints) -> AllowedTokens | None:
    """The rule that is asked at every step, where there is one."""
    return None if isinstance(rules.allowed, Tensor) else rules.allowed


def _run_steps(
    run: Run, advance: Callable[..., Run], job: _SearchJob
) -> Iterator[tuple[Run, int, Tensor]]:
    """Take steps until all are finished; the run at each look, since which step, and who leaves.

    The host waits for the device only at a look.
    """
    settings, asks = job.settings, _stepwise_constraint(job.rules)
    assert asks is None or job.faster is None, "what is asked on the host cannot be in a graph"
    body: Callable[..., Run] = partial(
        advance, step=job.step, settings=settings, eos=job.eos, read=job.rules.attention
    )
    if job.faster is not None:
        body = job.faster(body)
    every = settings.check_every or (1 if run.ids.device.type == "cpu" else 8)
    begin, steps = 0, run.tokens.shape[1]
    for now in range(1, steps + 1) if job.batch else ():
        with torch.no_grad():
            if asks is None:
                run = body(run)
            else:
                assert run.past is not None
                run = body(run, mask=asks(run.past[:, : now - 1], run.asked.row))
        if now % every and now < steps:
            continue
        done, wrong = run.flags()  # both (B,)
        _check_rows(run, wrong)
        left = int((~done).sum())
        leave = left == 0 or (settings.drop_finished and left <= SHRINK_BELOW * len(done))
        yield run, begin, (done & leave).nonzero()[:, 0]
        begin = now
        if left == 0:
            return
        if leave:
            run = run.kept((~done).nonzero()[:, 0].to(run.ids.device))


def _check_rows(run: GreedyState | BeamState, wrong: Tensor) -> None:
    """A UserError for rows that nothing can follow, or whose scores are not numbers."""
    if not bool(wrong.any()):
        return
    prompt = wrong.nonzero()[:1, 0].to(run.ids.device)  # (1,)
    row = int(run.asked.row[prompt * run.width])
    if isinstance(run, BeamState) or bool(run.logps[beam_indices(prompt, run.width)].isnan().any()):
        raise UserError(
            f"Row {row}: the model's scores are not numbers (NaN). Look for NaN in its inputs and "
            "weights, or compute in a wider precision."
        )
    raise no_hypothesis_error(row)
