"""Drawings of how a text was written: its tokens by their chance, beams as a tree, attention."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from weft.explain.beams import BeamNode
from weft.report.charts.heatmap import CELL, heat, peak, short
from weft.report.drawings.highlight import DEEPEST, FOR

if TYPE_CHECKING:
    from weft.explain.generation import GenerationTrace, TokenTrace

BITS = 10.0  # of surprise from which the colour is deepest
FAINT = 0.04  # of that; below, no colour
STEPS = 40  # of a search that are drawn
TOKENS = 40  # rows and columns of a map of attention that can still be read
LETTER, SMALL = 7.6, 5.6  # pixels of a letter of a token, and of the number below it
BOLD = 1.4  # how much wider a letter of the answer's way is
GAP, ROW = 30, 40  # between columns, and from row to row
FEW = 24  # columns of a map that can have larger cells
SHOWN = 3  # other choices in the title of a token


def tokens(found: "GenerationTrace", text: str = "") -> Markup:
    """The tokens on grounds of their surprise; of a text that was heard, as they stand in it."""
    out, at = [], 0
    for token in found.tokens:
        start, end = token.place
        shown = text[start:end] if found.heard and end > start else token.text
        if found.heard and end > start:
            out.append(escape(text[at:start]))
            at = end
        out.append(_token(token, shown))
        out.append(Markup("") if found.heard else Markup("<wbr>"))
    kind = "strip tokens heard" if found.heard else "strip tokens"
    return Markup('<span class="{}">{}</span>').format(kind, Markup("").join(out))


def depth(chance: float) -> float:
    """How deep a token's colour is, from 0 (certain) to 1."""
    share = min(1.0, -math.log2(max(chance, 1e-12)) / BITS)
    return share if share >= FAINT else 0.0


def lines(found: "GenerationTrace") -> list[dict[str, Any]]:
    """Every token with its chance, what else was likely, and where it looked most."""
    out = []
    for t, token in enumerate(found.tokens):
        looks = ""
        if found.attention is not None and not found.heard and found.source:
            weights = found.attention[:, :, t].mean((0, 1))
            looks = found.source[int(weights.argmax())]
        others = [(name, chance) for name, chance in token.others if name != token.text][:SHOWN]
        row = {"text": token.text, "chance": token.prob, "others": others, "looks": looks}
        out.append(row)
    return out


def beams(nodes: Sequence[BeamNode]) -> Markup:
    """The hypotheses of a beam search from left to right, the way to the answer in the accent."""
    drawn = [i for i, node in enumerate(nodes) if node.step < STEPS]
    if not drawn:
        return Markup("")
    steps = max(nodes[i].step for i in drawn) + 1
    left, x = [], 8.0
    for t in range(steps):
        left.append(x)
        x += max(_wide(nodes[i]) for i in drawn if nodes[i].step == t) + GAP
    rows = max(nodes[i].rank for i in drawn) + 1
    edges, marks = [], []
    for i in sorted(drawn, key=lambda i: nodes[i].is_best):  # what wins lies on top
        node = nodes[i]
        px, py = left[node.step], _y(node)
        if node.parent >= 0:
            up = nodes[node.parent]
            sx, sy = left[up.step] + _wide(up) + 5, _y(up)
            middle = (sx + px - 6) / 2
            way = f"M{sx:.0f} {sy}C{middle:.0f} {sy} {middle:.0f} {py} {px - 6:.0f} {py}"
            edges.append(f'<path class="{_class(node)}" d="{way}"/>')
        marks.append(_mark(node, px, py))
    body = f'<g class="edges">{"".join(edges)}</g>{"".join(marks)}'
    size = f'viewBox="0 0 {x:.0f} {rows * ROW + 14}" style="width:{x:.0f}px"'
    return Markup(f'<svg class="beams" {size} role="img"><title>beam search</title>{body}</svg>')


def attention(found: "GenerationTrace") -> dict[str, Any] | None:
    """A labelled map of each layer's mean, and every head of it where there are several."""
    if found.attention is None:
        return None
    weights = found.attention[:, :, :TOKENS, :TOKENS]
    rows = [token.text for token in found.tokens][: weights.shape[2]]
    columns = list(found.source)
    if found.heard:  # the token before each is what looks
        columns = rows = ["·", *rows[:-1]]
    columns = columns[: weights.shape[3]]
    layers = []
    for k, layer in enumerate(weights, 1):
        many = len(layer) > 1
        maps = [
            (f"head {n}", heat(w, title=peak(w, columns, rows))) for n, w in enumerate(layer, 1)
        ]
        name = f"Layer {k}, mean over its heads" if many else ""
        mean = heat(layer.mean(0), columns, f"layer {k}", rows, 22 if len(columns) <= FEW else CELL)
        layers.append((name, mean, maps if many else []))
    whole = found.attention.shape
    return {"layers": layers, "cut": whole[2] > TOKENS or whole[3] > TOKENS}


def _token(token: "TokenTrace", shown: str) -> Markup:
    others = ", ".join(f"{name} {100 * chance:.0f} %" for name, chance in token.others[:SHOWN])
    title = f"{100 * token.prob:.1f} %" + (f" · most likely: {others}" if others else "")
    deep = depth(token.prob)
    style = ""
    if deep:
        ground = f"color-mix(in srgb, {FOR} {round(DEEPEST * deep)}%, transparent)"
        style = f"background:{ground}"
    return Markup('<span title="{}" style="{}">{}</span>').format(title, style, shown)


def _label(node: BeamNode) -> str:
    return short(node.token.strip() or "␣")


def _total(node: BeamNode) -> str:
    return f"{node.total:.2f}" if node.score is None else f"{node.total:.2f} → {node.score:.2f}"


def _wide(node: BeamNode) -> float:
    letter = LETTER * (BOLD if node.is_best else 1)
    return max(letter * len(_label(node)), SMALL * len(_total(node)))


def _y(node: BeamNode) -> int:
    return node.rank * ROW + 18


def _class(node: BeamNode) -> str:
    return f"{node.status}{' wins' if node.is_best else ''}"


def _mark(node: BeamNode, x: float, y: int) -> str:
    label = escape(_label(node))
    told = f"log-probability {node.total:.3f}"
    told += "" if node.score is None else f", score {node.score:.3f} ({node.status})"
    return (
        f'<g class="node {_class(node)}"><title>{escape(told)}</title>'
        f'<text x="{x:.0f}" y="{y + 4}">{label}</text>'
        f'<text class="total" x="{x:.0f}" y="{y + 16}">{_total(node)}</text></g>'
    )
