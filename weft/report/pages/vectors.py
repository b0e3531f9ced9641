"""Word vectors as a picture: a map of words, and the nearest words of some, as a page or an SVG.

n words drawn   E width of a vector   k nearest
"""

import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.font_manager import FontProperties, findfont, get_font

from weft import __version__
from weft.errors import UserError
from weft.report import html
from weft.report.analysis.projection import (
    COLOURS,
    HEIGHT,
    LEAST,
    METHODS,
    WIDTH,
    Method,
    project,
    scaled,
)
from weft.report.charts.label_placement import Labels
from weft.vectors.neighbours import nearest, unit
from weft.vectors.store import Found, Vectors

NEAR = 10  # words that a table lists, and that a map is judged by
LETTERS = 11  # size of a name
BOLD = 1.15  # how much wider it is in bold
RADIUS = 2.6
LEAD = 14  # a name that is farther from its point gets a line to it
MARGIN = 44  # of the map, so that names at its edge have room
SAMPLE = 8  # columns of a table


@dataclass(frozen=True)
class Spot:
    """A word in the picture; without a place for its name only the point is drawn."""

    word: str
    x: float
    y: float
    group: int
    key: bool = False  # asked for: written bold
    at: tuple[float, float] | None = None  # left end of the name's base line
    line: tuple[float, float] | None = None  # where a line to the name ends


@dataclass(frozen=True)
class Picture:
    """One map: where each word lies, and how many of its nearest words still lie near it."""

    method: Method
    spots: tuple[Spot, ...]
    kept: float  # share of the nearest words that are nearest in the picture too

    @property
    def title(self) -> str:
        return METHODS[self.method]

    @property
    def named(self) -> int:
        return sum(spot.at is not None for spot in self.spots)


@dataclass(frozen=True)
class Words:
    """The words to draw: groups of the words asked for and their nearest, or one group."""

    words: tuple[str, ...]
    groups: tuple[int, ...]
    keys: tuple[str, ...] = ()  # the word that each group stands around
    table: Mapping[str, Found] = field(default_factory=dict)  # query -> nearest words


def chosen(vectors: Vectors, words: Sequence[str] = (), top: int = 300, near: int = NEAR) -> Words:
    """The words asked for with their nearest words, or else the first of the file.

    A word that is near to several belongs to the first of them.
    """
    if words:
        asked = list(dict.fromkeys(words))
        table = dict(zip(asked, vectors.neighbour_lists(asked, max(near, NEAR)), strict=True))
        owner = {word: min(i, COLOURS) for i, word in enumerate(asked)}
        for i, word in enumerate(asked):
            for other, _ in table[word][:near]:
                owner.setdefault(other, min(i, COLOURS))
        return Words(tuple(owner), tuple(owner.values()), tuple(asked), table)
    some = tuple(vectors.words[: min(top, len(vectors))])
    # Common and rare words, as in table 7 of Collobert et al. (2011): equal steps of log rank.
    ranks = np.unique(np.geomspace(1, len(vectors), SAMPLE + 2)[1:-1].astype(int))
    queries = [vectors.words[rank] for rank in ranks if rank < len(vectors)]
    table = dict(zip(queries, vectors.neighbour_lists(queries, NEAR), strict=True))
    return Words(some, (COLOURS,) * len(some), (), table)


def picture(vectors: Vectors, words: Words, method: Method = "t-sne", seed: int = 0) -> Picture:
    """Words in the plane by their cosines; names that find no room are left out."""
    if method not in METHODS:
        raise UserError(f"Unknown projection '{method}'. Known: {', '.join(METHODS)}.")
    if len(words.words) < LEAST and method != "pca":
        raise UserError(
            f"{METHODS[method]} needs at least {LEAST} words, got {len(words.words)}. "
            "Give more, or draw them by pca."
        )
    rows = unit(np.stack([vectors[word] for word in words.words]))  # (n, E)
    points = project(rows, method, seed)
    return Picture(method, _spots(words, points), _kept(rows, points))


def drawing(picture: Picture, own_colours: bool = True) -> str:
    """The map as an SVG; with `own_colours` it is a file of its own, light or dark."""
    return html.render(
        "vectors_map.html",
        picture=picture,
        size=(WIDTH, HEIGHT),
        radius=RADIUS,
        letters=LETTERS,
        own_colours=own_colours,
        colours=COLOURS,
    )


def page(
    vectors: Vectors,
    words: Words,
    methods: Sequence[Method],
    name: str = "",
    seed: int = 0,
) -> str:
    """The whole page: the maps to switch between, and the table of nearest words."""
    pictures, notes = [], []
    for method in methods:
        try:
            pictures.append(picture(vectors, words, method, seed))
        except UserError as error:
            notes.append(str(error))
    if not pictures:
        raise UserError(" ".join(notes))
    return html.render(
        "vectors.html",
        name=name,
        vectors=vectors,
        words=words,
        pictures=[(one, Markup(drawing(one, own_colours=False))) for one in pictures],
        notes=notes,
        tables=_tables(vectors, words.table),
        letters=LETTERS,
        columns=SAMPLE,
        near=_near(vectors, words),
        plain=COLOURS,
        version=__version__,
    )


def _spots(words: Words, points: np.ndarray) -> tuple[Spot, ...]:
    """Scale into the frame, then write names: queries first, then in the order given."""
    middle = np.array([WIDTH, HEIGHT]) / 2
    places = (scaled(points) - middle) * (1 - MARGIN / middle.min()) + middle
    dots = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places.tolist()]
    labels = Labels((4.0, 4.0, WIDTH - 4.0, HEIGHT - 4.0), dots, far=40, lead=LEAD)
    keys = {*words.keys}
    order = sorted(range(len(places)), key=lambda i: words.words[i] not in keys)
    spots: dict[int, Spot] = {}
    for i in order:
        x, y = places[i].tolist()
        word = words.words[i]
        wide, high = width(word) * (BOLD if word in keys else 1), LETTERS * 1.1
        spot = Spot(word, round(x, 1), round(y, 1), words.groups[i], word in keys)
        found = labels.place(x, y, RADIUS, wide, high)
        if found is not None:
            left, low = x + found[0], y + found[1]
            base = round(left, 1), round(low + 0.8 * high, 1)
            line = None
            if labels.line(x, y, found, wide, high):
                nearer = min(max(x, left), left + wide)
                line = round(nearer, 1), round(low if low > y else low + high, 1)
            spot = replace(spot, at=base, line=line)
        spots[i] = spot
    return tuple(spots[i] for i in range(len(places)))


def width(word: str) -> float:
    """How wide a name is written, in a font as wide as those that readers are likely to have."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in word)
    rest = "".join(c for c in word if unicodedata.east_asian_width(c) not in "WF")
    return LETTERS * 1.02 * wide + (_measured(rest) if rest else 0.0)


@lru_cache(maxsize=4096)
def _measured(text: str) -> float:
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(LETTERS, 72)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter it lacks is measured as its empty box
        font.set_text(text)
    return font.get_width_height()[0] / 64


def _kept(rows: np.ndarray, points: np.ndarray) -> float:
    """Share of each word's nearest words, of those drawn, that are nearest in the picture too."""
    k = min(NEAR, len(rows) - 1)
    if k < 1:
        return 1.0
    ones = np.ones(len(rows), np.float32)
    alone = [[i] for i in range(len(rows))]
    there, _ = nearest(rows, ones, rows, k, alone)
    # Nearest by distance is greatest 2 x·y - |y|², one more number in each vector.
    flat = np.asarray(points - points.mean(0), np.float32)
    flat = flat / max(float(np.abs(flat).max()), 1e-12)
    ends = np.concatenate([flat, -(flat**2).sum(1, keepdims=True)], axis=1)
    asked = np.concatenate([2 * flat, ones[:, None]], axis=1)
    here, _ = nearest(ends, ones, asked, k, alone)
    return float(np.mean([len({*a} & {*b}) / k for a, b in zip(there, here, strict=True)]))


def _near(vectors: Vectors, words: Words) -> dict[str, Any]:
    """For the script: the nearest words of each word drawn, of all and of those drawn."""
    lists = vectors.neighbour_lists(words.words, NEAR)
    return {
        word: [[other, round(score, 3)] for other, score in found]
        for word, found in zip(words.words, lists, strict=True)
    }


def _tables(vectors: Vectors, table: Mapping[str, Found]) -> list[dict[str, Any]]:
    """A column a query: its place in the file, then its nearest words; so many as fit a page."""
    out = []
    queries = list(table)
    for start in range(0, len(queries), SAMPLE):
        some = queries[start : start + SAMPLE]
        ranks = [vectors.index.get(word, -1) + 1 for word in some]
        depth = max(len(table[word]) for word in some)
        rows = [
            [table[word][i] if i < len(table[word]) else ("", 0.0) for word in some]
            for i in range(min(depth, NEAR))
        ]
        out.append({"queries": list(zip(some, ranks, strict=True)), "rows": rows})
    return out
