"""Recordings -> log-mel vectors -> the width a model works in.

B rows   T vectors   F numbers of a vector, `stack` frames of M mel bands   E width
K points of a gain curve
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from weft.batch import Padded
from weft.embed.features import FeatureEmbedder
from weft.errors import UserError
from weft.registry import register
from weft.text.audio.log_mel import LogMel, Standardise

GAIN_POINTS = 4  # of a curve over the bands
MAX_TEMPO = 3  # a recording becomes four times as long at most


@register("embedder", "log-mel")
class LogMelEmbedder(FeatureEmbedder):
    """A linear map of the log-mel vectors of a recording.

    Recordings are resampled to `sample_rate`; 0 keeps the rate of each, which should then be the
    same. Mean 0 and deviation 1 are those of each of the bands over time, or with `standardise =
    "recording"` of all numbers, which keeps the balance of the bands. What is more than `range_db`
    decibels below the loudest band is raised to that level; 0 changes nothing.

    In training, each recording sounds like another speaker and another microphone. It takes up to
    1 + `tempo` times as long, or as short (Ko et al. 2015, without a change of pitch). Its mel axis
    is stretched by a factor between 1 - `warp` and 1 + `warp`, as by a longer or shorter vocal
    tract (Jaitly and Hinton 2013). A curve of gains over the bands is added: normal values of
    deviation `gain` at four points, with lines between them (FilterAugment, Nam et al. 2022). At
    most `mask_bands` consecutive mel bands and `mask_steps` consecutive vectors are zero
    (SpecAugment, Park et al. 2019).
    """

    frontend: LogMel

    def __init__(
        self,
        sample_rate: int = 0,
        mels: int = 40,
        window_ms: float = 25.0,
        hop_ms: float = 10.0,
        stack: int = 2,
        width: int = 128,
        dropout: float = 0.0,
        mask_bands: int = 0,
        mask_steps: int = 0,
        tempo: float = 0.0,
        warp: float = 0.0,
        gain: float = 0.0,
        standardise: Standardise = "bands",
        range_db: float = 0.0,
    ):
        audio = LogMel(sample_rate, mels, window_ms, hop_ms, stack, standardise, range_db)
        super().__init__(audio.width, width, dropout)
        if not 0 <= mask_bands <= mels or mask_steps < 0:
            raise UserError(
                f"embedder 'log-mel': 'mask_bands' should be from 0 to {mels} and 'mask_steps' 0 "
                f"or more, got {mask_bands} and {mask_steps}."
            )
        if not 0 <= warp < 1 or gain < 0 or not 0 <= tempo <= MAX_TEMPO:
            raise UserError(
                "embedder 'log-mel': 'warp' should be from 0 to below 1, 'gain' 0 or more and "
                f"'tempo' from 0 to {MAX_TEMPO}, got {warp}, {gain} and {tempo}."
            )
        self.frontend, self.mask_bands, self.mask_steps = audio, mask_bands, mask_steps
        self.tempo, self.warp, self.gain = tempo, warp, gain

    def forward(self, x: Padded) -> Padded:
        if self.training:
            bands = x.data.unflatten(2, (self.frontend.stack, self.frontend.mels))
            if self.tempo:
                bands, lengths = self._change_tempo(bands, x.lengths)
                x = Padded(bands, lengths)
            if self.warp:
                bands = self._stretch(bands)
            if self.gain:
                bands = bands + self._draw_gains(bands)
            if self.mask_bands or self.mask_steps:
                bands = self._mask(bands, x.lengths.to(bands.device))
            x = x.with_data(bands.flatten(2))
        return super().forward(x)

    def _change_tempo(self, bands: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bands with each row at its own pace, between two frames, and the lengths."""
        stack = self.frontend.stack
        factor = (1 + self.tempo) ** (2 * torch.rand(len(lengths)) - 1)
        after = (lengths * factor).round().long().clamp(min=1).where(lengths > 0, lengths)
        frames = torch.arange(int(after.max()) * stack)
        at = (frames + 0.5) * (lengths / after.clamp(min=1))[:, None] - 0.5  # (B, frames)
        at = at.clamp(min=0).minimum((lengths * stack - 1).clamp(min=0)[:, None])
        read = _interpolate(bands.flatten(1, 2), at[..., None].to(bands.device), 1)
        return read.unflatten(1, (-1, stack)), after

    def _stretch(self, bands: Tensor) -> Tensor:
        """Return the bands (B, T, stack, M) read off a stretched mel axis, between two bands."""
        rows, mels = len(bands), self.frontend.mels
        factor = 1 + self.warp * (2 * torch.rand(rows, 1, device=bands.device) - 1)
        at = torch.arange(1, mels + 1, device=bands.device) * factor - 1  # (B, M)
        return _interpolate(bands, at.clamp(0, mels - 1)[:, None, None], 3)

    def _draw_gains(self, bands: Tensor) -> Tensor:
        """Return a curve of gains for each row, (B, 1, 1, M)."""
        points = self.gain * torch.randn(len(bands), 1, GAIN_POINTS, device=bands.device)
        curve = F.interpolate(points, self.frontend.mels, mode="linear", align_corners=True)
        return curve[:, None].to(bands.dtype)

    def _mask(self, bands: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors (B, T, stack, M) with a run of bands and a run of steps set to 0."""
        rows, steps = bands.shape[:2]
        full = torch.full((rows,), self.frontend.mels, device=bands.device)
        hidden = _draw_run(full, self.mask_bands, self.frontend.mels)[:, None, None, :]
        hidden = hidden | _draw_run(lengths, self.mask_steps, steps)[:, :, None, None]
        return bands.masked_fill(hidden, 0)


def _interpolate(data: Tensor, at: Tensor, axis: int) -> Tensor:
    """Return the data at places between two numbers of an axis."""
    low = at.floor()
    share = (at - low).to(data.dtype)
    first = low.long()
    second = (first + 1).clamp(max=data.shape[axis] - 1)
    below, above = (data.take_along_dim(number, axis) for number in (first, second))
    return below + share * (above - below)


def _draw_run(lengths: Tensor, most: int, size: int) -> Tensor:
    """Return (B, size) flags: a run of 0 to `most` within each length."""
    wide = (torch.rand(len(lengths), device=lengths.device) * (most + 1)).floor()
    wide = torch.minimum(wide, lengths.float() / 2)
    first = torch.rand(len(lengths), device=lengths.device) * (lengths - wide + 1)
    at = torch.arange(size, device=lengths.device)
    begin = first.floor()[:, None]
    return (at >= begin) & (at < begin + wide.floor()[:, None])
