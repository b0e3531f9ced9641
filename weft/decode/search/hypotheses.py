"""What a search found, read off the device: hypotheses, and pieces of them as they come.

R prompts that leave   W beams or samples of a prompt   T steps   S source steps
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.decode.search.beam import MIN_COVERAGE, BeamState, length_norm
from weft.decode.search.greedy import GreedyState
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import beam_indices
from weft.errors import UserError


@dataclass(frozen=True)
class Hypothesis:
    """One sequence that a search found."""

    ids: list[int]  # with its prefix, without eos
    score: float  # normalised log-probability of what follows the prefix
    logps: list[float]  # by the model itself: one for each id, and one for eos where it ended
    ended: bool  # False: the limit cut it off
    forced: int = 0  # how many ids are its prefix
    attention: np.ndarray | None = None  # (T, S) a row for each of `logps`


@dataclass(frozen=True)
class StreamDelta:
    """What one sequence gained since the last look at it."""

    row: int
    sample: int
    ids: list[int]  # without eos
    logps: list[float]  # as in `Hypothesis`
    ended: bool  # eos came
    last: bool  # nothing more comes: eos came, or the limit is reached


def collect_samples(
    walk: GreedyState, prompts: Tensor, settings: SearchSettings, eos: int
) -> Iterator[tuple[int, Hypothesis]]:
    """The sequences of prompts that leave a walk, with their rows in the batch."""
    if not len(prompts):
        return
    wish = walk.asked
    parts = (wish.row, wish.forced, walk.length, walk.tokens, walk.logps)
    index = beam_indices(prompts, walk.width)
    rows, forced, length, tokens, logps = _to_host(index, *parts)
    attention = sources = None
    if walk.attention is not None:
        attention, sources = _to_host(index, walk.attention, wish.source)
    # Sums and norms of all rows at once: the steps that were chosen, not those that were forced.
    steps = np.arange(tokens.shape[1])
    chosen = (steps >= forced[:, None]) & (steps < length[:, None])  # (R*W, T)
    scores = (
        logps.sum(1, where=chosen)
        / length_norm(torch.from_numpy(length - forced), settings).numpy()
    )
    for i, size in enumerate(length.tolist()):
        ended = bool(tokens[i, size - 1] == eos)
        seen = None if attention is None else attention[i, :size]
        score = float(scores[i])
        if settings.coverage_penalty and seen is not None and sources is not None:
            logs = np.log(seen.sum(0).clip(MIN_COVERAGE, 1))  # (S,)
            score += settings.coverage_penalty * float(logs[sources[i]].sum())
        ids = tokens[i, : size - ended].tolist()
        yield (
            int(rows[i]),
            Hypothesis(ids, score, logps[i, :size].tolist(), ended, int(forced[i]), seen),
        )


def stream_deltas(walk: GreedyState, begin: int, done: np.ndarray, eos: int) -> list[StreamDelta]:
    """What the rows that are not done gained since step `begin`; notes in `done` who is."""
    now = int(walk.time)
    fresh = (walk.asked.row, walk.length, walk.done, walk.tokens[:, begin:now])
    rows, length, over, tokens, logps = (
        part.cpu().numpy() for part in (*fresh, walk.logps[:, begin:now])
    )
    out = []
    for i, row in enumerate(rows.tolist()):
        draw = i % walk.width
        if done[row, draw]:
            continue
        done[row, draw] = over[i]
        size = int(length[i]) - begin
        ended = bool(over[i] and tokens[i, size - 1] == eos)
        ids = tokens[i, : size - ended].tolist()
        out.append(StreamDelta(row, draw, ids, logps[i, :size].tolist(), ended, bool(over[i])))
    return out


def backtrack(
    beams: BeamState, prompts: Tensor, settings: SearchSettings, eos: int
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The best hypotheses of prompts that leave a beam search, with their rows in the batch."""
    if not len(prompts):
        return
    wish, pool = beams.asked, beams.pool
    rows, forced, score, ends, slot, last, logp, tokens, logps, parents = _to_host(
        prompts, wish.row[:: beams.width], wish.forced[:: beams.width],
        pool.rank, pool.time, pool.slot, pool.token, pool.logp,
        beams.tokens, beams.logps, beams.parents,
    )  # fmt: skip
    here = np.arange(len(rows))[:, None]
    if pool.spent is not None:  # what diversity has cost does not count in what comes back
        size = torch.from_numpy(ends + 1 - forced[:, None]).clamp(min=1)
        score = (
            score + _to_host(prompts, pool.spent)[0] / length_norm(size, settings).numpy()
        )  # (R, W)
    order = np.argsort(-score, axis=1, kind="stable")[:, : settings.num_return]  # (R, best)
    score, ends, slot, last, logp = (x[here, order] for x in (score, ends, slot, last, logp))
    path, ids, own = _follow_parents(slot, ends, tokens, logps, parents)
    ids[here, np.arange(order.shape[1]), ends] = last
    own[here, np.arange(order.shape[1]), ends] = logp
    attention = None if beams.attention is None else _to_host(prompts, beams.attention)[0]
    for r, row in enumerate(rows.tolist()):
        found = []
        for k in range(order.shape[1]):
            if score[r, k] == -np.inf:
                continue
            end = int(ends[r, k])
            ended = bool(last[r, k] == eos)
            steps = np.arange(end + 1)
            seen = None if attention is None else attention[r, steps, path[r, k, : end + 1]]
            sequence, gained = ids[r, k, : end + 1 - ended], own[r, k, : end + 1]
            found.append(
                Hypothesis(
                    sequence.tolist(),
                    float(score[r, k]),
                    gained.tolist(),
                    ended,
                    int(forced[r]),
                    seen,
                )
            )
        if not found:
            raise no_hypothesis_error(row)
        yield row, found


def no_hypothesis_error(row: int) -> UserError:
    """The error for a row that no sequence is possible for."""
    return UserError(
        f"Row {row}: no sequence is possible. The rules (allowed, forbidden, no_repeat, minimum) "
        "leave nothing to choose; loosen them."
    )


def _follow_parents(
    slot: np.ndarray, ends: np.ndarray, tokens: np.ndarray, logps: np.ndarray, parents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Follow hypotheses back: the beam each was at every step, its tokens and log-probabilities."""
    here, steps = np.arange(len(slot))[:, None], int(ends.max(initial=0)) + 1
    path = np.zeros((*slot.shape, steps), np.int64)  # (R, best, T)
    ids, own = np.zeros_like(path), np.zeros(path.shape, np.float32)
    for t in range(steps - 1, -1, -1):
        path[..., t] = slot  # right at the last step, and on the way from there
        if t:
            open_ = t <= ends  # later steps of longer hypotheses leave this one alone
            ids[..., t - 1], own[..., t - 1] = tokens[here, t - 1, slot], logps[here, t - 1, slot]
            slot = np.where(open_, parents[here, t - 1, slot], slot)
    return path, ids, own


def _to_host(index: Tensor, *parts: Tensor | None) -> list[np.ndarray]:
    """Some rows of tensors with as many rows, on the host; those of one kind in one piece."""
    present = [part for part in parts if part is not None]
    found: dict[int, np.ndarray] = {}
    for dtype in {part.dtype for part in present}:
        alike = [i for i, part in enumerate(present) if part.dtype == dtype]
        wide = [present[i].reshape(len(present[i]), -1) for i in alike]
        together = torch.cat(wide, 1)
        if len(index) < len(together):  # in order, so that all of them need no picking
            together = together.index_select(0, index.to(together.device))
        pieces = np.split(
            together.cpu().numpy(), np.cumsum([each.shape[1] for each in wide])[:-1], axis=1
        )
        for i, piece in zip(alike, pieces, strict=True):
            found[i] = piece.reshape(len(index), *present[i].shape[1:])
    return [found[i] for i in range(len(present))]
