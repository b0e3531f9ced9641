"""Images with weights of patches drawn over them, as SVG for any page.

H rows of pixels   W columns   C channels   T patches
"""

import base64
import struct
import zlib

import numpy as np
from markupsafe import Markup, escape

from weft.report.drawings.highlight import AGAINST_COLOUR, FOR_COLOUR, MIN_COLOURED_WEIGHT
from weft.text.images import Patches

SIDE_PIXELS = 128  # of the longer side of a drawing, on the page
MAX_VEIL = 0.86  # opacity over a patch without attention
MAX_COLOUR = 0.75  # opacity over the patch with the largest weight


def encode_png(image: np.ndarray) -> bytes:
    """Return an image (H, W, C) of numbers from 0 to 1 as a PNG file; others are stretched."""
    pixels = np.asarray(image, np.float32)
    pixels = pixels[:, :, :3] if pixels.shape[2] >= 3 else pixels[:, :, :1].repeat(3, axis=2)
    low, high = float(pixels.min()), float(pixels.max())
    if low < 0 or high > 1:
        pixels = (pixels - low) / max(high - low, 1e-9)
    rows = np.rint(pixels * 255).astype(np.uint8)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)  # filter 0 of each line
    header = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def draw_attention_image(
    image: np.ndarray, patches: Patches, weights: np.ndarray, title: str = ""
) -> Markup:
    """Draw an image, the lighter veiled the more attention (T,) a patch gets."""
    shares = weights / max(float(weights.max(initial=0)), 1e-9)
    cells = [("var(--paper, #fff)", MAX_VEIL * (1 - share)) for share in shares.tolist()]
    return _draw(image, patches, cells, title)


def draw_weighted_image(
    image: np.ndarray, patches: Patches, weights: np.ndarray, title: str = ""
) -> Markup:
    """Draw an image with the patches that speak for the answer (T,) coloured, and those against."""
    strongest = max(float(np.abs(weights).max(initial=0)), 1e-9)
    cells = []
    for depth in (weights / strongest).tolist():
        shown = abs(depth) >= MIN_COLOURED_WEIGHT
        colour = FOR_COLOUR if depth > 0 else AGAINST_COLOUR
        cells.append((colour, MAX_COLOUR * abs(depth) if shown else 0.0))
    return _draw(image, patches, cells, title)


def _draw(
    image: np.ndarray, patches: Patches, cells: list[tuple[str, float]], title: str
) -> Markup:
    """Draw an image with a colour and an opacity over each patch."""
    (high, wide), size, columns = image.shape[:2], patches.size, patches.grid[1]
    data = base64.b64encode(encode_png(image)).decode()
    rectangles = "".join(
        f'<rect x="{size * (i % columns)}" y="{size * (i // columns)}" width="{size}" '
        f'height="{size}" style="fill:{colour}" opacity="{opacity:.2f}"/>'
        for i, (colour, opacity) in enumerate(cells)
        if opacity >= 0.005
    )
    scale = SIDE_PIXELS / max(high, wide)
    return Markup(
        f'<svg class="image" viewBox="0 0 {wide} {high}" width="{scale * wide:.0f}" '
        f'height="{scale * high:.0f}" role="img"><title>{escape(title)}</title>'
        f'<image width="{wide}" height="{high}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>{rectangles}</svg>'
    )
