"""The embedder of images against plain convolutions over the whole image."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.batch import Padded
from weft.embed.image import ImageEmbedder
from weft.errors import UserError


@pytest.mark.parametrize(("patch", "layers"), [(2, 0), (2, 2), (4, 1)])
def test_vectors_equal_convolutions_over_the_image(patch, layers):
    torch.manual_seed(1)
    embedder = ImageEmbedder((5, 7, 3), patch, width=11, layers=layers).eval()
    image = np.random.default_rng(2).random((5, 7, 3)).astype(np.float32)
    vectors = embedder.frontend.vectors(image)
    batch = np.stack([vectors, np.full_like(vectors, 9)])
    found = embedder(Padded(torch.from_numpy(batch), torch.tensor([len(vectors), 3]))).data[0]
    rows, columns = embedder.frontend.grid
    pixels = torch.zeros(1, 3, rows * patch, columns * patch)
    pixels[0, :, :5, :7] = torch.from_numpy(image).permute(2, 0, 1)
    for i, one in enumerate(embedder.convolutions):
        stride = 1 if i >= len(embedder.convolutions) - layers else 2
        pixels = F.conv2d(pixels, one.weight, one.bias, stride, 1).relu()
    for row in range(rows):
        for column in range(columns):
            position = embedder.row_table.weight[row] + embedder.column_table.weight[column]
            expected = pixels[0, :, row, column] + position
            torch.testing.assert_close(found[row * columns + column], expected)


@pytest.mark.parametrize(("patch", "layers", "beyond"), [(2, 0, 1), (4, 0, 3), (4, 1, 7)])
def test_a_vector_sees_as_far_beyond_its_patch_on_each_side(patch, layers, beyond):
    embedder = ImageEmbedder((32, 32, 1), patch, width=5, layers=layers).eval()
    for parameter in embedder.parameters():
        torch.nn.init.uniform_(parameter, 0.1, 0.2)  # no ReLU hides a pixel
    patches = torch.rand(1, (32 // patch) ** 2, patch**2).requires_grad_()
    at = (32 // patch) * (16 // patch) + 16 // patch  # the patch that begins at pixel 16, 16
    embedder(Padded(patches, torch.tensor([patches.shape[1]]))).data[0, at].sum().backward()
    seen = embedder.frontend.join(patches.grad[0].numpy())[:, :, 0].nonzero()
    for axis in seen:
        assert (axis.min(), axis.max()) == (16 - beyond, 16 + patch - 1 + beyond)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({}, "'shape' should be rows"), ({"shape": (8, 8, 3), "patch": 3}, "'patch' should be 2, 4"),
     ({"shape": (8, 8, 3), "layers": -1}, "'layers'"),
     ({"shape": (8, 8, 3), "width": 0}, "'width'"), ({"shape": (3, 3, 3)}, "'patch' should be"),
     ({"shape": (8, 8, 3), "dropout": 2.0}, "dropout")],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        ImageEmbedder(**settings)
