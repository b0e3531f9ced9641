"""Terminal output of `weft explain --contexts` and of filled masks."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from weft.cli import options

if TYPE_CHECKING:
    from rich.console import Console

    from weft.explain import Explanation
    from weft.explain.contexts import Contexts
    from weft.predict import Predictor
    from weft.report.analysis.projection import Method
    from weft.run.data import Data

PROJECTIONS: tuple["Method", ...] = ("pca", "t-sne", "umap")
LISTED = 40  # occurrences in the terminal
BESIDE, LEAST = 40, 12  # columns beside a context, and those on each side of its word
BAR = 30  # columns of the longest bar


def compare(
    predictor: "Predictor",
    data: "Data",
    path: str,
    word: str,
    layer: int | None,
    limit: int,
    output: str,
    as_json: bool,
    projection: str = "",
) -> None:
    """Compare the vectors of one word in the texts of a file."""
    from weft.explain.contexts import find_contexts
    from weft.run.data import example_source
    from weft.terminal import Terminal
    from weft.text.example import SkipCounter

    tally = SkipCounter()
    texts = example_source(
        data, path, tally, mode="texts"
    )()  # blank lines stand between paragraphs
    found = find_contexts(predictor, texts, word, layer, limit)
    for line in tally.lines():
        typer.echo(f"note: {line}", err=True)
    if found.truncated:
        message = f"{found.truncated} occurrences lie beyond the model's maximum length"
        typer.echo(f"note: {message}", err=True)
    if found.cut:
        message = f"only the first {limit} texts with the word are used; see --limit"
        typer.echo(f"note: {message}", err=True)
    if output:
        from weft.report.pages.contexts import write

        command = ["weft", *sys.argv[1:]]
        method = options.choose(projection, PROJECTIONS, "projection") if projection else None
        write(Path(output), found, path, command=command, method=method)
    if as_json:
        _print_json(found)
    else:
        _show(Terminal(soft_wrap=not sys.stdout.isatty()), found)
    if output:
        typer.echo(f"page: {output}", err=as_json)


def _print_json(found: "Contexts") -> None:
    """Print one JSON object per occurrence."""
    for i, (one, near) in enumerate(zip(found.found, found.nearest, strict=True), 1):
        row = {
            "number": i,
            "text": one.text,
            "start": one.start,
            "end": one.end,
            "label": one.label or None,
            "where": one.where,
            "nearest": [[j + 1, round(cosine, 4)] for j, cosine in near],
        }
        typer.echo(json.dumps(row, ensure_ascii=False))


def _show(console: "Console", found: "Contexts") -> None:
    """Print each occurrence in context, with the numbers of its nearest ones."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", justify="right")
    table.add_column("context", no_wrap=True)
    if found.labels:
        table.add_column("label")
    table.add_column("nearest", no_wrap=True)
    taken = len(found.word) + max(map(len, found.labels), default=0) + BESIDE
    room = max(LEAST, (console.width - taken) // 2)
    for i, (one, near) in enumerate(zip(found.found, found.nearest, strict=True), 1):
        if i > LISTED:
            break
        before, word, after = one.excerpt(room)
        context = Text(before).append(word, "bold").append(after)
        others = Text("  ").join(
            Text(str(j + 1)).append(f" {cosine:.2f}", "dim") for j, cosine in near
        )
        table.add_row(str(i), context, *([Text(one.label)] if found.labels else []), others)
    console.print(table)
    if len(found.found) > LISTED:
        console.print(
            f"… and {len(found.found) - LISTED} more (-o PAGE.html shows all)", style="dim"
        )
    if found.labels:
        same, of = found.label_agreement
        console.print(f"\nThe nearest has the same label for {same} of {of}.")


def show_blanks(console: "Console", one: "Explanation") -> None:
    """Print the most probable words of each blank, with bars."""
    from rich.text import Text

    console.print(Text(one.text))
    for k, words in enumerate(one.answer.blanks, 1):
        wide = max(len(word) for word, _ in words)
        for n, (word, chance) in enumerate(words):
            front = f"{k:3}  " if n == 0 and len(one.answer.blanks) > 1 else "     "
            line = Text(front, "dim").append(
                f"{word:<{wide}}", "bold not dim" if not n else "not dim"
            )
            line.append(f"  {chance:.3f} ", "dim").append("█" * round(BAR * chance), "not dim")
            console.print(line)


def show_silent(console: "Console") -> None:
    """Print what is explained of a model without answers, and what else it can show."""
    console.print(
        "This model gives vectors, not answers: the words that its vector of the text rests on. "
        "-o PAGE.html draws where its heads look; FILE --contexts WORD compares a word in many "
        "texts."
    )
