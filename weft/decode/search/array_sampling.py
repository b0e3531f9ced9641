"""Token sampling in NumPy: the random numbers and truncations of `sampling`, without torch.

N rows   V vocabulary   K tokens that may be sampled
"""

from collections.abc import Sequence

import numpy as np

from weft.decode.search.settings import SearchSettings

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_MULTIPLIER_1, MIX_MULTIPLIER_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
NUCLEUS_GUESS = 512  # tokens that nearly always contain a nucleus


def mix64(number: np.ndarray) -> np.ndarray:
    """Scramble 64 bits: the output function of SplitMix64 (Steele et al. 2014)."""
    number = (number ^ (number >> np.uint64(30))) * MIX_MULTIPLIER_1
    number = (number ^ (number >> np.uint64(27))) * MIX_MULTIPLIER_2
    mixed: np.ndarray = number ^ (number >> np.uint64(31))
    return mixed


def random_streams(seeds: Sequence[int], draws: int) -> np.ndarray:
    """Return the initial state of each random stream (N,), the draws of a row adjacent."""
    row = mix64(np.array([seed % (1 << 64) for seed in seeds], np.uint64) + GOLDEN_GAMMA)  # (B,)
    draw = np.arange(1, draws + 1, dtype=np.uint64) * GOLDEN_GAMMA  # (draws,)
    return mix64(row[:, None] + draw).reshape(-1)


def uniform(stream: np.ndarray, time: int) -> np.ndarray:
    """Return one number in [0, 1) per row (N,), a function of its stream and the step only."""
    bits = mix64(stream + np.array([time + 1], np.uint64) * GOLDEN_GAMMA)  # (N,)
    numbers: np.ndarray = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def sample_tokens(
    log_probs: np.ndarray, number: np.ndarray, settings: SearchSettings
) -> np.ndarray:
    """Sample one token per row (N,) by inverting the cumulative distribution."""
    log_probs, tokens = truncate_distribution(log_probs, settings)  # both (N, K)
    mass = np.exp((log_probs - log_probs.max(-1, keepdims=True)).astype(np.float64))
    sums = mass.cumsum(-1)  # (N, K)
    total = sums[:, -1]
    # Stay below the total, or rounding could select an index past the last token.
    threshold = np.minimum(number * total, np.nextafter(total, 0))  # (N,)
    index = (sums <= threshold[:, None]).sum(-1).clip(max=sums.shape[1] - 1)  # (N,)
    return index if tokens is None else np.take_along_axis(tokens, index[:, None], 1)[:, 0]


def truncate_distribution(
    log_probs: np.ndarray, settings: SearchSettings
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return log-weights (N, K) of the tokens to sample from, -inf for excluded, and their ids.

    Ids are None for the whole vocabulary. Each truncation renormalises what the one before left:
    temperature, top-k, nucleus (Holtzman et al. 2020), typical (Meister et al. 2023).
    """
    tokens = None
    if settings.temperature != 1:
        log_probs = log_probs / np.float32(settings.temperature)
    if 0 < settings.top_k < log_probs.shape[1]:
        log_probs, tokens = top(log_probs, settings.top_k)  # both (N, K)
    if settings.top_p < 1:
        log_probs = log_softmax(log_probs)
        log_probs, tokens = _keep_mass(log_probs, log_probs, settings.top_p, tokens)
    if settings.typical_p < 1:
        log_probs = log_softmax(log_probs)
        possible = log_probs > -np.inf
        surprise = np.where(possible, -log_probs, 0)  # (N, K)
        expected = (np.exp(log_probs) * surprise).sum(-1, keepdims=True)  # (N, 1)
        nearness = np.where(possible, -np.abs(surprise - expected), -np.inf)
        log_probs, tokens = _keep_mass(log_probs, nearness, settings.typical_p, tokens)
    return log_probs, tokens


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Return log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    with np.errstate(over="ignore"):  # of the lowest number, which stands for what cannot be
        found: np.ndarray = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


def top(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest values of each row and their places, descending."""
    if count < values.shape[1]:
        index = np.argpartition(-values, count - 1, axis=1)[:, :count]
    else:
        index = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    some = np.take_along_axis(values, index, 1)
    order = np.argsort(-some, axis=1, kind="stable")
    return np.take_along_axis(some, order, 1), np.take_along_axis(index, order, 1)


def _keep_mass(
    log_probs: np.ndarray, order: np.ndarray, mass: float, tokens: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Keep the smallest set of tokens with probability `mass`, in descending `order`."""
    first, guess = None, NUCLEUS_GUESS
    # Sorting a whole vocabulary is slow; checking the sum of a few costs nothing.
    while first is None and log_probs.shape[1] > 4 * guess:
        some = top(order, guess)[1]  # (N, K)
        held = np.exp(np.take_along_axis(log_probs, some, 1)).sum(-1)  # (N,)
        first, guess = (some if (held >= mass).all() else None), guess * 4
    if first is None:
        first = np.argsort(-order, axis=-1, kind="stable")  # (N, K)
    log_probs = np.take_along_axis(log_probs, first, 1)  # (N, K)
    probs = np.exp(log_probs)  # (N, K)
    keep = probs.cumsum(-1) - probs < mass
    keep[:, 0] = True  # rounding must not empty a row
    tokens = first if tokens is None else np.take_along_axis(tokens, first, 1)
    return np.where(keep, log_probs, -np.inf), tokens
