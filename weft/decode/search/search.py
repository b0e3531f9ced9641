"""Sequence search over a step function; independent of the network behind `step`.

Greedy search and sampling (`greedy`) and beam search (`beam`) each define one step. This module
holds what they share: the loop, removal of finished rows, and the output.

B prompts   W beams or samples per prompt   N = B*W rows of the state   T steps   S source steps
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

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
from weft.decode.search.results import nan_logits_error
from weft.decode.search.sampling import random_streams
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import (
    PerPrompt,
    Step,
    beam_indices,
    copy_into,
    device_of,
    expand_beams,
    reorder,
)
from weft.errors import UserError
from weft.protocols import State

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

Run = TypeVar("Run", GreedyState, BeamState)
NO_CONSTRAINTS = Constraints()
SHRINK_BELOW = 7 / 8  # drop finished rows once the open fraction is at most this


class StepWrapper(Protocol):
    """Takes a search step over tensors that never synchronises with the host.

    Returns a faster equivalent: compiled, or as a CUDA graph.
    """

    def __call__(self, body: "partial[Run]", /) -> Callable[..., Run]: ...


@dataclass(frozen=True)
class _SearchJob:
    """The arguments of one search."""

    step: Step
    state: State
    settings: SearchSettings
    batch: int
    bos: int | Tensor
    eos: int
    constraints: Constraints
    wrap_step: StepWrapper | None
    initial: GreedyState | BeamState | None = None


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
    """Return the hypotheses of each row by the method of the settings, best first.

    `bos` is the first input, one id for all rows or (B,). Samples keep the order in which they were
    drawn. `initial` is a search state of the same settings and constraints before its first step;
    if given, `state` is ignored.
    """
    job = _SearchJob(step, state, settings, batch, bos, eos, constraints, wrap_step, initial)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    if settings.method == "beam":
        for beams, _, finished in _run_beam(job):
            for row, hypotheses in backtrack(beams, finished, settings, eos):
                results[row] = hypotheses
    else:
        for run, _, finished in _run_greedy(job):
            for row, hypothesis in collect_samples(run, finished, settings, eos):
                results[row].append(hypothesis)
    return results


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
    """Yield the new tokens of each row, every `settings.check_every` steps."""
    if settings.method == "beam":
        raise UserError(
            "Beam search cannot stream: its first token is final only at the end. "
            "Use method = 'greedy' or 'sample'."
        )
    done = np.zeros((batch, _sample_count(settings)), bool)
    job = _SearchJob(step, state, settings, batch, bos, eos, constraints, wrap_step)
    for run, begin, _ in _run_greedy(job):
        yield stream_deltas(run, begin, done, eos)


def _sample_count(settings: SearchSettings) -> int:
    return settings.num_samples if settings.method == "sample" else 1


def _run_greedy(job: _SearchJob) -> Iterator[tuple[GreedyState, int, Tensor]]:
    if job.initial is not None:
        assert isinstance(job.initial, GreedyState)
        yield from _run_steps(job.initial, greedy.advance, job)
        return
    settings, constraints = job.settings, job.constraints
    device, width = device_of(job.state), _sample_count(settings)
    tensors = build_constraints(
        constraints, settings, batch=job.batch, eos=job.eos, width=width, device=device
    )
    seeds = list(constraints.seeds) or [settings.seed + row for row in range(job.batch)]
    run = GreedyState.start(
        expand_beams(job.state, width),
        tensors,
        ids=_first_ids(job, width, device),
        stream=random_streams(seeds, width, device),
        steps=_max_steps(job),
        width=width,
    )
    yield from _run_steps(run, greedy.advance, job)


def _run_beam(job: _SearchJob) -> Iterator[tuple[BeamState, int, Tensor]]:
    if job.initial is not None:
        assert isinstance(job.initial, BeamState)
        yield from _run_steps(job.initial, beam.advance, job)
        return
    settings, constraints = job.settings, job.constraints
    device, width = device_of(job.state), settings.num_beams
    tensors = build_constraints(
        constraints, settings, batch=job.batch, eos=job.eos, width=width, device=device
    )
    beams = BeamState.start(
        expand_beams(job.state, width),
        tensors,
        settings,
        ids=_first_ids(job, width, device),
        steps=_max_steps(job),
        past=_stepwise_constraint(constraints) is not None
        or settings.repetition_penalty != 1
        or settings.no_repeat_ngram_size > 0,
    )
    yield from _run_steps(beams, beam.advance, job)


def _first_ids(job: _SearchJob, width: int, device: torch.device) -> Tensor:
    ids = torch.as_tensor(job.bos, dtype=torch.int64, device=device).expand(job.batch)
    return ids.repeat_interleave(width)  # (N,)


def _max_steps(job: _SearchJob) -> int:
    """Return the number of steps after which every row has reached its limit."""
    limit = list(job.constraints.limit) or [job.settings.max_length] * job.batch
    forced = [len(ids) for ids in job.constraints.prefix] or [0] * job.batch
    return max((a + b for a, b in zip(limit, forced, strict=True)), default=0)


def _stepwise_constraint(constraints: Constraints) -> AllowedTokens | None:
    """Return the constraint that is evaluated at every step, if any."""
    return None if isinstance(constraints.allowed, Tensor) else constraints.allowed


def _run_steps(
    run: Run, advance: Callable[..., Run], job: _SearchJob
) -> Iterator[tuple[Run, int, Tensor]]:
    """Step until all rows are finished; yield at each check the run, its last check, and finished.

    The host synchronises with the device only at a check.
    """
    settings, stepwise = job.settings, _stepwise_constraint(job.constraints)
    assert stepwise is None or job.wrap_step is None, (
        "a constraint evaluated on the host cannot be part of a CUDA graph"
    )
    advance_run = partial(
        advance,
        step=job.step,
        settings=settings,
        eos=job.eos,
        read_attention=job.constraints.attention,
    )
    body = advance_run if job.wrap_step is None else job.wrap_step(advance_run)
    check_every = settings.check_every or (1 if run.ids.device.type == "cpu" else 8)
    begin, steps = 0, run.tokens.shape[1]
    for now in range(1, steps + 1) if job.batch else ():
        with torch.no_grad():
            if stepwise is None:
                run = body(run)
            else:
                assert run.past is not None
                run = body(run, mask=stepwise(run.past[:, : now - 1], run.constraints.row))
        if now % check_every and now < steps:
            continue
        done, failed = run.flags()  # both (B,)
        _check_rows(run, failed)
        unfinished = int((~done).sum())
        drop = unfinished == 0 or (
            settings.drop_finished and unfinished <= SHRINK_BELOW * len(done)
        )
        yield run, begin, (done & drop).nonzero()[:, 0]
        begin = now
        if unfinished == 0:
            return
        if drop:
            run = run.select((~done).nonzero()[:, 0].to(run.ids.device))


def _check_rows(run: GreedyState | BeamState, failed: Tensor) -> None:
    """Raise a UserError if a row has no possible next token or its logits are NaN."""
    if not bool(failed.any()):
        return
    prompt = failed.nonzero()[:1, 0].to(run.ids.device)  # (1,)
    row = int(run.constraints.row[prompt * run.width])
    if isinstance(run, BeamState) or bool(run.logps[beam_indices(prompt, run.width)].isnan().any()):
        raise nan_logits_error(row)
    raise no_hypothesis_error(row)
