"""Recognise the format of a file by its ending and first lines."""

import csv
import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from weft import jsonio
from weft.errors import UserError, unknown_name
from weft.text import column_layout
from weft.text.annotation import trees
from weft.text.columns import LABEL_NAMES, TEXT_NAMES
from weft.text.formats import brackets, conllu, squad, standoff
from weft.text.formats.dialogue import turns
from weft.text.line_source import LineSource, file_not_found, strip_compression
from weft.text.location import is_table
from weft.text.shards import list_shards, source_exists

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

SEMANTIC_FORMATS = ("roles", "coreference", "extractions")  # read on request
FORMATS = (
    *("csv", "tsv", "jsonl", "parquet", "fasttext", "trees", "lines", "folder"),
    *("conllu", "conll", "spans", "standoff", "squad", "dialogue", "paragraphs"),
    *SEMANTIC_FORMATS,
)
LABEL_PREFIX = "__label__"
MAX_CELL_CHARS = 10_000_000  # characters
RECORDING_ENDING = ".wav"
MATRIX_ENDINGS = (".npy", ".npz", RECORDING_ENDING)

FORMAT_BY_ENDING = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".ft": "fasttext",
    ".fasttext": "fasttext",
    ".ptb": "trees",
    ".mrg": "trees",
}

# Formats with more than one label per text; each has its own reader.
STRUCTURED_FORMATS = (
    *("conllu", "conll", "spans", "standoff", "squad", "dialogue", "paragraphs"),
    *SEMANTIC_FORMATS,
)
_STRUCTURED_BY_ENDING = {
    ".conllu": "conllu",
    ".conllup": "conll",
    ".conll": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bio": "conll",
    ".ann": "standoff",
}


def recognise(path: str | os.PathLike[str]) -> str:
    """Return one of FORMATS, by the ending or else the contents; "table" for one in memory."""
    name = os.fspath(path)
    if is_table(name):
        return "table"
    if shards := list_shards(name):
        return recognise(shards[0])
    if name != "-" and os.path.isdir(name):
        return "standoff" if next(Path(name).rglob("*.ann"), None) else "folder"
    if not source_exists(name):
        raise file_not_found(name)
    if name == "-":
        first = cast(io.BufferedReader, sys.stdin.buffer).peek(1)
        return "jsonl" if first.lstrip().startswith(b"{") else "lines"
    source = LineSource(name)
    try:
        return recognise_structure(source) or recognise_source(source)
    finally:
        source.close()


def recognise_structure(source: LineSource) -> str:
    """Return one of STRUCTURED_FORMATS, "trees" for multi-line trees, or "" for other files."""
    plain = Path(strip_compression(source.path)[0])
    known = _STRUCTURED_BY_ENDING.get(plain.suffix)
    if known == "standoff" or Path(source.path).with_suffix(".ann").exists():
        return "standoff"
    if source.path == "-" or FORMAT_BY_ENDING.get(plain.suffix) not in (None, "tsv", "jsonl"):
        return ""
    head = source.head()
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in head]
    if turns.are_dialogues(lines):
        return "dialogue"
    if FORMAT_BY_ENDING.get(plain.suffix) == "jsonl" or (
        head and head[0].lstrip().startswith(b"{")
    ):
        if squad.is_squad("".join(lines)):
            return "squad"
        return "spans" if standoff.are_span_rows(lines[:100]) else ""
    if known != "conll" and conllu.is_conllu(lines):
        return "conllu"  # whatever its name
    if known or column_layout.is_column_file(lines):
        return known or "conll"
    bracketed = brackets.are_trees(lines) or brackets.look_like_trees(lines)
    return "trees" if bracketed else ""


def recognise_source(source: LineSource) -> str:
    """Return the format of an open source, which keeps its first lines."""
    if source.path == "-":
        # Only one line: interactive or slow input should not wait for a thousand.
        first = source.head(1)
        return "jsonl" if first and first[0].lstrip().startswith(b"{") else "lines"
    known = FORMAT_BY_ENDING.get(Path(strip_compression(source.path)[0]).suffix)
    if known in ("parquet", "jsonl", "trees", "csv"):
        return known
    head = source.head()
    if head and head[0].startswith(b"PAR1"):
        return "parquet"
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in head]
    lines = [line for line in lines if line.strip()]
    if any(line.startswith(LABEL_PREFIX) for line in lines[:100]):
        return "fasttext"
    return known or _recognise_content(lines)


def is_matrix_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a file holds matrices itself, not lines that refer to them."""
    return os.fspath(path).endswith(MATRIX_ENDINGS)


def check_format(name: str) -> str:
    """Return the name if it is a format, else raise a UserError."""
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS)
    return name


def csv_reader(lines: Iterable[str], delimiter: str, strict: bool = True) -> "CsvReader":
    """Return a CSV reader for cells beyond Python's limit of 131,072 characters."""
    csv.field_size_limit(MAX_CELL_CHARS)
    return csv.reader(lines, delimiter=delimiter, strict=strict)


def detect_delimiter(line: str) -> str:
    """Return the delimiter of a CSV line: a comma unless only another one separates."""
    counts = {sign: _count_cells(line, sign) for sign in ",;\t"}
    return "," if counts[","] > 1 else max(counts, key=lambda sign: counts[sign])


def _count_cells(line: str, sign: str) -> int:
    try:
        return len(next(csv_reader([line], sign, strict=False), []))
    except csv.Error:  # a bare carriage return or a huge cell: reported by its row
        return line.count(sign) + 1


def uses_csv_quotes(lines: Sequence[str]) -> bool:
    """Return whether tab-separated lines clearly use CSV quotes, not just contain some.

    They do if parsing each line and quoting its cells again, where needed or everywhere,
    reproduces the line exactly. Prose with quotation marks never does.
    """
    if not any('"' in line for line in lines):
        return False
    try:
        rows: list[list[str]] = [next(csv_reader([line], "\t"), []) for line in lines]
    except csv.Error:
        return False
    if len(set(map(len, rows))) > 1:
        return False

    def again(needed_only: bool) -> list[str]:
        return ["\t".join(_quote(cell, needed_only) for cell in row) for row in rows]

    return list(lines) in (again(True), again(False))


def _quote(cell: str, needed_only: bool) -> str:
    if needed_only and '"' not in cell and "\t" not in cell:
        return cell
    return '"' + cell.replace('"', '""') + '"'


def _recognise_content(lines: list[str]) -> str:
    if not lines:
        return "lines"
    if lines[0].lstrip().startswith("{") and _is_object(lines[0]):
        return "jsonl"
    if lines[0].lstrip().startswith("(") and _mostly_trees(lines[:20]):
        return "trees"
    tabs, count = Counter(line.count("\t") for line in lines).most_common(1)[0]
    if tabs and count >= 0.9 * len(lines):
        return "tsv"
    names = {cell.strip().strip('"').lower() for cell in lines[0].split(",")}
    if names & set(TEXT_NAMES) and names & set(LABEL_NAMES):
        return "csv"
    return "lines"


def _is_object(line: str) -> bool:
    try:
        return isinstance(jsonio.parse(line, ""), dict)
    except UserError:
        return False


def _mostly_trees(lines: list[str]) -> bool:
    good = 0
    for line in lines:
        try:
            trees.parse(line)
        except UserError:
            continue
        good += 1
    return good * 2 > len(lines)
