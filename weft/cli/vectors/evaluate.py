"""weft vectors evaluate, align, plot: how good word vectors are, one space for two, a map."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.errors import UserError, near_miss
from weft.storage import write_text

if TYPE_CHECKING:
    from weft.metrics import MetricValue
    from weft.vectors.align import Alignment, Precision
    from weft.vectors.evaluate import Analogies, Section, Similarity
    from weft.vectors.store import Vectors

File = Annotated[Path, typer.Argument(metavar="FILE", help="Word vectors in any known format.")]


def evaluate(
    file: File,
    lists: Annotated[
        list[str],
        typer.Argument(metavar="LIST…", help="Word pairs with scores, or analogies by section."),
    ],
    method: Annotated[
        str, typer.Option(help="Of analogies: add (3CosAdd) or multiply (3CosMul).")
    ] = "add",
    restrict: Annotated[
        int, typer.Option(min=0, help="Only the first words of FILE; 0 means all.")
    ] = 0,
    case: Annotated[
        bool, typer.Option("--case", help="Words differ by case; folded otherwise.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the resampling behind the intervals.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Compare word vectors with what people say: likeness of pairs, and analogies."""
    from weft.vectors.benchmarks import read
    from weft.vectors.evaluate import Similarity
    from weft.vectors.evaluate import evaluate as measured
    from weft.vectors.store import Vectors

    wanted = [read(name) for name in lists]  # a flaw in the last list is told before the work
    vectors = Vectors.load(file)
    found = [
        measured(vectors, one, method=method, restrict=restrict, fold=not case, seed=seed)  # type: ignore[arg-type]
        for one in wanted
    ]
    if as_json:
        for one in found:
            typer.echo(json.dumps(one.to_json(), ensure_ascii=False))
        return
    for name, one in zip(lists, found, strict=True):
        if not (one.found if isinstance(one, Similarity) else one.total.found):
            typer.echo(
                f"note: {name}: nothing in it has vectors in {file}. Is it of the same language "
                "and spelling?",
                err=True,
            )
    pairs = [one for one in found if isinstance(one, Similarity)]
    if pairs:
        _show_pairs(pairs)
    for one in found:
        if not isinstance(one, Similarity):
            _show_analogies(one)


def align(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Vectors that are turned.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Vectors that stay.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Where the turned vectors go.")
    ] = "",
    dictionary: Annotated[
        str, typer.Option(help="Pairs to learn from: a word and its translation a line.")
    ] = "",
    identical: Annotated[
        bool, typer.Option("--identical", help="Learn from words that both sides spell the same.")
    ] = False,
    test: Annotated[
        str, typer.Option(help="Pairs to test with; precision at 1 and 5 is printed.")
    ] = "",
    normalise: Annotated[bool, typer.Option(help="Let every pair weigh the same.")] = True,
    centre: Annotated[
        bool, typer.Option("--centre", help="Bring the means of both sides together too.")
    ] = False,
    refine: Annotated[
        int, typer.Option(min=0, help="Rounds of learning from the translations found.")
    ] = 0,
    most: Annotated[
        int, typer.Option(min=1, help="Words of each side that are compared, from the top.")
    ] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Turn word vectors into the space of others, so that translations lie near each other."""
    from weft.vectors import align as room
    from weft.vectors.benchmarks import dictionary as read
    from weft.vectors.files import writable
    from weft.vectors.store import Vectors

    if bool(dictionary) == identical:
        raise UserError("Give either --dictionary FILE or --identical to learn from.")
    if not output and not test:
        raise UserError("Nothing to do: give -o FILE for the turned vectors, or --test FILE.")
    if output:
        writable(output)
        if Path(output).exists() and not overwrite:
            raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    pairs, tested = read(dictionary) if dictionary else (), read(test) if test else ()
    one, other = Vectors.load(source), Vectors.load(target)
    given = pairs or room.identical(one, other)
    if not given:
        raise UserError(f"{source} and {target} have no word in common. Give --dictionary FILE.")
    _alignable(one, other, given, dictionary)
    found = room.align(
        one, other, given, normalise=normalise, centre=centre, refine=refine, most=most
    )
    measured = room.precision(room.Space(one, other, found, most), tested) if tested else None
    if output:
        _rotate(one, found).save(output)
    if as_json:
        _print_alignment(found, len(given), measured)
    else:
        _show_alignment(found, len(given), measured, output, one.width)


def plot(
    file: File,
    output: Annotated[str, typer.Option("-o", "--output", help="A page.html or a picture.svg.")],
    words: Annotated[
        str, typer.Option(help="Words to draw with their nearest, commas between; @FILE has them.")
    ] = "",
    near: Annotated[int, typer.Option(min=0, help="Nearest words drawn around each.")] = 10,
    top: Annotated[
        int, typer.Option(min=1, help="Without --words: how many of the first words.")
    ] = 300,
    method: Annotated[
        str, typer.Option(help="pca, t-sne or umap; a page has all that can be drawn.")
    ] = "",
    seed: Annotated[int, typer.Option(help="The same seed gives the same picture.")] = 0,
) -> None:
    """Draw a map of words, and the table of their nearest words."""
    from weft.vectors.store import Vectors

    page = output.lower().endswith((".html", ".htm"))
    if not page and not output.lower().endswith(".svg"):
        raise UserError(f"-o {output}: give a page, something.html, or a picture, something.svg.")
    if not Path(output).parent.is_dir():
        folder = Path(output).parent
        raise UserError(f"{output}: the folder {folder} does not exist. Make it first.")
    query_words = _words(words)
    if words and not query_words:
        raise UserError(f"--words '{words}': no word in it. Write them as 'king, queen'.")
    vectors = Vectors.load(file)
    from weft.report.analysis.projection import default_methods
    from weft.report.pages import vectors as report

    chosen = report.select_words(vectors, query_words, top, near)
    if page:
        methods = (method,) if method else ("t-sne", *default_methods(len(chosen.words)))
        unique: list = list(dict.fromkeys(methods))
        text = report.render_page(vectors, chosen, unique, file.name, seed)
    else:
        few = len(chosen.words) < report.MIN_TEXTS
        kind = method or ("pca" if few else "t-sne")
        text = report.draw_map(report.build_map(vectors, chosen, kind, seed))  # type: ignore[arg-type]
    write_text(output, text)
    typer.echo(f"{output}: {len(chosen.words):,} words", err=True)


def _words(given: str) -> list[str]:
    if not given.startswith("@"):
        return [word.strip() for word in given.split(",") if word.strip()]
    from weft.vectors.benchmarks import words

    return words(given[1:])


def _alignable(
    one: Vectors, other: Vectors, pairs: Sequence[tuple[str, str]], dictionary: str
) -> None:
    """Say what is wrong with the files by their names, which the work itself does not know."""
    if one.width != other.width:
        raise UserError(
            f"The vectors of {one.place} have {one.width} numbers, those of {other.place} "
            f"{other.width}. Train both with the same `weft vectors train --dim`."
        )
    if not any(a in one.index and b in other.index for a, b in pairs):
        a, b = pairs[0]
        side, word = (one, a) if a not in one.index else (other, b)
        raise UserError(
            f"{dictionary}: none of its {len(pairs):,} pairs has vectors on both sides: not "
            f"'{word}' in {side.place}.{near_miss(word, side.words[:10_000])} A word of "
            f"{one.place} stands first in a line."
        )
    _ = one.lengths, other.lengths  # finds numbers that are not finite


def _rotate(vectors: Vectors, alignment: Alignment) -> Vectors:
    """The same words elsewhere; n-grams turn with them, but cannot follow a shift."""
    from dataclasses import replace

    from weft.vectors.store import Vectors as Store

    pieces = vectors.subwords
    if pieces is not None and alignment.shift is None:
        pieces = replace(pieces, table=alignment.apply(pieces.table))
    elif pieces is not None:
        typer.echo("note: sub-words are left out, they cannot be centred.", err=True)
        pieces = None
    matrix = alignment.apply(vectors.matrix)
    return Store(vectors.words, matrix, counts=vectors.counts, subwords=pieces)


def _format_metric(figure: MetricValue, scale: float = 1, digits: int = 3, least: int = 1) -> str:
    if figure.n < least:
        return "–"
    value, low, high = (f"{scale * v:.{digits}f}" for v in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"


def _show_pairs(found: list[Similarity]) -> None:
    rows: list[tuple[str, ...]] = [("list", "Spearman", "Pearson", "pairs", "covered", "composed")]
    for one in found:
        counts = (f"{one.found:,}/{one.pairs:,}", f"{100 * one.coverage:.1f} %")
        # One pair has no order.
        figures = (_format_metric(figure, least=2) for figure in (one.spearman, one.pearson))
        rows.append((one.name, *figures, *counts, f"{one.composed:,}"))
    if not any(one.composed for one in found):
        rows = [row[:-1] for row in rows]
    _print_table(rows)


def _show_analogies(found: Analogies) -> None:
    from weft.vectors.evaluate import METHODS

    def row(name: str, one: Section) -> tuple[str, ...]:
        counts = (f"{one.found:,}/{one.questions:,}", f"{100 * one.coverage:.1f} %")
        return name, _format_metric(one.accuracy, 100, 1), *counts

    rows: list[tuple[str, ...]] = [
        (found.name, f"{METHODS[found.method]} %", "questions", "covered")
    ]
    rows += [row(f"  {one.name or '(no section)'}", one) for one in found.sections]
    rows += [row(one.name, one) for one in (*found.kinds, found.total)]
    _print_table(rows)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be; the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True)]
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))


def _print_alignment(found: Alignment, given: int, measured: Precision | None) -> None:
    out: dict = {"pairs": found.pairs, "given": given}
    out["rounds"] = [{"pairs": one.pairs, "nearness": one.nearness} for one in found.rounds]
    typer.echo(json.dumps({**out, **(measured.to_json() if measured else {})}))


def _show_alignment(
    found: Alignment, given: int, measured: Precision | None, output: str, width: int
) -> None:
    if found.rounds:
        for number, one in enumerate(found.rounds):
            typer.echo(f"round {number}: {one.pairs:,} pairs, nearness {one.nearness:.4f}")
    else:
        typer.echo(f"learnt from {found.pairs:,} of {given:,} pairs")
    if found.pairs < width:
        typer.echo(f"note: fewer pairs than numbers in a vector ({width}); give more.", err=True)
    if measured is not None:
        for k, figure in measured.at.items():
            typer.echo(f"precision@{k}: {_format_metric(figure, 100, 1)}{' %' if figure.n else ''}")
        coverage = f"{measured.found:,} of {measured.words:,} words"
        typer.echo(f"tested with {coverage} ({100 * measured.coverage:.1f} %)")
    if output:
        typer.echo(f"vectors: {output}")
