"""The log-mel embedder in training: stretched mel axes, gains and masks, row by row."""

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.embed import log_mel
from weft.embed.log_mel import LogMelEmbedder
from weft.errors import UserError

ROWS, STEPS, STACK, MELS = 3, 5, 2, 7


def read(monkeypatch, training=True, **settings):
    """The bands (B, T, stack, M) that enter the linear map, and those before."""
    torch.manual_seed(4)
    made = LogMelEmbedder(mels=MELS, stack=STACK, width=11, **settings)
    made.train(training)
    seen = []
    monkeypatch.setattr(made.enter, "forward", lambda x: seen.append(x) or x[..., :11])
    x = torch.randn(ROWS, STEPS, STACK * MELS)
    made(Padded(x, torch.full((ROWS,), STEPS)))
    shape = ROWS, STEPS, STACK, MELS
    return seen[0].view(shape), x.view(shape)


def test_a_mel_axis_is_stretched_by_one_factor_a_row(monkeypatch):
    after, before = read(monkeypatch, warp=0.3)
    torch.manual_seed(4)
    drawn = _factors(0.3)
    for row, factor in enumerate(drawn.tolist()):
        places = np.clip(np.arange(1, MELS + 1) * factor - 1, 0, MELS - 1)
        for step in range(STEPS):
            for frame in range(STACK):
                wanted = np.interp(places, np.arange(MELS), before[row, step, frame])
                np.testing.assert_allclose(after[row, step, frame], wanted, atol=1e-5)
    assert len(set(drawn.tolist())) == ROWS


def _factors(warp):
    """The factors that `read` leads to: as many draws as the layer and the data take come first."""
    LogMelEmbedder(mels=MELS, stack=STACK, width=11)
    torch.randn(ROWS, STEPS, STACK * MELS)
    return 1 + warp * (2 * torch.rand(ROWS, 1)[:, 0] - 1)


def test_each_row_is_read_at_its_own_pace(monkeypatch):
    torch.manual_seed(4)
    made = LogMelEmbedder(mels=MELS, stack=STACK, width=11, tempo=0.5)
    rows, lengths = torch.randn(40, STEPS, STACK * MELS), torch.arange(40) % STEPS + 1
    seen = []
    monkeypatch.setattr(made.enter, "forward", lambda x: seen.append(x) or x[..., :11])
    out = made(Padded(rows, lengths))
    assert (seen[0].shape[1], out.data.shape[1]) == (out.lengths.max(),) * 2
    ratios = out.lengths / lengths
    assert ratios.max() > 1.3
    assert ratios.min() < 0.8
    assert torch.all((out.lengths - lengths * ratios.clamp(1 / 1.5, 1.5)).abs() <= 0.5)
    for row, before, after in zip(range(40), lengths.tolist(), out.lengths.tolist(), strict=True):
        frames = rows[row, :before].reshape(-1, MELS).numpy()
        read_frames = seen[0][row, :after].reshape(-1, MELS).numpy()
        places = (np.arange(after * STACK) + 0.5) * before / after - 0.5
        for band in range(MELS):
            wanted = np.interp(places, np.arange(before * STACK), frames[:, band])
            np.testing.assert_allclose(read_frames[:, band], wanted, atol=1e-5)


def test_gains_are_one_curve_a_row_with_lines_between_four_points(monkeypatch):
    after, before = read(monkeypatch, gain=0.5)
    curves = after - before
    assert torch.allclose(curves, curves[:, :1, :1].expand_as(curves), atol=1e-6)
    curves = curves[:, 0, 0]
    bends = curves.diff(dim=1).diff(dim=1).abs()  # (B, M - 2)
    points = log_mel.GAIN_POINTS
    assert (MELS - 1) % (points - 1) == 0  # the points are bands
    at = [band for band in range(1, MELS - 1) if band % ((MELS - 1) // (points - 1))]
    assert bends[:, [band - 1 for band in at]].max() < 1e-5
    assert bends.max() > 0.01
    assert not torch.allclose(curves[0], curves[1])


def test_recordings_stay_as_they_are_outside_training(monkeypatch):
    settings = {"warp": 0.3, "gain": 0.5, "tempo": 0.4, "mask_bands": 4, "mask_steps": 2}
    after, before = read(monkeypatch, training=False, **settings)
    assert torch.equal(after, before)
    after, before = read(monkeypatch, mask_bands=4)
    assert set((after == 0).all((1, 2)).sum(1).tolist()) <= {0, 1, 2, 3}  # at most half


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"warp": 1.0}, "'warp' should be"), ({"warp": -0.1}, "'warp'"), ({"gain": -1.0}, "'gain'"),
     ({"tempo": 3.5}, "'tempo' from 0 to 3"),
     ({"mask_bands": 41}, "'mask_bands' should be from 0 to 40"), ({"mask_steps": -1}, "mask")],
)  # fmt: skip
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        LogMelEmbedder(**settings)
