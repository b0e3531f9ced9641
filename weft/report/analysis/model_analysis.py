"""A close look at one trained model: what it confuses, how sure it is, and why."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from weft import predict
from weft.compare.sentence_scores import PICTURES, UNITS
from weft.compare.trial import Trial
from weft.errors import UserError
from weft.predict import Predictor
from weft.predict.predictor import Input
from weft.report.analysis.predictions import Answers, Said, read
from weft.report.analysis.projection import Method, Projection, projection, sentence_vectors, usual
from weft.report.drawings.draw import drawn

ERRORS = 12  # shown with an explanation
FEW = 6  # where each is a picture
# Of a thousand texts on a busy machine, with the compiling that UMAP does in every process.
SECONDS = {"t-sne": 15.0, "umap": 45.0}
LONG = 600  # characters of a text that is shown without one


@dataclass(frozen=True)
class Mistake:
    """A wrong answer, and its text with the words that led to it, or drawn beside what is right."""

    said: Said
    strip: Markup


@dataclass(frozen=True)
class Look:
    """Everything the page shows about one trained model's answers."""

    recipe: str
    name: str  # of the trial: recipe, seed, fold
    answers: Answers
    errors: tuple[Mistake, ...]
    method: str  # how the errors are explained; "" where they are not
    projection: Projection | None
    notes: tuple[str, ...] = ()


def look(
    trial: Trial,
    device: str = "auto",
    limit: int = 1000,
    *,
    projections: Sequence[Method] | None = None,
    seed: int = 0,
    seconds: float = float("inf"),
) -> Look:
    """Read a finished trial's answers, and ask its model about its errors and `limit` test texts.

    What a model cannot give is left out and noted; only a damaged folder is an error. Pictures of
    the texts that would not be done in `seconds` are left out, too.
    """
    began = time.monotonic()
    answers = read(trial.folder / "predictions.jsonl", sample=limit, errors=ERRORS, seed=seed)
    if answers.kind in UNITS:
        names = [one.label for one in answers.classes]
        shown = answers.errors[: FEW if answers.kind in PICTURES else None]
        seen = tuple(Mistake(s, _drawing(s, names)) for s in shown)
        return Look(trial.recipe, trial.name, answers, seen, "", None)
    predictor = predict.load(trial.folder / "model", device=device, replay=False)
    notes = []
    errors, method = [Mistake(said, _cut(said.text)) for said in answers.errors], ""
    try:
        strips, method = _strips(predictor, [said.asked for said in answers.errors])
        errors = [Mistake(s, strip) for s, strip in zip(answers.errors, strips, strict=True)]
    except UserError as error:
        notes.append(f"The errors are not explained: {error}")
    picture = None
    try:
        methods = usual(len(answers.sample)) if projections is None else projections
        methods = _affordable(methods, seconds - (time.monotonic() - began))
        picture = _projection(predictor, trial.recipe, answers, methods, seed)
    except UserError as error:
        notes.append(f"There is no picture of the texts: {error}")
    return Look(
        trial.recipe, trial.name, answers, tuple(errors), method, picture, tuple(notes)
    )  # fmt: skip


def _affordable(methods: Sequence[Method], seconds: float) -> list[Method]:
    """The methods that are done in time, even on a busy machine; PCA takes none."""
    out: list[Method] = []
    for method in methods:
        seconds -= SECONDS.get(method, 0.0)
        if method not in SECONDS or seconds > 0:
            out.append(method)
    return out


def _drawing(said: Said, names: Sequence[str]) -> Markup:
    """An answer beside the right one; under its question where it stands in a passage."""
    picture = drawn(said.value, said.label, names)
    return picture if said.two is None else Markup("<p><b>{}</b></p>{}").format(said.text, picture)


def _strips(predictor: Predictor, texts: Sequence[Input]) -> tuple[list[Markup], str]:
    """Each text with its words on coloured ground, and the method that weighed them."""
    if not texts:
        return [], ""
    from weft.explain import explain
    from weft.report.drawings.highlight import strip

    found = explain(predictor, list(texts))
    return [strip(one) for one in found], found[0].method


def _projection(
    predictor: Predictor, recipe: str, answers: Answers, methods: Sequence[Method], seed: int
) -> Projection:
    vectors = sentence_vectors(predictor, [said.asked for said in answers.sample], seed)
    shown = len(answers.sample)
    which = f"All {shown:,} test texts" if shown == answers.n else _share(shown, answers.n)
    what = f"{which}, as vectors of {vectors.shape[1]} numbers that {recipe} makes of them."
    if hasattr(predictor.engine, "part"):
        what = (
            f"{which}, as the {vectors.shape[1]} leading directions of their tf-idf rows "
            "(latent semantic analysis)."
        )
    return projection(answers.sample, vectors, methods, seed, what)


def _share(shown: int, n: int) -> str:
    return f"{shown:,} of {n:,} test texts, every label and its errors in proportion"


def _cut(text: str) -> Markup:
    return escape(text if len(text) <= LONG else f"{text[:LONG]}…")
