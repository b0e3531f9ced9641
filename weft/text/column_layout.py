"""Detect the layout of column files: separator, header, names, word and tag columns."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise

from weft.errors import UserError, near_miss
from weft.text.line_source import MAX_HEAD_LINES, LineSource
from weft.untrusted import parse_integer

DOCUMENT_MARK = "-DOCSTART-"
WORD_NAMES = ("word", "token", "form", "text")
TAG_NAMES = ("tag", "ner", "label", "ner_tag", "iob", "chunk", "pos", "upos", "xpos")
_OTHER_NAMES = ("id", "word_id", "lemma", "sent_id", "sentence", "sentence #", "feats", "parse")
PARSE_BIT = re.compile(
    r"(?:\([^()*\s]+)*\*\)*"
)  # a parse bit: brackets opened before the word, closed after it
_HEADER_NAMES = {"word", "tag", *WORD_NAMES, *TAG_NAMES, *_OTHER_NAMES}
_TAG = re.compile(r"(?:O|[BILUES]-\S+)")
_SPACES = re.compile(r"[ \t]+")  # not \s: a no-break space belongs to its word
METADATA = re.compile(r"#\s*([\w.:#-]+)\s*=\s*(.*)")
_MARKER = re.compile(r"#\s*(?:begin|end) document\b")
_MAX_TAG_RATIO = 0.2  # distinct values to rows in a tag column
_MIN_ROWS_TO_COMPARE = 20  # below, the number of distinct values says nothing
_MIN_VARYING_WIDTH = 6  # columns all rows share where later ones vary by sentence
_MIN_WORD_RICHNESS = 0.7  # distinct words, relative to the richest column
MAX_SAMPLE_LINES, MAX_SAMPLE_BYTES = (
    100_000,
    16 << 20,
)  # of a file, to decide on its columns


@dataclass(frozen=True)
class ColumnLayout:
    """The layout of a column file: separator, column names, word and tag columns."""

    separator: str  # "\\t", or " " for any run of spaces and tabs
    names: tuple[str, ...]  # empty if unknown
    words: int
    tags: int
    width: int  # of every row; 0 if sentences differ
    header: bool = False

    def index_of(self, column: int | str) -> int:
        """Return the index of a column given by name or index; -1 is the last."""
        if isinstance(column, str) and parse_integer(column.removeprefix("-")) is None:
            return self._index_of_name(column)
        number = int(column)
        if self.width and not -self.width <= number < self.width:
            raise UserError(
                f"no column {number}; the rows have {self.width} columns. Pass a number from 0 to "
                f"{self.width - 1}, or -1 for the last."
            )
        return number % self.width if self.width else number

    def _index_of_name(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if name in ("word", "tag"):
            return self.words if name == "word" else self.tags
        if not self.names:
            raise UserError(f"no column '{name}': columns have no names. Pass a number from 0.")
        names = ", ".join(self.names)
        raise UserError(f"no column '{name}'; found {names}.{near_miss(name, self.names)}")


def detect_layout(
    source: LineSource, *, words: int | str | None = None, tags: int | str | None = None
) -> ColumnLayout:
    """Return the layout of a file, with the requested word and tag columns."""
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    is_given = words is not None and tags is not None
    # The first lines may hold no entity, so no column would look like IOB tags.
    if not is_given and source.can_reopen and len(lines) >= MAX_HEAD_LINES:
        stat = os.stat(source.path)
        layout = _guess_cached(source.path, stat.st_size, stat.st_mtime_ns)
    else:
        layout = guess_layout(lines, source.name)
    try:
        if tags is not None:
            layout = replace(layout, tags=layout.index_of(tags))
        if words is not None:
            layout = replace(layout, words=layout.index_of(words))
    except UserError as error:
        raise UserError(f"{source.name}: {error}") from None
    return layout


@lru_cache(maxsize=32)
def _guess_cached(path: str, size: int, changed: int) -> ColumnLayout:
    """Guess the layout from many lines, cached by size and modification time."""
    return guess_layout(read_sample(path), path)


def read_sample(path: str) -> list[str]:
    """Read enough lines of a file to decide on its columns."""
    lines, size = [], 0
    with closing(LineSource(path)) as source:
        for raw in islice(source.raw(), MAX_SAMPLE_LINES):
            lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
            size += len(raw)
            if size > MAX_SAMPLE_BYTES:
                break
    return lines


@dataclass(frozen=True)
class ColumnSample:
    """The first sentences of a column file, split into cells."""

    file: str
    separator: str
    names: tuple[str, ...]  # of the columns; empty if unknown
    declared: bool  # whether the file names them itself
    header: bool
    width: int  # of every row; 0 if sentences differ
    blocks: list[list[list[str]]]  # sentences of rows of cells
    columns: list[list[str]]  # shared by all rows
    rest: set[str]  # cells beyond them

    def is_iob(self, column: int) -> bool:
        """Return whether a column holds only IOB tags; all may be O."""
        return _is_iob(self.columns[column])

    def has_iob_spans(self, column: int) -> bool:
        """Return whether a column holds IOB tags other than O."""
        return _has_iob_spans(self.columns[column])

    def has_few_values(self, column: int) -> bool:
        """Return whether a column has several but few distinct values, not parse bits."""
        cells = self.columns[column]
        values = set(cells)
        few = len(values) <= _MAX_TAG_RATIO * len(cells) or len(cells) < _MIN_ROWS_TO_COMPARE
        brackets = all(map(PARSE_BIT.fullmatch, values))
        return len(values) > 1 and few and not brackets and not self.is_word_number(column)

    def is_word_number(self, column: int) -> bool:
        """Return whether a column only numbers the words of each sentence."""
        return _is_word_number(self.blocks, column)

    def find_words(self, tags: int | None) -> int:
        """Return the word column, given the tag column."""
        return _find_words(self.columns, self.blocks, tags)

    def columns_by_name(self) -> tuple[int, int] | None:
        """Return the word and tag columns if their names tell."""
        return _columns_by_name(self.names, len(self.columns))


def split_sample(lines: Sequence[str], name: str = "file") -> ColumnSample:
    """Split the first lines of a file into cells; detect separator, header and columns."""
    separator = "\t" if _is_tab_separated(lines) else " "
    blocks = _split_sentences(lines, separator)
    if not blocks:
        raise UserError(f"{name}: no rows. Put a word and its tag on each line.")
    header = _is_header(blocks[0][0])
    names = tuple(cell.strip().lower() for cell in blocks[0][0]) if header else ()
    if header:
        blocks = [block for block in (blocks[0][1:], *blocks[1:]) if block] or blocks
    usual, least = _measure_widths(blocks)
    varies = not usual
    if least < 2:
        raise UserError(
            f"{name}: only one column. A column file has a word and its tag on each line, "
            "with a space or a tab between them."
        )
    rows = [row for block in blocks for row in block if len(row) >= least]
    columns = [[row[i] for row in rows] for i in range(least)]
    rest = {cell for row in rows for cell in row[least:]}
    names = names or _declared_names(lines)
    declared = bool(names)
    names = names or _standard_names(columns, varies)
    return ColumnSample(name, separator, names, declared, header, usual, blocks, columns, rest)


def guess_layout(lines: Sequence[str], name: str = "file") -> ColumnLayout:
    """Guess separator, header and columns from the first lines of a file.

    Tags are the last column of IOB tags or, without one, the last with few distinct values; words
    are the first column nearly as rich as the richest, word numbers excluded. Training does not
    rely on this guess: see `tag_columns`.
    """
    sample = split_sample(lines, name)
    word, tag = sample.columns_by_name() or _columns_by_content(sample.columns, sample.blocks)
    return ColumnLayout(sample.separator, sample.names, word, tag, sample.width, sample.header)


def sample_columns(source: LineSource, layout: ColumnLayout) -> list[list[str]]:
    """Return the columns that all of the first rows share."""
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    rows = [row for block in _split_sentences(lines, layout.separator) for row in block]
    return [list(column) for column in zip(*rows[layout.header :], strict=False)]


def is_column_file(lines: Sequence[str]) -> bool:
    """Return whether lines are clearly a column file: even rows with a column of IOB tags."""
    separator = "\t" if _is_tab_separated(lines) else " "
    blocks = _split_sentences(lines, separator)
    rows = [row for block in blocks for row in block]
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    if sum(len(row) == len(rows[-1]) for row in rows) < 0.9 * len(rows):
        return False
    shared = min(len(row) for row in rows)
    return any(_has_iob_spans([row[i] for row in rows]) for i in range(1, shared))


def _is_tab_separated(lines: Iterable[str]) -> bool:
    rows = [line for line in lines if line.strip() and not line.startswith(("#", DOCUMENT_MARK))]
    return bool(rows) and sum("\t" in row for row in rows) > 0.5 * len(rows)


def split_cells(line: str, separator: str) -> list[str]:
    return line.split("\t") if separator == "\t" else _SPACES.split(line.strip(" \t"))


def is_comment(line: str, cells: Sequence[str], width: int, separator: str, inside: bool) -> bool:
    """Return whether a line is a comment; a word may be '#' or '#tag' too."""
    if not line.startswith("#"):
        return False
    if separator == "\t":
        return "\t" not in line
    if inside:
        return False
    return bool(METADATA.match(line) or _MARKER.match(line)) or bool(width and len(cells) != width)


def _split_sentences(lines: Sequence[str], separator: str) -> list[list[list[str]]]:
    """Return sentences of rows of cells, without comments and document marks."""
    blocks: list[list[list[str]]] = [[]]
    for line in lines:
        if not line.strip() or line.startswith(DOCUMENT_MARK):
            blocks.append([])
            continue
        cells = split_cells(line, separator)
        if not is_comment(line, cells, 0, separator, bool(blocks[-1])):
            blocks[-1].append(cells)
    return [block for block in blocks if block]


def _is_header(cells: Sequence[str]) -> bool:
    lowered = [cell.strip().lower() for cell in cells]
    return sum(cell in _HEADER_NAMES for cell in lowered) >= 2 and len(set(lowered)) == len(lowered)


def _declared_names(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the column names in the first comment of CoNLL-U Plus."""
    for line in lines:
        match = METADATA.fullmatch(line)
        if match and match[1] == "global.columns":
            return tuple(name.lower() for name in match[2].split())
    return ()


def _standard_names(columns: Sequence[Sequence[str]], varies: bool) -> tuple[str, ...]:
    """Return the column names of a shared-task format if the content agrees."""
    tagged = [_has_iob_spans(column) for column in columns]
    if len(columns) >= 7 and all(map(PARSE_BIT.fullmatch, columns[5])):
        return ("id", "form", "lemma", "upos", "xpos", "parse", "roleset")
    if varies:
        return ()
    if tagged == [False, False, True]:
        return ("word", "pos", "chunk")
    if tagged == [False, False, True, True]:
        return ("word", "pos", "chunk", "ner")
    if len(columns) == 5 and tagged[2] and all("#" in cell for cell in columns[3]):
        return ("id", "word", "tag", "nested", "annotator")
    return ()


def _measure_widths(blocks: Sequence[Sequence[Sequence[str]]]) -> tuple[int, int]:
    """Return the width of the rows (0 if sentences differ) and the width all rows share."""
    counted = Counter(len(row) for block in blocks for row in block)
    usual, least = counted.most_common(1)[0][0], min(counted)
    # Semantic-role formats have a column per predicate: sentences differ, each even in itself.
    even = all(len({len(row) for row in block}) == 1 for block in blocks)
    roles = all(
        PARSE_BIT.fullmatch(cell) for block in blocks for row in block for cell in row[least:]
    )
    varies = len(counted) > 1 and even and (roles or least >= _MIN_VARYING_WIDTH)
    return (0, least) if varies else (usual, usual)


def _columns_by_name(names: Sequence[str], width: int) -> tuple[int, int] | None:
    """Return the word and tag columns by their names, if the names tell."""
    word = next((names.index(n) for n in WORD_NAMES if n in names), None)
    tag = next((names.index(n) for n in TAG_NAMES if n in names), None)
    return None if word is None or tag is None or max(word, tag) >= width else (word, tag)


def _columns_by_content(
    columns: Sequence[Sequence[str]], blocks: Sequence[Sequence[Sequence[str]]]
) -> tuple[int, int]:
    count, rows = len(columns), len(columns[0])
    distinct = [len(set(column)) for column in columns]
    iob = [i for i in range(1, count) if _has_iob_spans(columns[i])]
    few = [
        i
        for i in range(1, count)
        if 1 < distinct[i] <= _MAX_TAG_RATIO * rows or rows < _MIN_ROWS_TO_COMPARE
    ]
    tag = iob[-1] if iob else few[-1] if few else count - 1
    return _find_words(columns, blocks, tag), tag


def _find_words(
    columns: Sequence[Sequence[str]],
    blocks: Sequence[Sequence[Sequence[str]]],
    tag: int | None,
) -> int:
    """Return the first column nearly as rich as the richest, tags and numbers excluded."""
    words = [i for i in range(len(columns)) if i != tag and not _is_word_number(blocks, i)]
    distinct = {i: len(set(columns[i])) for i in words}
    most = max(distinct.values(), default=0)
    return next((i for i in words if distinct[i] >= _MIN_WORD_RICHNESS * most), 0)


def _has_iob_spans(column: Sequence[str]) -> bool:
    return _is_iob(column) and any(cell[1:2] == "-" for cell in column)


def _is_iob(column: Sequence[str]) -> bool:
    return sum(1 for cell in column if _TAG.fullmatch(cell)) >= 0.95 * len(column)


def _is_word_number(blocks: Sequence[Sequence[Sequence[str]]], column: int) -> bool:
    """Return whether a column only numbers the words of each sentence."""
    for block in blocks:
        cells = [row[column] for row in block if column < len(row)]
        numbers = [number for cell in cells if (number := parse_integer(cell)) is not None]
        if len(numbers) < len(cells) or any(b != a + 1 for a, b in pairwise(numbers)):
            return False
    return True
