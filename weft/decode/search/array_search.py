"""Greedy search and sampling in NumPy, and the entry to every search over arrays. No torch.

The searches are those of `search`: the same hypotheses, and for one seed the same samples.

B prompts   W samples of a prompt   N rows of a state   V words
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from weft.decode.search.allowed_phrases import AllowedPhrases
from weft.decode.search.array_sampling import (
    log_softmax,
    random_streams,
    sample_tokens,
    uniform,
)
from weft.decode.search.results import (
    Hypothesis,
    StreamDelta,
    nan_logits_error,
    no_hypothesis_error,
)
from weft.decode.search.rules import Constraints
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError

Arrays = dict[str, np.ndarray]
# Ids (N,), a state, and the prompt of each row -> logits (N, V) and the next state.
ArrayStep = Callable[[np.ndarray, Arrays, np.ndarray], tuple[np.ndarray, Arrays]]
NO_RULES = Constraints()


def search(
    step: ArrayStep,
    state: Arrays,
    settings: SearchSettings,
    *,
    batch: int,
    bos: int | np.ndarray,
    eos: int,
    rules: Constraints = NO_RULES,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each prompt, best first; samples as they were drawn.

    `state` has one row for each prompt, and `bos` is the first input, of all or (B,) of each.
    """
    if settings.method == "beam":
        from weft.decode.search.array_beam import search_beams

        return search_beams(step, state, settings, batch, bos, eos, rules)
    width = settings.num_samples if settings.method == "sample" else 1
    ids: list[list[int]] = [[] for _ in range(batch * width)]
    log_probs: list[list[float]] = [[] for _ in ids]
    ended = [False] * len(ids)
    for deltas in stream(step, state, settings, batch=batch, bos=bos, eos=eos, rules=rules):
        for one in deltas:
            row = one.row * width + one.sample
            ids[row] += one.ids
            log_probs[row] += one.logps
            ended[row] = one.ended
    forced = prefix_lengths(rules, batch)
    found: list[list[Hypothesis]] = [[] for _ in range(batch)]
    for row, own in enumerate(log_probs):
        prompt = row // width
        prefix = int(forced[prompt])
        total = np.array(own[prefix:], np.float32).sum()
        score = float(total / length_norm(np.array(len(own) - prefix), settings))
        found[prompt].append(Hypothesis(ids[row], score, own, ended[row], prefix))
    return found


def stream(
    step: ArrayStep,
    state: Arrays,
    settings: SearchSettings,
    *,
    batch: int,
    bos: int | np.ndarray,
    eos: int,
    rules: Constraints = NO_RULES,
) -> Iterator[list[StreamDelta]]:
    """Yield the new token of each open row, step by step."""
    if settings.method == "beam":
        raise UserError(
            "Beam search cannot stream: its first token is final only at the end. "
            "Use method = 'greedy' or 'sample'."
        )
    width = settings.num_samples if settings.method == "sample" else 1
    rows = np.arange(batch * width)
    state = {name: np.repeat(value, width, 0) for name, value in state.items()}
    ids = np.repeat(np.broadcast_to(np.asarray(bos, np.int64), batch), width)
    seeds = list(rules.seeds) or [settings.seed + row for row in range(batch)]
    streams = random_streams(seeds, width)
    forced = prefix_lengths(rules, batch)
    past: list[list[int]] = [[] for _ in rows]
    for time in range(settings.max_length + int(forced.max(initial=0))) if batch else ():
        prompts = rows // width
        logits, state = step(ids, state, prompts)
        scores, model = constrain(logits, rules, settings, eos, time, forced, prompts, past)
        inside = time < forced[prompts]
        scores[inside] = model[inside]  # what is forced is not chosen
        stuck = scores.max(1) == -np.inf
        if stuck.any():
            raise no_hypothesis_error(int(prompts[stuck][0]))
        if settings.method == "sample":
            ids = sample_tokens(scores, uniform(streams[rows], time), settings)
        else:
            ids = scores.argmax(1)
        for i in np.flatnonzero(inside).tolist():
            ids[i] = rules.prefix[prompts[i]][time]
        over = ~inside & ((ids == eos) | (time + 1 - forced[prompts] >= settings.max_length))
        gained = np.take_along_axis(model, ids[:, None], 1)[:, 0]
        deltas = []
        for i, row in enumerate(rows.tolist()):
            ends = bool(over[i] and ids[i] == eos)
            past[i].append(int(ids[i]))
            own = [] if ends else [int(ids[i])]
            probs = [float(gained[i])]
            deltas.append(StreamDelta(row // width, row % width, own, probs, ends, bool(over[i])))
        yield deltas
        if over.all():
            return
        if over.any():
            ids, rows = ids[~over], rows[~over]
            past = [one for one, done in zip(past, over.tolist(), strict=True) if not done]
            state = {name: value[~over] for name, value in state.items()}


def constrain(
    logits: np.ndarray,
    rules: Constraints,
    settings: SearchSettings,
    eos: int,
    time: int,
    forced: np.ndarray,
    prompts: np.ndarray,
    past: Sequence[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probabilities (N, V) with impossible tokens at -inf, and the model's own."""
    wrong = np.isnan(logits).any(1)
    if wrong.any():
        raise nan_logits_error(int(prompts[wrong][0]))
    logits = logits.astype(np.float32, copy=False)
    model = log_softmax(logits)
    scores = model.copy()
    if settings.repetition_penalty != 1:
        scores = log_softmax(_penalised(logits, past, settings.repetition_penalty))
    if size := settings.no_repeat_ngram_size:
        for row, ids in zip(scores, past, strict=True):
            row[_ends_of_ngrams(ids, size)] = -np.inf
    if isinstance(rules.allowed, AllowedPhrases):
        scores[~rules.allowed.allow(past, prompts.tolist())] = -np.inf
    scores[:, list(rules.forbidden)] = -np.inf
    scores[time + 1 - forced[prompts] < settings.min_length, eos] = -np.inf
    return scores, model


def prefix_lengths(rules: Constraints, batch: int) -> np.ndarray:
    """Return how many tokens each prompt (B,) is forced to begin with."""
    sizes = [len(ids) for ids in rules.prefix] or [0] * batch
    return np.array(sizes, np.int64)


def length_norm(length: np.ndarray, settings: SearchSettings) -> np.ndarray:
    """Return the divisors of log-probabilities of so many tokens (Wu et al. 2016, equation 14)."""
    if settings.length_normalisation == "none":
        return np.ones_like(length, np.float32)
    size = (5 + length) / 6 if settings.length_normalisation == "wu" else length
    size = np.maximum(size, 1e-6).astype(np.float32)  # inside a prefix no length counts
    norm: np.ndarray = np.power(size, np.float32(settings.length_penalty))
    return norm


def _penalised(logits: np.ndarray, past: Sequence[Sequence[int]], penalty: float) -> np.ndarray:
    """Return logits with past tokens divided by the penalty, negative ones multiplied."""
    logits = logits.copy()
    for row, ids in zip(logits, past, strict=True):
        seen = np.unique(np.array(ids, np.int64))
        row[seen] = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
    return logits


def _ends_of_ngrams(ids: Sequence[int], size: int) -> list[int]:
    """Return the tokens that would complete an n-gram of the ids again."""
    last = tuple(ids[len(ids) - size + 1 :])
    starts = range(len(ids) - size + 1)
    return [ids[i + size - 1] for i in starts if tuple(ids[i : i + size - 1]) == last]
