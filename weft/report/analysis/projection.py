"""Projections of sentence vectors by PCA, t-SNE or UMAP, coloured by label and by error.

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
from weft.predict.classic import ClassicEngine
from weft.report import html
from weft.report.analysis.predictions import Prediction, prediction_kind

Method = Literal["pca", "t-sne", "umap"]
METHODS: dict[str, str] = {"pca": "PCA", "t-sne": "t-SNE", "umap": "UMAP"}  # display names
DEFAULT_METHODS: tuple[Method, ...] = ("pca", "t-sne")

N_COLOURS = 10  # of labels: --c0 to --c9 of the page
N_RANGES = 5  # of numbers
REDUCED_SIZE = 50  # dimensions kept by PCA before t-SNE and UMAP
MIN_TEXTS = 4  # for t-SNE and UMAP: PCA keeps all distances of three points
MIN_UMAP_TEXTS = 400  # worth the ten seconds that UMAP compiles in every process
EXCERPT_CHARACTERS = 280  # of a text shown on the page
WIDTH, HEIGHT, MARGIN = 1000, 700, 14


@dataclass(frozen=True)
class Projection:
    """Predictions, and their positions under each method."""

    predictions: tuple[Prediction, ...]
    layouts: Mapping[str, np.ndarray]  # method -> (n, 2)
    caption: str = ""
    notes: tuple[str, ...] = ()  # methods that could not be used, with the reason


@dataclass(frozen=True)
class LegendEntry:
    """An entry of the legend: texts that share a colour."""

    name: str
    count: int


def default_methods(count: int) -> tuple[Method, ...]:
    """Return the methods for `count` texts; UMAP is included if installed and worthwhile."""
    worth = count >= MIN_UMAP_TEXTS and find_spec("umap") is not None
    return (*DEFAULT_METHODS, "umap") if worth else DEFAULT_METHODS


def project(vectors: np.ndarray, method: Method = "pca", seed: int = 0) -> np.ndarray:
    """Project (n, H) vectors to (n, 2) points; the same seed gives the same points."""
    vectors = np.asarray(vectors, dtype=np.float64)
    if method not in METHODS:
        raise UserError(f"Unknown projection '{method}'. Known: {', '.join(METHODS)}.")
    if not np.isfinite(vectors).all():
        raise UserError("The sentence vectors are not finite.")
    if not len(vectors) or not np.ptp(vectors, axis=0).any():  # all equal: one point
        return np.zeros((len(vectors), 2))
    if method == "pca":
        return _pca(vectors, 2)
    if len(vectors) < MIN_TEXTS:
        raise UserError(
            f"{METHODS[method]} needs at least {MIN_TEXTS} vectors, got {len(vectors)}; PCA keeps "
            "all distances of so few."
        )
    near = _pca(vectors, REDUCED_SIZE) if vectors.shape[1] > REDUCED_SIZE else vectors
    return _tsne(near, seed) if method == "t-sne" else _umap(near, seed)


def build_projection(
    predictions: Sequence[Prediction],
    vectors: np.ndarray,
    methods: Sequence[Method] = DEFAULT_METHODS,
    seed: int = 0,
    caption: str = "",
) -> Projection:
    """Project the vectors by every method; note the methods that cannot be used."""
    layouts: dict[str, np.ndarray] = {}
    notes = []
    for method in methods:
        try:
            layouts[method] = project(vectors, method, seed)
        except UserError as error:
            notes.append(str(error))
    return Projection(tuple(predictions), layouts, caption, tuple(notes))


def sentence_vectors(predictor: Predictor, texts: Sequence[Any], seed: int = 0) -> np.ndarray:
    """Return the (n, H) sentence vectors of a model.

    The thousands of features of a tf-idf model are reduced by latent semantic analysis
    (Deerwester et al. 1990).
    """
    engine = predictor.engine
    rows = (
        engine.part.sparse_features(predictor.prepare_inputs(texts))
        if isinstance(engine, ClassicEngine)
        else None
    )
    if rows is None:
        return predictor.embed(texts)
    from sklearn.decomposition import TruncatedSVD

    size = min(REDUCED_SIZE, *rows.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # equal rows have no variance
        reduced: np.ndarray = TruncatedSVD(size, random_state=seed).fit_transform(rows)
    return reduced


def render_section(
    projection: Projection,
    name: str = "projection",
    things: str = "texts",
    answered: bool = True,
    first: str = "t-sne",
) -> Markup:
    """Render the projection with controls, legend and texts as a section of a page.

    Without `answered` there are only labels, and no errors to show. The method `first` is shown
    if it could be used.
    """
    if not projection.layouts or not projection.predictions:
        return Markup("")
    kind = prediction_kind(projection.predictions[0].value)
    wrong = _find_errors(projection.predictions, kind)
    groups, keys = _assign_groups(projection.predictions, wrong, kind)
    # Errors are drawn last, on top; labels without a colour first.
    order = sorted(range(len(wrong)), key=lambda i: (wrong[i], groups[i] != N_COLOURS, i))
    layouts = {m: scale_to_frame(points)[order] for m, points in projection.layouts.items()}
    shown = first if first in layouts else next(iter(layouts))
    positions = layouts[shown].tolist()
    dots = [(x, y, groups[i], wrong[i]) for (x, y), i in zip(positions, order, strict=True)]
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
            data=_script_data([projection.predictions[i] for i in order], layouts, answered),
            caption=projection.caption,
            notes=projection.notes,
        )
    )


def _pca(vectors: np.ndarray, size: int) -> np.ndarray:
    """Return (n, size) scores on the first principal components, by SVD."""
    centred = vectors - vectors.mean(0)
    left, values, right = np.linalg.svd(centred, full_matrices=False)
    # Signs are arbitrary: make the largest loading of each component positive.
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(1)])
    scores = (left * values * signs)[:, :size]
    return np.pad(scores, ((0, 0), (0, max(0, size - scores.shape[1]))))


def _tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    method = TSNE(init="pca", perplexity=perplexity, random_state=seed)
    points: np.ndarray = method.fit_transform(vectors)
    return points


def _umap(vectors: np.ndarray, seed: int) -> np.ndarray:
    try:
        import umap
    except ImportError:
        raise UserError("UMAP needs umap-learn: pip install 'weft[umap]'.") from None
    neighbours = min(15, len(vectors) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as about disconnected clusters
        method = umap.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1)
        points: np.ndarray = method.fit_transform(vectors)
    return points


def scale_to_frame(points: np.ndarray) -> np.ndarray:
    """Scale (n, 2) points to the frame, both axes equally, so that distances are comparable."""
    low, high = points.min(0), points.max(0)
    frame = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    extent = np.where(high > low, high - low, 1e-12)
    scale = (frame / extent).min() if (high > low).any() else 0.0
    middle = (points - (low + high) / 2) * scale * [1, -1] + [WIDTH / 2, HEIGHT / 2]
    rounded: np.ndarray = np.round(middle).astype(int)
    return rounded


def _find_errors(predictions: Sequence[Prediction], kind: str) -> list[bool]:
    """Return which predictions are errors; for numbers, those with an error above the RMSE."""
    if kind != "numbers":
        return [not one.is_correct for one in predictions]
    errors = np.array([one.absolute_error for one in predictions])
    above: list[bool] = (errors > np.sqrt(np.mean(errors**2))).tolist()
    return above


def _assign_groups(
    predictions: Sequence[Prediction], wrong: Sequence[bool], kind: str
) -> tuple[list[int], list[LegendEntry]]:
    """Return the colour index of each text, and the legend; the last colour is for other labels."""
    if kind == "numbers":
        # Vectors by the mean of their numbers.
        return _assign_ranges(np.array([np.mean(one.numbers[::2]) for one in predictions]))
    names = [_label_name(one.label) for one in predictions]
    counts, errors = Counter(names), Counter(n for n, bad in zip(names, wrong, strict=True) if bad)
    chosen = sorted(counts, key=lambda name: (-errors[name], -counts[name], name))[:N_COLOURS]
    chosen = sorted(chosen, key=lambda name: (-counts[name], name))
    index = {name: i for i, name in enumerate(chosen)}
    keys = [LegendEntry(name, counts[name]) for name in chosen]
    if n_other := len(counts) - len(chosen):
        n_texts = len(names) - sum(counts[name] for name in chosen)
        keys.append(
            LegendEntry(f"{n_other} other {'label' if n_other == 1 else 'labels'}", n_texts)
        )
    return [index.get(name, N_COLOURS) for name in names], keys


def _assign_ranges(values: np.ndarray) -> tuple[list[int], list[LegendEntry]]:
    """Assign numbers to quantile ranges; empty ranges are dropped."""
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, N_RANGES + 1)))
    inner = cuts[1:-1]
    groups = np.searchsorted(inner, values, side="right")
    counts = np.bincount(groups, minlength=len(inner) + 1).tolist()
    ends = cuts.tolist() if len(cuts) > 1 else [*cuts.tolist(), *cuts.tolist()]
    keys: list[LegendEntry] = [
        LegendEntry(f"{low:.3g} to {high:.3g}", count)
        for low, high, count in zip(ends[:-1], ends[1:], counts, strict=True)
    ]
    return groups.tolist(), keys


def _label_name(label: object) -> str:
    if not isinstance(label, tuple):
        return str(label)
    return str(label[0]) if len(label) == 1 else f"{len(label)} labels" if label else "no label"


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_format_value, value)) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _script_data(
    predictions: Sequence[Prediction], layouts: Mapping[str, np.ndarray], answered: bool
) -> Markup:
    """Return texts, predictions and positions as JSON for the script, with '<' escaped."""
    data = {
        "texts": [
            s.text if len(s.text) <= EXCERPT_CHARACTERS else f"{s.text[:EXCERPT_CHARACTERS]}…"
            for s in predictions
        ],
        "labels": [_format_value(s.label) for s in predictions],
        "answers": [_format_value(s.value) for s in predictions],
        "scores": [
            round(s.score, 3) if answered and prediction_kind(s.value) != "numbers" else None
            for s in predictions
        ],
        "layouts": {method: points.ravel().tolist() for method, points in layouts.items()},
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)
