"""Token sampling: counter-based random numbers per row and step, and truncated distributions.

N rows   V vocabulary   K tokens that may be sampled
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.decode.heads.crf_dp import accumulation_dtype
from weft.decode.search.constraints import fast_topk
from weft.decode.search.settings import SearchSettings

GOLDEN_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed integers, which wrap around alike
MIX_MULTIPLIER_1, MIX_MULTIPLIER_2 = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
NUCLEUS_GUESS = 512  # tokens that nearly always contain a nucleus


def mix64(number: Tensor) -> Tensor:
    """Scramble 64 bits: the output function of SplitMix64 (Steele et al. 2014)."""
    number = (number ^ _logical_shift(number, 30)) * MIX_MULTIPLIER_1
    number = (number ^ _logical_shift(number, 27)) * MIX_MULTIPLIER_2
    return number ^ _logical_shift(number, 31)


def random_streams(seeds: Sequence[int], draws: int, device: torch.device) -> Tensor:
    """Return the initial state of each random stream (N,), the draws of a row adjacent."""
    # Seeds may have any size; seeds of up to 64 bits stay distinct.
    wrapped = [(seed + (1 << 63)) % (1 << 64) - (1 << 63) for seed in seeds]
    row = mix64(torch.tensor(wrapped, dtype=torch.int64) + GOLDEN_GAMMA)  # (B,)
    draw = torch.arange(1, draws + 1) * GOLDEN_GAMMA  # (draws,)
    return mix64(row[:, None] + draw).flatten().to(device)


def uniform(stream: Tensor, time: Tensor) -> Tensor:
    """Return one number in [0, 1) per row (N,), a function of its stream and the step only."""
    bits = mix64(stream + (time + 1) * GOLDEN_GAMMA)  # (N,)
    wide = accumulation_dtype(stream.device)
    digits = 53 if wide == torch.float64 else 24
    return _logical_shift(bits, 64 - digits).to(wide) * 2.0**-digits


def sample_tokens(logp: Tensor, number: Tensor, settings: SearchSettings) -> Tensor:
    """Sample one token per row (N,) by inverting the cumulative distribution."""
    logp, tokens = truncate_distribution(logp, settings)  # both (N, K)
    mass = (logp - logp.amax(-1, keepdim=True)).to(number.dtype).exp_()  # (N, K)
    sums = mass.cumsum(-1)  # (N, K)
    total = sums[:, -1:]
    # Stay below the total, or rounding could select an index past the last token.
    below = torch.nextafter(total, torch.zeros_like(total))
    threshold = torch.minimum(number[:, None] * total, below)  # (N, 1)
    index = torch.searchsorted(sums, threshold, right=True).clamp_(max=sums.shape[1] - 1)  # (N, 1)
    return (index if tokens is None else tokens.gather(1, index))[:, 0]


def truncate_distribution(logp: Tensor, settings: SearchSettings) -> tuple[Tensor, Tensor | None]:
    """Return log-weights (N, K) of the tokens to sample from, -inf for excluded, and their ids.

    Ids are None for the whole vocabulary. Each truncation renormalises what the one before left:
    temperature, top-k, nucleus (Holtzman et al. 2020), typical (Meister et al. 2023).
    """
    tokens = None
    if settings.temperature != 1:
        logp = logp / settings.temperature
    if 0 < settings.top_k < logp.shape[1]:
        logp, tokens = fast_topk(logp, settings.top_k)  # both (N, K)
    if settings.top_p < 1:
        logp = logp.log_softmax(-1)
        logp, tokens = _keep_mass(logp, logp, settings.top_p, tokens)
    if settings.typical_p < 1:
        logp = logp.log_softmax(-1)
        surprise = torch.where(logp > -torch.inf, -logp, 0)  # (N, K)
        expected = (logp.exp() * surprise).sum(-1, keepdim=True)  # (N, 1)
        nearness = torch.where(logp > -torch.inf, -(surprise - expected).abs(), -torch.inf)
        logp, tokens = _keep_mass(logp, nearness, settings.typical_p, tokens)
    return logp, tokens


def _keep_mass(
    logp: Tensor, order: Tensor, mass: float, tokens: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Keep the smallest set of tokens with probability `mass`, in descending `order`."""
    first, guess = None, NUCLEUS_GUESS
    # Sorting a whole vocabulary is slow on a CPU; checking the sum of a few costs nothing.
    while first is None and logp.device.type == "cpu" and logp.shape[1] > 4 * guess:
        first = fast_topk(order, guess)[1]  # (N, K)
        enough = bool((logp.gather(1, first).exp().sum(-1) >= mass).all())
        first, guess = (first if enough else None), guess * 4
    if first is None:
        first = order.argsort(dim=-1, descending=True, stable=True)  # (N, K)
    logp = logp.gather(1, first)  # (N, K)
    probs = logp.exp()  # (N, K)
    before = probs.cumsum(-1) - probs  # (N, K)
    keep = before < mass
    keep[:, 0] = True  # rounding must not empty a row
    tokens = first if tokens is None else tokens.gather(1, first)
    return logp.masked_fill(~keep, -torch.inf), tokens


def _logical_shift(number: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch fills with the sign bit."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)
