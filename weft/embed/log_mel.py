"""Recordings -> log-mel vectors -> the width a model works in.

B rows   T vectors   F numbers of a vector, `stack` frames of M mel bands   E width
"""

import torch
from torch import Tensor

from weft.batch import Padded
from weft.embed.features import FeatureEmbedder
from weft.errors import UserError
from weft.registry import register
from weft.text.audio.log_mel import LogMel, Standardise


@register("embedder", "log-mel")
class LogMelEmbedder(FeatureEmbedder):
    """A linear map of the log-mel vectors of a recording.

    Recordings are resampled to `sample_rate`; 0 keeps the rate of each, which should then be the
    same. Mean 0 and deviation 1 are those of each of the bands over time, or with `standardise =
    "recording"` of all numbers, which keeps the balance of the bands. In training, `mask_bands`
    consecutive mel bands and `mask_steps` consecutive vectors at most are zero in each recording
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
        standardise: Standardise = "bands",
    ):
        audio = LogMel(sample_rate, mels, window_ms, hop_ms, stack, standardise)
        super().__init__(audio.width, width, dropout)
        if not 0 <= mask_bands <= mels or mask_steps < 0:
            raise UserError(
                f"embedder 'log-mel': 'mask_bands' should be from 0 to {mels} and 'mask_steps' 0 "
                f"or more, got {mask_bands} and {mask_steps}."
            )
        self.frontend, self.mask_bands, self.mask_steps = audio, mask_bands, mask_steps

    def forward(self, x: Padded) -> Padded:
        if self.training and (self.mask_bands or self.mask_steps):
            x = x.with_data(self._mask(x.data, x.lengths.to(x.data.device)))
        return super().forward(x)

    def _mask(self, data: Tensor, lengths: Tensor) -> Tensor:
        """Return the vectors (B, T, F) with a run of bands and a run of steps set to 0."""
        rows, steps = data.shape[:2]
        bands = data.view(rows, steps, self.frontend.stack, self.frontend.mels)
        full = torch.full((rows,), self.frontend.mels, device=data.device)
        hidden = _draw_run(full, self.mask_bands, self.frontend.mels)[:, None, None, :]
        hidden = hidden | _draw_run(lengths, self.mask_steps, steps)[:, :, None, None]
        return bands.masked_fill(hidden, 0).view_as(data)


def _draw_run(lengths: Tensor, most: int, size: int) -> Tensor:
    """Return (B, size) flags: a run of 0 to `most` within each length."""
    wide = (torch.rand(len(lengths), device=lengths.device) * (most + 1)).floor()
    wide = torch.minimum(wide, lengths.float() / 2)
    first = torch.rand(len(lengths), device=lengths.device) * (lengths - wide + 1)
    at = torch.arange(size, device=lengths.device)
    begin = first.floor()[:, None]
    return (at >= begin) & (at < begin + wide.floor()[:, None])
