"""Attributions and faithfulness curves of any model, from its score while words are hidden.

W words   M ways to hide some of them   F shares of the words   O orders
"""

from collections.abc import Callable, Sequence

import numpy as np

from weft.explain.explanation import WordWeight
from weft.explain.faithfulness import first_words_at, word_orders

HiddenScore = Callable[[np.ndarray], np.ndarray]  # (M, W) hidden words -> (M,) scores

MAX_REMOVALS = 400  # groups of words hidden by turns; in a longer text, neighbours go together
MAX_PLAYERS = 60  # the same for Shapley values, whose cost is O times as high
SHAPLEY_ORDERS = 20  # random orders, each also walked backwards


def group_words(count: int, most: int = 0) -> list[tuple[int, int]]:
    """Return ranges of neighbouring words that are hidden together; `most` 0 is MAX_REMOVALS."""
    size = max(1, -(-count // (most or MAX_REMOVALS)))
    return [(i, min(i + size, count)) for i in range(0, count, size)]


def occlude(score: HiddenScore, count: int) -> np.ndarray:
    """(W,) how far the score falls when each word is hidden; grouped words share the fall."""
    groups = group_words(count)
    hidden = np.zeros((1 + len(groups), count), bool)
    for row, (i, j) in enumerate(groups, 1):
        hidden[row, i:j] = True
    values = score(hidden)
    return _share(groups, values[0] - values[1:], count)


def sample_shapley(
    score: HiddenScore, count: int, orders: int = SHAPLEY_ORDERS, seed: int = 0
) -> np.ndarray:
    """(W,) Shapley values by sampled orders (Castro et al. 2009).

    Words appear one by one in a random order and back in the reverse of it; the value of a word is
    the mean rise of the score when it appears. The values sum to f(text) − f(nothing) exactly.
    """
    groups = group_words(count, MAX_PLAYERS)
    players = len(groups)
    if not players:
        return np.zeros(0)
    random = np.random.default_rng(seed)
    drawn = [random.permutation(players) for _ in range(orders)]
    walks = np.array([walk for order in drawn for walk in (order, order[::-1])])  # (2 * O, P)
    turns = np.argsort(walks, axis=1)  # (2 * O, P) when each group appears
    hidden = turns[:, None, :] >= np.arange(players + 1)[:, None]  # (2 * O, P + 1, P)
    owner = np.repeat(np.arange(players), [j - i for i, j in groups])  # (W,)
    flat = hidden.reshape(-1, players)[:, owner]
    distinct, at = np.unique(flat, axis=0, return_inverse=True)
    values = score(distinct)[at.ravel()].reshape(len(walks), players + 1)
    rises = np.diff(values, axis=1)  # (2 * O, P) in the order of the walk
    return _share(groups, np.take_along_axis(rises, turns, 1).mean(0), count)


def hidden_curves(
    prob: HiddenScore, words: Sequence[WordWeight], draws: int, seed: int
) -> np.ndarray:
    """(1 + draws, 2, F) the probability as words are hidden, and as they appear.

    The first row follows the weights, the others are random orders.
    """
    plan = word_orders(words, draws, seed)  # (1 + draws) orders
    gone = np.array([_hidden_at_shares(order) for order in plan])  # (1 + draws, F, W)
    both = np.stack([gone, ~gone], 1)  # (1 + draws, 2, F, W)
    distinct, at = np.unique(both.reshape(-1, both.shape[-1]), axis=0, return_inverse=True)
    return prob(distinct)[at.ravel()].reshape(both.shape[:-1])


def _hidden_at_shares(order: list[int]) -> list[list[bool]]:
    """(F, W) the words that are gone at each share."""
    return [[i in first for i in range(len(order))] for first in first_words_at(order)]


def _share(groups: Sequence[tuple[int, int]], values: np.ndarray, count: int) -> np.ndarray:
    """(W,) the value of each group, divided among its words."""
    out = np.zeros(count)
    for (i, j), value in zip(groups, values.tolist(), strict=True):
        out[i:j] = value / (j - i)
    return out
