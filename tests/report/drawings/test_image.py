"""Images on pages: the PNG is read back by another library, and weights lie over their patches."""

import base64
import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

from weft.report.drawings.image import draw_attention_image, draw_weighted_image, encode_png
from weft.text.images import Patches

IMAGE = np.random.default_rng(3).integers(0, 256, (5, 7, 3)) / 255


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_another_library_reads_the_same_pixels(channels):
    image = np.concatenate([IMAGE, IMAGE[:, :, :1]], axis=2)[:, :, :channels]
    found = imread(io.BytesIO(encode_png(image)), format="png")[:, :, :3]
    expected = image[:, :, :3] if channels >= 3 else image[:, :, :1].repeat(3, axis=2)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    found = imread(io.BytesIO(encode_png(4 * IMAGE - 2)), format="png")  # any numbers are stretched
    np.testing.assert_allclose(
        found[:, :, :3], (IMAGE - IMAGE.min()) / np.ptp(IMAGE), atol=0.5 / 255 + 1e-6
    )


def test_the_patch_with_the_most_attention_is_clear():
    patches = Patches((5, 7, 3), 2)
    weights = np.linspace(0, 1, 12)
    drawn = str(draw_attention_image(IMAGE, patches, weights, "a < b"))
    cells = re.findall(r'<rect x="(\d+)" y="(\d+)" .*?opacity="([\d.]+)"', drawn)
    assert len(cells) == 11  # all but the clearest
    assert cells[5][:2] == ("2", "2")
    assert float(cells[5][2]) == pytest.approx(0.86 * (1 - 5 / 11), abs=0.01)
    assert "a &lt; b" in drawn
    png = base64.b64decode(re.search('base64,([^"]+)', drawn)[1])
    assert imread(io.BytesIO(png), format="png").shape[:2] == (5, 7)
    drawn = str(draw_weighted_image(IMAGE, patches, np.r_[np.zeros(9), -2, 0.01, 1]))
    assert len(re.findall("<rect", drawn)) == 2
    assert drawn.index("#3a7fc4") < drawn.index("--accent")
