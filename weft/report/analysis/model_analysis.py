"""Error analysis of one trained model: confusions, calibration and explained errors."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from weft import predict
from weft.compare.sentence_scores import DRAWN_KINDS, UNITS
from weft.compare.trial import Trial
from weft.errors import UserError
from weft.predict import Predictor
from weft.predict.classic import ClassicEngine
from weft.predict.predictor import Input
from weft.report.analysis.predictions import Prediction, PredictionStats, read_predictions
from weft.report.analysis.projection import (
    Method,
    Projection,
    build_projection,
    default_methods,
    sentence_vectors,
)
from weft.report.drawings.draw import draw

MAX_ERRORS = 12  # shown with an explanation
MAX_DRAWN_ERRORS = 6  # if each is a drawing
# For a thousand texts on a busy machine, including the compilation by UMAP in every process.
PROJECTION_SECONDS = {"t-sne": 15.0, "umap": 45.0}
MAX_CHARACTERS = 600  # of a text shown without an explanation


@dataclass(frozen=True)
class ExplainedError:
    """A wrong prediction, and its text highlighted or drawn against gold."""

    prediction: Prediction
    markup: Markup


@dataclass(frozen=True)
class ModelAnalysis:
    """The error analysis of one trained model, as shown in the report."""

    recipe: str
    name: str  # of the trial: recipe, seed, fold
    predictions: PredictionStats
    errors: tuple[ExplainedError, ...]
    method: str  # of the explanations; "" without
    projection: Projection | None
    notes: tuple[str, ...] = ()


def analyse_model(
    trial: Trial,
    device: str = "auto",
    limit: int = 1000,
    *,
    projections: Sequence[Method] | None = None,
    seed: int = 0,
    seconds: float = float("inf"),
) -> ModelAnalysis:
    """Analyse the predictions of a finished trial, its errors and up to `limit` test texts.

    Parts that the model does not support are left out with a note; only a damaged folder is an
    error. Projections that would not be done in `seconds` are left out too.
    """
    began = time.monotonic()
    predictions = read_predictions(
        trial.folder / "predictions.jsonl", sample=limit, errors=MAX_ERRORS, seed=seed
    )
    if predictions.kind in UNITS:
        names = [one.label for one in predictions.classes]
        shown = predictions.errors[: MAX_DRAWN_ERRORS if predictions.kind in DRAWN_KINDS else None]
        drawn = tuple(ExplainedError(s, _draw_error(s, names)) for s in shown)
        return ModelAnalysis(trial.recipe, trial.name, predictions, drawn, "", None)
    predictor = predict.load(trial.folder / "model", device=device, replay=False)
    notes = []
    errors, method = (
        [
            ExplainedError(prediction, _truncate(prediction.text))
            for prediction in predictions.errors
        ],
        "",
    )
    try:
        strips, method = _highlight(
            predictor, [prediction.inputs for prediction in predictions.errors]
        )
        errors = [
            ExplainedError(s, strip) for s, strip in zip(predictions.errors, strips, strict=True)
        ]
    except UserError as error:
        notes.append(f"Errors without explanations: {error}")
    projection = None
    try:
        methods = default_methods(len(predictions.sample)) if projections is None else projections
        methods = _methods_in_time(methods, seconds - (time.monotonic() - began))
        projection = _project(predictor, trial.recipe, predictions, methods, seed)
    except UserError as error:
        notes.append(f"No projection of the texts: {error}")
    return ModelAnalysis(
        trial.recipe, trial.name, predictions, tuple(errors), method, projection, tuple(notes)
    )  # fmt: skip


def _methods_in_time(methods: Sequence[Method], seconds: float) -> list[Method]:
    """Return the methods that finish in time even on a busy machine; PCA always does."""
    out: list[Method] = []
    for method in methods:
        seconds -= PROJECTION_SECONDS.get(method, 0.0)
        if method not in PROJECTION_SECONDS or seconds > 0:
            out.append(method)
    return out


def _draw_error(prediction: Prediction, names: Sequence[str]) -> Markup:
    """Draw a prediction against gold, below its question if it has one."""
    drawing = draw(*prediction.structures, names)
    return (
        drawing
        if prediction.text_pair is None
        else Markup("<p><b>{}</b></p>{}").format(prediction.text, drawing)
    )


def _highlight(predictor: Predictor, texts: Sequence[Input]) -> tuple[list[Markup], str]:
    """Return each text with its words highlighted, and the explanation method."""
    if not texts:
        return [], ""
    from weft.explain import explain
    from weft.report.drawings.highlight import highlight_words

    explanations = explain(predictor, list(texts))
    return [highlight_words(one) for one in explanations], explanations[0].method


def _project(
    predictor: Predictor,
    recipe: str,
    predictions: PredictionStats,
    methods: Sequence[Method],
    seed: int,
) -> Projection:
    vectors = sentence_vectors(
        predictor, [prediction.inputs for prediction in predictions.sample], seed
    )
    shown = len(predictions.sample)
    which = (
        f"All {shown:,} test texts"
        if shown == predictions.n
        else _sample_note(shown, predictions.n)
    )
    caption = f"{which}, as {vectors.shape[1]}-dimensional vectors of {recipe}."
    if isinstance(predictor.engine, ClassicEngine):
        caption = (
            f"{which}, as {vectors.shape[1]}-dimensional tf-idf vectors "
            "after latent semantic analysis."
        )
    return build_projection(predictions.sample, vectors, methods, seed, caption)


def _sample_note(shown: int, n: int) -> str:
    return f"{shown:,} of {n:,} test texts, stratified by label and error"


def _truncate(text: str) -> Markup:
    return escape(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…")
