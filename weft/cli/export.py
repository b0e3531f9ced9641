"""weft export"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.errors import UserError, unknown_name

if TYPE_CHECKING:
    from weft.export.parity import Parity

TO = ("onnx", "page", "huggingface")


def export(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    *,
    output: options.Output,
    to: Annotated[
        str,
        typer.Option(
            help="onnx: a folder that runs without torch; page: one HTML file that answers offline "
            "in a browser; huggingface: a folder that transformers can load."
        ),
    ],
    int8: Annotated[
        bool,
        typer.Option("--int8", help="onnx, page: store weights in 8 bits, a quarter of the size."),
    ] = False,
    check: Annotated[
        str, typer.Option(metavar="FILE", help="onnx: also compare the answers to these texts.")
    ] = "",
    text: options.Text = "",
    text_pair: options.TextPair = "",
    overwrite: options.Overwrite = False,
    golden: Annotated[
        bool, typer.Option(help="Put the recorded texts of the model into a page, to verify it.")
    ] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Export a model for other libraries, as a web page, or to run without torch."""
    if to not in TO:
        raise unknown_name("layout", to, TO, "--to")
    if to == "onnx":
        parity = _export_onnx(model, output, int8, check, (text, text_pair), overwrite)
        typer.echo(_describe(parity), err=True)
        typer.echo(f"saved in {output}; load it like a model", err=True)
        return
    if to == "page":
        if check:
            raise UserError("--check is for --to onnx. Remove it.")
        _export_page(model, output, int8, overwrite, golden)
        return
    if int8 or check:
        raise UserError(f"{'--int8' if int8 else '--check'} is for --to onnx. Remove it.")
    from weft.run.convert import export as exported

    made = exported(model, output, overwrite=overwrite)
    typer.echo(f"{made.name} saved in {output}", err=True)
    if made.note:
        typer.echo(made.note, err=True)


def _export_page(model: Path, output: Path, int8: bool, overwrite: bool, golden: bool) -> None:
    from weft.export.page.export import export_page

    made = export_page(model, output, int8=int8, overwrite=overwrite, golden=golden)
    size, own = made.size / 1000, made.model_size / 1000
    typer.echo(
        f"{made.path}: {size:,.0f} kB, of a model of {own:,.0f} kB; open it in a browser", err=True
    )


def _export_onnx(
    model: Path, output: Path, int8: bool, check: str, columns: tuple[str, str], overwrite: bool
) -> "Parity":
    from weft.cli.predict import read_inputs
    from weft.export.write import export_predictor
    from weft.predict.predictor import load, model_folder
    from weft.text.example import SkipCounter

    folder = model_folder(model)
    predictor = load(folder, device="cpu")
    texts = (
        [one for one, _ in read_inputs(predictor, check, columns, "error", SkipCounter(), False)]
        if check
        else []
    )
    return export_predictor(folder, predictor, output, int8=int8, check=texts, overwrite=overwrite)


def _describe(parity: "Parity") -> str:
    """Say how far the export agrees with its model."""
    if not parity.texts:
        return "note: no texts to compare the two on; give some with --check FILE"
    return (
        f"{parity.texts - parity.disagreements - parity.ties} of {parity.texts} answers equal"
        f"{f' ({parity.ties} ties)' if parity.ties else ''}, scores differ by "
        f"at most {parity.max_difference:.1g}; {parity.export_per_second:,.0f} texts/s, the model "
        f"{parity.model_per_second:,.0f}"
    )
