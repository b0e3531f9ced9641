"""weft check"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.errors import UserError
from weft.progress import counting
from weft.storage import write_text

if TYPE_CHECKING:
    from rich.console import Console

    from weft.doctor import Diagnosis, Finding
    from weft.doctor.fix import FixResult

SHOWN = 3  # places of a finding on the terminal; --json and --html show more
MAX_LABELS_SHOWN = 8
COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Two files: train, test; three: train, dev, test; SOURCE,TARGET: parallel files."
        ),
    ],
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    target: options.Target = "",
    names: options.Names = "",
    task: Annotated[
        str,
        typer.Option(help="classify, tag, seq2seq, pair-classify, …; default: detected."),
    ] = "",
    format: Annotated[str, typer.Option(help="csv, tsv, jsonl, …; default: detected.")] = "",
    max_words: Annotated[int, typer.Option(help="Words per text that the model will read.")] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[str, typer.Option(help="Write the findings to this HTML page.")] = "",
    fix: Annotated[
        str, typer.Option(help="Write cleaned copies and changes.jsonl to this folder.")
    ] = "",
    near: Annotated[
        bool, typer.Option("--near/--no-near", help="Look for near-duplicates.")
    ] = True,
) -> None:
    """Find faults in labelled texts, text pairs, tagged words, spans, trees, roles, coreference.

    It finds leaks, duplicates, misspelled labels and broken rows; targets that are missing, copied
    or far too long; heads that form no tree, tags that violate their scheme, offsets outside the
    text, and unclosed brackets.
    """
    from weft.doctor.check import examine_files, open_for_check
    from weft.doctor.finding import MAX_SHOWN_PLACES as PLACES
    from weft.doctor.formats.files import MATRICES, PARALLEL
    from weft.text.formats.recognise import SEMANTIC_FORMATS

    first, second, third = (options.column(column) for column in (text, text_pair, label))
    known = options.label_names(names) or ()
    found = open_for_check(files, first, second, third, target, task, format, max_words, known)
    for line in found.lines:
        typer.echo(line, err=True)
    parallel = PARALLEL in found.formats.values()
    if parallel and fix:
        raise UserError("--fix cannot write parallel files. Remove --fix or --target.")
    if fix and MATRICES in found.formats.values():
        raise UserError("--fix cannot write matrices. Remove --fix.")
    if fix and (unwritable := set(SEMANTIC_FORMATS) & set(found.formats.values())):
        raise UserError(f"--fix cannot write {', '.join(sorted(unwritable))}. Remove --fix.")
    with counting("texts") as count:
        seen = examine_files(found, task, max_words, near, None if as_json else PLACES, count)
    diagnosis = seen.diagnosis
    fixed = None
    if fix:
        from weft.doctor.fix import fix as write_copies

        fixed = write_copies(found, seen.survey, seen.copies, fix)
    if html:
        from weft.report.pages.check import render_page

        write_text(html, render_page(diagnosis.first(PLACES), max_words), errors="replace")
    if as_json:
        typer.echo(json.dumps(diagnosis.to_json(), ensure_ascii=False))
        for line in fixed.lost if fixed else ():
            typer.echo(line, err=True)
    else:
        _show(diagnosis, max_words, html, fixed)
    if diagnosis.worst == "error":
        raise typer.Exit(1)


def _show(diagnosis: "Diagnosis", max_words: int, html: str, fixed: "FixResult | None") -> None:
    from weft.terminal import Terminal

    console = Terminal(soft_wrap=True)
    for finding in diagnosis.findings:
        _show_finding(console, finding)
    if not diagnosis.findings:
        console.print("No problems found.", style="green")
    _show_tables(console, diagnosis, max_words)
    if html:
        console.print(f"page: {html}", markup=False)
    if fixed is not None:
        done = ", ".join(f"{what} {n:,}" for what, n in fixed.counts.most_common()) or "nothing"
        written = ", ".join(str(path) for path in fixed.files.values())
        console.print(f"wrote {written} ({done}); every change is in {fixed.changes}", markup=False)
        for line in fixed.lost:
            console.print(line, markup=False)


def _show_finding(console: "Console", finding: "Finding") -> None:
    from rich.text import Text

    colour = COLOURS[finding.level]
    console.print(Text.assemble((f"{finding.level:<8}", f"bold {colour}"), finding.title))
    for place in finding.places[:SHOWN]:
        line = Text("        ")
        line.append(place.where, "dim")
        if place.text:
            line.append(f"  {place.text}")
        if place.detail:
            line.append(f"  ← {place.detail}", "dim")
        console.print(line)
    if finding.count > SHOWN < len(finding.places):
        console.print(Text(f"        … {finding.count - SHOWN:,} more", "dim"))
    console.print(Text(f"        {finding.fix}", "italic"))


def _show_tables(console: "Console", diagnosis: "Diagnosis", max_words: int) -> None:
    from rich.table import Table

    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    named = {"labels": diagnosis.labels} if diagnosis.labels else {}
    named |= diagnosis.layers
    nothing = () if diagnosis.words else ("labels",)  # texts that are written have none
    columns = ("rows", *(named or nothing), "median words", "99 %", "longest")
    table.add_column("split")
    for name in (*columns, f"over {max_words:,}"):
        table.add_column(name, justify="right")
    for split, rows in diagnosis.rows.items():
        length = diagnosis.lengths.get(split, {})
        names = [sum(split in n for n in counts.values()) for counts in named.values()]
        names = names or [0 for _ in nothing]
        figures = (f"{length.get(key, 0):,.0f}" for key in ("median", "p99", "max"))
        over = f"{100 * length.get('beyond', 0):.1f} %"
        table.add_row(split, f"{rows:,}", *(f"{n:,}" for n in names), *figures, over)
    console.print(table)
    _show_words(console, diagnosis, max_words)
    for kind, counted in named.items():
        shown = list(counted.items())[:MAX_LABELS_SHOWN]
        summary = ", ".join(f"{label} {sum(counts.values()):,}" for label, counts in shown)
        more = len(counted) - len(shown)
        rest = f" and {more:,} more" if more > 0 else ""
        console.print(f"{kind}: {summary}{rest}", markup=False)
    if len(diagnosis.scripts) > 1:
        summary = ", ".join(f"{name} {count:,}" for name, count in diagnosis.scripts.items())
        console.print(f"scripts: {summary}", markup=False)


def _show_words(console: "Console", diagnosis: "Diagnosis", max_words: int) -> None:
    """Print target lengths and the vocabulary of each side."""
    from rich.table import Table

    if diagnosis.targets:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("targets")
        for name in ("median words", "99 %", "longest", f"over {max_words:,}"):
            table.add_column(name, justify="right")
        for split, length in diagnosis.targets.lengths.items():
            figures = (f"{length.get(key, 0):,.0f}" for key in ("median", "p99", "max"))
            table.add_row(split, *figures, f"{100 * length.get('beyond', 0):.1f} %")
        console.print(table)
    for side, splits in diagnosis.words.items():
        statistics = [
            f"{split} {total:,}, {distinct:,} different"
            + (f", {100 * new:.1f} % new" if number else "")
            for number, (split, (total, distinct, new)) in enumerate(splits.items())
        ]
        console.print(f"words of the {side}: {'; '.join(statistics)}", markup=False)
