"""A beam search as a tree: which hypotheses were open at each step, which ended, which won.

B prompts (one here)   T steps   W beams
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from weft.decode.search.beam import BeamState
from weft.decode.search.hypotheses import Hypothesis

Status = Literal["open", "ended", "cut"]  # goes on, ended by itself, or ended by the limit


@dataclass(frozen=True)
class BeamNode:
    """One token of one or more hypotheses."""

    step: int  # from 0
    rank: int  # among the open ones of its step, the best first; the ended ones come after them
    token: str
    total: float  # log-probability from the beginning
    parent: int  # number of the node before it; -1 at the first step
    status: Status
    score: float | None = None  # normalised, of one that ended
    is_best: bool = False  # on the way to the answer


def build_search_tree(
    steps: Sequence[BeamState], best: Hypothesis, last: int, name: Callable[[int], str]
) -> tuple[BeamNode, ...]:
    """The nodes of a search of one prompt whose state was kept after every step."""
    nodes: list[BeamNode] = []
    before: list[int] = []  # the node of each beam after the step before
    ways: list[tuple[int, ...]] = []  # the ids of each node from the beginning
    for t, run in enumerate(steps):
        tokens, parents = run.tokens[0, t].tolist(), run.parents[0, t].tolist()
        logps = run.logps[0, t].tolist()
        now: list[int] = []
        for beam, (token, parent, logp) in enumerate(zip(tokens, parents, logps, strict=True)):
            up = before[parent] if before else -1
            total = logp + (nodes[up].total if up >= 0 else 0.0)
            live = run.totals[0, beam].item() > -math.inf
            if not live or (t and up < 0):  # the search was over, or the beam not in use
                now.append(-1)
                continue
            now.append(len(nodes))
            ways.append((*(ways[up] if up >= 0 else ()), token))
            nodes.append(BeamNode(t, beam, name(token), total, up, "open"))
        for finished in _finished_hypotheses(run, t):
            token, parent, logp, score = finished
            up = before[parent] if before else -1
            total = logp + (nodes[up].total if up >= 0 else 0.0)
            fate: Status = "ended" if token == last else "cut"
            rank = sum(node.step == t for node in nodes)
            ways.append((*(ways[up] if up >= 0 else ()), token))
            nodes.append(BeamNode(t, rank, name(token), total, up, fate, score))
        before = now
    whole = (*best.ids, *([last] if best.ended else []))
    won = max((i for i, way in enumerate(ways) if way == whole), default=-1)
    while won >= 0:
        nodes[won] = replace(nodes[won], is_best=True)
        won = nodes[won].parent
    return tuple(nodes)


def _finished_hypotheses(run: BeamState, step: int) -> list[tuple[int, int, float, float]]:
    """(token, beam before, log-probability, score) of what ended at a step, the best first."""
    pool = run.pool
    columns = (pool.rank, pool.time, pool.token, pool.slot, pool.logp)
    rows = zip(*(column[0].tolist() for column in columns), strict=True)
    finished = [
        (token, slot, logp, rank)
        for rank, time, token, slot, logp in rows
        if time == step and rank > -math.inf
    ]
    return sorted(finished, key=lambda one: -one[3])
