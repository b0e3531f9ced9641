"""Drawings of generation: tokens by probability, the beam search as a tree, attention."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from weft.explain.beams import BeamNode
from weft.report.charts.heatmap import CELL_PIXELS, describe_peak, draw_heatmap, truncate
from weft.report.drawings.highlight import FOR_COLOUR, MAX_COLOUR_PERCENT
from weft.report.drawings.image import draw_attention_image

if TYPE_CHECKING:
    from weft.explain.generation import GenerationTrace, TokenTrace

MAX_SURPRISE_BITS = 10.0  # surprisal of the darkest colour
MIN_DEPTH = 0.04  # of that; no colour below
MAX_STEPS = 40  # drawn of a search
MAX_TOKENS = 40  # rows and columns of a readable attention map
TOKEN_LETTER_PIXELS, NUMBER_LETTER_PIXELS = (
    7.6,
    5.6,
)  # of a token, and of the number below it
BOLD_FACTOR = 1.4  # width of the output's tokens
COLUMN_GAP, ROW_HEIGHT = 30, 40  # pixels
MAX_LARGE_CELL_COLUMNS = 24  # of a map with larger cells
N_ALTERNATIVES = 3  # alternatives in the tooltip of a token


def draw_tokens(generated: "GenerationTrace", text: str = "") -> Markup:
    """Draw tokens coloured by surprisal; tokens of a scored text keep its spacing."""
    out, at = [], 0
    for token in generated.tokens:
        start, end = token.place
        shown = text[start:end] if generated.scored and end > start else token.text
        if generated.scored and end > start:
            out.append(escape(text[at:start]))
            at = end
        out.append(_draw_token(token, shown))
        out.append(Markup("") if generated.scored else Markup("<wbr>"))
    kind = "strip tokens scored" if generated.scored else "strip tokens"
    return Markup('<span class="{}">{}</span>').format(kind, Markup("").join(out))


def colour_depth(prob: float) -> float:
    """Return the colour depth of a token, from 0 (certain) to 1."""
    depth = min(1.0, -math.log2(max(prob, 1e-12)) / MAX_SURPRISE_BITS)
    return depth if depth >= MIN_DEPTH else 0.0


@dataclass(frozen=True)
class TokenRow:
    """A generated token in a table."""

    text: str
    prob: float
    others: list[tuple[str, float]]  # alternatives with their probabilities
    attends_to: str  # the most attended source token


def token_rows(generated: "GenerationTrace") -> list[TokenRow]:
    """Return a row per token."""
    out = []
    for t, token in enumerate(generated.tokens):
        attended = ""
        if generated.attention is not None and not generated.scored and generated.source:
            weights = generated.attention[:, :, t].mean((0, 1))
            attended = generated.source[int(weights.argmax())]
        others = [(name, prob) for name, prob in token.others if name != token.text][
            :N_ALTERNATIVES
        ]
        out.append(TokenRow(token.text, token.prob, others, attended))
    return out


def draw_beams(nodes: Sequence[BeamNode]) -> Markup:
    """Draw the hypotheses of a beam search from left to right, with the output highlighted."""
    shown = [i for i, node in enumerate(nodes) if node.step < MAX_STEPS]
    if not shown:
        return Markup("")
    steps = max(nodes[i].step for i in shown) + 1
    left, x = [], 8.0
    for t in range(steps):
        left.append(x)
        x += max(_node_width(nodes[i]) for i in shown if nodes[i].step == t) + COLUMN_GAP
    rows = max(nodes[i].rank for i in shown) + 1
    edges, marks = [], []
    for i in sorted(shown, key=lambda i: nodes[i].is_best):  # the output on top
        node = nodes[i]
        px, py = left[node.step], _y(node)
        if node.parent >= 0:
            up = nodes[node.parent]
            sx, sy = left[up.step] + _node_width(up) + 5, _y(up)
            middle = (sx + px - 6) / 2
            way = f"M{sx:.0f} {sy}C{middle:.0f} {sy} {middle:.0f} {py} {px - 6:.0f} {py}"
            edges.append(f'<path class="{_css_class(node)}" d="{way}"/>')
        marks.append(_draw_node(node, px, py))
    body = f'<g class="edges">{"".join(edges)}</g>{"".join(marks)}'
    size = f'viewBox="0 0 {x:.0f} {rows * ROW_HEIGHT + 14}" style="width:{x:.0f}px"'
    return Markup(f'<svg class="beams" {size} role="img"><title>beam search</title>{body}</svg>')


def draw_attention(generated: "GenerationTrace") -> dict[str, object] | None:
    """Draw a labelled map of each layer's mean attention, and its heads if there are several."""
    if generated.attention is None:
        return None
    weights = generated.attention[:, :, :MAX_TOKENS, :MAX_TOKENS]
    rows = [token.text for token in generated.tokens][: weights.shape[2]]
    columns = list(generated.source)
    if generated.scored:  # the preceding token attends
        columns = rows = ["·", *rows[:-1]]
    columns = columns[: weights.shape[3]]
    layers = []
    for k, layer in enumerate(weights, 1):
        many = len(layer) > 1
        maps = [
            (f"head {n}", draw_heatmap(w, title=describe_peak(w, columns, rows)))
            for n, w in enumerate(layer, 1)
        ]
        name = f"Layer {k}, mean over heads" if many else ""
        mean = draw_heatmap(
            layer.mean(0),
            columns,
            f"layer {k}",
            rows,
            22 if len(columns) <= MAX_LARGE_CELL_COLUMNS else CELL_PIXELS,
        )
        layers.append((name, mean, maps if many else []))
    whole = generated.attention.shape
    return {"layers": layers, "cut": whole[2] > MAX_TOKENS or whole[3] > MAX_TOKENS}


def draw_looks(generated: "GenerationTrace") -> list[tuple[str, Markup]]:
    """Draw the image under the attention of each token, the mean of layers and heads."""
    image, patches, attention = generated.image, generated.patches, generated.attention
    if image is None or patches is None or attention is None:
        return []
    weights = attention.mean((0, 1))  # (T, S)
    names = generated.source
    return [
        (token.text, draw_attention_image(image, patches, one, f"attends to {names[one.argmax()]}"))
        for token, one in zip(generated.tokens[:MAX_TOKENS], weights, strict=False)
    ]


def _draw_token(token: "TokenTrace", shown: str) -> Markup:
    others = ", ".join(f"{name} {100 * prob:.0f} %" for name, prob in token.others[:N_ALTERNATIVES])
    title = f"{100 * token.prob:.1f} %" + (f" · most likely: {others}" if others else "")
    deep = colour_depth(token.prob)
    style = ""
    if deep:
        ground = (
            f"color-mix(in srgb, {FOR_COLOUR} {round(MAX_COLOUR_PERCENT * deep)}%, transparent)"
        )
        style = f"background:{ground}"
    return Markup('<span title="{}" style="{}">{}</span>').format(title, style, shown)


def _label(node: BeamNode) -> str:
    return truncate(node.token.strip() or "␣")


def _total(node: BeamNode) -> str:
    return f"{node.total:.2f}" if node.score is None else f"{node.total:.2f} → {node.score:.2f}"


def _node_width(node: BeamNode) -> float:
    letter = TOKEN_LETTER_PIXELS * (BOLD_FACTOR if node.is_best else 1)
    return max(letter * len(_label(node)), NUMBER_LETTER_PIXELS * len(_total(node)))


def _y(node: BeamNode) -> int:
    return node.rank * ROW_HEIGHT + 18


def _css_class(node: BeamNode) -> str:
    return f"{node.status}{' wins' if node.is_best else ''}"


def _draw_node(node: BeamNode, x: float, y: int) -> str:
    label = escape(_label(node))
    title = f"log-probability {node.total:.3f}"
    title += "" if node.score is None else f", score {node.score:.3f} ({node.status})"
    return (
        f'<g class="node {_css_class(node)}"><title>{escape(title)}</title>'
        f'<text x="{x:.0f}" y="{y + 4}">{label}</text>'
        f'<text class="total" x="{x:.0f}" y="{y + 16}">{_total(node)}</text></g>'
    )
