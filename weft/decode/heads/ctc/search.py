"""Search over connectionist temporal classification: best path, prefix beam, forced alignment.

T steps   V tokens, of which id 0 is the blank   L tokens of a text
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

BLANK = 0
PRUNED_LOG_PROB = math.log(1e-6)  # tokens less probable than this at a step extend no prefix


class TokenLM(Protocol):
    """A language model over the same token ids."""

    def start(self) -> object:
        """Return the state before the first token."""

    def step(self, token: int | None, state: object) -> tuple[np.ndarray, float, object]:
        """Return log-probabilities (V,) after a token, that of the end, and the next state."""


@dataclass
class _Prefix:
    """A text so far: log-probabilities of its paths that end in a blank, and in its last token."""

    blank: float = -math.inf
    token: float = -math.inf
    lm: float = 0.0  # weighted log-probability under the language model, and rewards
    end: float = 0.0  # weighted log-probability of ending here
    following: np.ndarray | None = None  # (V,) log-probabilities of the next token
    state: object = field(default=None, repr=False)

    @property
    def ctc(self) -> float:
        return add_logs(self.blank, self.token)


def add_logs(first: float, second: float) -> float:
    """Return log(exp(first) + exp(second))."""
    if first < second:
        first, second = second, first
    return first if second == -math.inf else first + math.log1p(math.exp(second - first))


def best_path(log_probs: np.ndarray) -> list[int]:
    """Return the text of the most probable path: repeats merged, then blanks removed."""
    path = log_probs.argmax(1).tolist()
    kept = [one for i, one in enumerate(path) if not i or one != path[i - 1]]
    return [one for one in kept if one != BLANK]


def prefix_beam_search(
    log_probs: np.ndarray,
    beam: int,
    lm: TokenLM | None = None,
    lm_weight: float = 0.5,
    token_reward: float = 0.0,
) -> list[tuple[list[int], float]]:
    """Return texts with their scores, best first, from log-probabilities (T, V).

    The paths of a text are summed (Graves & Jaitly 2014; Hannun et al. 2014). With a language
    model the score is log P(text | steps) + `lm_weight` log P(text) + `token_reward` L.
    """
    beams: dict[tuple[int, ...], _Prefix] = {(): _Prefix(blank=0.0)}
    if lm is not None:
        following, end, state = lm.step(None, lm.start())
        beams[()] = _Prefix(0.0, -math.inf, 0.0, lm_weight * end, following, state)
    for frame in log_probs.astype(float):
        tokens = [v for v in np.flatnonzero(frame > PRUNED_LOG_PROB).tolist() if v != BLANK]
        grown: dict[tuple[int, ...], _Prefix] = {}
        for text, one in beams.items():
            same = grown.setdefault(text, _Prefix(lm=one.lm))
            same.blank = add_logs(same.blank, one.ctc + frame[BLANK])
            if text:
                same.token = add_logs(same.token, one.token + frame[text[-1]])
            for v in tokens:
                # A repeated token needs a blank in between; otherwise it is the same token.
                before = one.blank if text and v == text[-1] else one.ctc
                if before == -math.inf:
                    continue
                longer = (*text, v)
                if longer not in grown:
                    weight = lm_weight * one.following[v] if one.following is not None else 0.0
                    grown[longer] = _Prefix(lm=one.lm + weight + token_reward)
                grown[longer].token = add_logs(grown[longer].token, before + frame[v])
        ranked = sorted(grown.items(), key=lambda item: -(item[1].ctc + item[1].lm))[:beam]
        kept = {}
        for text, one in ranked:
            if lm is not None:
                _follow(one, text, beams, lm, lm_weight)
            kept[text] = one
        beams = kept
    texts = ((list(text), one.ctc + one.lm + one.end) for text, one in beams.items())
    return sorted(texts, key=lambda pair: -pair[1])


def _follow(
    one: _Prefix,
    text: tuple[int, ...],
    beams: dict[tuple[int, ...], _Prefix],
    lm: TokenLM,
    lm_weight: float,
) -> None:
    """Give a kept prefix the state of the language model after it."""
    if text in beams:
        known = beams[text]
        one.end, one.following, one.state = known.end, known.following, known.state
        return
    one.following, end, one.state = lm.step(text[-1], beams[text[:-1]].state)
    one.end = lm_weight * end


def align(log_probs: np.ndarray, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last step (inclusive) of each token on the most probable path."""
    steps, labels = len(log_probs), [BLANK]
    for one in ids:
        labels += [one, BLANK]
    score = np.full(len(labels), -np.inf)
    score[:2] = log_probs[0, labels[:2]]
    # A token may follow the one before directly unless they are equal.
    skips = np.array([i > 1 and i % 2 == 1 and labels[i] != labels[i - 2]
                      for i in range(len(labels))])  # fmt: skip
    back = np.zeros((steps, len(labels)), int)
    for t in range(1, steps):
        moves = np.stack([
            score, np.append(-np.inf, score[:-1]),
            np.where(skips, np.concatenate([[-np.inf] * 2, score[:-2]])[: len(labels)], -np.inf),
        ])  # fmt: skip
        back[t] = moves.argmax(0)
        score = moves.max(0) + log_probs[t, labels]
    at = len(labels) - 1
    if len(labels) > 1 and score[-2] > score[-1]:
        at -= 1
    spans: dict[int, tuple[int, int]] = {}
    for t in range(steps - 1, -1, -1):
        if at % 2:
            spans[at // 2] = (t, spans.get(at // 2, (t, t))[1])
        at -= int(back[t, at])
    return [spans[k] for k in sorted(spans)]


def score_tokens(log_probs: np.ndarray, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (L, 1) of a text, and the largest probability of each where it is aligned.

    An empty text has one probability: that every step is blank.
    """
    if not ids:
        silent = np.exp(log_probs[:, BLANK].sum(keepdims=True))
        return np.zeros((0, 1), np.int64), silent[:, None].astype(np.float64)
    spans = align(log_probs, ids)
    probs = [np.exp(log_probs[a : b + 1, v].max()) for v, (a, b) in zip(ids, spans, strict=True)]
    return np.array(ids, np.int64)[:, None], np.array(probs, np.float64)[:, None]


def min_steps(ids: Sequence[int]) -> int:
    """Return the fewest steps that can hold a text: its tokens, and a blank between repeats."""
    return len(ids) + sum(a == b for a, b in pairwise(ids))
