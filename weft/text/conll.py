"""Column files: a word a line with its tags in columns, a blank line between sentences."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from weft.errors import UserError, near_miss
from weft.text import schemes
from weft.text.example import Tally
from weft.text.schemes import Invalid, Span
from weft.text.source import SKIP, Handling, Problems, Source, decoded

DOCUMENT = "-DOCSTART-"
WORD_NAMES = ("word", "token", "form", "text")
TAG_NAMES = ("tag", "ner", "label", "ner_tag", "iob", "chunk", "pos", "upos", "xpos")
_OTHER_NAMES = ("id", "word_id", "lemma", "sent_id", "sentence", "sentence #", "feats", "parse")
BIT = re.compile(r"(?:\([^()*\s]+)*\*\)*")  # a parse bit: opened before the word, closed after
_KNOWN = {"word", "tag", *WORD_NAMES, *TAG_NAMES, *_OTHER_NAMES}
_TAG = re.compile(r"(?:O|[BILUES]-\S+)")
_SPACES = re.compile(r"[ \t]+")  # not \s: a no-break space belongs to its word
_FIELD = re.compile(r"#\s*([\w.:#-]+)\s*=\s*(.*)")
_MARKER = re.compile(r"#\s*(?:begin|end) document\b")
_FEW = 0.2  # distinct values to rows, at most, in a column of tags
_SAMPLE = 20  # below so many rows, "few distinct values" says nothing
_WIDE = 6  # columns from which sentences may differ in the rest
_MANY = 0.7  # distinct values of the words, to those of the richest column, at least


@dataclass(frozen=True)
class Layout:
    """How a column file is written: separator, names of columns, and which are words and tags."""

    separator: str  # "\\t", or " " for any run of spaces and tabs
    names: tuple[str, ...]  # empty where nothing says
    words: int
    tags: int
    width: int  # of every row; 0 where sentences differ
    header: bool = False

    def number(self, column: int | str) -> int:
        """The position of a column given by name or by position, from 0; -1 is the last."""
        if isinstance(column, str) and not re.fullmatch(r"-?\d+", column):
            return self._named(column)
        number = int(column)
        if self.width and not -self.width <= number < self.width:
            raise UserError(
                f"no column {number}; the rows have {self.width}. Give a number from 0 to "
                f"{self.width - 1}, or -1 for the last."
            )
        return number % self.width if self.width else number

    def _named(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if name in ("word", "tag"):
            return self.words if name == "word" else self.tags
        if not self.names:
            raise UserError(f"no column '{name}': the columns have no names. Give a number from 0.")
        found = ", ".join(self.names)
        raise UserError(f"no column '{name}'; found {found}.{near_miss(name, self.names)}")


@dataclass(frozen=True)
class Tagged:
    """A sentence of a column file: its rows of cells, and where they stand."""

    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    layout: Layout
    file: str = ""
    comments: tuple[str, ...] = ()
    document: int = 0  # counts -DOCSTART- lines

    @property
    def words(self) -> list[str]:
        """The cells of the word column."""
        return self.column(self.layout.words)

    @property
    def tags(self) -> list[str]:
        """The cells of the tag column."""
        return self.column(self.layout.tags)

    @property
    def line(self) -> int:
        """The line of the first word."""
        return self.lines[0]

    @property
    def id(self) -> str:
        """What a `# sent_id = …` comment says, if one does."""
        return _id_of(self.comments)

    def where(self, place: int = 0) -> str:
        """'file:line: sentence …' of a word, for messages."""
        named = f": sentence '{self.id}'" if self.id else ""
        return f"{self.file}:{self.lines[place]}{named}"

    def column(self, column: int | str) -> list[str]:
        """The cells of any column, by name or position."""
        number = self.layout.number(column)
        for place, row in enumerate(self.rows):
            if not -len(row) <= number < len(row):
                told = f"{len(row)} columns, so none has the number {number}"
                raise UserError(f"{self.where(place)}: {told}. Name a column that every row has.")
        return [row[number] for row in self.rows]

    def spans(self, scheme: str, invalid: Invalid = "error") -> list[Span]:
        """The labelled stretches of words; an invalid tag is named with its line."""
        tags = self.tags
        for place, tag in enumerate(tags):
            try:
                schemes.split_tag(tag)
            except UserError as error:
                raise UserError(f"{self.where(place)}: {error}") from None
        if invalid == "error" and (found := schemes.fault(tags, scheme)):
            raise UserError(f"{self.where(found[0])}: {found[1]}")
        return schemes.spans(tags, scheme, invalid)

    def with_tags(self, tags: Sequence[str]) -> "Tagged":
        """The same rows with other tags."""
        place = self.layout.number(self.layout.tags)
        rows = []
        for row, tag in zip(self.rows, tags, strict=True):
            cells = list(row)
            cells[place] = tag
            rows.append(tuple(cells))
        return replace(self, rows=tuple(rows))


def read_columns(
    path: str | os.PathLike[str] | Source,
    *,
    words: int | str | None = None,
    tags: int | str | None = None,
    layout: Layout | None = None,
    problems: Handling = "error",
    tally: Tally | None = None,
) -> Iterator[Tagged]:
    """The sentences of a column file, one at a time; columns not named are found by their content.

    A row with another number of columns stops the reading, or leaves its sentence out.
    """
    source = path if isinstance(path, Source) else Source(path)
    laid = layout or layout_of(source, words=words, tags=tags)
    return _some(_sentences(source, laid, Problems(source.name, problems, tally)), source.name)


def format(sentence: Tagged) -> str:
    """The sentence as lines, with the blank line that ends it."""
    rows = (sentence.layout.separator.join(row) for row in sentence.rows)
    return "\n".join([*sentence.comments, *rows, "", ""])


def layout_of(
    source: Source, *, words: int | str | None = None, tags: int | str | None = None
) -> Layout:
    """How a file is written, from its first lines; columns that are named are taken as named."""
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    found = guess(lines, source.name)
    try:
        if tags is not None:
            found = replace(found, tags=found.number(tags))
        if words is not None:
            found = replace(found, words=found.number(words))
    except UserError as error:
        raise UserError(f"{source.name}: {error}") from None
    return found


def guess(lines: Sequence[str], name: str = "file") -> Layout:
    """Separator, header and columns from the first lines of a file.

    The tags are the last column of IOB tags or, without one, the last with few distinct values; the
    words are the first column nearly as rich as the richest, numbers of words left aside.
    """
    separator = "\t" if _by_tabs(lines) else " "
    blocks = _blocks(lines, separator)
    if not blocks:
        raise UserError(f"{name}: no row of columns. Give it a word and its tag on each line.")
    header = _is_header(blocks[0][0])
    names = tuple(cell.strip().lower() for cell in blocks[0][0]) if header else ()
    if header:
        blocks = [block for block in (blocks[0][1:], *blocks[1:]) if block] or blocks
    usual, least = _widths(blocks)
    varies = not usual
    if least < 2:
        raise UserError(
            f"{name}: one column only. A column file has a word and its tag on each line, "
            "with a space or a tab between them."
        )
    rows = [row for block in blocks for row in block if len(row) >= least]
    columns = [[row[i] for row in rows] for i in range(least)]
    names = names or _declared(lines) or _usual_names(columns, varies)
    word, tag = _named(names, least) or _found(columns, blocks)
    return Layout(separator, names, word, tag, usual, header)


def sample(source: Source, layout: Layout) -> list[list[str]]:
    """The columns that all of the first rows have."""
    lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    rows = [row for block in _blocks(lines, layout.separator) for row in block]
    return [list(column) for column in zip(*rows[layout.header :], strict=False)]


def is_columns(lines: Sequence[str]) -> bool:
    """Whether these lines surely are a column file: short rows, even, with a column of IOB tags."""
    separator = "\t" if _by_tabs(lines) else " "
    blocks = _blocks(lines, separator)
    rows = [row for block in blocks for row in block]
    if len(rows) < 2 or len(rows[0]) < 2:
        return False
    if sum(len(row) == len(rows[-1]) for row in rows) < 0.9 * len(rows):
        return False
    shared = min(len(row) for row in rows)
    return any(_looks_tagged([row[i] for row in rows]) for i in range(1, shared))


def _sentences(source: Source, layout: Layout, problems: Problems) -> Iterator[Tagged]:
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    comments: list[str] = []
    document = 0
    bad = False
    header = layout.header
    for number, raw in enumerate(source.raw(), 1):
        line = decoded(raw, number, problems)
        if line is None:  # a sentence without one of its words is another sentence
            bad = True
            rows.append(())
            lines.append(number)
            continue
        if not line.strip() or line.startswith(DOCUMENT):
            if rows and not bad:
                yield Tagged(
                    tuple(rows), tuple(lines), layout, source.name, tuple(comments), document
                )
            if rows:
                rows, lines, comments, bad = [], [], [], False
            document += line.startswith(DOCUMENT)
            continue
        cells = tuple(_cells(line, layout.separator))
        if _is_comment(line, cells, layout.width, layout.separator, bool(rows)):
            comments.append(line)
            continue
        if header:
            header = False
            continue
        fault = _row_fault(cells, layout, rows)
        if fault and not bad:
            named = f"sentence '{_id_of(comments)}': " if _id_of(comments) else ""
            problems.found(fault[0], number, named + fault[1])
            bad = True
        rows.append(cells)
        lines.append(number)
    if rows and not bad:
        yield Tagged(tuple(rows), tuple(lines), layout, source.name, tuple(comments), document)


def _id_of(comments: Iterable[str]) -> str:
    fields = (_FIELD.fullmatch(comment) for comment in comments)
    return next((f[2].strip() for f in fields if f and f[1] in ("sent_id", "id")), "")


def _row_fault(
    cells: tuple[str, ...], layout: Layout, rows: list[tuple[str, ...]]
) -> tuple[str, str] | None:
    width = layout.width or (len(rows[0]) if rows else len(cells))
    if len(cells) != width:
        told = f"{len(cells)} columns where the others have {width}: '{' '.join(cells):.40}'"
        apart = "a tab" if layout.separator == "\t" else "a space"
        fix = f"Give each word {width} cells with {apart} between them, or {SKIP}"
        return "ragged columns", f"{told}. {fix}."
    if layout.words < len(cells) and not cells[layout.words]:
        return "empty word", f"the word (column {layout.words}) is empty. Fill it in, or {SKIP}."
    return None


def _some(sentences: Iterator[Tagged], name: str) -> Iterator[Tagged]:
    first = next(sentences, None)
    if first is None:
        raise UserError(f"{name}: no sentence can be used. Look at the first rows, or the tally.")
    yield first
    yield from sentences


def _by_tabs(lines: Iterable[str]) -> bool:
    rows = [line for line in lines if line.strip() and not line.startswith(("#", DOCUMENT))]
    return bool(rows) and sum("\t" in row for row in rows) > 0.5 * len(rows)


def _cells(line: str, separator: str) -> list[str]:
    return line.split("\t") if separator == "\t" else _SPACES.split(line.strip(" \t"))


def _is_comment(line: str, cells: Sequence[str], width: int, separator: str, inside: bool) -> bool:
    """Whether a line that starts with # is a comment: the word may as well be '#' or '#tag'."""
    if not line.startswith("#"):
        return False
    if separator == "\t":
        return "\t" not in line
    if inside:
        return False
    return bool(_FIELD.match(line) or _MARKER.match(line)) or bool(width and len(cells) != width)


def _blocks(lines: Sequence[str], separator: str) -> list[list[list[str]]]:
    """Sentences of rows of cells, comments and document marks left out."""
    blocks: list[list[list[str]]] = [[]]
    for line in lines:
        if not line.strip() or line.startswith(DOCUMENT):
            blocks.append([])
            continue
        cells = _cells(line, separator)
        if not _is_comment(line, cells, 0, separator, bool(blocks[-1])):
            blocks[-1].append(cells)
    return [block for block in blocks if block]


def _is_header(cells: Sequence[str]) -> bool:
    lowered = [cell.strip().lower() for cell in cells]
    return sum(cell in _KNOWN for cell in lowered) >= 2 and len(set(lowered)) == len(lowered)


def _declared(lines: Iterable[str]) -> tuple[str, ...]:
    """The names in the first comment of CoNLL-U Plus."""
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match and match[1] == "global.columns":
            return tuple(name.lower() for name in match[2].split())
    return ()


def _usual_names(columns: Sequence[Sequence[str]], varies: bool) -> tuple[str, ...]:
    """Names of the shared tasks' own formats, where the content agrees."""
    tagged = [_looks_tagged(column) for column in columns]
    if len(columns) >= 7 and all(map(BIT.fullmatch, columns[5])):
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


def _widths(blocks: Sequence[Sequence[Sequence[str]]]) -> tuple[int, int]:
    """How many columns the rows have, 0 where sentences differ, and how many all can count on."""
    counted = Counter(len(row) for block in blocks for row in block)
    usual, least = counted.most_common(1)[0][0], min(counted)
    # Formats of roles have a column for each predicate, so sentences differ, each even in itself.
    even = all(len({len(row) for row in block}) == 1 for block in blocks)
    roles = all(BIT.fullmatch(cell) for block in blocks for row in block for cell in row[least:])
    varies = len(counted) > 1 and even and (roles or least >= _WIDE)
    return (0, least) if varies else (usual, usual)


def _named(names: Sequence[str], width: int) -> tuple[int, int] | None:
    """Words and tags by the names of the columns, where they say."""
    word = next((names.index(n) for n in WORD_NAMES if n in names), None)
    tag = next((names.index(n) for n in TAG_NAMES if n in names), None)
    return None if word is None or tag is None or max(word, tag) >= width else (word, tag)


def _found(
    columns: Sequence[Sequence[str]], blocks: Sequence[Sequence[Sequence[str]]]
) -> tuple[int, int]:
    count, rows = len(columns), len(columns[0])
    distinct = [len(set(column)) for column in columns]
    iob = [i for i in range(1, count) if _looks_tagged(columns[i])]
    few = [i for i in range(1, count) if 1 < distinct[i] <= _FEW * rows or rows < _SAMPLE]
    tag = iob[-1] if iob else few[-1] if few else count - 1
    words = [i for i in range(count) if i != tag and not _counts_up(blocks, i)]
    most = max((distinct[i] for i in words), default=0)
    return next((i for i in words if distinct[i] >= _MANY * most), 0), tag


def _looks_tagged(column: Sequence[str]) -> bool:
    good = sum(1 for cell in column if _TAG.fullmatch(cell))
    return good >= 0.95 * len(column) and any(cell[1:2] == "-" for cell in column)


def _counts_up(blocks: Sequence[Sequence[Sequence[str]]], column: int) -> bool:
    """Whether a column only numbers the words of each sentence."""
    for block in blocks:
        cells = [row[column] for row in block if column < len(row)]
        if not all(cell.isdecimal() for cell in cells):
            return False
        if any(int(b) != int(a) + 1 for a, b in pairwise(cells)):
            return False
    return True
