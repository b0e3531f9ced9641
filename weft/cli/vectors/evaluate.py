"""weft vectors evaluate, align, plot"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.vectors.query import File, open_vectors
from weft.errors import UserError, near_miss
from weft.storage import write_text

if TYPE_CHECKING:
    from weft.metrics import MetricValue
    from weft.report.analysis.projection import Method
    from weft.vectors.align import Alignment, Precision
    from weft.vectors.evaluate import Analogies, Section, Similarity
    from weft.vectors.store import Vectors


def evaluate(
    file: File,
    lists: Annotated[
        list[str],
        typer.Argument(metavar="LIST…", help="Word pairs with scores, or analogies by section."),
    ],
    method: Annotated[
        str, typer.Option(help="Analogy method: add (3CosAdd) or multiply (3CosMul).")
    ] = "add",
    max_words: Annotated[
        int, typer.Option(min=0, help="Use only the first words of FILE; 0 for all.")
    ] = 0,
    case: Annotated[
        bool, typer.Option("--case-sensitive", help="Distinguish upper and lower case.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap intervals.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Evaluate word vectors on human similarity ratings and analogies."""
    from weft.vectors.benchmarks import read
    from weft.vectors.evaluate import Similarity
    from weft.vectors.evaluate import evaluate as evaluate_list
    from weft.vectors.neighbours import ANALOGY_METHODS

    chosen = options.choose(method, ANALOGY_METHODS, "analogy method")
    benchmarks = [read(name) for name in lists]  # all of them, before the work
    vectors = open_vectors(file)
    found = [
        evaluate_list(vectors, one, method=chosen, max_words=max_words, fold=not case, seed=seed)
        for one in benchmarks
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
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Vectors to rotate.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Vectors of the target space.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="File for the rotated vectors.")
    ] = "",
    dictionary: Annotated[
        str, typer.Option(help="Training pairs: a word and its translation per line.")
    ] = "",
    identical: Annotated[
        bool,
        typer.Option("--identical", help="Train on words with the same spelling on both sides."),
    ] = False,
    test: Annotated[str, typer.Option(help="Test pairs; precision at 1 and 5 is printed.")] = "",
    normalise: Annotated[
        bool, typer.Option(help="Normalise vectors, so that all pairs weigh the same.")
    ] = True,
    centre: Annotated[bool, typer.Option("--centre", help="Also centre both sides.")] = False,
    refine: Annotated[
        int, typer.Option(min=0, help="Refinement rounds on mutual nearest neighbours.")
    ] = 0,
    max_words: Annotated[
        int, typer.Option(min=1, help="Use only the first words of each side.")
    ] = 200_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: options.Overwrite = False,
) -> None:
    """Rotate word vectors into the space of others, so that translations are close."""
    from weft.vectors import align as alignment
    from weft.vectors.benchmarks import dictionary as read
    from weft.vectors.files import writable
    from weft.vectors.store import Vectors

    if bool(dictionary) == identical:
        raise UserError("Pass either --dictionary FILE or --identical.")
    if not output and not test:
        raise UserError("Nothing to do: pass -o FILE for the rotated vectors, or --test FILE.")
    if output:
        writable(output)
        if Path(output).exists() and not overwrite:
            raise UserError(f"{output} exists. Pass --overwrite to replace it.")
    pairs, tested = read(dictionary) if dictionary else (), read(test) if test else ()
    one, other = Vectors.load(source), Vectors.load(target)
    given = pairs or alignment.identical(one, other)
    if not given:
        raise UserError(f"{source} and {target} have no word in common. Pass --dictionary FILE.")
    _alignable(one, other, given, dictionary)
    found = alignment.align(
        one, other, given, normalise=normalise, centre=centre, refine=refine, max_words=max_words
    )
    measured = (
        alignment.precision(alignment.Space(one, other, found, max_words), tested)
        if tested
        else None
    )
    if output:
        _rotate(one, found).save(output)
    if as_json:
        _print_alignment(found, len(given), measured)
    else:
        _show_alignment(found, len(given), measured, output, one.width)


def plot(
    file: File,
    output: Annotated[str, typer.Option("-o", "--output", help="An .html page or .svg picture.")],
    words: Annotated[
        str, typer.Option(help="Words to draw with their neighbours, comma-separated, or @FILE.")
    ] = "",
    neighbours: Annotated[int, typer.Option(min=0, help="Neighbours drawn per word.")] = 10,
    top: Annotated[
        int, typer.Option(min=1, help="Without --words: draw the first words, this many.")
    ] = 300,
    method: Annotated[
        str, typer.Option(help="pca, t-sne or umap; default: all available on a page.")
    ] = "",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Draw a map of words, and a table of their neighbours."""
    page = output.lower().endswith((".html", ".htm"))
    if not page and not output.lower().endswith(".svg"):
        raise UserError(f"-o {output}: name a .html page or a .svg picture.")
    if not Path(output).parent.is_dir():
        folder = Path(output).parent
        raise UserError(f"{output}: the folder {folder} does not exist. Make it first.")
    kinds: tuple[Method, ...] = ("pca", "t-sne", "umap")
    chosen_method = options.choose(method, kinds, "projection") if method else None
    query_words = listed_words(words)
    if words and not query_words:
        raise UserError(f"--words '{words}': no word in it. Write them as 'king, queen'.")
    vectors = open_vectors(file)
    from weft.report.analysis.projection import MIN_TEXTS, default_methods
    from weft.report.pages import vectors as report

    chosen = report.select_words(vectors, query_words, top, neighbours)
    if page:
        methods = (
            (chosen_method,) if chosen_method else ("t-sne", *default_methods(len(chosen.words)))
        )
        unique = list(dict.fromkeys(methods))
        text = report.render_page(vectors, chosen, unique, file.name, seed)
    else:
        few = len(chosen.words) < MIN_TEXTS
        kind = chosen_method or ("pca" if few else "t-sne")
        text = report.draw_map(report.build_map(vectors, chosen, kind, seed))
    write_text(output, text)
    typer.echo(f"{output}: {len(chosen.words):,} words", err=True)


def listed_words(given: str) -> list[str]:
    """Words separated by commas, or those of @FILE, one per line."""
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
    out: dict[str, object] = {"pairs": found.pairs, "given": given}
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
