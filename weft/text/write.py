"""Write Examples to a file in a chosen format, atomically."""

import contextlib
import csv
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from weft.errors import UserError, unknown_name
from weft.registry import check_types
from weft.storage import atomic_write, write_bytes
from weft.text.annotation.frames import Extractions, Frames
from weft.text.example import Example, GoldAnswers, Label, WordAnnotations
from weft.text.formats.parquet import import_pyarrow
from weft.text.formats.recognise import FORMAT_BY_ENDING, LABEL_PREFIX
from weft.text.formats.semantics.coreference import format_document
from weft.text.formats.semantics.extractions import format_tuples
from weft.text.formats.semantics.roles import format_example
from weft.text.line_source import strip_compression

LABEL_SEPARATOR = "|"  # between the labels of one CSV or TSV cell


@check_types
def write(
    examples: Iterable[Example],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    separator: str = LABEL_SEPARATOR,
) -> None:
    """Write a file that `read` reads back; raise a UserError for what the format cannot hold.

    Several labels in one CSV or TSV cell are joined by `separator`; pass the same to `read`.
    """
    name = os.fspath(path)
    kind = format or FORMAT_BY_ENDING.get(Path(strip_compression(name)[0]).suffix, "lines")
    if kind != "parquet" and kind not in _WRITERS:
        raise unknown_name("format to write", kind, [*_WRITERS, "parquet"])
    with atomic_write(name) as part:
        if kind == "parquet":
            from weft.text.formats.parquet import write_parquet

            write_parquet(examples, str(part))
            return
        with open_text(part, strip_compression(name)[1]) as out:
            try:
                _WRITERS[kind](examples, out, separator)
            except UnicodeEncodeError as error:
                raise UserError(f"Cannot write {name}: {error}. Remove lone surrogates.") from error


def write_generated(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write generated files to a folder, or nothing if one exists with other contents."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. Pass a folder to write to.")
    paths = {folder / name: contents for name, contents in files.items()}
    for path, contents in paths.items():
        if path.exists() and path.read_bytes() != contents:
            raise UserError(f"{path} exists with other contents. Pass another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, contents in paths.items():
            write_bytes(path, contents)
    except OSError as error:
        raise UserError(f"Cannot write to {folder}: {error.strerror or error}.") from None
    return list(paths)


@contextlib.contextmanager
def open_text(part: str | Path, compression: str) -> Iterator[IO[str]]:
    """Open a text file for writing, compressed for the endings ".gz", ".xz" and ".zst"."""
    with open(part, "wb") as plain, contextlib.ExitStack() as stack:
        binary: IO[bytes] = plain
        if compression == ".gz":  # without name and time: same texts, same bytes
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=plain, mtime=0)
            binary = cast(IO[bytes], stack.enter_context(packed))
        elif compression == ".xz":
            binary = cast(IO[bytes], stack.enter_context(lzma.LZMAFile(plain, "wb")))
        elif compression == ".zst":
            pyarrow = import_pyarrow("Files compressed by Zstandard")
            packed = pyarrow.CompressedOutputStream(plain, "zstd")
            binary = cast(IO[bytes], stack.enter_context(packed))
        text = io.TextIOWrapper(binary, encoding="utf-8", newline="", write_through=False)
        yield text
        text.flush()
        text.detach()


def _write_jsonl(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        row: dict[str, object] = {"id": example.id} if example.id else {}
        if isinstance(example.label, WordAnnotations):
            row |= {"tokens": example.words, "tags": example.label.columns[example.label.main]}
            row |= {"label": example.label.label} if example.label.label else {}
        else:
            row |= {"text": example.text}
            row |= {} if example.other is None else {"other": example.other}
            row["label"] = _answers_to_json(example.label) or example.label
        out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _answers_to_json(label: Label) -> dict[str, object] | None:
    """Return answers and their offsets as `read` reads them back."""
    if not isinstance(label, GoldAnswers):
        return None
    return {"text": list(label.texts), "answer_start": list(label.starts)}


def _write_csv(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    writer = csv.writer(out, lineterminator="\n")
    careful = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in _table_rows(examples, separator):
        if any("\0" in cell for cell in row):
            raise UserError(f"A CSV file cannot hold a NUL byte: {row!r:.60}. Write JSONL instead.")
        # The csv module does not quote a bare carriage return.
        (careful if any("\r" in cell for cell in row) else writer).writerow(row)


def _write_tsv(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for row in _table_rows(examples, separator):
        for cell in row:
            if any(sign in cell for sign in "\t\n\r\0"):
                raise _unsupported_error("TSV", "a tab, line break or NUL byte", cell)
            # Such a cell would be read as a quoted one.
            if cell[:1] == cell[-1:] == '"' and '"' in cell[1:-1].replace('""', '"'):
                raise _unsupported_error("TSV", "quotes around quotes", cell)
        out.write("\t".join(row) + "\n")


def _write_fasttext(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        _require_one_line("fastText", example.text)
        if LABEL_PREFIX in example.text and any(
            t.startswith(LABEL_PREFIX) for t in example.text.split()
        ):
            raise _unsupported_error("fastText", f"{LABEL_PREFIX} inside the text", example.text)
        labels = () if example.label is None else example.label
        for label in labels if isinstance(labels, tuple) else (str(labels),):
            if not label or label.split() != [label] or "\0" in label:
                raise _unsupported_error("fastText", "spaces in a label, or an empty one,", label)
            out.write(f"{LABEL_PREFIX}{label} ")
        out.write(example.text + "\n")


def _write_lines(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        _require_one_line("lines", example.text)
        if example.label is not None:
            raise _unsupported_error("lines", "labels", str(example.label))
        out.write(example.text + "\n")


def _table_rows(examples: Iterable[Example], separator: str) -> Iterator[list[str]]:
    with_ids = False
    for number, example in enumerate(examples):
        if number == 0:
            with_ids = bool(example.id)
            yield ["text", "label", "id"] if with_ids else ["text", "label"]
        elif bool(example.id) != with_ids:
            raise UserError(
                f"{example.where}: some texts have ids, others do not. "
                "Give every text an id, or write JSONL."
            )
        row = [example.text, _label_cell(example, separator)]
        yield [*row, example.id] if with_ids else row


def _label_cell(example: Example, separator: str) -> str:
    label = example.label
    if isinstance(label, GoldAnswers):
        raise _unsupported_error("table", "answer offsets", ", ".join(label.texts))
    if not isinstance(label, tuple):
        return "" if label is None else str(label)
    if any(separator in part for part in label):
        raise _unsupported_error("table", f"the separator '{separator}' inside a label", str(label))
    return separator.join(label)


def _require_one_line(kind: str, text: str) -> None:
    if any(sign in text for sign in "\n\r\0"):
        raise _unsupported_error(kind, "a line break or NUL byte", text)


def _unsupported_error(kind: str, what: str, value: str) -> UserError:
    return UserError(
        f"A {kind} file cannot hold {what}: {value!r:.60}. Write CSV or JSONL instead."
    )


def _write_roles(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        if not isinstance(example.label, Frames):
            raise UserError(
                f"{example.where}: no semantic roles to write as columns. Write JSONL instead."
            )
        out.write(format_example(example))


def _write_coreference(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        out.write(format_document(example))


def _write_tuples(examples: Iterable[Example], out: IO[str], separator: str) -> None:
    for example in examples:
        if not isinstance(example.label, Extractions):
            raise UserError(f"{example.where}: no tuples to write as lines. Write JSONL instead.")
        out.writelines(format_tuples(example))


_WRITERS: dict[str, Callable[[Iterable[Example], IO[str], str], None]] = {
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_jsonl,
    "fasttext": _write_fasttext,
    "lines": _write_lines,
    "roles": _write_roles,
    "coreference": _write_coreference,
    "extractions": _write_tuples,
}
