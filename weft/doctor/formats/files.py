"""Files as the doctor reads them: what cannot be used is noted, and reading goes on."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from weft.doctor.finding import Finding
from weft.doctor.formats import features
from weft.doctor.formats.structured import KINDS, check_columns, examples, kind_of, look
from weft.doctor.survey import Source
from weft.errors import UndecidedError, UserError
from weft.text.example import Example, Tally
from weft.text.formats.parallel import Second, look_like_labels, read_parallel, sides
from weft.text.formats.recognise import check_format, is_matrices
from weft.text.label_names import named
from weft.text.line_source import Account, Problems, missing
from weft.text.read import Columns, laid_out, read, settled
from weft.text.reading_plan import choose, fitted

NAMES = {1: ("data",), 2: ("train", "test"), 3: ("train", "dev", "test")}
UNREADABLE = "unreadable"
PARALLEL, MATRICES = "parallel", "matrices"
LOOKED = 200  # lines of a second file that say whether it holds labels
TABLES = ("csv", "tsv", "jsonl")


@dataclass(frozen=True)
class Files:
    """Opened files by the name of their split."""

    paths: dict[str, str]
    formats: dict[str, str]
    columns: dict[str, Columns]  # as each file is read
    sources: dict[str, Source]
    tallies: dict[str, Tally]
    findings: tuple[Finding, ...]  # about what is known of words, where something is
    lines: tuple[str, ...] = ()  # which columns are read
    second: Second = "label"  # what the second of files joined by a comma holds


def opened(
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
        for file in sides(path, target):
            if not os.path.exists(file):
                raise missing(file)
    names = NAMES.get(len(paths)) or tuple(_unique(paths))
    columns, lines = _chosen(paths, columns, format) if not target else (columns, ())
    out = Files(dict(zip(names, paths, strict=True)), {}, {}, {}, {}, (), lines, _second(task))
    for name, path in out.paths.items():
        out.tallies[name] = tally = Account()
        files = sides(path, target)
        if len(files) > 1:
            out.formats[name], out.columns[name] = PARALLEL, columns
            out.sources[name] = _parallel(files, tally, out.second)
            continue
        out.columns[name] = columns
        if is_matrices(path):
            out.formats[name] = MATRICES
            out.sources[name] = _texts(path, columns, format, tally)
            continue
        own = fitted(columns, path, format) if path != paths[0] else columns
        kind = out.formats[name] = kind_of(path, format, own)
        if kind in KINDS:
            check_columns(path, kind, own)
            out.columns[name] = own
            out.sources[name] = _structured(path, kind, own, tally)
        else:
            alike = columns if path == paths[0] else _alike(paths[0], path, columns, format)
            out.columns[name] = alike
            out.sources[name] = _texts(path, alike, format, tally)
    if label_names:
        for name, one in out.sources.items():
            out.sources[name] = _with_names(one, label_names, out.tallies[name])
    found = [
        *look(out.paths, out.formats, out.columns),
        *_matrices(out),
        *_without_labels(out, format),
    ]
    return replace(out, findings=tuple(found))


def _chosen(
    paths: Sequence[str], columns: Columns, format: str | None
) -> tuple[Columns, tuple[str, ...]]:
    """Decide on the columns of all files; what is damaged is diagnosed when it is read."""
    try:
        found = choose(paths, replace(columns, strict=True), format, tags=())
    except UndecidedError:
        raise
    except UserError:
        return columns, ()
    # Of tables the reader notes more, such as a guessed header, where it decides by itself.
    return replace(found.columns, strict=False) if found.tagged else columns, found.lines


def _without_labels(files: Files, format: str | None) -> Iterator[Finding]:
    """Tables in which no column looks like a label, though there are some that are not read."""
    for name, path in files.paths.items():
        if files.formats[name] not in TABLES or files.columns[name].label is not None:
            continue
        try:
            found = laid_out(path, files.columns[name], format)
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


def _matrices(files: Files) -> list[Finding]:
    """What is wrong with the matrices that texts name; rows that are bad are not counted here."""
    plain = {n: s for n, s in files.sources.items() if files.formats[n] not in KINDS}
    for tally in files.tallies.values():
        tally.open = False
    found = features.look(plain)
    for tally in files.tallies.values():
        tally.open = True
    return found


def _unique(paths: Sequence[str]) -> Iterator[str]:
    stems = [Path(sides(path)[0]).name for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        yield stem if stems.count(stem) == 1 else path


def _alike(first: str, path: str, columns: Columns, format: str | None) -> Columns:
    """The columns of the first file where they fit: alone, a short file could be misread."""
    try:
        found = fitted(settled(first, columns, format), path, format)
        settled(path, found, format)
    except UserError:
        return columns
    return found


def _structured(path: str, kind: str, columns: Columns, tally: Tally) -> Source:
    return lambda: _until(examples(path, kind, columns, tally), tally)


def _parallel(files: tuple[str, ...], tally: Tally, second: Second) -> Source:
    return lambda: _until(
        read_parallel(*files, problems="skip", tally=tally, second=second), tally
    )  # fmt: skip


def holds_labels(files: Files) -> bool:
    """Return whether the second of two files joined by a comma looks like labels, and not texts."""
    first = next(iter(files.sources.values()))
    return look_like_labels([str(e.label) for e in islice(first(), LOOKED)])


def _second(task: str) -> Second:
    return "tags" if task == "tag" else "other" if task.startswith("pair-") else "label"


def _with_names(source: Source, names: Sequence[str], tally: Tally) -> Source:
    return lambda: named(iter(source()), names, Problems("", "skip", tally))


def _texts(path: str, columns: Columns, format: str | None, tally: Tally) -> Source:
    def source() -> Iterator[Example]:
        rows = read(
            path, columns=columns, format=format, problems="skip", tally=tally, keep_empty=True
        )
        return _until(rows, tally)

    return source


def _until(rows: Iterator[Example], tally: Tally) -> Iterator[Example]:
    try:
        yield from rows
    except UserError as error:  # a file cut short, a quote never closed: diagnosed, not refused
        tally.add(UNREADABLE, str(error))
