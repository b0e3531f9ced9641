"""weft drift"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.predict import answer_inputs, read_inputs
from weft.errors import UserError
from weft.progress import counting

if TYPE_CHECKING:
    from weft.doctor.drift import Drift, Fingerprint, TextTraits

EXCERPT_CHARACTERS = 80
Strange = list[tuple[float, int, str, str]]  # surprise, number, where, text


def drift(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    file: Annotated[str, typer.Argument(help="Texts in any supported format; - is stdin.")],
    alpha: Annotated[
        float, typer.Option(help="Call it drift below this p-value (all tests together).")
    ] = 0.01,
    examples: Annotated[int, typer.Option(help="Texts to show, the most surprising first.")] = 5,
    text: options.Text = "",
    text_pair: options.TextPair = "",
    as_json: options.Json = False,
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Test if texts are like those a model was trained on."""
    from weft.doctor.drift import MIN_TEXTS, compare, load_fingerprint
    from weft.loading import load
    from weft.predict.predictor import model_folder
    from weft.text.example import SkipCounter

    if not 0 < alpha < 1:
        raise UserError(f"--alpha should be between 0 and 1, got {alpha:g}.")
    fingerprint = load_fingerprint(model_folder(model))
    if fingerprint is None:
        raise UserError(
            f"{model}: this model has no fingerprint of its training texts. Train it again "
            "with this version of Weft and a dev part; models that read vectors have none."
        )
    predictor = load(model, device=device)
    tally = SkipCounter()
    rows = read_inputs(predictor, file, (text, text_pair), on_bad_row, tally, conllu=False)
    labels = predictor.class_labels
    measured: list[TextTraits] = []
    shown: Strange = []
    with counting("texts") as count:
        for (example, _), answer in answer_inputs(predictor, rows):
            one = fingerprint.measure(
                example.full_text, answer.coverage, answer.value, answer.score, labels
            )
            measured.append(one)
            shown.append((one.values["surprise"], len(shown), example.where, example.full_text))
            count(1)
    if len(measured) < MIN_TEXTS:
        raise UserError(f"{file}: {len(measured)} texts; a test needs {MIN_TEXTS} or more.")
    found = compare(fingerprint, measured)
    strange = sorted(shown, key=lambda one: (-one[0], one[1]))[: max(0, examples)]
    for line in tally.lines():
        typer.echo(f"note: {line}", err=True)
    if as_json:
        _print_json(found, fingerprint, strange, alpha)
    else:
        _print(found, fingerprint, strange, alpha)


def _print_json(found: "Drift", fingerprint: "Fingerprint", strange: Strange, alpha: float) -> None:
    rows = [
        {"where": where, "surprise": bits, "text": text, "unfamiliar": fingerprint.unfamiliar(text)}
        for bits, _, where, text in strange
    ]
    about = {
        "drift": found.p < alpha,
        "p": found.p,
        "distance": found.distance,
        "texts": found.texts,
        "traits": {one.name: one.to_json() for one in found.traits},
        "examples": rows,
    }
    typer.echo(json.dumps(about, ensure_ascii=False))


def _print(found: "Drift", fingerprint: "Fingerprint", strange: Strange, alpha: float) -> None:
    verdict = "drift" if found.p < alpha else "no drift"
    typer.echo(f"{verdict}: p = {found.p:.3g}, {found.texts} texts")
    typer.echo(f"{'':12}{'training':>10}{'now':>10}{'distance':>10}{'p':>10}")
    for one in sorted(found.traits, key=lambda one: one.p):
        name = f"{one.name} {one.label}".strip()
        typer.echo(f"{name:12}{one.usual:10.3f}{one.now:10.3f}{one.distance:10.3f}{one.p:10.2g}")
    if strange:
        typer.echo("most surprising:")
    for bits, _, where, text in strange:
        short = " ".join(text.split())
        short = short if len(short) <= EXCERPT_CHARACTERS else f"{short[:EXCERPT_CHARACTERS]}…"
        new = ", ".join(fingerprint.unfamiliar(text))
        typer.echo(f"  {where}: {bits:.1f} bits  {short}{f'  (new: {new})' if new else ''}")
