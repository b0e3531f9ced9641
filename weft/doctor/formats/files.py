"""Open files for checking; unusable rows are counted, and reading continues."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from weft.doctor.checks.annotation_faults import group_faults
from weft.doctor.finding import Finding
from weft.doctor.formats import column_files, features
from weft.doctor.formats.structured import (
    STRUCTURED_FORMATS,
    check_columns,
    check_files,
    format_of,
    read_examples,
)
from weft.doctor.survey import ExampleSource
from weft.errors import AmbiguousColumnError, UserError
from weft.text.example import Example, SkipCounter, WordAnnotations
from weft.text.formats.conll import TaggedSentence
from weft.text.formats.parallel import SecondFile, look_like_labels, read_parallel, resolve_files
from weft.text.formats.recognise import SEMANTIC_FORMATS, check_format, is_matrix_file
from weft.text.label_names import rename_labels
from weft.text.line_source import BadRows, SkipLog, file_not_found
from weft.text.read import Columns, read, resolve_columns, table_layout
from weft.text.reading_plan import adapt_columns, plan_reading
from weft.text.shards import source_exists

SPLIT_NAMES = {1: ("data",), 2: ("train", "test"), 3: ("train", "dev", "test")}
UNREADABLE = "unreadable"
PARALLEL, MATRICES = "parallel", "matrices"
SAMPLE_LINES = 200  # of a second file, to recognise labels
TABLES = ("csv", "tsv", "jsonl", "table", "shards")


@dataclass(frozen=True)
class Files:
    """Opened files by split name."""

    paths: dict[str, str]
    formats: dict[str, str]
    columns: dict[str, Columns]  # of each file
    sources: dict[str, ExampleSource]
    tallies: dict[str, SkipCounter]
    findings: tuple[Finding, ...]  # about annotations, matrices and columns
    lines: tuple[str, ...] = ()  # describe the columns
    second: SecondFile = "label"  # contents of the second comma-joined file


def open_files(
    paths: Sequence[str],
    columns: Columns,
    format: str | None = None,
    target: str = "",
    label_names: Sequence[str] = (),
    task: str = "",
) -> Files:
    """Open files: two are train and test, three train, dev and test; more keep their names.

    With files joined by a comma, or `target`, the ending of sibling files, the second file holds
    the targets of the first.
    """
    if format:
        check_format(format)
    for path in paths:
        if path == "-":
            raise UserError("Files are read more than once. Save standard input to a file first.")
        for file in resolve_files(path, target):
            if not source_exists(file):
                raise file_not_found(file)
    names = SPLIT_NAMES.get(len(paths)) or tuple(_unique_names(paths))
    lines: tuple[str, ...] = ()
    if not target and not _has_meaning(paths[0], format, columns):
        columns, lines = _choose_columns(paths, columns, format)
    out = Files(dict(zip(names, paths, strict=True)), {}, {}, {}, {}, (), lines, _second_file(task))
    for name, path in out.paths.items():
        out.tallies[name] = skipped = SkipLog()
        files = resolve_files(path, target)
        if len(files) > 1:
            out.formats[name], out.columns[name] = PARALLEL, columns
            out.sources[name] = _parallel_source(files, skipped, out.second)
            continue
        out.columns[name] = columns
        if is_matrix_file(path):
            out.formats[name] = MATRICES
            out.sources[name] = _text_source(path, columns, format, skipped)
            continue
        adapted = adapt_columns(columns, path, format) if path != paths[0] else columns
        kind = out.formats[name] = format_of(path, format, adapted)
        if kind in STRUCTURED_FORMATS:
            check_columns(path, kind, adapted)
            out.columns[name] = adapted
            out.sources[name] = _structured_source(path, kind, adapted, skipped)
        else:
            alike = (
                columns
                if path == paths[0]
                else _columns_like_first(paths[0], path, columns, format)
            )
            out.columns[name] = alike
            out.sources[name] = _text_source(path, alike, format, skipped)
    if label_names:
        for name, source in out.sources.items():
            out.sources[name] = _named_source(source, label_names, out.tallies[name])
    findings = [
        *check_files(out.paths, out.formats, out.columns),
        *_check_matrices(out),
        *_check_label_columns(out, format),
        *_check_tags(out),
    ]
    return replace(out, findings=tuple(findings))


def _has_meaning(path: str, format: str | None, columns: Columns) -> bool:
    """Return whether a file holds roles, coreference or tuples, whose columns are not chosen."""
    if len(resolve_files(path)) > 1 or is_matrix_file(path):
        return False
    return format_of(path, format, columns) in SEMANTIC_FORMATS


def _choose_columns(
    paths: Sequence[str], columns: Columns, format: str | None
) -> tuple[Columns, tuple[str, ...]]:
    """Choose the columns of all files; damaged files are diagnosed when read."""
    try:
        plan = plan_reading(paths, replace(columns, strict=True), format, tags=())
    except AmbiguousColumnError:
        raise
    except UserError:
        return columns, ()
    # For tables the reader reports more, such as a guessed header, if it decides itself.
    return replace(plan.columns, strict=False) if plan.tagged else columns, plan.lines


def _check_label_columns(files: Files, format: str | None) -> Iterator[Finding]:
    """Yield a finding for tables without a recognised label column but with unused columns."""
    for name, path in files.paths.items():
        if files.formats[name] not in TABLES or files.columns[name].label is not None:
            continue
        try:
            layout = table_layout(path, files.columns[name], format)
        except UserError:
            continue  # reported when read
        if layout is None or layout.label is not None or layout.fields:
            continue
        read = {layout.text, layout.other, layout.id}
        unused = [layout.names[i] or str(i) for i in range(layout.width) if i not in read]
        if unused:
            candidates = " or ".join(f"'{column}'" for column in unused[:3])
            title = f"No column of {name} looks like a label; it might be {candidates}."
            fix = "If so, pass --label COLUMN. Labels are not checked now."
            yield Finding("no label column", "note", title, 1, (), fix)


def _check_tags(files: Files) -> Iterator[Finding]:
    """Yield findings about the tags of tables that hold lists of tokens."""
    for name, source in files.sources.items():
        if files.formats[name] in STRUCTURED_FORMATS:
            continue
        files.tallies[name].enabled = False  # bad rows are counted by the survey
        with contextlib.suppress(UserError):  # reported when read
            first = next(iter(source()), None)
            if first is not None and isinstance(first.label, WordAnnotations):
                faults = column_files.find_tag_faults(partial(tagged_rows, source))
                yield from group_faults(faults, name)
        files.tallies[name].enabled = True


def tagged_rows(source: ExampleSource) -> Iterator[TaggedSentence]:
    """Yield the rows of tokens and tags as sentences."""
    for example in source():
        if isinstance(example.label, WordAnnotations):
            yield column_files.as_sentence(example)


def _check_matrices(files: Files) -> list[Finding]:
    """Return findings about matrices; bad rows are not counted here."""
    plain = {n: s for n, s in files.sources.items() if files.formats[n] not in STRUCTURED_FORMATS}
    for skipped in files.tallies.values():
        skipped.enabled = False
    findings = features.check_matrices(plain)
    for skipped in files.tallies.values():
        skipped.enabled = True
    return findings


def _unique_names(paths: Sequence[str]) -> Iterator[str]:
    stems = [Path(resolve_files(path)[0]).name for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        yield stem if stems.count(stem) == 1 else path


def _columns_like_first(first: str, path: str, columns: Columns, format: str | None) -> Columns:
    """Return the columns of the first file if they fit: a short file alone could be misread."""
    try:
        adapted = adapt_columns(resolve_columns(first, columns, format), path, format)
        resolve_columns(path, adapted, format)
    except UserError:
        return columns
    return adapted


def _structured_source(
    path: str, kind: str, columns: Columns, skipped: SkipCounter
) -> ExampleSource:
    return lambda: _until_unreadable(read_examples(path, kind, columns, skipped), skipped)


def _parallel_source(
    files: tuple[str, ...], skipped: SkipCounter, second: SecondFile
) -> ExampleSource:
    return lambda: _until_unreadable(
        read_parallel(*files, on_bad_row="skip", skipped=skipped, second=second), skipped
    )  # fmt: skip


def holds_labels(files: Files) -> bool:
    """Return whether the second of two comma-joined files holds labels, not texts."""
    first = next(iter(files.sources.values()))
    return look_like_labels([str(e.label) for e in islice(first(), SAMPLE_LINES)])


def _second_file(task: str) -> SecondFile:
    return "tags" if task == "tag" else "other" if task.startswith("pair-") else "label"


def _named_source(
    source: ExampleSource, names: Sequence[str], skipped: SkipCounter
) -> ExampleSource:
    return lambda: rename_labels(iter(source()), names, BadRows("", "skip", skipped))


def _text_source(
    path: str, columns: Columns, format: str | None, skipped: SkipCounter
) -> ExampleSource:
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


def _until_unreadable(rows: Iterator[Example], skipped: SkipCounter) -> Iterator[Example]:
    try:
        yield from rows
    except UserError as error:  # a truncated file, an unclosed quote: diagnosed, not an error
        skipped.add(UNREADABLE, str(error))
