"""Read column files: a word per line with its tags in columns, blank lines between sentences."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import InvalidTagPolicy, Span
from weft.text.column_layout import (
    DOCUMENT_MARK,
    METADATA,
    ColumnLayout,
    detect_layout,
    is_comment,
    split_cells,
)
from weft.text.example import SkipCounter
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource, decode_line

LABEL_KEYS = ("label", "intent")  # of comments


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence of a column file: its rows of cells and their lines."""

    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    layout: ColumnLayout
    file: str = ""
    comments: tuple[str, ...] = ()
    document: int = 0  # counts -DOCSTART- lines
    label: str = ""  # of the whole sentence, from a `# label = …` or `# intent = …` comment

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
        """The value of a `# sent_id = …` comment, or ""."""
        return _find_id(self.comments)

    def where(self, word: int = 0) -> str:
        """'file:line: sentence …' of a word, for messages."""
        named = f": sentence '{self.id}'" if self.id else ""
        return f"{self.file}:{self.lines[word]}{named}"

    def column(self, column: int | str) -> list[str]:
        """Return the cells of any column, by name or position."""
        number = self.layout.index_of(column)
        for word, row in enumerate(self.rows):
            if not -len(row) <= number < len(row):
                missing = f"no column {number}, the row has {len(row)}"
                raise UserError(f"{self.where(word)}: {missing}. Pass a column that every row has.")
        return [row[number] for row in self.rows]

    def spans(self, scheme: str, invalid: InvalidTagPolicy = "error") -> list[Span]:
        """Return the labelled word spans; an error names the line of an invalid tag."""
        tags = self.tags
        for word, tag in enumerate(tags):
            try:
                schemes.split_tag(tag)
            except UserError as error:
                raise UserError(f"{self.where(word)}: {error}") from None
        if invalid == "error" and (violation := schemes.find_fault(tags, scheme)):
            raise UserError(f"{self.where(violation[0])}: {violation[1]}")
        return schemes.tags_to_spans(tags, scheme, invalid)

    def with_tags(self, tags: Sequence[str]) -> "TaggedSentence":
        """Return the same rows with other tags."""
        tag_column = self.layout.index_of(self.layout.tags)
        rows = []
        for row, tag in zip(self.rows, tags, strict=True):
            cells = list(row)
            cells[tag_column] = tag
            rows.append(tuple(cells))
        return replace(self, rows=tuple(rows))


def read_columns(
    path: str | os.PathLike[str] | LineSource,
    *,
    words: int | str | None = None,
    tags: int | str | None = None,
    layout: ColumnLayout | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[TaggedSentence]:
    """Yield the sentences of a column file; columns not given are detected.

    A row with another number of columns is an error, or drops its sentence.
    """
    source = path if isinstance(path, LineSource) else LineSource(path)
    laid = layout or detect_layout(source, words=words, tags=tags)
    return _require_sentences(
        _read_sentences(source, laid, BadRows(source.name, on_bad_row, skipped)), source.name
    )


def format(sentence: TaggedSentence) -> str:
    """Format the sentence as lines, with the final blank line."""
    rows = (sentence.layout.separator.join(row) for row in sentence.rows)
    return "\n".join([*sentence.comments, *rows, "", ""])


def _read_sentences(
    source: LineSource, layout: ColumnLayout, bad_rows: BadRows
) -> Iterator[TaggedSentence]:
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    comments: list[str] = []
    document = 0
    bad = False
    header = layout.header
    for number, raw in enumerate(source.raw(), 1):
        line = decode_line(raw, number, bad_rows)
        if line is None:  # drop a sentence that lacks a word
            bad = True
            rows.append(())
            lines.append(number)
            continue
        if not line.strip() or line.startswith(DOCUMENT_MARK):
            if rows and not bad:
                yield TaggedSentence(
                    tuple(rows), tuple(lines), layout, source.name, tuple(comments), document,
                    _find_value(comments, LABEL_KEYS),
                )  # fmt: skip
            if rows:
                rows, lines, comments, bad = [], [], [], False
            document += line.startswith(DOCUMENT_MARK)
            continue
        cells = tuple(split_cells(line, layout.separator))
        if is_comment(line, cells, layout.width, layout.separator, bool(rows)):
            comments.append(line)
            continue
        if header:
            header = False
            continue
        fault = _find_row_fault(cells, layout, rows)
        if fault and not bad:
            named = f"sentence '{_find_id(comments)}': " if _find_id(comments) else ""
            bad_rows.report(fault[0], number, named + fault[1])
            bad = True
        rows.append(cells)
        lines.append(number)
    if rows and not bad:
        yield TaggedSentence(
            tuple(rows), tuple(lines), layout, source.name, tuple(comments), document,
            _find_value(comments, LABEL_KEYS),
        )  # fmt: skip


def _find_id(comments: Iterable[str]) -> str:
    return _find_value(comments, ("sent_id", "id"))


def _find_value(comments: Iterable[str], keys: Sequence[str]) -> str:
    """Return the value of a `# key = value` comment, or ""."""
    fields = (METADATA.fullmatch(comment) for comment in comments)
    return next((f[2].strip() for f in fields if f and f[1] in keys), "")


def _find_row_fault(
    cells: tuple[str, ...], layout: ColumnLayout, rows: list[tuple[str, ...]]
) -> tuple[str, str] | None:
    width = layout.width or (len(rows[0]) if rows else len(cells))
    if len(cells) != width:
        mismatch = f"{len(cells)} columns, but other rows have {width}: '{' '.join(cells):.40}'"
        apart = "a tab" if layout.separator == "\t" else "a space"
        fix = f"Give each word {width} cells with {apart} between them, or {SKIP_HINT}"
        return "ragged columns", f"{mismatch}. {fix}."
    if layout.words < len(cells) and not cells[layout.words]:
        return (
            "empty word",
            f"the word (column {layout.words}) is empty. Fill it in, or {SKIP_HINT}.",
        )
    return None


def _require_sentences(sentences: Iterator[TaggedSentence], name: str) -> Iterator[TaggedSentence]:
    first = next(sentences, None)
    if first is None:
        raise UserError(f"{name}: no usable sentence. Check the first rows and the skip counts.")
    yield first
    yield from sentences
