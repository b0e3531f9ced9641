"""Trees over a sentence as SVG: sentiment at every node, or the labels of constituents.

Nodes come as `flatten_tree` lays them out: children before parents, "" for the word of
an inner node. A node stands at its height, midway over its outer children; lines leave it level and
fall straight onto each child. Two nodes of one height cover different words, so nothing can overlap
or be crossed. Widths are given in pixels: in a `.wide` box a long sentence scrolls. A page that
shows drawings includes `drawings.html` once.
"""

import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from markupsafe import Markup, escape

from weft.report.drawings.highlight import AGAINST, DEEPEST, FAINTEST, FOR

LETTERS = 13  # size of the words
GAP = 14  # pixels between words
LEVEL = 34  # pixels between heights
RADIUS = 12  # of a node with a sign
EDGE = 7  # radius of a line's corner
MARGIN = 4


@dataclass(frozen=True)
class Placed:
    """Where the nodes of a tree stand, and how large the picture is."""

    x: list[float]
    y: list[float]
    width: float
    height: float


def sentiment(
    words: Sequence[str],
    parents: Sequence[int],
    scores: Sequence[float],
    labels: Sequence[str] = (),
    gold: Sequence[str] = (),
) -> Markup:
    """A tree with every node coloured by its score, from −1 (negative) to 1 (positive).

    `labels` are written into the nodes; where the label of `gold` differs ("" is none), the node
    has a ring and the right label beside it.
    """
    wide = 2 * RADIUS + (30 if gold else 8)
    at = layout(words, parents, wide)
    out = [_edges(parents, at)]
    for i, (x, y) in enumerate(zip(at.x, at.y, strict=True)):
        label = labels[i] if labels else ""
        wrong = bool(gold) and gold[i] not in ("", label)
        title = f"{label + ', ' if label else ''}{scores[i]:+.2f}"
        title += f", gold {gold[i]}" if wrong else ""
        ring = " off" if wrong else ""
        out.append(
            Markup('<g><title>{}</title><circle class="node{}" cx="{:.1f}" cy="{:.1f}" r="{}" ')
            .format(title, ring, x, y, RADIUS) + Markup(f'style="fill:{ground(scores[i])}"/>')
            + Markup('<text class="sign" x="{:.1f}" y="{:.1f}">{}</text></g>')
            .format(x, y + 4, label)
        )  # fmt: skip
        if wrong:
            out.append(
                Markup('<text class="sign off beside" x="{:.1f}" y="{:.1f}">{}</text>')
                .format(x + RADIUS - 1, y - RADIUS + 2, gold[i])
            )  # fmt: skip
    out.append(_words(words, at))
    return svg(at.width, at.height, out, "sentiment tree")


def constituency(
    words: Sequence[str],
    parents: Sequence[int],
    labels: Sequence[str],
    wrong: Sequence[bool] = (),
) -> Markup:
    """A tree of constituents with their labels; those that are `wrong` stand out."""
    wide = max((width(label, 11) for label in labels), default=0.0) + 8
    at = layout(words, parents, wide)
    out = [_edges(parents, at, gap=9)]  # so that a line does not run into a tag like "."
    for i, (x, y) in enumerate(zip(at.x, at.y, strict=True)):
        off = " off" if wrong and wrong[i] else ""
        out.append(
            Markup('<text class="said halo{}" x="{:.1f}" y="{:.1f}">{}</text>')
            .format(off, x, y + 4, labels[i])
        )  # fmt: skip
    out.append(_words(words, at))
    return svg(at.width, at.height, out, "constituents")


def side_by_side(said: Markup, gold: Markup) -> Markup:
    """What the model says above what is right, each scrolling by itself."""
    return Markup(
        '<div class="pair"><div><h4>model</h4><div class="wide">{}</div></div>'
        '<div><h4>gold</h4><div class="wide">{}</div></div></div>'
    ).format(said, gold)


def layout(words: Sequence[str], parents: Sequence[int], least: float) -> Placed:
    """Places for all nodes; every column is at least `least` wide, so that any node fits in it."""
    size = len(words)
    heights, first, last = [0] * size, [0.0] * size, [0.0] * size
    seen = [False] * size
    x, right = [0.0] * size, float(MARGIN)
    for i in range(size):  # children come before their parent
        if not seen[i]:
            column = max(width(words[i], LETTERS) + GAP, least)
            x[i], right = right + column / 2, right + column
        else:
            x[i] = (first[i] + last[i]) / 2
        if (up := parents[i]) >= 0:
            heights[up] = max(heights[up], heights[i] + 1)
            first[up] = x[i] if not seen[up] else first[up]
            last[up], seen[up] = x[i], True
    top = max(heights, default=0)
    base = MARGIN + RADIUS + 6 + LEVEL * top
    high = base + RADIUS + 26
    return Placed(x, [base - LEVEL * height for height in heights], right + MARGIN, high)


def ground(score: float) -> str:
    """The colour of a node: the page's accent for positive, blue for negative, soft for neither."""
    score = max(-1.0, min(1.0, score))
    if abs(score) < FAINTEST:
        return "var(--soft)"
    share = round(DEEPEST * abs(score))
    return f"color-mix(in srgb, {FOR if score > 0 else AGAINST} {share}%, var(--paper))"


@lru_cache(maxsize=4096)
def width(text: str, size: float) -> float:
    """Pixels of a text, in a wide font: any reader's own is hardly wider."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(size, 72)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter it lacks is measured as its empty box
        font.set_text(text)
    drawn = font.get_width_height()[0] / 64
    full = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return max(drawn, size * full)


def _edges(parents: Sequence[int], at: Placed, gap: int = 0) -> Markup:
    """From each child straight up, then level to its parent; over a child a gap."""
    paths = []
    for child, up in enumerate(parents):
        if up < 0:
            continue
        x, y, top, middle = at.x[child], at.y[child] - gap, at.y[up], at.x[up]
        turn = min(EDGE, abs(middle - x)) * (1 if middle > x else -1)
        paths.append(
            f"M{x:.1f} {y:.1f}V{top + abs(turn):.1f}Q{x:.1f} {top:.1f} {x + turn:.1f} {top:.1f}"
            f"H{middle:.1f}"
        )
    return Markup(f'<path class="edge" d="{"".join(paths)}"/>')


def _words(words: Sequence[str], at: Placed) -> Markup:
    y = at.height - MARGIN - 4
    drawn = [
        f'<text x="{x:.1f}" y="{y:.1f}">{escape(word)}</text>'
        for word, x in zip(words, at.x, strict=True)
        if word
    ]
    return Markup("".join(drawn))


def svg(wide: float, high: float, parts: Sequence[Markup], what: str) -> Markup:
    head = f'<svg class="drawing" width="{wide:.0f}" height="{high:.0f}" '
    head += f'viewBox="0 0 {wide:.1f} {high:.1f}" role="img" aria-label="{what}">'
    return Markup(head) + Markup("").join(parts) + Markup("</svg>")
