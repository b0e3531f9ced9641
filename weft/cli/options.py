"""Options shared by several verbs, and the configuration built from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from weft.errors import UserError
from weft.untrusted import parse_integer

if TYPE_CHECKING:
    from weft.config import Config
    from weft.predict import Predictor
    from weft.run.data import Data

T = TypeVar("T", bound=str)
Text = Annotated[str, typer.Option(help="Column of the text: a name or a position from 0.")]
TextPair = Annotated[
    str, typer.Option(help="Column of the second text of a pair: a name or a position from 0.")
]
Label = Annotated[
    str, typer.Option(help="Column of the label: a name or a position from 0; A,B,C for a vector.")
]
Weight = Annotated[
    str, typer.Option(help="Column of the weight of each training row: 2 counts as two copies.")
]
Task = Annotated[
    str,
    typer.Option(
        help="classify, regress, pair-classify, pair-score, span, tag, regress-words, parse, "
        "constituency, nodes, seq2seq, language or masked; default: the recipe's task."
    ),
]
Target = Annotated[
    str,
    typer.Option(help="Extension of the parallel target file beside each source file, such as de."),
]
Names = Annotated[
    str,
    typer.Option(
        help="Names of label ids: a file of names (or id<TAB>name) or 0=negative,1=positive."
    ),
]
Sets = Annotated[
    list[str], typer.Option("--set", help="Override a setting: --set encoder.hidden=100.")
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="ray[:HOST:PORT]",
        help="Run on a Ray cluster: this one, that of RAY_ADDRESS, or one started here.",
    ),
]
Needs = Annotated[
    str, typer.Option(help="With --on, what a job occupies: cpus=2,gpus=0.5,memory=8GB.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Int8 = Annotated[
    bool,
    typer.Option(
        "--int8",
        help="Quantise a pre-trained encoder to int8: faster on a CPU, slightly less exact.",
    ),
]
AbstainAt = Annotated[
    float | None,
    typer.Option(
        help="Answer only texts confident enough that this fraction of answers is right.",
    ),
]
Pretrained = Annotated[
    str,
    typer.Option(help="Pre-trained checkpoint: a Hugging Face folder, a Weft model, or minilm."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the contents of the output folder.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
OnBadRow = Annotated[str, typer.Option(help="On a bad row: error stops, skip drops and counts it.")]


def _begin_trust(context: typer.Context, packages: list[str]) -> list[str]:
    """Trust these packages while the verb runs."""
    from weft.registry import trusting

    context.with_resource(trusting(packages))
    return packages


Trust = Annotated[
    list[str],
    typer.Option(
        "--trust",
        metavar="PACKAGE",
        callback=_begin_trust,
        help="Allow parts from this package; it is imported and its code runs.",
    ),
]


def bad_row_policy(value: str) -> Literal["error", "skip"]:
    """Check --on-bad-row."""
    if value not in ("error", "skip"):
        raise UserError(f"--on-bad-row should be error or skip, got '{value}'.")
    return "skip" if value == "skip" else "error"


def data_for_model(
    predictor: "Predictor", file: str, **given: str | int | tuple[str, ...] | None
) -> "Data":
    """Return the data settings for a file, and print the columns if they are not the saved ones."""
    from weft.run.data import data_for_model

    data, note = data_for_model(predictor, file, **given)
    if note:
        typer.echo(note, err=True)
    return data


def choose(value: str, choices: Sequence[T], what: str, option: str = "") -> T:
    """Return the choice that a user named, or raise a UserError with the nearest one."""
    from weft.errors import unknown_name

    for choice in choices:
        if choice == value:
            return choice
    raise unknown_name(what, value, choices, option)


def label_names(value: str) -> tuple[str, ...] | None:
    """Parse --names for the configuration; None if not given."""
    from weft.text.label_names import parse_names

    return parse_names(value) or None


def split_names(value: str) -> list[str]:
    """Return comma-separated names as a list."""
    return [name.strip() for name in value.split(",") if name.strip()]


def column(value: str) -> str | int:
    """Return a column as a name or a number."""
    number = parse_integer(value)
    return value if number is None else number


def apply(config: "Config", flags: Mapping[str, tuple[str, object]], sets: list[str]) -> "Config":
    """Apply flags, by setting: (option, value), then the --set overrides."""
    from weft.config import overrides

    for key, (flag, value) in flags.items():
        if value not in ("", None):
            config = config.with_values({key: value}, flag)
    return config.with_values(overrides(sets), "--set") if sets else config


def weight_dtype(rounded: bool) -> str:
    """Return the weight dtype that `weft.load` takes for --int8."""
    return "int8" if rounded else "float32"
