"""weft annotate"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.errors import UserError
from weft.progress import counting

if TYPE_CHECKING:
    from weft.annotate import AnnotatedDocument, Pipeline
    from weft.text.example import SkipCounter

FORMATS = ("jsonl", "conllu", "brat", "html")


def annotate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Text files, tables or folders of them; - is stdin. A text file is one document.",
        ),
    ] = None,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            help="Model or run folders, comma-separated: a sentence splitter, taggers, a parser, "
            "a role labeller, coreference.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="OUT.jsonl, OUT.conllu, OUT.html, or OUT.brat, a folder."
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(help="jsonl, conllu, brat or html; default: by the name of the output."),
    ] = "",
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of a text file is a document.")
    ] = False,
    text: options.Text = "",
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    rounded: options.Int8 = False,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Annotate plain text: sentences, words, tags, dependencies, roles, entities, coreference."""
    from weft.annotate.sources import read_sources
    from weft.text.example import SkipCounter

    chosen = _choose_format(format, output)
    named = [one.strip() for one in models.split(",") if one.strip()]
    if not named:
        raise UserError(
            "Name the models: --models runs/sentences,runs/tagger,runs/parser. Each is a model or "
            "run folder."
        )
    tally = SkipCounter()
    inputs = files or ["-"]
    sources = read_sources(
        inputs,
        by_line=lines,
        text=options.column(text) if text else None,
        on_bad_row=options.bad_row_policy(on_bad_row),
        skipped=tally,
    )
    pipeline = _load(named, device, options.weight_dtype(rounded))
    documents = _count(pipeline.stream(sources))
    if chosen == "html":
        assert output is not None
        _write_page(output, documents, inputs[0] if len(inputs) == 1 else f"{len(inputs)} files")
    elif chosen == "brat":
        assert output is not None
        _write_folder(output, documents)
    else:
        _write_lines(output, documents, chosen)
    _report(pipeline, tally)


def _choose_format(format: str, output: Path | None) -> str:
    if format:
        chosen = options.choose(format, FORMATS, "format", "--format")
    elif output is None:
        chosen = "jsonl"
    elif output.suffix.lower()[1:] in FORMATS:
        chosen = output.suffix.lower()[1:]
    else:
        raise UserError(
            f"{output}: an output ends in .jsonl, .conllu, .html or .brat. Rename it, or pass "
            "--format."
        )
    if output is None and chosen in ("html", "brat"):
        what = "a page" if chosen == "html" else "a folder"
        raise UserError(
            f"--format {chosen} writes {what}. Name it with -o, such as -o text.{chosen}."
        )
    if output is not None and output.is_dir() and chosen != "brat":
        raise UserError(f"{output} is a folder. Name a file, such as {output / f'text.{chosen}'}.")
    if output is not None and output.exists() and not output.is_dir() and chosen == "brat":
        raise UserError(f"{output} is a file, and BRAT needs a folder. Name another one.")
    return chosen


def _load(named: list[str], device: str, weights: str) -> "Pipeline":
    from weft.annotate import Pipeline
    from weft.loading import load

    if twice := next((one for one in named if named.count(one) > 1), None):
        raise UserError(f"--models names {twice} twice. Leave one out.")
    return Pipeline({one: load(one, device=device, weights=weights) for one in named})


def _count(documents: "Iterator[AnnotatedDocument]") -> "Iterator[AnnotatedDocument]":
    """Pass documents on, with the progress in sentences."""
    with counting("sentences") as count:
        for document in documents:
            yield document
            count(len(document.sentences))


def _format(document: "AnnotatedDocument", chosen: str) -> str:
    if chosen == "conllu":
        from weft.annotate.conllu import format_document

        return format_document(document)
    return json.dumps(document.to_json(), ensure_ascii=False) + "\n"


def _write_lines(
    output: Path | None, documents: "Iterator[AnnotatedDocument]", chosen: str
) -> None:
    from weft.storage import atomic_write

    if output is None:
        for document in documents:
            typer.echo(_format(document, chosen), nl=False)
        return
    with (
        atomic_write(output) as part,
        open(part, "w", encoding="utf-8", errors="replace", newline="\n") as file,
    ):
        for document in documents:
            file.write(_format(document, chosen))


def _write_folder(output: Path, documents: "Iterator[AnnotatedDocument]") -> None:
    """Write a .txt and an .ann file for each document; names that occur again get a number."""
    from weft.annotate.brat import format_annotations, safe_name
    from weft.storage import atomic_write_folder

    taken: set[str] = set()
    with atomic_write_folder(output) as folder:
        for document in documents:
            name = stem = safe_name(document.name)
            number = 1
            while name in taken:
                number += 1
                name = f"{stem}-{number}"
            taken.add(name)
            for ending, content in (
                (".txt", document.text),
                (".ann", format_annotations(document)),
            ):
                path = folder / f"{name}{ending}"
                with open(path, "w", encoding="utf-8", errors="replace", newline="") as file:
                    file.write(content)


def _write_page(output: Path, documents: "Iterator[AnnotatedDocument]", name: str) -> None:
    from weft.report.pages import annotate as page

    shown: list[AnnotatedDocument] = []
    left = page.MAX_PAGE_SENTENCES
    left_out = 0
    for document in documents:
        kept = document.sentences[:left]
        left_out += len(document.sentences) - len(kept)
        if kept:
            words = sum(len(one.words) for one in kept)
            mentions = tuple(one for one in document.mentions if one[2] <= words)
            shown.append(replace(document, sentences=kept, mentions=mentions))
        left -= len(kept)
    page.write(output, shown, name, left_out=left_out, command=["weft", *sys.argv[1:]])


def _report(pipeline: "Pipeline", tally: "SkipCounter") -> None:
    """Print what was left out, and the words per second of each model."""
    for line in tally.lines():
        typer.echo(f"note: not annotated: {line}", err=True)
    if pipeline.parts:
        documents = (
            "1 long document was"
            if pipeline.parts == 1
            else f"{pipeline.parts} long documents were"
        )
        typer.echo(
            f"note: {documents} annotated in parts; no chain goes from one to another", err=True
        )
    splitter = pipeline.splitter.name if pipeline.splitter else "rules for sentences"
    speeds = [(splitter, pipeline.segmentation)]
    speeds += [(one.name, one.speed) for one in pipeline.annotators]
    shown = ", ".join(f"{name} {speed.words_per_second:,.0f}" for name, speed in speeds)
    typer.echo(f"{pipeline.segmentation.words:,} words; words/s: {shown}", err=True)
