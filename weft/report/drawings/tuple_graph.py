"""Extracted tuples as a graph in SVG: subjects, predicates and other arguments in columns."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from weft.report.drawings.tree_svg import wrap_svg
from weft.text.annotation.frames import Extraction

COLUMN_PIXELS, GAP_PIXELS = 250, 56
LINE_PIXELS, NODE_GAP, PADDING = 16, 12, 7
MAX_LINE_CHARACTERS = 34
MAX_LINES = 4
MARGIN = 6
WIDTH = 3 * COLUMN_PIXELS + 2 * GAP_PIXELS + 2 * MARGIN

Node = tuple[float, list[str]]  # its middle, and its lines


def draw_tuples(tuples: Sequence[Extraction]) -> Markup:
    """Draw the tuples of a sentence; a text that several tuples share is one node."""
    subjects = _place(one.arguments[0] for one in tuples if one.arguments)
    predicates = _stack([one.predicate for one in tuples])
    others = _place(argument for one in tuples for argument in one.arguments[1:])
    parts = []
    for k, one in enumerate(tuples):
        middle = predicates[k][0]
        if one.arguments:
            parts.append(_line(0, subjects[one.arguments[0]][0], middle))
        parts += [_line(1, middle, others[argument][0]) for argument in one.arguments[1:]]
    confidences = [one.confidence for one in tuples]
    columns = (list(subjects.values()), predicates, list(others.values()))
    for column, nodes in enumerate(columns):
        for k, (middle, lines) in enumerate(nodes):
            confidence = confidences[k] if column == 1 else None
            parts.append(_node(column, middle, lines, confidence))
    bottoms = [y + _height(lines) / 2 for nodes in columns for y, lines in nodes]
    return wrap_svg(WIDTH, max(bottoms, default=0) + MARGIN, parts, "tuples")


def wrap_lines(text: str) -> list[str]:
    """Return a text in lines that fit a node; the end of a long one is left out."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > MAX_LINE_CHARACTERS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    lines = [line if len(line) <= MAX_LINE_CHARACTERS else f"{line[: MAX_LINE_CHARACTERS - 1]}…"
             for line in lines]  # fmt: skip
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1][: MAX_LINE_CHARACTERS - 2]} …"]
    return lines


def _place(texts: Iterable[str]) -> dict[str, Node]:
    """Return the nodes of a column from the top, each text once."""
    once = list(dict.fromkeys(texts))
    return dict(zip(once, _stack(once), strict=True))


def _stack(texts: Sequence[str]) -> list[Node]:
    out: list[Node] = []
    top = float(MARGIN)
    for lines in map(wrap_lines, texts):
        out.append((top + _height(lines) / 2, lines))
        top += _height(lines) + NODE_GAP
    return out


def _height(lines: Sequence[str]) -> float:
    return LINE_PIXELS * len(lines) + 2 * PADDING


def _left(column: int) -> float:
    return MARGIN + column * (COLUMN_PIXELS + GAP_PIXELS)


def _line(column: int, start: float, end: float) -> Markup:
    x1, x2 = _left(column) + COLUMN_PIXELS, _left(column + 1)
    bend = (x1 + x2) / 2
    return Markup(
        '<path d="M{:.1f},{:.1f} C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}" fill="none" '
        'stroke="currentColor" stroke-opacity=".45"/>'
    ).format(x1, start, bend, start, bend, end, x2, end)


def _node(column: int, middle: float, lines: Sequence[str], confidence: float | None) -> Markup:
    high, x = _height(lines), _left(column)
    shown = Markup("<title>confidence {:.2f}</title>").format(confidence) if confidence else ""
    box = Markup(
        '<g>{}<rect x="{:.1f}" y="{:.1f}" width="{}" height="{:.1f}" rx="6" fill="currentColor" '
        'fill-opacity="{}" stroke="currentColor" stroke-opacity=".4"/>'
    ).format(shown, x, middle - high / 2, COLUMN_PIXELS, high, ".12" if column == 1 else ".03")
    texts = Markup("").join(
        Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(
            x + COLUMN_PIXELS / 2, middle - high / 2 + PADDING + LINE_PIXELS * (k + 0.75), line
        )
        for k, line in enumerate(lines)
    )
    return box + texts + Markup("</g>")
