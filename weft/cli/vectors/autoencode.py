"""weft vectors autoencode"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weft.cli import options

if TYPE_CHECKING:
    from weft.train.state import Progress

KINDS: tuple[Literal["denoising", "sequence"], ...] = ("denoising", "sequence")


def autoencode(
    files: Annotated[
        list[str],
        typer.Argument(metavar="TEXT…", help="Texts: one per line, or the text column of a table."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the auto-encoder.")],
    kind: Annotated[
        str, typer.Option(help="denoising: a bag of words; sequence: an LSTM, word by word.")
    ] = "denoising",
    dim: Annotated[
        int, typer.Option(min=1, help="Dimensions of a text's vector; of a word's with sequence.")
    ] = 100,
    hidden: Annotated[
        int, typer.Option(min=1, help="Dimensions of a text's vector (sequence).")
    ] = 128,
    noise: Annotated[
        float | None, typer.Option(help="Fraction of words masked in training; 0.3, sequence: 0.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Words read of a text (sequence).")] = 100,
    vocab_size: Annotated[int, typer.Option(min=1, help="Maximum vocabulary.")] = 10_000,
    min_count: Annotated[int, typer.Option(min=1, help="Drop words seen less often.")] = 2,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the texts.")] = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per update.")] = 32,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    text: options.Text = "",
    on_bad_row: options.OnBadRow = "error",
    overwrite: options.Overwrite = False,
) -> None:
    """Train an auto-encoder: vectors of texts, learned by rebuilding the texts from them."""
    from dataclasses import replace

    from weft.errors import UserError
    from weft.text.read import Columns, read
    from weft.vectors.autoencode import ADAM, denoising, sequence

    chosen = options.choose(kind, KINDS, "auto-encoder", "--kind")
    if output.exists() and not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    if learning_rate <= 0:
        raise UserError(f"--learning-rate should be above 0, got {learning_rate:g}.")
    columns = Columns(text=options.column(text) if text else None, label="")
    policy = options.bad_row_policy(on_bad_row)
    examples = chain.from_iterable(read(f, columns=columns, on_bad_row=policy) for f in files)
    texts = [example.text for example in examples if example.text.strip()]
    if not texts:
        raise UserError(f"{', '.join(files)}: no text in it.")
    settings = replace(
        ADAM, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed
    )
    epoch = 0

    def watch(progress: Progress) -> None:
        nonlocal epoch
        if progress.ends_epoch:
            epoch += 1
            typer.echo(f"epoch {epoch}  loss {progress.loss:.4f}", err=True)

    if chosen == "denoising":
        made = denoising(
            texts, width=dim, noise=0.3 if noise is None else noise, vocab_size=vocab_size,
            min_count=min_count, settings=settings, device=device, watch=watch,
        )  # fmt: skip
    else:
        made = sequence(
            texts, width=dim, hidden=hidden, noise=noise or 0.0, max_tokens=max_tokens,
            vocab_size=vocab_size, min_count=min_count, settings=settings, device=device,
            watch=watch,
        )  # fmt: skip
    made.save(output)
    width = made.model.output_size
    typer.echo(f"{output}: {len(texts):,} texts, vectors of {width} dimensions", err=True)
