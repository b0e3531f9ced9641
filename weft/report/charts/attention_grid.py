"""The head × layer grid of attention maps: small maps that link to large ones.

L layers   N heads   T tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from weft.explain.attention import AttentionMaps
from weft.report import html
from weft.report.charts.heatmap import describe_peak, draw_cells, truncate

MAX_TOKENS = 40  # rows and columns of a readable map
MIN_CELL_PIXELS, MAX_CELL_PIXELS = 15, 26  # of a cell in a large map
MAP_PIXELS = 560  # width of a large map of few tokens
LETTER_WIDTH = 0.47  # of a label, in cells


@dataclass(frozen=True)
class HeadMap:
    """The map of one head, or the mean over a layer's heads."""

    id: str
    head: str  # "mean", or its number
    layer: int
    peak: str
    cells: Markup


@dataclass(frozen=True)
class NetworkMaps:
    """The maps of one network, one row per layer."""

    id: str
    name: str
    layers: list[list[HeadMap]]
    labels: Markup
    steps: int
    label_cells: float  # width of the labels, in cells
    cell: int
    second_start: int
    total_tokens: int  # of the whole text

    @property
    def size(self) -> float:
        return self.label_cells + self.steps + 0.1

    @property
    def maps(self) -> list[HeadMap]:
        """All maps; the one shown by default comes first."""
        every = [one for layer in self.layers for one in layer]
        first = self.layers[-1][0]
        return [first, *(one for one in every if one is not first)]


def render_section(heads: Sequence[AttentionMaps]) -> Markup:
    """Render the grids of all networks of a model; empty without any."""
    networks = [_build_network(f"n{i}", one) for i, one in enumerate(heads, 1) if one.tokens]
    return Markup(html.render("attention_grid.html", networks=networks)) if networks else Markup("")


def _build_network(name: str, heads: AttentionMaps) -> NetworkMaps:
    shown = heads.first(MAX_TOKENS)
    layers = []
    for k, layer in enumerate(shown.weights, 1):
        maps = [("mean", layer.mean(0)), *((str(n), head) for n, head in enumerate(layer, 1))]
        layers.append([_build_map(f"{name}l{k}h{n}", n, k, w, shown.tokens) for n, w in maps])
    steps = len(shown.tokens)
    left = 0.8 + LETTER_WIDTH * max(len(truncate(token)) for token in shown.tokens)
    cell = min(MAX_CELL_PIXELS, max(MIN_CELL_PIXELS, round(MAP_PIXELS / steps)))
    return NetworkMaps(
        name, heads.name, layers, _draw_labels(shown), steps, left, cell, shown.second,
        len(heads.tokens),
    )  # fmt: skip


def _build_map(
    name: str, head: str, layer: int, weights: np.ndarray, tokens: Sequence[str]
) -> HeadMap:
    return HeadMap(name, head, layer, describe_peak(weights, tokens), draw_cells(weights))


def _draw_labels(heads: AttentionMaps) -> Markup:
    """Draw the tokens along rows and columns; tokens of a second text have their own style."""
    out = []
    for i, token in enumerate(heads.tokens):
        other = " other" if heads.second and i >= heads.second else ""
        kind = f' class="head-token{other}"'
        name = escape(truncate(token))
        out.append(f'<text x="-.4" y="{i + 0.75}" text-anchor="end"{kind}>{name}</text>')
        out.append(f'<text transform="translate({i + 0.75} -.4) rotate(-90)"{kind}>{name}</text>')
    return Markup("".join(out))
