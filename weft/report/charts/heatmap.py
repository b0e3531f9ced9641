"""Heat maps of attention weights as compact SVG."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

N_SHADES = 12  # of colour
CELL_PIXELS = 14  # of a cell in a labelled map
MAX_LETTERS = 12  # of a token


def draw_heatmap(
    weights: np.ndarray,
    tokens: Sequence[str] = (),
    title: str = "",
    rows: Sequence[str] = (),
    cell: int = CELL_PIXELS,
) -> Markup:
    """Draw a map in the accent colour; `tokens` label the columns, and `rows` the rows if given.

    matplotlib would draw an image, whose colours cannot follow light and dark mode.
    """
    high, wide = weights.shape
    side = rows or tokens
    labels = "".join(
        f'<text x="-.4" y="{i + 0.75}" text-anchor="end">{escape(truncate(token))}</text>'
        for i, token in enumerate(side)
    ) + "".join(
        f'<text transform="translate({i + 0.75} -.4) rotate(-90)">{escape(truncate(token))}</text>'
        for i, token in enumerate(tokens)
    )
    left, top = _margin(side), _margin(tokens)
    width = f' style="width:{cell * (wide + left):.0f}px"' if tokens else ""
    box = f"{-left:.2f} {-top:.2f} {wide + left + 0.1:.2f} {high + top + 0.1:.2f}"
    return Markup(
        f'<svg class="heat" viewBox="{box}"{width} role="img"><title>{escape(title)}</title>'
        f'<rect class="frame" width="{wide}" height="{high}"/>'
        f'<g class="cells">{draw_cells(weights)}</g>{labels}</svg>'
    )


def draw_cells(weights: np.ndarray) -> Markup:
    """Draw only the unit cells of a map, shaded relative to its largest weight."""
    shade = np.rint(N_SHADES * weights / max(float(weights.max(initial=0.0)), 1e-9)).astype(int)
    paths = []
    for level in range(1, N_SHADES + 1):
        positions = np.argwhere(shade == level).tolist()
        if positions:
            d = "".join(f"M{x} {y}h1v1h-1z" for y, x in positions)
            paths.append(f'<path opacity="{level / N_SHADES:.2f}" d="{d}"/>')
    return Markup("".join(paths))


def describe_peak(weights: np.ndarray, tokens: Sequence[str], rows: Sequence[str] = ()) -> str:
    """Describe the largest attention weight in words."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    side = rows or tokens
    return f"“{side[row]}” attends to “{tokens[column]}” with {weights[row, column]:.2f}"


def truncate(token: str) -> str:
    return token if len(token) <= MAX_LETTERS else token[: MAX_LETTERS - 1] + "…"


def _margin(tokens: Sequence[str]) -> float:
    return 0.8 + 0.45 * max(len(truncate(token)) for token in tokens) if tokens else 0.0
