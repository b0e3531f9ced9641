"""weft lab cost and weft lab scaling"""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from weft.cli import options
from weft.cli.stopping import repeatable, same_command
from weft.errors import UserError

Number = TypeVar("Number", int, float)


def cost(
    *,
    encoders: Annotated[
        str,
        typer.Option(
            help="Comma-separated: rnn, gru, lstm, cnn, transformer, self-attention or an encoder "
            "of `weft list encoders`, with settings after colons: lstm:layers=2."
        ),
    ] = "rnn,gru,lstm,cnn,transformer,self-attention",
    lengths: Annotated[
        str, typer.Option(help="Comma-separated lengths of text, three or more.")
    ] = "64,128,256,512,1024",
    batch: Annotated[int, typer.Option(help="Texts at a time.")] = 1,
    output: options.Output = Path("lab-cost"),
    device: options.Device = "cpu",
    quiet: options.Quiet = False,
) -> None:
    """Measure time, memory and chained steps of encoders against the length of the text."""
    from weft.lab.cost import MEASURES, measure_costs, write_cost_page
    from weft.progress import following

    names, steps = options.split_names(encoders), _numbers(lengths, int, "--lengths")
    total, done = len(names) * len(set(steps)), 0

    with following("cost", (lambda step, part: None) if quiet else None) as follow:

        def report(encoder: str, length: int) -> None:
            nonlocal done
            done += 1
            follow(f"{encoder} at {length}", done / total)

        growths = measure_costs(names, steps, batch=batch, device=device, on_measured=report)
    page = write_cost_page(growths, output, same_command())
    if quiet:
        return
    for growth in growths:
        laws = ", ".join(
            f"{name} n^{growth.laws[name].exponent:.2f} "
            f"[{growth.laws[name].low:.2f}, {growth.laws[name].high:.2f}]"
            for name in MEASURES
        )
        typer.echo(f"{growth.encoder}: {laws}")
    typer.echo(f"page: {page}")


def scaling(
    *,
    recipe: Annotated[str, typer.Option(help="A recipe for language models.")] = "gpt",
    data: Annotated[str, typer.Option(help="Training text, a sentence or paragraph per line.")],
    sizes: Annotated[str, typer.Option(help="Comma-separated widths.")] = "16,32,64,128",
    fractions: Annotated[
        str, typer.Option(help="Comma-separated parts of the data, for the largest size.")
    ] = "1",
    predict: Annotated[
        int, typer.Option(help="A larger width: predicted first, then trained; 0 for none.")
    ] = 0,
    setting: Annotated[
        str, typer.Option(help="Setting that a size sets; default: width of the decoder.")
    ] = "",
    dev: Annotated[str, typer.Option(help="Dev text; default: the last tenth of the data.")] = "",
    output: options.Output = Path("lab-scaling"),
    sets: options.Sets = [],  # noqa: B006
    device: options.Device = "auto",
    quiet: options.Quiet = False,
) -> None:
    """Fit power laws of loss against parameters, data and compute for a recipe and your text."""
    from weft.config import overrides
    from weft.lab.scaling import Point, measure_scaling, write_scaling_page

    def report(point: Point) -> None:
        if not quiet:
            typer.echo(
                f"size {point.size}, {point.fraction:.3g} of the data: {point.parameters:,} "
                f"parameters, loss {point.loss:.4f}"
            )

    with repeatable("finished runs"):
        found = measure_scaling(
            recipe, data, output,
            sizes=_numbers(sizes, int, "--sizes"),
            fractions=_numbers(fractions, float, "--fractions"),
            setting=setting, larger=predict, dev=dev, changes=overrides(sets), device=device,
            on_trained=report,
        )  # fmt: skip
    page = write_scaling_page(found, output, same_command())
    if quiet:
        return
    for axis, law in found.laws.items():
        typer.echo(f"loss ∝ {axis}^{law.exponent:.3f} [{law.low:.3f}, {law.high:.3f}]")
    if found.prediction is not None:
        guess = found.prediction
        typer.echo(
            f"size {guess.point.size}: predicted {guess.predicted:.3f} [{guess.low:.3f}, "
            f"{guess.high:.3f}], trained {guess.point.loss:.3f}, error {guess.error:+.1%}"
        )
    typer.echo(f"page: {page}")


def _numbers(text: str, kind: type[Number], option: str) -> list[Number]:
    """Parse comma-separated numbers."""
    try:
        numbers = [kind(part) for part in options.split_names(text)]
    except ValueError:
        raise UserError(f"{option} should be numbers and commas, got '{text}'.") from None
    if not numbers:
        raise UserError(f"{option} is empty; give numbers separated by commas.")
    return numbers
