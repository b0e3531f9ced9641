"""Maps of weights, rows that look at columns, as small as an SVG can be."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup, escape

LEVELS = 12  # shades of a map
CELL = 14  # pixels of a cell in the labelled maps
LONGEST = 12  # letters of a token


def heat(
    weights: np.ndarray,
    tokens: Sequence[str] = (),
    title: str = "",
    rows: Sequence[str] = (),
    cell: int = CELL,
) -> Markup:
    """One map in the page's accent; with tokens, labelled, the rows by theirs if there are any.

    matplotlib would draw it as a picture whose colours cannot follow light and dark.
    """
    high, wide = weights.shape
    side = rows or tokens
    labels = "".join(
        f'<text x="-.4" y="{i + 0.75}" text-anchor="end">{escape(short(token))}</text>'
        for i, token in enumerate(side)
    ) + "".join(
        f'<text transform="translate({i + 0.75} -.4) rotate(-90)">{escape(short(token))}</text>'
        for i, token in enumerate(tokens)
    )
    left, top = _margin(side), _margin(tokens)
    width = f' style="width:{cell * (wide + left):.0f}px"' if tokens else ""
    box = f"{-left:.2f} {-top:.2f} {wide + left + 0.1:.2f} {high + top + 0.1:.2f}"
    return Markup(
        f'<svg class="heat" viewBox="{box}"{width} role="img"><title>{escape(title)}</title>'
        f'<rect class="frame" width="{wide}" height="{high}"/>'
        f'<g class="cells">{cells(weights)}</g>{labels}</svg>'
    )


def cells(weights: np.ndarray) -> Markup:
    """The cells of a map alone, in units of one, by shades of its largest weight."""
    shade = np.rint(LEVELS * weights / max(float(weights.max(initial=0.0)), 1e-9)).astype(int)
    paths = []
    for level in range(1, LEVELS + 1):
        found = np.argwhere(shade == level).tolist()
        if found:
            d = "".join(f"M{x} {y}h1v1h-1z" for y, x in found)
            paths.append(f'<path opacity="{level / LEVELS:.2f}" d="{d}"/>')
    return Markup("".join(paths))


def peak(weights: np.ndarray, tokens: Sequence[str], rows: Sequence[str] = ()) -> str:
    """Where a head looks hardest, in words."""
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    side = rows or tokens
    return f"“{side[row]}” looks at “{tokens[column]}” with {weights[row, column]:.2f}"


def short(token: str) -> str:
    return token if len(token) <= LONGEST else token[: LONGEST - 1] + "…"


def _margin(tokens: Sequence[str]) -> float:
    return 0.8 + 0.45 * max(len(short(token)) for token in tokens) if tokens else 0.0
