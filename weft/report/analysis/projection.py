"""Sentence vectors as a picture: PCA, t-SNE or UMAP, coloured by label and by error.

n texts   H width of a vector
"""

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from weft.errors import UserError
from weft.predict import Predictor
from weft.report import html
from weft.report.analysis.predictions import Said, kind_of

Method = Literal["pca", "t-sne", "umap"]
METHODS: dict[str, str] = {"pca": "PCA", "t-sne": "t-SNE", "umap": "UMAP"}  # as they are written
USUAL: tuple[Method, ...] = ("pca", "t-sne")

COLOURS = 10  # labels with a colour of their own: --c0 to --c9 of the page
RANGES = 5  # of numbers
PLAIN = 50  # numbers left of a vector before t-SNE and UMAP look for neighbours
LEAST = 5  # texts, for there to be neighbours
MANY = 400  # texts that are worth UMAP's ten seconds of compiling in every process
EXCERPT = 280  # characters of a text that the page shows
WIDTH, HEIGHT, EDGE = 1000, 700, 14


@dataclass(frozen=True)
class Projection:
    """Texts with their answers, and where each method puts them."""

    said: tuple[Said, ...]
    layouts: Mapping[str, np.ndarray]  # method -> (n, 2)
    caption: str = ""
    notes: tuple[str, ...] = ()  # methods that could not be used, and why


@dataclass(frozen=True)
class Key:
    """A line of the legend: texts that share a colour."""

    name: str
    count: int


def usual(count: int) -> tuple[Method, ...]:
    """The methods for so many texts: UMAP too where it is installed and there are enough."""
    worth = count >= MANY and find_spec("umap") is not None
    return (*USUAL, "umap") if worth else USUAL


def project(vectors: np.ndarray, method: Method = "pca", seed: int = 0) -> np.ndarray:
    """(n, H) vectors as points (n, 2); the same seed gives the same picture."""
    vectors = np.asarray(vectors, dtype=np.float64)
    if method not in METHODS:
        raise UserError(f"Unknown projection '{method}'. Known: {', '.join(METHODS)}.")
    if not np.isfinite(vectors).all():
        raise UserError("The sentence vectors are not finite numbers, so there is no picture.")
    if not len(vectors) or not np.ptp(vectors, axis=0).any():  # all the same: one spot
        return np.zeros((len(vectors), 2))
    if method == "pca":
        return _principal(vectors, 2)
    if len(vectors) < LEAST:
        raise UserError(f"{METHODS[method]} needs at least {LEAST} texts, got {len(vectors)}.")
    near = _principal(vectors, PLAIN) if vectors.shape[1] > PLAIN else vectors
    return _tsne(near, seed) if method == "t-sne" else _umap(near, seed)


def projection(
    said: Sequence[Said],
    vectors: np.ndarray,
    methods: Sequence[Method] = USUAL,
    seed: int = 0,
    caption: str = "",
) -> Projection:
    """Every method that can be used on these vectors; what cannot be is noted."""
    layouts: dict[str, np.ndarray] = {}
    notes = []
    for method in methods:
        try:
            layouts[method] = project(vectors, method, seed)
        except UserError as error:
            notes.append(str(error))
    return Projection(tuple(said), layouts, caption, tuple(notes))


def sentence_vectors(predictor: Predictor, texts: Sequence[Any], seed: int = 0) -> np.ndarray:
    """(n, H) what a model makes of each text.

    A tf-idf model has a row of thousands of n-grams instead; its leading directions (latent
    semantic analysis, Deerwester et al. 1990) stand for it.
    """
    families = getattr(getattr(predictor.engine, "part", None), "families", None)
    if families is None:
        return predictor.embed(texts)
    from scipy.sparse import hstack
    from sklearn.decomposition import TruncatedSVD

    part: Any = predictor.engine.part  # type: ignore[attr-defined]
    given = predictor.carried(texts)
    rows = hstack([g.rows(part.view(name, given)) for name, g in families.items()], format="csr")
    size = min(PLAIN, *rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # rows that are all alike have no variance
        return TruncatedSVD(size, random_state=seed).fit_transform(rows)


def section(
    projection: Projection, name: str = "projection", things: str = "texts", answered: bool = True
) -> Markup:
    """The picture with its switches, legend and texts, to stand in any page of the report.

    Where nothing was `answered` there are labels alone, and no errors to look at.
    """
    if not projection.layouts or not projection.said:
        return Markup("")
    kind = kind_of(projection.said[0].value)
    wrong = _wrong(projection.said, kind)
    groups, keys = _groups(projection.said, wrong, kind)
    # Errors are drawn last, so that they lie on top; labels without a colour first.
    order = sorted(range(len(wrong)), key=lambda i: (wrong[i], groups[i] != COLOURS, i))
    layouts = {m: scaled(points)[order] for m, points in projection.layouts.items()}
    shown = "t-sne" if "t-sne" in layouts else next(iter(layouts))
    places = layouts[shown].tolist()
    dots = [(x, y, groups[i], wrong[i]) for (x, y), i in zip(places, order, strict=True)]
    return Markup(
        html.render(
            "projection.html",
            name=name,
            size=(WIDTH, HEIGHT),
            dots=dots,
            keys=keys,
            ordered=kind == "numbers",
            wrong=sum(wrong),
            total=len(wrong),
            things=things,
            answered=answered,
            shown=shown,
            methods=[(method, METHODS[method]) for method in layouts],
            data=_json([projection.said[i] for i in order], layouts, answered),
            caption=projection.caption,
            notes=projection.notes,
        )
    )


def _principal(vectors: np.ndarray, size: int) -> np.ndarray:
    """Scores on the first principal components (n, size), by singular value decomposition."""
    centred = vectors - vectors.mean(0)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    # The sign of a component is arbitrary; its largest loading is made positive.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(1)])
    scores = (left * values * signs)[:, :size]
    return np.pad(scores, ((0, 0), (0, max(0, size - scores.shape[1]))))


def _tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    return TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(vectors)


def _umap(vectors: np.ndarray, seed: int) -> np.ndarray:
    try:
        import umap
    except ImportError:
        raise UserError("UMAP needs umap-learn: pip install 'weft[umap]'.") from None
    neighbours = min(15, len(vectors) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # clusters that are far apart are no news to us
        method = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1)
        return method.fit_transform(vectors)


def scaled(points: np.ndarray) -> np.ndarray:
    """(n, 2) in the picture, both axes on one scale, as distances would otherwise lie."""
    low, high = points.min(0), points.max(0)
    room = np.array([WIDTH - 2 * EDGE, HEIGHT - 2 * EDGE])
    reach = np.where(high > low, high - low, 1e-12)
    scale = (room / reach).min() if (high > low).any() else 0.0
    middle = (points - (low + high) / 2) * scale * [1, -1] + [WIDTH / 2, HEIGHT / 2]
    return np.round(middle).astype(int)


def _wrong(said: Sequence[Said], kind: str) -> list[bool]:
    """Which answers count as errors; of numbers, those farther off than the usual error."""
    if kind != "numbers":
        return [not one.right for one in said]
    misses = np.array([one.miss for one in said])
    return (misses > np.sqrt(np.mean(misses**2))).tolist()


def _groups(said: Sequence[Said], wrong: Sequence[bool], kind: str) -> tuple[list[int], list[Key]]:
    """The colour of each text and the legend; the last colour is that of all other labels."""
    if kind == "numbers":
        return _ranges(np.array([one.label for one in said]))
    names = [_name(one.label) for one in said]
    counts, errors = Counter(names), Counter(n for n, bad in zip(names, wrong, strict=True) if bad)
    chosen = sorted(counts, key=lambda name: (-errors[name], -counts[name], name))[:COLOURS]
    chosen = sorted(chosen, key=lambda name: (-counts[name], name))
    place = {name: i for i, name in enumerate(chosen)}
    keys = [Key(name, counts[name]) for name in chosen]
    if rest := len(counts) - len(chosen):
        left = len(names) - sum(counts[name] for name in chosen)
        keys.append(Key(f"{rest} other {'label' if rest == 1 else 'labels'}", left))
    return [place.get(name, COLOURS) for name in names], keys


def _ranges(values: np.ndarray) -> tuple[list[int], list[Key]]:
    """Numbers cut where equally many lie on each side; ranges that would be empty fall away."""
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, RANGES + 1)))
    inner = cuts[1:-1]
    groups = np.searchsorted(inner, values, side="right")
    counts = np.bincount(groups, minlength=len(inner) + 1).tolist()
    ends = cuts.tolist() if len(cuts) > 1 else [*cuts.tolist(), *cuts.tolist()]
    keys: list[Key] = [
        Key(f"{low:.3g} to {high:.3g}", count)
        for low, high, count in zip(ends[:-1], ends[1:], counts, strict=True)
    ]
    return groups.tolist(), keys


def _name(label: Any) -> str:
    if not isinstance(label, tuple):
        return str(label)
    return label[0] if len(label) == 1 else f"{len(label)} labels" if label else "no label"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _json(said: Sequence[Said], layouts: Mapping[str, np.ndarray], answered: bool) -> Markup:
    """Texts, answers and places for the script; no '<' is left that could end the element."""
    data = {
        "texts": [s.text if len(s.text) <= EXCERPT else f"{s.text[:EXCERPT]}…" for s in said],
        "labels": [_shown(s.label) for s in said],
        "answers": [_shown(s.value) for s in said],
        "scores": [
            round(s.score, 3) if answered and not isinstance(s.value, float) else None for s in said
        ],
        "layouts": {method: points.ravel().tolist() for method, points in layouts.items()},
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)
