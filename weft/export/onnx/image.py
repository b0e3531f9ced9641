"""Nodes of the embedder of images: patches (B, T, F) -> pixels -> a vector for each patch.

B rows   T patches   C channels   U rows of pixels   V columns of pixels   R rows of patches
G columns of patches   P pixels of a side of a patch
"""

from torch import nn

from weft.embed.image import ImageEmbedder
from weft.export.onnx.graph import FLOAT, Graph, Steps, Value, emits


@emits(nn.Conv2d)
def conv2d(graph: Graph, part: nn.Conv2d, x: Value) -> Value:
    assert part.bias is not None
    assert not isinstance(part.padding, str)
    weights = graph.weight(part.weight), graph.weight(part.bias)
    margins = [int(one) for one in part.padding] * 2
    return graph.op("Conv", x, *weights, pads=margins, strides=list(part.stride))


@emits(ImageEmbedder)
def image(graph: Graph, part: ImageEmbedder, x: Steps) -> Steps:
    size, columns = part.frontend.size, part.frontend.grid[1]
    steps, batch = x.data.size(1), x.data.size(0)
    rows = (steps + (columns - 1)) / columns  # (1,)
    missing = rows * columns - steps
    data = graph.op("Pad", x.data, graph.shape(0, 0, 0, 0, missing, 0))
    blocks = data.reshape(batch, rows, columns, size, size, -1)
    sides = rows * size, columns * size
    pixels = blocks.transpose(0, 5, 1, 3, 2, 4).reshape(batch, -1, *sides)  # (B, C, U, V)
    real = graph.op("Pad", x.mask.to(FLOAT), graph.shape(0, 0, 0, missing))
    grid = real.reshape(batch, 1, rows, 1, columns, 1)
    scale = size
    for convolution in part.convolutions:
        assert isinstance(convolution, nn.Conv2d)
        # Biases would fill the missing patches, and the next layer would see them.
        inside = grid.expand(batch, 1, rows, scale, columns, scale)
        inside = inside.reshape(batch, 1, rows * scale, columns * scale)
        pixels = graph.run(convolution, pixels * inside).relu()
        scale //= convolution.stride[0]
    vectors = pixels.reshape(0, part.output_size, -1).transpose(0, 2, 1).slice(1, 0, steps)
    at = graph.range(steps)
    row, column = graph.embed(part.row_table.weight, at / columns), at % columns
    vectors = vectors + row + graph.embed(part.column_table.weight, column)
    return x.with_data(vectors)
