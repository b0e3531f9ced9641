"""Images -> vectors of patches, by convolutions.

B rows   T patches in reading order   F numbers of a patch   E width   C channels
U rows of pixels   V columns of pixels
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.protocols import Embedder
from weft.registry import register
from weft.text.images import Patches


@register("embedder", "image")
class ImageEmbedder(nn.Module, Embedder):
    """Convolutions over the pixels of an image, with a vector for each `patch` × `patch` of them.

    Convolutions of 4 × 4 with stride 2 halve the sides until a patch is one vector; an even kernel
    keeps the pixels that a vector depends on centred on its patch. `layers` more, of 3 × 3, follow.
    Learned vectors of the row and the column are added, so that attention knows where it looks.
    `shape` is rows, columns and channels of all images; () lets a run read it off its first image.
    """

    input_kind = "vectors"
    frontend: Patches

    def __init__(
        self,
        shape: tuple[int, ...] = (),
        patch: int = 4,
        width: int = 64,
        layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__()
        where = "embedder 'image'"
        check_sizes(where, dropout, width=width)
        if patch not in (2, 4, 8, 16):
            raise UserError(f"{where}: 'patch' should be 2, 4, 8 or 16, got {patch}.")
        if layers < 0:
            raise UserError(f"{where}: 'layers' should be 0 or more, got {layers}.")
        self.frontend = Patches(tuple(shape), patch)
        self.features, self.output_size = self.frontend.width, width
        rows, columns = self.frontend.grid
        self.max_positions = rows * columns
        strides = [2] * int(math.log2(patch)) + [1] * layers
        sizes = [self.frontend.shape[2]] + [width] * len(strides)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, 4 if stride == 2 else 3, stride, padding=1)
            for before, after, stride in zip(sizes[:-1], sizes[1:], strides, strict=True)
        )
        self.row_table, self.column_table = nn.Embedding(rows, width), nn.Embedding(columns, width)
        for table in (self.row_table, self.column_table):
            nn.init.normal_(table.weight, std=0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Padded) -> Padded:
        steps = x.data.shape[1]
        if not steps:
            return x.with_data(x.data.new_zeros(len(x), 0, self.output_size))
        columns = self.frontend.grid[1]
        rows = -(-steps // columns)
        missing = rows * columns - steps
        inside = None if x.full and not missing else F.pad(x.mask, (0, missing))
        pixels = self._join(F.pad(x.data, (0, 0, 0, missing)), rows)  # (B, C, U, V)
        for convolution in self.convolutions:
            # Biases would fill the missing patches, and the next layer would see them.
            pixels = convolution(self._clear(pixels, inside, rows)).relu()
        at = torch.arange(steps, device=x.data.device)
        vectors = pixels.flatten(2).transpose(1, 2)[:, :steps]  # (B, T, E)
        vectors = vectors + self.row_table(at // columns) + self.column_table(at % columns)
        return x.with_data(self.dropout(vectors))

    def _join(self, data: Tensor, rows: int) -> Tensor:
        """Return the pixels (B, C, U, V) of patches."""
        size, columns = self.frontend.size, self.frontend.grid[1]
        blocks = data.view(len(data), rows, columns, size, size, -1)
        return blocks.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)

    def _clear(self, pixels: Tensor, inside: Tensor | None, rows: int) -> Tensor:
        """Return the pixels with those of missing patches zero."""
        if inside is None:
            return pixels
        scale = pixels.shape[2] // rows
        grid = inside.view(len(inside), 1, rows, -1)
        grid = grid.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
        return pixels.masked_fill(~grid, 0)
