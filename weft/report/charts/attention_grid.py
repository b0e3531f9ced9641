"""The head × layer grid: small maps of where each head looks, each a way to a large one.

L layers   N heads   T tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from weft.explain.attention import AttentionMaps
from weft.report import html
from weft.report.charts.heatmap import cells, peak, short

TOKENS = 40  # rows and columns of a map that can still be read
CELL, WIDEST = 15, 26  # pixels of a cell in a large map: of many tokens, of few
ROOM = 560  # pixels that a large map of few tokens may have
LETTER = 0.47  # width of a letter beside a map, in cells


@dataclass(frozen=True)
class Map:
    """One head, or the mean of a layer's heads."""

    id: str
    head: str  # "mean", or its number
    layer: int
    peak: str
    cells: Markup


@dataclass(frozen=True)
class Network:
    """The maps of one network, a row a layer."""

    id: str
    name: str
    layers: list[list[Map]]
    labels: Markup
    steps: int
    left: float  # room for the labels, in cells
    cell: int
    second: int
    whole: int  # tokens of the text

    @property
    def size(self) -> float:
        return self.left + self.steps + 0.1

    @property
    def maps(self) -> list[Map]:
        """All maps; the one that is shown before any is chosen comes first."""
        every = [one for layer in self.layers for one in layer]
        first = self.layers[-1][0]
        return [first, *(one for one in every if one is not first)]


def section(found: Sequence[AttentionMaps]) -> Markup:
    """The grids of all networks of a model; nothing where there is none."""
    networks = [_network(f"n{i}", one) for i, one in enumerate(found, 1) if one.tokens]
    return Markup(html.render("heads.html", networks=networks)) if networks else Markup("")


def _network(name: str, found: AttentionMaps) -> Network:
    shown = found.first(TOKENS)
    layers = []
    for k, layer in enumerate(shown.weights, 1):
        maps = [("mean", layer.mean(0)), *((str(n), head) for n, head in enumerate(layer, 1))]
        layers.append([_map(f"{name}l{k}h{n}", n, k, w, shown.tokens) for n, w in maps])
    steps = len(shown.tokens)
    left = 0.8 + LETTER * max(len(short(token)) for token in shown.tokens)
    cell = min(WIDEST, max(CELL, round(ROOM / steps)))
    return Network(
        name, found.name, layers, _labels(shown), steps, left, cell, shown.second,
        len(found.tokens),
    )  # fmt: skip


def _map(name: str, head: str, layer: int, weights: np.ndarray, tokens: Sequence[str]) -> Map:
    return Map(name, head, layer, peak(weights, tokens), cells(weights))


def _labels(found: AttentionMaps) -> Markup:
    """The tokens beside the rows and over the columns; those of a second text look different."""
    out = []
    for i, token in enumerate(found.tokens):
        other = " other" if found.second and i >= found.second else ""
        kind = f' class="head-token{other}"'
        name = escape(short(token))
        out.append(f'<text x="-.4" y="{i + 0.75}" text-anchor="end"{kind}>{name}</text>')
        out.append(f'<text transform="translate({i + 0.75} -.4) rotate(-90)"{kind}>{name}</text>')
    return Markup("".join(out))
