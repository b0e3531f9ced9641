"""Draws of tokens: one number of its own for each row and step, and truncated distributions.

N rows   V vocabulary   K tokens that may be drawn
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.decode.heads.crf_dp import accumulation_dtype
from weft.decode.search.constraints import fast_topk
from weft.decode.search.settings import SearchSettings

GOLDEN_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # as signed numbers, which wrap around just the same
MIX_MULTIPLIER_1, MIX_MULTIPLIER_2 = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)
NUCLEUS_GUESS = 512  # tokens that hold the mass of a nucleus, nearly always


def mix64(number: Tensor) -> Tensor:
    """Scramble 64 bits: the output function of SplitMix64 (Steele et al. 2014)."""
    number = (number ^ _logical_shift(number, 30)) * MIX_MULTIPLIER_1
    number = (number ^ _logical_shift(number, 27)) * MIX_MULTIPLIER_2
    return number ^ _logical_shift(number, 31)


def random_streams(seeds: Sequence[int], draws: int, device: torch.device) -> Tensor:
    """Where the random numbers of each draw of each row begin (N,), the draws of a row together."""
    # Seeds of any size; those of 64 bits and less stay different.
    wrapped = [(seed + (1 << 63)) % (1 << 64) - (1 << 63) for seed in seeds]
    row = mix64(torch.tensor(wrapped, dtype=torch.int64) + GOLDEN_GAMMA)  # (B,)
    draw = torch.arange(1, draws + 1) * GOLDEN_GAMMA  # (draws,)
    return mix64(row[:, None] + draw).flatten().to(device)


def uniform(stream: Tensor, time: Tensor) -> Tensor:
    """One number in [0, 1) for each row (N,), that depends on its stream and the step only."""
    bits = mix64(stream + (time + 1) * GOLDEN_GAMMA)  # (N,)
    wide = accumulation_dtype(stream.device)
    digits = 53 if wide == torch.float64 else 24
    return _logical_shift(bits, 64 - digits).to(wide) * 2.0**-digits


def sample_tokens(logp: Tensor, number: Tensor, settings: SearchSettings) -> Tensor:
    """One token a row (N,) from the distribution under the settings, by the inverse of its sums."""
    logp, place = truncate_distribution(logp, settings)  # both (N, K)
    mass = (logp - logp.amax(-1, keepdim=True)).to(number.dtype).exp_()  # (N, K)
    sums = mass.cumsum(-1)  # (N, K)
    total = sums[:, -1:]
    # Never the whole sum, so that a place past the last token cannot come out by rounding.
    below = torch.nextafter(total, torch.zeros_like(total))
    aim = torch.minimum(number[:, None] * total, below)  # (N, 1)
    index = torch.searchsorted(sums, aim, right=True).clamp_(max=sums.shape[1] - 1)  # (N, 1)
    return (index if place is None else place.gather(1, index))[:, 0]


def truncate_distribution(logp: Tensor, settings: SearchSettings) -> tuple[Tensor, Tensor | None]:
    """Scores of the tokens that may be drawn (N, K), -inf for none, and their ids; None = all.

    Each truncation sees what the one before it left, as a distribution: temperature, top-k,
    nucleus (Holtzman et al. 2020), typical (Meister et al. 2023).
    """
    place = None
    if settings.temperature != 1:
        logp = logp / settings.temperature
    if 0 < settings.top_k < logp.shape[1]:
        logp, place = fast_topk(logp, settings.top_k)  # both (N, K)
    if settings.top_p < 1:
        logp = logp.log_softmax(-1)
        logp, place = _keep_mass(logp, logp, settings.top_p, place)
    if settings.typical_p < 1:
        logp = logp.log_softmax(-1)
        surprise = torch.where(logp > -torch.inf, -logp, 0)  # (N, K)
        expected = (logp.exp() * surprise).sum(-1, keepdim=True)  # (N, 1)
        nearness = torch.where(logp > -torch.inf, -(surprise - expected).abs(), -torch.inf)
        logp, place = _keep_mass(logp, nearness, settings.typical_p, place)
    return logp, place


def _keep_mass(
    logp: Tensor, order: Tensor, mass: float, place: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The first tokens in order of `order`, largest first, until they hold the mass."""
    first, few = None, NUCLEUS_GUESS
    # Sorting a whole vocabulary is slow on a processor, and a look at the sum costs nothing.
    while first is None and logp.device.type == "cpu" and logp.shape[1] > 4 * few:
        first = fast_topk(order, few)[1]  # (N, K)
        enough = bool((logp.gather(1, first).exp().sum(-1) >= mass).all())
        first, few = (first if enough else None), few * 4
    if first is None:
        first = order.argsort(dim=-1, descending=True, stable=True)  # (N, K)
    logp = logp.gather(1, first)  # (N, K)
    shares = logp.exp()  # (N, K)
    before = shares.cumsum(-1) - shares  # (N, K)
    keep = before < mass
    keep[:, 0] = True  # rounding must not empty a row
    place = first if place is None else place.gather(1, first)
    return logp.masked_fill(~keep, -torch.inf), place


def _logical_shift(number: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros; torch would fill with the sign."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)
