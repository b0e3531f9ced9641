"""Greedy and beam search in NumPy, over a step function that knows only ids and states.

B prompts   W beams   N = B*W rows   K candidates of a beam   V words
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.decode.search.settings import SearchSettings
from weft.errors import UserError

Arrays = dict[str, np.ndarray]
# Ids (N,), a state, and the prompt of each row -> log-probabilities (N, V) and the next state.
Step = Callable[[np.ndarray, Arrays, np.ndarray], tuple[np.ndarray, Arrays]]


@dataclass(frozen=True)
class Hypothesis:
    """The best sequence of a prompt."""

    ids: list[int]  # without the id that ends a text
    log_probs: list[float]  # one per id, and one for the end if it was reached


@dataclass
class Pool:
    """The best finished hypotheses of each prompt, best first; each (B, W)."""

    rank: np.ndarray  # normalised score, -inf for an empty entry
    time: np.ndarray  # step of the last token
    slot: np.ndarray  # the beam it continued
    token: np.ndarray
    log_prob: np.ndarray

    @classmethod
    def empty(cls, batch: int, width: int) -> "Pool":
        """Return a pool without hypotheses."""
        time, slot, token = (np.zeros((batch, width), np.int64) for _ in range(3))
        rank = np.full((batch, width), -np.inf, np.float32)
        return cls(rank, time, slot, token, np.zeros((batch, width), np.float32))

    def merge(self, other: "Pool") -> None:
        """Keep the best of both."""
        rank = np.concatenate([self.rank, other.rank], 1)
        order = np.argsort(-rank, axis=1, kind="stable")[:, : self.rank.shape[1]]
        for name in ("rank", "time", "slot", "token", "log_prob"):
            both = np.concatenate([getattr(self, name), getattr(other, name)], 1)
            setattr(self, name, np.take_along_axis(both, order, 1))


@dataclass
class History:
    """The tokens of all beams, step by step; each entry (B, W)."""

    tokens: list[np.ndarray] = field(default_factory=list)
    log_probs: list[np.ndarray] = field(default_factory=list)
    parents: list[np.ndarray] = field(default_factory=list)


def search(
    step: Step,
    state: Arrays,
    settings: SearchSettings,
    *,
    batch: int,
    bos: int,
    eos: int,
    forbidden: Sequence[int],
) -> list[Hypothesis]:
    """Return the best hypothesis of each prompt; `state` has one row for each."""
    if settings.method == "greedy":
        return _search_greedily(step, state, settings, batch, bos, eos, forbidden)
    return _search_beams(step, state, settings, batch, bos, eos, forbidden)


def _search_greedily(
    step: Step,
    state: Arrays,
    settings: SearchSettings,
    batch: int,
    bos: int,
    eos: int,
    forbidden: Sequence[int],
) -> list[Hypothesis]:
    ids, prompts = np.full(batch, bos, np.int64), np.arange(batch)
    found = [Hypothesis([], []) for _ in range(batch)]
    for time in range(settings.max_length):
        log_probs, state = step(ids, state, prompts)
        past = [found[prompt].ids for prompt in prompts.tolist()]
        log_probs = _constrain(log_probs, forbidden, eos, time, settings, past)
        ids = log_probs.argmax(1)
        for prompt, token, value in zip(
            prompts.tolist(), ids.tolist(), log_probs.max(1).tolist(), strict=True
        ):
            found[prompt].log_probs.append(value)
            if token != eos:
                found[prompt].ids.append(token)
        running = ids != eos
        if not running.any():
            break
        if not running.all():
            ids, prompts = ids[running], prompts[running]
            state = {name: value[running] for name, value in state.items()}
    return found


def _search_beams(
    step: Step,
    state: Arrays,
    settings: SearchSettings,
    batch: int,
    bos: int,
    eos: int,
    forbidden: Sequence[int],
) -> list[Hypothesis]:
    width = settings.num_beams
    prompts, rows = np.arange(batch), np.repeat(np.arange(batch), width)
    state = {name: np.repeat(value, width, 0) for name, value in state.items()}
    ids = np.full(batch * width, bos, np.int64)
    totals = np.full((batch, width), -np.inf, np.float32)
    totals[:, 0] = 0  # all beams start equal, so only one is active at first
    pool, history = Pool.empty(batch, width), History()
    past: list[list[int]] = [[] for _ in rows]  # tokens so far, where they limit the next one
    found: dict[int, Hypothesis] = {}
    for time in range(settings.max_length):
        log_probs, state = step(ids, state, rows)
        log_probs = _constrain(log_probs, forbidden, eos, time, settings, past)
        values, tokens = _top(log_probs, min(2 * width, log_probs.shape[1]))  # (N, K)
        count = values.shape[1]
        here = totals[:, :, None] + values.reshape(-1, width, count)  # (B, W, K)
        tokens = tokens.reshape(len(prompts), -1)  # (B, W*K)
        values = values.reshape(len(prompts), -1)
        best, index = _top(here.reshape(len(prompts), -1), min(2 * width, width * count))
        ends = np.take_along_axis(tokens, index, 1) == eos
        length = time + 1
        # The end counts only among the W best; the best 2 W hold W that continue.
        ended = index[:, :width]
        last = np.take_along_axis(tokens, ended, 1)
        cut = length >= settings.max_length
        rank = best[:, :width] / _norm(length, settings)
        rank = np.where((last == eos) | cut, rank, -np.inf).astype(np.float32)
        pool.merge(
            Pool(rank, np.full_like(last, time), ended // count, last,
                 np.take_along_axis(values, ended, 1))
        )  # fmt: skip
        totals, order = _top(np.where(ends, -np.inf, best), width)
        kept = np.take_along_axis(index, order, 1)  # (B, W)
        slots, words = kept // count, np.take_along_axis(tokens, kept, 1)
        history.tokens.append(words)
        history.parents.append(slots)
        history.log_probs.append(np.take_along_axis(values, kept, 1))
        done = cut | _is_finished(pool, totals, length, settings)
        for row in np.flatnonzero(done).tolist():
            found[int(prompts[row])] = _follow(pool, history, row, eos)
        if done.all():
            break
        origin = (slots + np.arange(len(prompts))[:, None] * width)[~done].reshape(-1)
        state = {name: value[origin] for name, value in state.items()}
        rows, ids = rows[origin], words[~done].reshape(-1)
        if settings.no_repeat_ngram_size:
            past = [[*past[i], word] for i, word in zip(origin, ids.tolist(), strict=True)]
        prompts, totals = prompts[~done], totals[~done]
        if done.any():
            for name in ("rank", "time", "slot", "token", "log_prob"):
                setattr(pool, name, getattr(pool, name)[~done])
            for steps in (history.tokens, history.parents, history.log_probs):
                steps[:] = [one[~done] for one in steps]
    return [found[prompt] for prompt in range(batch)]


def _constrain(
    log_probs: np.ndarray, forbidden: Sequence[int], eos: int, time: int,
    settings: SearchSettings, past: Sequence[Sequence[int]],
) -> np.ndarray:  # fmt: skip
    """Return the log-probabilities (N, V) with impossible words at -inf."""
    if np.isnan(log_probs).any():
        raise UserError("The model's logits are NaN. Check its inputs.")
    log_probs = log_probs.copy()
    log_probs[:, list(forbidden)] = -np.inf
    if time + 1 < settings.min_length:
        log_probs[:, eos] = -np.inf
    if size := settings.no_repeat_ngram_size:
        for row, ids in zip(log_probs, past, strict=True):
            row[_ends_of_ngrams(ids, size)] = -np.inf
    return log_probs


def _ends_of_ngrams(ids: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would complete an n-gram of the ids again."""
    last = tuple(ids[len(ids) - size + 1 :])
    starts = range(len(ids) - size + 1)
    return [ids[i + size - 1] for i in starts if tuple(ids[i : i + size - 1]) == last]


def _top(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest values of each row and their places, descending."""
    if count < values.shape[1]:
        index = np.argpartition(-values, count - 1, axis=1)[:, :count]
    else:
        index = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    some = np.take_along_axis(values, index, 1)
    order = np.argsort(-some, axis=1, kind="stable")
    top, index = (np.take_along_axis(one, order, 1) for one in (some, index))
    return top, index


def _norm(length: int, settings: SearchSettings) -> np.ndarray:
    """Return the divisor () of a log-probability of `length` tokens."""
    if settings.length_normalisation == "none":
        return np.array(1, np.float32)
    size = (5 + length) / 6 if settings.length_normalisation == "wu" else length
    norm: np.ndarray = np.power(np.array(size, np.float32), np.float32(settings.length_penalty))
    return norm


def _is_finished(
    pool: Pool, totals: np.ndarray, length: int, settings: SearchSettings
) -> np.ndarray:
    """Return the prompts (B,) whose best hypothesis no open beam can change any more."""
    best = totals.max(1)
    if settings.early_stopping == "full":
        full: np.ndarray = (pool.rank[:, -1] > -np.inf) | (best == -np.inf)
        return full
    exact = settings.early_stopping == "never"
    bar = pool.rank[:, settings.num_return - 1 if exact else -1]
    if exact:
        length = settings.max_length if settings.length_penalty > 0 else max(
            length + 1, settings.min_length
        )  # fmt: skip
    finished: np.ndarray = bar >= best / _norm(length, settings)
    return finished


def _follow(pool: Pool, history: History, row: int, eos: int) -> Hypothesis:
    """Return the best finished hypothesis of a prompt, followed back through its beams."""
    if pool.rank[row, 0] == -np.inf:
        raise UserError(
            "No sequence is possible. The settings of the search exclude every token; loosen them."
        )
    slot, last = int(pool.slot[row, 0]), int(pool.token[row, 0])
    ids = [] if last == eos else [last]
    log_probs = [float(pool.log_prob[row, 0])]
    for time in range(int(pool.time[row, 0]) - 1, -1, -1):
        ids.append(int(history.tokens[time][row, slot]))
        log_probs.append(float(history.log_probs[time][row, slot]))
        slot = int(history.parents[time][row, slot])
    return Hypothesis(ids[::-1], log_probs[::-1])
