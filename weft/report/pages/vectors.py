"""Maps of word vectors and tables of nearest neighbours, as a page or an SVG.

n words drawn   E width of a vector   k nearest
"""

import unicodedata
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from markupsafe import Markup
from matplotlib.font_manager import FontProperties, findfont, get_font

from weft import __version__
from weft.errors import UserError
from weft.notebook import HtmlRepr
from weft.report import html
from weft.report.analysis.projection import (
    HEIGHT,
    METHODS,
    MIN_TEXTS,
    N_COLOURS,
    WIDTH,
    Method,
    project,
    scale_to_frame,
)
from weft.report.charts.label_placement import LabelPlacer
from weft.vectors.neighbours import nearest, unit
from weft.vectors.store import ScoredWords, Vectors

N_NEIGHBOURS = 10  # listed in a table, and preserved by a good map
FONT_PIXELS = 11  # font size of a name
BOLD_FACTOR = 1.15  # relative width of bold text
RADIUS = 2.6
MAX_DISTANCE_WITHOUT_LINE = 14  # of a name from its point
MARGIN = 44  # of the map, for names at its edge
N_COLUMNS = 8  # of a table


@dataclass(frozen=True)
class WordPoint:
    """A word on the map; without a position for its name, only the point is drawn."""

    word: str
    x: float
    y: float
    group: int
    key: bool = False  # a query: written in bold
    at: tuple[float, float] | None = None  # left end of the name's baseline
    line: tuple[float, float] | None = None  # where a line to the name ends


@dataclass(frozen=True)
class WordMap(HtmlRepr):
    """A map of words, and how well it preserves nearest neighbours."""

    method: Method
    points: tuple[WordPoint, ...]
    fraction_kept: float  # of the nearest neighbours

    @property
    def title(self) -> str:
        return METHODS[self.method]

    @property
    def n_named(self) -> int:
        return sum(spot.at is not None for spot in self.points)


@dataclass(frozen=True)
class WordSelection:
    """The words to draw: queries grouped with their nearest neighbours, or one group."""

    words: tuple[str, ...]
    groups: tuple[int, ...]
    queries: tuple[str, ...] = ()  # the query of each group
    table: Mapping[str, ScoredWords] = field(default_factory=dict)  # query -> nearest neighbours


def select_words(
    vectors: Vectors, words: Sequence[str] = (), top: int = 300, near: int = N_NEIGHBOURS
) -> WordSelection:
    """Select the queries with their nearest neighbours, or else the first words of the file.

    A neighbour of several queries belongs to the first of them.
    """
    if words:
        requested = list(dict.fromkeys(words))
        table = dict(
            zip(requested, vectors.neighbour_lists(requested, max(near, N_NEIGHBOURS)), strict=True)
        )
        owner = {word: min(i, N_COLOURS) for i, word in enumerate(requested)}
        for i, word in enumerate(requested):
            for other, _ in table[word][:near]:
                owner.setdefault(other, min(i, N_COLOURS))
        return WordSelection(tuple(owner), tuple(owner.values()), tuple(requested), table)
    selected = tuple(vectors.words[: min(top, len(vectors))])
    # Common and rare words, as in table 7 of Collobert et al. (2011): equal steps of log rank.
    ranks = np.unique(np.geomspace(1, len(vectors), N_COLUMNS + 2)[1:-1].astype(int))
    queries = [vectors.words[rank] for rank in ranks if rank < len(vectors)]
    table = dict(zip(queries, vectors.neighbour_lists(queries, N_NEIGHBOURS), strict=True))
    return WordSelection(selected, (N_COLOURS,) * len(selected), (), table)


def build_map(
    vectors: Vectors, words: WordSelection, method: Method = "t-sne", seed: int = 0
) -> WordMap:
    """Project words by cosine similarity; names without free space are left out."""
    if method not in METHODS:
        raise UserError(f"Unknown projection '{method}'. Known: {', '.join(METHODS)}.")
    if len(words.words) < MIN_TEXTS and method != "pca":
        raise UserError(
            f"{METHODS[method]} needs at least {MIN_TEXTS} words, got {len(words.words)}. "
            "Give more, or use pca."
        )
    rows = unit(np.stack([vectors[word] for word in words.words]))  # (n, E)
    points = project(rows, method, seed)
    return WordMap(method, _place_words(words, points), _fraction_kept(rows, points))


def draw_map(word_map: WordMap, standalone: bool = True) -> str:
    """Draw the map as SVG; with `standalone` it includes its colours, for light and dark mode."""
    return html.render(
        "vectors_map.html",
        map=word_map,
        size=(WIDTH, HEIGHT),
        radius=RADIUS,
        letters=FONT_PIXELS,
        standalone=standalone,
        colours=N_COLOURS,
    )


def render_page(
    vectors: Vectors,
    words: WordSelection,
    methods: Sequence[Method],
    name: str = "",
    seed: int = 0,
) -> str:
    """Render the whole page: the maps, and the tables of nearest neighbours."""
    maps, notes = [], []
    for method in methods:
        try:
            maps.append(build_map(vectors, words, method, seed))
        except UserError as error:
            notes.append(str(error))
    if not maps:
        raise UserError(" ".join(notes))
    return html.render(
        "vectors.html",
        name=name,
        vectors=vectors,
        words=words,
        maps=[(one, Markup(draw_map(one, standalone=False))) for one in maps],
        notes=notes,
        tables=_neighbour_tables(vectors, words.table),
        letters=FONT_PIXELS,
        columns=N_COLUMNS,
        near=_neighbour_lists(vectors, words),
        plain=N_COLOURS,
        version=__version__,
    )


def _place_words(words: WordSelection, points: np.ndarray) -> tuple[WordPoint, ...]:
    """Scale the points to the frame, then place names: queries first, then in order."""
    middle = np.array([WIDTH, HEIGHT]) / 2
    positions = (scale_to_frame(points) - middle) * (1 - MARGIN / middle.min()) + middle
    dots = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in positions.tolist()]
    labels = LabelPlacer(
        (4.0, 4.0, WIDTH - 4.0, HEIGHT - 4.0), dots, far=40, lead=MAX_DISTANCE_WITHOUT_LINE
    )
    queries = {*words.queries}
    order = sorted(range(len(positions)), key=lambda i: words.words[i] not in queries)
    spots: dict[int, WordPoint] = {}
    for i in order:
        x, y = positions[i].tolist()
        word = words.words[i]
        wide, high = name_width(word) * (BOLD_FACTOR if word in queries else 1), FONT_PIXELS * 1.1
        spot = WordPoint(word, round(x, 1), round(y, 1), words.groups[i], word in queries)
        offset = labels.place(x, y, RADIUS, wide, high)
        if offset is not None:
            left, low = x + offset[0], y + offset[1]
            base = round(left, 1), round(low + 0.8 * high, 1)
            line = None
            if labels.line(x, y, offset, wide, high):
                nearer = min(max(x, left), left + wide)
                line = round(nearer, 1), round(low if low > y else low + high, 1)
            spot = replace(spot, at=base, line=line)
        spots[i] = spot
    return tuple(spots[i] for i in range(len(positions)))


def name_width(word: str) -> float:
    """Return the width of a name in pixels, in a font as wide as common ones."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in word)
    rest = "".join(c for c in word if unicodedata.east_asian_width(c) not in "WF")
    return FONT_PIXELS * 1.02 * wide + (_font_width(rest) if rest else 0.0)


@lru_cache(maxsize=4096)
def _font_width(text: str) -> float:
    font = get_font(findfont(FontProperties(family="DejaVu Sans")))
    font.set_size(FONT_PIXELS, 72)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing glyph is measured as its box
        font.set_text(text)
    return font.get_width_height()[0] / 64


def _fraction_kept(rows: np.ndarray, points: np.ndarray) -> float:
    """Return the fraction of nearest neighbours, among the words drawn, that the map preserves."""
    k = min(N_NEIGHBOURS, len(rows) - 1)
    if k < 1:
        return 1.0
    ones = np.ones(len(rows), np.float32)
    alone = [[i] for i in range(len(rows))]
    neighbours, _ = nearest(rows, ones, rows, k, alone)
    # Nearest by distance is greatest 2 x·y - |y|², one more number in each vector.
    flat = np.asarray(points - points.mean(0), np.float32)
    flat = flat / max(float(np.abs(flat).max()), 1e-12)
    ends = np.concatenate([flat, -(flat**2).sum(1, keepdims=True)], axis=1)
    queries = np.concatenate([2 * flat, ones[:, None]], axis=1)
    map_neighbours, _ = nearest(ends, ones, queries, k, alone)
    return float(
        np.mean([len({*a} & {*b}) / k for a, b in zip(neighbours, map_neighbours, strict=True)])
    )


def _neighbour_lists(vectors: Vectors, words: WordSelection) -> dict[str, object]:
    """Return the nearest neighbours of each word on the map, for the script."""
    lists = vectors.neighbour_lists(words.words, N_NEIGHBOURS)
    return {
        word: [[other, round(score, 3)] for other, score in neighbours]
        for word, neighbours in zip(words.words, lists, strict=True)
    }


def _neighbour_tables(
    vectors: Vectors, table: Mapping[str, ScoredWords]
) -> list[dict[str, object]]:
    """Return tables with one column per query: its rank, then its nearest neighbours."""
    out = []
    queries = list(table)
    for start in range(0, len(queries), N_COLUMNS):
        shown = queries[start : start + N_COLUMNS]
        ranks = [vectors.index.get(word, -1) + 1 for word in shown]
        depth = max(len(table[word]) for word in shown)
        rows = [
            [table[word][i] if i < len(table[word]) else ("", 0.0) for word in shown]
            for i in range(min(depth, N_NEIGHBOURS))
        ]
        out.append({"queries": list(zip(shown, ranks, strict=True)), "rows": rows})
    return out
