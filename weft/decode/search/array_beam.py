"""Beam search in NumPy, with length normalisation and diverse groups. No torch.

B prompts   W beams   G groups of w = W / G beams   N = B*W rows   K candidates of a beam   V words
"""

from dataclasses import dataclass, field, fields

import numpy as np

from weft.decode.search.array_sampling import top
from weft.decode.search.array_search import (
    Arrays,
    ArrayStep,
    constrain,
    length_norm,
    prefix_lengths,
)
from weft.decode.search.results import Hypothesis, no_hypothesis_error
from weft.decode.search.rules import Constraints
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError


@dataclass
class Candidates:
    """Continuations of beams; each (B, W)."""

    total: np.ndarray  # log-probability minus diversity penalty
    spent: np.ndarray  # accumulated diversity penalty
    slot: np.ndarray  # the continued beam
    token: np.ndarray
    log_prob: np.ndarray  # of the token, by the model alone

    @classmethod
    def join(cls, groups: list["Candidates"]) -> "Candidates":
        """Return the candidates of all groups side by side."""
        names = [one.name for one in fields(cls)]
        return cls(*(np.concatenate([getattr(g, name) for g in groups], 1) for name in names))


@dataclass
class Pool:
    """The best finished hypotheses of each prompt, best first in each group; each (B, W)."""

    rank: np.ndarray  # normalised score, -inf for an empty entry
    spent: np.ndarray
    time: np.ndarray  # step of the last token
    slot: np.ndarray  # the beam it continued
    token: np.ndarray
    log_prob: np.ndarray

    @classmethod
    def empty(cls, batch: int, width: int) -> "Pool":
        """Return a pool without hypotheses."""
        time, slot, token = (np.zeros((batch, width), np.int64) for _ in range(3))
        rank, spent, log_prob = (np.zeros((batch, width), np.float32) for _ in range(3))
        return cls(rank - np.inf, spent, time, slot, token, log_prob)

    def merge(self, other: "Pool", groups: int) -> "Pool":
        """Return the best of both in each group."""
        shape = (len(self.rank), groups, -1)

        def both(name: str) -> np.ndarray:
            return np.concatenate([getattr(p, name).reshape(shape) for p in (self, other)], 2)

        order = np.argsort(-both("rank"), axis=2, kind="stable")
        order = order[:, :, : self.rank.shape[1] // groups]
        best = (np.take_along_axis(both(f.name), order, 2) for f in fields(self))
        return Pool(*(one.reshape(self.rank.shape) for one in best))

    def select(self, prompts: np.ndarray) -> "Pool":
        """Return the pool of some prompts."""
        return Pool(*(getattr(self, one.name)[prompts] for one in fields(self)))


@dataclass
class History:
    """The tokens of all beams, step by step; each entry (B, W)."""

    tokens: list[np.ndarray] = field(default_factory=list)
    log_probs: list[np.ndarray] = field(default_factory=list)
    parents: list[np.ndarray] = field(default_factory=list)

    def add(self, kept: Candidates) -> None:
        """Record a step."""
        self.tokens.append(kept.token)
        self.log_probs.append(kept.log_prob)
        self.parents.append(kept.slot)

    def select(self, prompts: np.ndarray) -> None:
        """Keep some prompts."""
        for steps in (self.tokens, self.parents, self.log_probs):
            steps[:] = [one[prompts] for one in steps]


def search_beams(
    step: ArrayStep,
    state: Arrays,
    settings: SearchSettings,
    batch: int,
    bos: int | np.ndarray,
    eos: int,
    rules: Constraints,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each prompt; see `array_search.search`."""
    if settings.coverage_penalty:
        raise UserError(
            f"generate.coverage_penalty is {settings.coverage_penalty}, but this decoder has no "
            "attention to compute coverage from. Set it to 0, or use a decoder with attention."
        )
    width = settings.num_beams
    open_prompts, rows = np.arange(batch), np.repeat(np.arange(batch), width)
    state = {name: np.repeat(value, width, 0) for name, value in state.items()}
    ids = np.repeat(np.broadcast_to(np.asarray(bos, np.int64), batch), width)
    totals = np.full((batch, width), -np.inf, np.float32)
    totals[:, :: width // settings.num_beam_groups] = 0  # the beams of a group start equal
    spent = np.zeros((batch, width), np.float32)
    pool, history = Pool.empty(batch, width), History()
    past: list[list[int]] = [[] for _ in rows]
    forced, found = prefix_lengths(rules, batch), dict[int, list[Hypothesis]]()
    for time in range(settings.max_length + int(forced.max(initial=0))) if batch else ():
        logits, state = step(ids, state, rows)
        scores, model = constrain(logits, rules, settings, eos, time, forced, rows, past)
        values, tokens = top(scores, min(width + width // settings.num_beam_groups,
                                         scores.shape[1]))  # fmt: skip
        inside = time < forced[open_prompts]  # (B,)
        for i in np.flatnonzero(np.repeat(inside, width)).tolist():  # free, and the only choice
            values[i], tokens[i] = -np.inf, rules.prefix[rows[i]][time]
            values[i, 0] = 0
        own = np.take_along_axis(model, tokens, 1)
        shape = (len(open_prompts), width, -1)
        ended, kept = _choose(
            totals[:, :, None] + values.reshape(shape), tokens.reshape(shape), own.reshape(shape),
            spent, inside, settings, eos,
        )  # fmt: skip
        length = time + 1 - forced[open_prompts]  # (B,)
        cut = ~inside & (length >= settings.max_length)
        over = ((ended.token == eos) | cut[:, None]) & ~inside[:, None]
        rank = ended.total / length_norm(length, settings)[:, None]
        rank = np.where(over, rank, -np.inf).astype(np.float32)
        last = Pool(rank, ended.spent, np.full_like(ended.slot, time), ended.slot, ended.token,
                    ended.log_prob)  # fmt: skip
        pool = pool.merge(last, settings.num_beam_groups)
        history.add(kept)
        done = cut | _is_finished(pool, kept.total, length, settings)
        for row in np.flatnonzero(done).tolist():
            prompt = int(open_prompts[row])
            found[prompt] = _follow(pool, history, row, prompt, int(forced[prompt]), settings, eos)
        if done.all():
            break
        beams = kept.slot + np.arange(len(done))[:, None] * width
        origin = beams[~done].reshape(-1)
        state = {name: value[origin] for name, value in state.items()}
        rows, ids = rows[origin], kept.token[~done].reshape(-1)
        past = [[*past[i], word] for i, word in zip(origin, ids.tolist(), strict=True)]
        open_prompts, totals, spent = open_prompts[~done], kept.total[~done], kept.spent[~done]
        pool = pool.select(~done)
        history.select(~done)
    return [found[prompt] for prompt in range(batch)]


def _choose(
    total: np.ndarray,
    tokens: np.ndarray,
    log_probs: np.ndarray,
    spent: np.ndarray,
    inside: np.ndarray,
    settings: SearchSettings,
    eos: int,
) -> tuple[Candidates, Candidates]:
    """Return the w best candidates of each group, and the w best that do not end.

    Of candidates (B, W, K). The end counts only among the w best of its group; the best 2w hold w
    that continue. Each beam of an earlier group that chose a token in this step makes it more
    expensive (Hamming diversity, Vijayakumar et al. 2016).
    """
    size = total.shape[1] // settings.num_beam_groups
    ended: list[Candidates] = []
    kept: list[Candidates] = []
    for first in range(0, total.shape[1], size):
        group = slice(first, first + size)
        costs = np.zeros_like(total[:, group])  # (B, w, K)
        for one in kept:
            same = tokens[:, group, :, None] == one.token[:, None, None]  # (B, w, K, w)
            same &= (one.total > -np.inf)[:, None, None]
            costs += same.sum(-1, dtype=np.float32) * np.float32(settings.diversity_penalty)
        costs[inside] = 0  # forced tokens are free
        parts = [total[:, group] - costs, spent[:, group, None] + costs, tokens[:, group],
                 log_probs[:, group]]  # fmt: skip
        flat = [part.reshape(len(total), -1) for part in parts]
        best, index = top(flat[0], min(2 * size, flat[0].shape[1]))
        ends = np.take_along_axis(flat[2], index, 1) == eos
        order = top(np.where(ends, -np.inf, best), size)[1]
        free = np.take_along_axis(index, order, 1)
        for into, chosen in ((ended, index[:, :size]), (kept, free)):
            of_total, of_spent, token, own = (np.take_along_axis(x, chosen, 1) for x in flat)
            slot = chosen // total.shape[2] + first
            if into is kept:  # the last ones may end, too, if nothing else is possible
                of_total = np.where(token == eos, -np.inf, of_total).astype(np.float32)
            into.append(Candidates(of_total, of_spent, slot, token, own))
    return Candidates.join(ended), Candidates.join(kept)


def _is_finished(
    pool: Pool, totals: np.ndarray, length: np.ndarray, settings: SearchSettings
) -> np.ndarray:
    """Return the prompts (B,) whose result no open beam can change any more."""
    shape = (len(totals), settings.num_beam_groups, -1)
    best = totals.reshape(shape).max(2)  # (B, G)
    ranks = pool.rank.reshape(shape)  # (B, G, w)
    exact = settings.early_stopping == "never" and settings.num_beam_groups == 1
    bar = ranks[..., settings.num_return - 1 if exact else -1]  # (B, G)
    if settings.early_stopping == "full":
        return np.asarray(((bar > -np.inf) | (best == -np.inf)).all(1))
    if settings.early_stopping == "never":
        if settings.length_penalty > 0:
            length = np.full_like(length, settings.max_length)
        else:
            length = np.maximum(length + 1, settings.min_length)
    return np.asarray((bar >= best / length_norm(length, settings)[:, None]).all(1))


def _follow(
    pool: Pool,
    history: History,
    row: int,
    prompt: int,
    forced: int,
    settings: SearchSettings,
    eos: int,
) -> list[Hypothesis]:
    """Return the best finished hypotheses of a prompt, each followed back through its beams."""
    length = np.maximum(pool.time[row] + 1 - forced, 1)
    scores = pool.rank[row] + pool.spent[row] / length_norm(length, settings)
    found = []
    for k in np.argsort(-scores, kind="stable")[: settings.num_return].tolist():
        if scores[k] == -np.inf:
            continue
        slot, last = int(pool.slot[row, k]), int(pool.token[row, k])
        ids, log_probs = [last], [float(pool.log_prob[row, k])]
        for time in range(int(pool.time[row, k]) - 1, -1, -1):
            ids.append(int(history.tokens[time][row, slot]))
            log_probs.append(float(history.log_probs[time][row, slot]))
            slot = int(history.parents[time][row, slot])
        ended = last == eos
        ids = ids[::-1][: len(ids) - ended]
        found.append(Hypothesis(ids, float(scores[k]), log_probs[::-1], ended, forced))
    if not found:
        raise no_hypothesis_error(prompt)
    return found
