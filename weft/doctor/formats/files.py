"""Files as the doctor reads them: what cannot be used is noted, and reading goes on."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from weft.doctor.finding import Finding
from weft.doctor.formats import features
from weft.doctor.formats.structured import (
    STRUCTURED_FORMATS,
    check_columns,
    check_files,
    format_of,
    read_examples,
)
from weft.doctor.survey import ExampleSource
from weft.errors import AmbiguousColumnError, UserError
from weft.text.example import Example, Tally
from weft.text.formats.parallel import SecondFile, look_like_labels, read_parallel, resolve_files
from weft.text.formats.recognise import check_format, is_matrix_file
from weft.text.label_names import rename_labels
from weft.text.line_source import BadRows, SkipLog, file_not_found
from weft.text.read import Columns, read, resolve_columns, table_layout
from weft.text.reading_plan import adapt_columns, plan_reading

SPLIT_NAMES = {1: ("data",), 2: ("train", "test"), 3: ("train", "dev", "test")}
UNREADABLE = "unreadable"
PARALLEL, MATRICES = "parallel", "matrices"
SAMPLE_LINES = 200  # lines of a second file that say whether it holds labels
TABLES = ("csv", "tsv", "jsonl")


@dataclass(frozen=True)
class Files:
    """Opened files by the name of their split."""

    paths: dict[str, str]
    formats: dict[str, str]
    columns: dict[str, Columns]  # as each file is read
    sources: dict[str, ExampleSource]
    tallies: dict[str, Tally]
    findings: tuple[Finding, ...]  # about what is known of words, where something is
    lines: tuple[str, ...] = ()  # which columns are read
    second: SecondFile = "label"  # what the second of files joined by a comma holds


def open_files(
    paths: Sequence[str],
    columns: Columns,
    format: str | None = None,
    target: str = "",
    label_names: Sequence[str] = (),
    task: str = "",
) -> Files:
    """Two files are train and test, three train, dev and test; more are named after themselves.

    Of files joined by a comma, and with a `target`, the ending of the file beside each, a line of
    the other is what a line should become.
    """
    if format:
        check_format(format)
    for path in paths:
        if path == "-":
            raise UserError(
                "Files are read more than once here. Save standard input to a file first."
            )
        for file in resolve_files(path, target):
            if not os.path.exists(file):
                raise file_not_found(file)
    names = SPLIT_NAMES.get(len(paths)) or tuple(_unique_names(paths))
    columns, lines = _choose_columns(paths, columns, format) if not target else (columns, ())
    out = Files(dict(zip(names, paths, strict=True)), {}, {}, {}, {}, (), lines, _second_file(task))
    for name, path in out.paths.items():
        out.tallies[name] = tally = SkipLog()
        files = resolve_files(path, target)
        if len(files) > 1:
            out.formats[name], out.columns[name] = PARALLEL, columns
            out.sources[name] = _parallel_source(files, tally, out.second)
            continue
        out.columns[name] = columns
        if is_matrix_file(path):
            out.formats[name] = MATRICES
            out.sources[name] = _text_source(path, columns, format, tally)
            continue
        own = adapt_columns(columns, path, format) if path != paths[0] else columns
        kind = out.formats[name] = format_of(path, format, own)
        if kind in STRUCTURED_FORMATS:
            check_columns(path, kind, own)
            out.columns[name] = own
            out.sources[name] = _structured_source(path, kind, own, tally)
        else:
            alike = (
                columns
                if path == paths[0]
                else _columns_like_first(paths[0], path, columns, format)
            )
            out.columns[name] = alike
            out.sources[name] = _text_source(path, alike, format, tally)
    if label_names:
        for name, one in out.sources.items():
            out.sources[name] = _named_source(one, label_names, out.tallies[name])
    found = [
        *check_files(out.paths, out.formats, out.columns),
        *_check_matrices(out),
        *_check_label_columns(out, format),
    ]
    return replace(out, findings=tuple(found))


def _choose_columns(
    paths: Sequence[str], columns: Columns, format: str | None
) -> tuple[Columns, tuple[str, ...]]:
    """Decide on the columns of all files; what is damaged is diagnosed when it is read."""
    try:
        found = plan_reading(paths, replace(columns, strict=True), format, tags=())
    except AmbiguousColumnError:
        raise
    except UserError:
        return columns, ()
    # Of tables the reader notes more, such as a guessed header, where it decides by itself.
    return replace(found.columns, strict=False) if found.tagged else columns, found.lines


def _check_label_columns(files: Files, format: str | None) -> Iterator[Finding]:
    """Tables in which no column looks like a label, though there are some that are not read."""
    for name, path in files.paths.items():
        if files.formats[name] not in TABLES or files.columns[name].label is not None:
            continue
        try:
            found = table_layout(path, files.columns[name], format)
        except UserError:
            continue  # said when it is read
        if found is None or found.label is not None or found.fields:
            continue
        read = {found.text, found.other, found.id}
        unread = [found.names[i] or str(i) for i in range(found.width) if i not in read]
        if unread:
            told = " or ".join(f"'{column}'" for column in unread[:3])
            title = f"No column of {name} looks like a label; {told} might be one."
            fix = "If one is, name it: --label COLUMN. As it is, labels are not looked at."
            yield Finding("no label column", "note", title, 1, (), fix)


def _check_matrices(files: Files) -> list[Finding]:
    """What is wrong with the matrices that texts name; rows that are bad are not counted here."""
    plain = {n: s for n, s in files.sources.items() if files.formats[n] not in STRUCTURED_FORMATS}
    for tally in files.tallies.values():
        tally.open = False
    found = features.check_matrices(plain)
    for tally in files.tallies.values():
        tally.open = True
    return found


def _unique_names(paths: Sequence[str]) -> Iterator[str]:
    stems = [Path(resolve_files(path)[0]).name for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        yield stem if stems.count(stem) == 1 else path


def _columns_like_first(first: str, path: str, columns: Columns, format: str | None) -> Columns:
    """The columns of the first file where they fit: alone, a short file could be misread."""
    try:
        found = adapt_columns(resolve_columns(first, columns, format), path, format)
        resolve_columns(path, found, format)
    except UserError:
        return columns
    return found


def _structured_source(path: str, kind: str, columns: Columns, skipped: Tally) -> ExampleSource:
    return lambda: _until_unreadable(read_examples(path, kind, columns, skipped), skipped)


def _parallel_source(files: tuple[str, ...], skipped: Tally, second: SecondFile) -> ExampleSource:
    return lambda: _until_unreadable(
        read_parallel(*files, on_bad_row="skip", skipped=skipped, second=second), skipped
    )  # fmt: skip


def holds_labels(files: Files) -> bool:
    """Return whether the second of two files joined by a comma looks like labels, and not texts."""
    first = next(iter(files.sources.values()))
    return look_like_labels([str(e.label) for e in islice(first(), SAMPLE_LINES)])


def _second_file(task: str) -> SecondFile:
    return "tags" if task == "tag" else "other" if task.startswith("pair-") else "label"


def _named_source(source: ExampleSource, names: Sequence[str], skipped: Tally) -> ExampleSource:
    return lambda: rename_labels(iter(source()), names, BadRows("", "skip", skipped))


def _text_source(path: str, columns: Columns, format: str | None, skipped: Tally) -> ExampleSource:
    def source() -> Iterator[Example]:
        rows = read(
            path,
            columns=columns,
            format=format,
            on_bad_row="skip",
            skipped=skipped,
            keep_empty=True,
        )
        return _until_unreadable(rows, skipped)

    return source


def _until_unreadable(rows: Iterator[Example], skipped: Tally) -> Iterator[Example]:
    try:
        yield from rows
    except UserError as error:  # a file cut short, a quote never closed: diagnosed, not refused
        skipped.add(UNREADABLE, str(error))
