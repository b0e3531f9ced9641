"""Trees over a sentence as SVG: sentiment at every node, or constituent labels.

Nodes come in the order of `weft.batch.trees.flatten`: children before parents, "" for the word of
an inner node. A node is placed at its height, midway between its outer children; edges leave it
horizontally and drop vertically to each child. Nodes of equal height cover different words, so
nothing overlaps or crosses. Widths are in pixels: in a `.wide` box a long sentence scrolls. A page
with drawings includes `drawings.html` once.
"""

import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from markupsafe import Markup, escape

from weft.report.drawings.highlight import (
    AGAINST_COLOUR,
    FOR_COLOUR,
    MAX_COLOUR_PERCENT,
    MIN_COLOURED_WEIGHT,
)

WORD_PIXELS = 13  # font size
WORD_GAP = 14  # pixels between words
LEVEL_PIXELS = 34  # between heights
RADIUS = 12  # of a node
CORNER_RADIUS = 7  # of an edge
MARGIN = 4


@dataclass(frozen=True)
class NodePositions:
    """The positions of the nodes of a tree, and the size of the drawing."""

    x: list[float]
    y: list[float]
    width: float
    height: float


def draw_sentiment(
    words: Sequence[str],
    parents: Sequence[int],
    scores: Sequence[float],
    labels: Sequence[str] = (),
    gold: Sequence[str] = (),
) -> Markup:
    """Draw a tree with nodes coloured by score, from −1 (negative) to 1 (positive).

    `labels` are written into the nodes; a node that differs from `gold` ("" for unlabelled) has a
    ring and the correct label next to it.
    """
    wide = 2 * RADIUS + (30 if gold else 8)
    at = lay_out(words, parents, wide)
    out = [_draw_edges(parents, at)]
    for i, (x, y) in enumerate(zip(at.x, at.y, strict=True)):
        label = labels[i] if labels else ""
        wrong = bool(gold) and gold[i] not in ("", label)
        title = f"{label + ', ' if label else ''}{scores[i]:+.2f}"
        title += f", gold {gold[i]}" if wrong else ""
        ring = " off" if wrong else ""
        out.append(
            Markup('<g><title>{}</title><circle class="node{}" cx="{:.1f}" cy="{:.1f}" r="{}" ')
            .format(title, ring, x, y, RADIUS) + Markup(f'style="fill:{node_colour(scores[i])}"/>')
            + Markup('<text class="sign" x="{:.1f}" y="{:.1f}">{}</text></g>')
            .format(x, y + 4, label)
        )  # fmt: skip
        if wrong:
            out.append(
                Markup('<text class="sign off beside" x="{:.1f}" y="{:.1f}">{}</text>')
                .format(x + RADIUS - 1, y - RADIUS + 2, gold[i])
            )  # fmt: skip
    out.append(_draw_words(words, at))
    return wrap_svg(at.width, at.height, out, "sentiment tree")


def draw_constituency(
    words: Sequence[str],
    parents: Sequence[int],
    labels: Sequence[str],
    wrong: Sequence[bool] = (),
) -> Markup:
    """Draw a constituency tree; labels that are `wrong` are highlighted."""
    wide = max((text_width(label, 11) for label in labels), default=0.0) + 8
    at = lay_out(words, parents, wide)
    out = [_draw_edges(parents, at, gap=9)]  # keeps an edge away from a tag like "."
    for i, (x, y) in enumerate(zip(at.x, at.y, strict=True)):
        off = " off" if wrong and wrong[i] else ""
        out.append(
            Markup('<text class="said halo{}" x="{:.1f}" y="{:.1f}">{}</text>')
            .format(off, x, y + 4, labels[i])
        )  # fmt: skip
    out.append(_draw_words(words, at))
    return wrap_svg(at.width, at.height, out, "constituents")


def side_by_side(predicted: Markup, gold: Markup) -> Markup:
    """Stack the predicted drawing above gold; each scrolls separately."""
    return Markup(
        '<div class="pair"><div><h4>model</h4><div class="wide">{}</div></div>'
        '<div><h4>gold</h4><div class="wide">{}</div></div></div>'
    ).format(predicted, gold)


def lay_out(words: Sequence[str], parents: Sequence[int], least: float) -> NodePositions:
    """Return the node positions; columns are at least `least` pixels wide, to fit any node."""
    size = len(words)
    heights, first, last = [0] * size, [0.0] * size, [0.0] * size
    seen = [False] * size
    x, right = [0.0] * size, float(MARGIN)
    for i in range(size):  # children come before their parent
        if not seen[i]:
            column = max(text_width(words[i], WORD_PIXELS) + WORD_GAP, least)
            x[i], right = right + column / 2, right + column
        else:
            x[i] = (first[i] + last[i]) / 2
        if (up := parents[i]) >= 0:
            heights[up] = max(heights[up], heights[i] + 1)
            first[up] = x[i] if not seen[up] else first[up]
            last[up], seen[up] = x[i], True
    top = max(heights, default=0)
    base = MARGIN + RADIUS + 6 + LEVEL_PIXELS * top
    high = base + RADIUS + 26
    return NodePositions(
        x, [base - LEVEL_PIXELS * height for height in heights], right + MARGIN, high
    )


def node_colour(score: float) -> str:
    """Return the colour of a node: accent for positive, blue for negative, soft for neutral."""
    score = max(-1.0, min(1.0, score))
    if abs(score) < MIN_COLOURED_WEIGHT:
        return "var(--soft)"
    percent = round(MAX_COLOUR_PERCENT * abs(score))
    colour = FOR_COLOUR if score > 0 else AGAINST_COLOUR
    return f"color-mix(in srgb, {colour} {percent}%, var(--paper))"


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Return the width of a text in pixels, in a wide font as an upper bound."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(size, 72)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing glyph is measured as its box
        font.set_text(text)
    measured = font.get_width_height()[0] / 64
    full = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return max(measured, size * full)


def _draw_edges(parents: Sequence[int], at: NodePositions, gap: int = 0) -> Markup:
    """Draw edges from each child up and then horizontally to its parent, with a gap above it."""
    paths = []
    for child, up in enumerate(parents):
        if up < 0:
            continue
        x, y, top, middle = at.x[child], at.y[child] - gap, at.y[up], at.x[up]
        turn = min(CORNER_RADIUS, abs(middle - x)) * (1 if middle > x else -1)
        paths.append(
            f"M{x:.1f} {y:.1f}V{top + abs(turn):.1f}Q{x:.1f} {top:.1f} {x + turn:.1f} {top:.1f}"
            f"H{middle:.1f}"
        )
    return Markup(f'<path class="edge" d="{"".join(paths)}"/>')


def _draw_words(words: Sequence[str], at: NodePositions) -> Markup:
    y = at.height - MARGIN - 4
    parts = [
        f'<text x="{x:.1f}" y="{y:.1f}">{escape(word)}</text>'
        for word, x in zip(words, at.x, strict=True)
        if word
    ]
    return Markup("".join(parts))


def wrap_svg(wide: float, high: float, parts: Sequence[Markup], what: str) -> Markup:
    head = f'<svg class="drawing" width="{wide:.0f}" height="{high:.0f}" '
    head += f'viewBox="0 0 {wide:.1f} {high:.1f}" role="img" aria-label="{what}">'
    return Markup(head) + Markup("").join(parts) + Markup("</svg>")
