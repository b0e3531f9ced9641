"""Column files: a word a line with its tags in columns, a blank line between sentences."""

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
from weft.text.example import Tally
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource, decode_line


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence of a column file: its rows of cells, and where they stand."""

    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    layout: ColumnLayout
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
        return _find_id(self.comments)

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

    def spans(self, scheme: str, invalid: InvalidTagPolicy = "error") -> list[Span]:
        """The labelled stretches of words; an invalid tag is named with its line."""
        tags = self.tags
        for place, tag in enumerate(tags):
            try:
                schemes.split_tag(tag)
            except UserError as error:
                raise UserError(f"{self.where(place)}: {error}") from None
        if invalid == "error" and (found := schemes.find_fault(tags, scheme)):
            raise UserError(f"{self.where(found[0])}: {found[1]}")
        return schemes.tags_to_spans(tags, scheme, invalid)

    def with_tags(self, tags: Sequence[str]) -> "TaggedSentence":
        """The same rows with other tags."""
        place = self.layout.number(self.layout.tags)
        rows = []
        for row, tag in zip(self.rows, tags, strict=True):
            cells = list(row)
            cells[place] = tag
            rows.append(tuple(cells))
        return replace(self, rows=tuple(rows))


def read_columns(
    path: str | os.PathLike[str] | LineSource,
    *,
    words: int | str | None = None,
    tags: int | str | None = None,
    layout: ColumnLayout | None = None,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[TaggedSentence]:
    """The sentences of a column file, one at a time; columns not named are found by their content.

    A row with another number of columns stops the reading, or leaves its sentence out.
    """
    source = path if isinstance(path, LineSource) else LineSource(path)
    laid = layout or detect_layout(source, words=words, tags=tags)
    return _require_sentences(
        _read_sentences(source, laid, BadRows(source.name, on_bad_row, skipped)), source.name
    )


def format(sentence: TaggedSentence) -> str:
    """The sentence as lines, with the blank line that ends it."""
    rows = (sentence.layout.separator.join(row) for row in sentence.rows)
    return "\n".join([*sentence.comments, *rows, "", ""])


def _read_sentences(
    source: LineSource, layout: ColumnLayout, on_bad_row: BadRows
) -> Iterator[TaggedSentence]:
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    comments: list[str] = []
    document = 0
    bad = False
    header = layout.header
    for number, raw in enumerate(source.raw(), 1):
        line = decode_line(raw, number, on_bad_row)
        if line is None:  # a sentence without one of its words is another sentence
            bad = True
            rows.append(())
            lines.append(number)
            continue
        if not line.strip() or line.startswith(DOCUMENT_MARK):
            if rows and not bad:
                yield TaggedSentence(
                    tuple(rows), tuple(lines), layout, source.name, tuple(comments), document
                )
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
            on_bad_row.found(fault[0], number, named + fault[1])
            bad = True
        rows.append(cells)
        lines.append(number)
    if rows and not bad:
        yield TaggedSentence(
            tuple(rows), tuple(lines), layout, source.name, tuple(comments), document
        )


def _find_id(comments: Iterable[str]) -> str:
    fields = (METADATA.fullmatch(comment) for comment in comments)
    return next((f[2].strip() for f in fields if f and f[1] in ("sent_id", "id")), "")


def _find_row_fault(
    cells: tuple[str, ...], layout: ColumnLayout, rows: list[tuple[str, ...]]
) -> tuple[str, str] | None:
    width = layout.width or (len(rows[0]) if rows else len(cells))
    if len(cells) != width:
        told = f"{len(cells)} columns where the others have {width}: '{' '.join(cells):.40}'"
        apart = "a tab" if layout.separator == "\t" else "a space"
        fix = f"Give each word {width} cells with {apart} between them, or {SKIP_HINT}"
        return "ragged columns", f"{told}. {fix}."
    if layout.words < len(cells) and not cells[layout.words]:
        return (
            "empty word",
            f"the word (column {layout.words}) is empty. Fill it in, or {SKIP_HINT}.",
        )
    return None


def _require_sentences(sentences: Iterator[TaggedSentence], name: str) -> Iterator[TaggedSentence]:
    first = next(sentences, None)
    if first is None:
        raise UserError(f"{name}: no sentence can be used. Look at the first rows, or the tally.")
    yield first
    yield from sentences
