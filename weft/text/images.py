"""Images as arrays, cut into square patches.

H rows of pixels   W columns   C channels   T patches in reading order   F numbers of a patch
"""

from dataclasses import dataclass

import numpy as np

from weft.errors import UserError

MAX_CHANNELS = 4
MAX_SIDE = 1024  # pixels


@dataclass(frozen=True)
class Patches:
    """Settings of images of one shape (H, W, C) as vectors, one for each `size` × `size` pixels.

    At the right and at the bottom, zeros fill up the last patches. Integers are divided by 255.
    """

    shape: tuple[int, ...]
    size: int = 4

    def __post_init__(self) -> None:
        limits = (MAX_SIDE, MAX_SIDE, MAX_CHANNELS)
        if len(self.shape) != 3 or not all(
            1 <= n <= most for n, most in zip(self.shape, limits, strict=True)
        ):
            raise UserError(
                f"image: 'shape' should be rows and columns of pixels, 1 to {MAX_SIDE} each, and 1 "
                f"to {MAX_CHANNELS} channels, got {list(self.shape)}."
            )
        if not 1 <= self.size <= min(self.shape[:2]):
            raise UserError(
                f"image: 'patch' should be from 1 to {min(self.shape[:2])}, the shorter side of "
                f"the images, got {self.size}."
            )

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return -(-self.shape[0] // self.size), -(-self.shape[1] // self.size)

    @property
    def width(self) -> int:
        """The numbers of a vector."""
        return self.size**2 * self.shape[2]

    def vectors(self, image: np.ndarray) -> np.ndarray:
        """Return the vectors (T, F) of an image (H, W, C), or (H, W) if there is one channel."""
        image = as_image(image)
        if image.shape != self.shape:
            raise UserError(
                f"an image of {describe_shape(image.shape)}; this model reads "
                f"{describe_shape(self.shape)}. Resize it."
            )
        (rows, columns), size = self.grid, self.size
        missing = (rows * size - image.shape[0], columns * size - image.shape[1])
        scale = 1 if image.dtype.kind in "fb" else 1 / 255
        pixels = image.astype(np.float32) * np.float32(scale)
        whole = np.pad(pixels, ((0, missing[0]), (0, missing[1]), (0, 0)))
        blocks = whole.reshape(rows, size, columns, size, -1).swapaxes(1, 2)
        vectors: np.ndarray = blocks.reshape(rows * columns, self.width)
        return vectors

    def join(self, vectors: np.ndarray) -> np.ndarray:
        """Return the image (H, W, C) of vectors (T, F)."""
        (rows, columns), size = self.grid, self.size
        blocks = vectors.reshape(rows, columns, size, size, -1).swapaxes(1, 2)
        image: np.ndarray = blocks.reshape(rows * size, columns * size, -1)
        return image[: self.shape[0], : self.shape[1]]

    def names(self) -> list[str]:
        """Name each patch by its row and column, from 1."""
        rows, columns = self.grid
        return [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]


def as_image(values: np.ndarray) -> np.ndarray:
    """Return an array as (H, W, C)."""
    return values[:, :, None] if values.ndim == 2 else values


def describe_shape(shape: tuple[int, ...]) -> str:
    """Return a shape for a message: 32 × 32 pixels, 3 channels."""
    channels = "channel" if shape[2] == 1 else "channels"
    return f"{shape[0]} × {shape[1]} pixels, {shape[2]} {channels}"
