"""Extract hypotheses from a search state on the device: back-tracking and streaming.

R finished prompts   W beams or samples per prompt   T steps   S source steps
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from weft.decode.search.beam import MIN_COVERAGE, BeamState, length_norm
from weft.decode.search.greedy import GreedyState
from weft.decode.search.results import Hypothesis as Hypothesis
from weft.decode.search.results import StreamDelta as StreamDelta
from weft.decode.search.results import no_hypothesis_error as no_hypothesis_error
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import beam_indices


def collect_samples(
    run: GreedyState, prompts: Tensor, settings: SearchSettings, eos: int
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the sequences of finished prompts, each with its row in the batch."""
    if not len(prompts):
        return
    constraints = run.constraints
    parts = (constraints.row, constraints.forced, run.length, run.tokens, run.logps)
    index = beam_indices(prompts, run.width)
    rows, forced, length, tokens, logps = _to_host(index, *parts)
    attention = sources = None
    if run.attention is not None:
        attention, sources = _to_host(index, run.attention, constraints.source)
    # Sums and norms of all rows at once, over chosen steps, not forced ones.
    steps = np.arange(tokens.shape[1])
    chosen = (steps >= forced[:, None]) & (steps < length[:, None])  # (R*W, T)
    scores = (
        logps.sum(1, where=chosen)
        / length_norm(torch.from_numpy(length - forced), settings).numpy()
    )
    for i, size in enumerate(length.tolist()):
        ended = bool(tokens[i, size - 1] == eos)
        weights = None if attention is None else attention[i, :size]
        score = float(scores[i])
        if settings.coverage_penalty and weights is not None and sources is not None:
            logs = np.log(weights.sum(0).clip(MIN_COVERAGE, 1))  # (S,)
            score += settings.coverage_penalty * float(logs[sources[i]].sum())
        ids = tokens[i, : size - ended].tolist()
        yield (
            int(rows[i]),
            Hypothesis(ids, score, logps[i, :size].tolist(), ended, int(forced[i]), weights),
        )


def stream_deltas(run: GreedyState, begin: int, done: np.ndarray, eos: int) -> list[StreamDelta]:
    """Return the new tokens of unfinished rows since step `begin`; update `done`."""
    now = int(run.time)
    parts = (run.constraints.row, run.length, run.done, run.tokens[:, begin:now])
    rows, length, over, tokens, logps = (
        part.cpu().numpy() for part in (*parts, run.logps[:, begin:now])
    )
    out = []
    for i, row in enumerate(rows.tolist()):
        draw = i % run.width
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
    """Yield the best hypotheses of finished prompts, each list with its row in the batch."""
    if not len(prompts):
        return
    constraints, pool = beams.constraints, beams.pool
    rows, forced, score, ends, slot, last, logp, tokens, logps, parents = _to_host(
        prompts, constraints.row[:: beams.width], constraints.forced[:: beams.width],
        pool.rank, pool.time, pool.slot, pool.token, pool.logp,
        beams.tokens, beams.logps, beams.parents,
    )  # fmt: skip
    here = np.arange(len(rows))[:, None]
    if pool.spent is not None:  # returned scores exclude the diversity penalty
        size = torch.from_numpy(ends + 1 - forced[:, None]).clamp(min=1)
        score = (
            score + _to_host(prompts, pool.spent)[0] / length_norm(size, settings).numpy()
        )  # (R, W)
    order = np.argsort(-score, axis=1, kind="stable")[:, : settings.num_return]  # (R, best)
    score, ends, slot, last, logp = (x[here, order] for x in (score, ends, slot, last, logp))
    path, ids, model_logps = _follow_parents(slot, ends, tokens, logps, parents)
    ids[here, np.arange(order.shape[1]), ends] = last
    model_logps[here, np.arange(order.shape[1]), ends] = logp
    attention = None if beams.attention is None else _to_host(prompts, beams.attention)[0]
    for r, row in enumerate(rows.tolist()):
        hypotheses = []
        for k in range(order.shape[1]):
            if score[r, k] == -np.inf:
                continue
            end = int(ends[r, k])
            ended = bool(last[r, k] == eos)
            steps = np.arange(end + 1)
            weights = None if attention is None else attention[r, steps, path[r, k, : end + 1]]
            sequence, gained = ids[r, k, : end + 1 - ended], model_logps[r, k, : end + 1]
            hypotheses.append(
                Hypothesis(
                    sequence.tolist(),
                    float(score[r, k]),
                    gained.tolist(),
                    ended,
                    int(forced[r]),
                    weights,
                )
            )
        if not hypotheses:
            raise no_hypothesis_error(row)
        yield row, hypotheses


def _follow_parents(
    slot: np.ndarray, ends: np.ndarray, tokens: np.ndarray, logps: np.ndarray, parents: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Follow hypotheses back to their beam, token and log-probability at every step."""
    here, steps = np.arange(len(slot))[:, None], int(ends.max(initial=0)) + 1
    path = np.zeros((*slot.shape, steps), np.int64)  # (R, best, T)
    ids, model_logps = np.zeros_like(path), np.zeros(path.shape, np.float32)
    for t in range(steps - 1, -1, -1):
        path[..., t] = slot  # correct from each hypothesis's last step backwards
        if t:
            open_ = t <= ends  # steps after a hypothesis's end must not change it
            ids[..., t - 1] = tokens[here, t - 1, slot]
            model_logps[..., t - 1] = logps[here, t - 1, slot]
            slot = np.where(open_, parents[here, t - 1, slot], slot)
    return path, ids, model_logps


def _to_host(index: Tensor, *parts: Tensor | None) -> list[np.ndarray]:
    """Copy rows of tensors to the host, one transfer per dtype."""
    present = [part for part in parts if part is not None]
    arrays: dict[int, np.ndarray] = {}
    for dtype in {part.dtype for part in present}:
        same_dtype = [i for i, part in enumerate(present) if part.dtype == dtype]
        flat = [present[i].reshape(len(present[i]), -1) for i in same_dtype]
        joined = torch.cat(flat, 1)
        if len(index) < len(joined):  # indices ascend, so selecting all rows is a no-op
            joined = joined.index_select(0, index.to(joined.device))
        columns = np.split(
            joined.cpu().numpy(), np.cumsum([each.shape[1] for each in flat])[:-1], axis=1
        )
        for i, column in zip(same_dtype, columns, strict=True):
            arrays[i] = column.reshape(len(index), *present[i].shape[1:])
    return [arrays[i] for i in range(len(present))]
