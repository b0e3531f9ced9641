"""Start and end distributions of an answer span, as two heat strips over the passage."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from weft.report.drawings.highlight import FOR_COLOUR, MAX_COLOUR_PERCENT, MIN_COLOURED_WEIGHT

if TYPE_CHECKING:
    from rich.text import Text

TokenProb = tuple[int, int, float]  # characters from, up to, probability
HEAT = (180, 67, 31)  # of the most probable token in a terminal, mixed with white


def draw_boundaries(text: str, starts: Sequence[TokenProb], ends: Sequence[TokenProb]) -> Markup:
    """Draw a passage twice, its tokens coloured by their probability as start and as end.

    The most probable token has the full colour; every token's probability is in its tooltip.
    """
    rows = [
        Markup('<h4>{}</h4><div class="tagged" style="white-space:pre-line">{}</div>').format(
            name, Markup("").join(_render(piece, prob, peak) for piece, prob in pieces)
        )
        for name, peak, pieces in _strips(text, starts, ends)
    ]
    return Markup('<div class="pair strips">{}</div>').format(
        Markup("").join(Markup("<div>{}</div>").format(row) for row in rows)
    )


def draw_boundaries_terminal(
    text: str, starts: Sequence[TokenProb], ends: Sequence[TokenProb]
) -> "Text":
    """Draw the same for a terminal, each strip with its most probable token."""
    from rich.text import Text

    out = Text()
    for name, peak, pieces in _strips(text, starts, ends):
        out.append("\n" if out else "").append(f"{name:<6}", "dim").append(f"{peak:.3f}  ", "dim")
        for piece, prob in pieces:
            depth = _depth(prob, peak)
            ground = ",".join(str(round(255 - depth * (255 - one))) for one in HEAT)
            out.append(piece, f"black on rgb({ground})" if depth else "")
    return out


def _strips(
    text: str, starts: Sequence[TokenProb], ends: Sequence[TokenProb]
) -> Iterator[tuple[str, float, list[tuple[str, float]]]]:
    """Yield name, largest probability, and the pieces of the text with theirs."""
    for name, tokens in (("start", starts), ("end", ends)):
        pieces, offset = [], 0
        for start, end, prob in sorted(tokens):
            if start < offset:  # a part of a character that another token has drawn
                continue
            pieces += [(text[offset:start], 0.0), (text[start:end], prob)]
            offset = end
        pieces.append((text[offset:], 0.0))
        yield name, max((prob for *_, prob in tokens), default=0.0), pieces


def _depth(prob: float, peak: float) -> float:
    """Return the depth of the colour from 0 to 1; weak ones have none."""
    depth = prob / peak if peak else 0.0
    return depth if depth >= MIN_COLOURED_WEIGHT else 0.0


def _render(piece: str, prob: float, peak: float) -> Markup:
    if not prob:
        return escape(piece)
    depth = _depth(prob, peak)
    mix = f"color-mix(in srgb, {FOR_COLOUR} {round(MAX_COLOUR_PERCENT * depth)}%, transparent)"
    style = Markup(' style="background:{};border-radius:3px"').format(mix) if depth else ""
    return Markup('<span title="{:.3g}"{}>{}</span>').format(prob, style, piece)
