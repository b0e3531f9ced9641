"""Coreference in columns: mention brackets (3 … 3) in one column (CoNLL-2012)."""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from weft.errors import UserError
from weft.text.annotation.frames import Coreference, Mention
from weft.text.column_layout import PARSE_BIT, split_cells, split_sample
from weft.text.example import Example, SkipCounter
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.semantics.bracket_cells import (
    NO_MENTION,
    find_words,
    format_mentions,
    parse_mentions,
    parse_roles,
    split_mentions,
)
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource, decode_line

BEGIN = re.compile(r"#\s*begin document\s*\(?([^()]*)\)?;?\s*(?:part\s*(\S+))?\s*")
END = re.compile(r"#\s*end document\b.*")
# Columns of CoNLL-2012 that are read where a file has all of its columns.
WORD, PARSE, SPEAKER, COLUMNS = 3, 5, 9, 11
MIN_MARKED = 0.9  # fraction of filled cells of a mention column that must be brackets
(UNENDED, UNBEGUN, OUTSIDE, RAGGED, CROSS_SENTENCE, DUPLICATE, SHARED, CROSSING) = (
    "document without end",
    "end without document",
    "words outside documents",
    "ragged rows",
    "mention across sentences",
    "duplicate mention",
    "mention of two entities",
    "crossing mentions",
)


@dataclass(frozen=True)
class CoreferenceLayout:
    """The columns of a coreference file; mentions are in the last column if `mentions` is -1."""

    separator: str
    words: int
    mentions: int
    has_documents: bool = True  # lines mark where documents begin


@dataclass(frozen=True)
class CoreferenceFault:
    """A fault of one document: its kind, line, and what is wrong."""

    kind: str
    line: int
    detail: str


@dataclass(frozen=True)
class CoreferenceDocument:
    """The words of one document with the cells of its mention column."""

    name: str  # with its part, if it has one
    words: tuple[str, ...]
    cells: tuple[str, ...]
    lines: tuple[int, ...]
    sentences: tuple[int, ...]  # the first word of each
    file: str = ""
    line: int = 0  # where it begins
    structure: tuple[CoreferenceFault, ...] = ()  # faults of its rows and marks
    speakers: tuple[str, ...] = ()  # of each word, "" where unknown; empty: of none
    parse: tuple[str, ...] = ()  # the parse bits of each word, if there are any

    @property
    def mentions(self) -> tuple[Mention, ...]:
        """The mentions with both brackets."""
        return tuple(parse_mentions(self.cells)[0])

    def annotation(self) -> Coreference:
        """Return the mentions, sentence boundaries, speakers, genre and constituents."""
        constituents, broken = parse_roles(self.parse)
        genre = self.name.partition("/")[0] if "/" in self.name else ""
        return Coreference(
            self.mentions, self.sentences, self.speakers, genre,
            () if broken else tuple(constituents),
        )  # fmt: skip

    def faults(self) -> Iterator[CoreferenceFault]:
        """Yield the faults of its structure, its brackets, and its mentions."""
        yield from self.structure
        mentions, broken = parse_mentions(self.cells)
        for fault in broken:
            detail = f"word '{self.words[fault.word]}': '{fault.label}'"
            yield CoreferenceFault(fault.kind, self.lines[fault.word], detail)
        yield from self._mention_faults(mentions)

    def _mention_faults(self, mentions: list[Mention]) -> Iterator[CoreferenceFault]:
        starts = set(self.sentences)
        entities: dict[tuple[int, int], str] = {}
        seen: set[Mention] = set()
        for mention in mentions:
            line, place = self.lines[mention.start], (mention.start, mention.end)
            named = self.describe(mention)
            if any(k in starts for k in range(mention.start + 1, mention.end)):
                yield CoreferenceFault(CROSS_SENTENCE, line, named)
            known = entities.setdefault(place, mention.label)
            if mention in seen:
                yield CoreferenceFault(DUPLICATE, line, named)
            elif known != mention.label:
                yield CoreferenceFault(SHARED, line, f"{named} is also entity {known}")
            seen.add(mention)
        for one, other in _crossing(mentions):
            detail = f"{self.describe(one)} and {self.describe(other)}"
            yield CoreferenceFault(CROSSING, self.lines[other.start], detail)

    def describe(self, mention: Mention) -> str:
        """Return a mention as messages name it."""
        text = " ".join(self.words[mention.start : mention.end])
        return f"entity {mention.label} '{text:.40}'"

    def to_example(self) -> Example:
        """Return the document as an Example; its text is the words joined by spaces."""
        return Example(
            " ".join(self.words), self.annotation(), self.name, self.file, self.line, self.words,
            locate_spaced_words(self.words),
        )  # fmt: skip


def _crossing(mentions: list[Mention]) -> Iterator[tuple[Mention, Mention]]:
    """Yield pairs of mentions that overlap without one containing the other."""
    active: list[Mention] = []
    for mention in mentions:  # by start
        active = [m for m in active if m.end > mention.start]
        yield from ((m, mention) for m in active if m.start < mention.start and m.end < mention.end)
        active.append(mention)


def detect_coreference(path: str | os.PathLike[str]) -> CoreferenceLayout | None:
    """Return the layout of a file with a column of mention brackets; None for other files."""
    with closing(LineSource(path)) as source:
        lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    marked = any(BEGIN.fullmatch(line) for line in lines)
    try:
        sample = split_sample([line for line in lines if not END.fullmatch(line)], os.fspath(path))
    except UserError:
        return None
    # Role columns may stand before the last one, so that widths differ.
    last = [row[-1] for block in sample.blocks for row in block]
    candidates = list(enumerate(sample.columns)) if sample.width else [(-1, last)]
    for number, column in reversed(candidates):
        filled = [cell for cell in column if cell not in NO_MENTION]
        good = sum(split_mentions(cell) is not None for cell in filled)
        enough = bool(filled) and good >= MIN_MARKED * len(filled)
        if enough and any("(" in cell for cell in filled):
            words = find_words(sample.columns, number)
            return CoreferenceLayout(sample.separator, words, number, marked)
    return None


def read_documents(
    path: str | os.PathLike[str],
    layout: CoreferenceLayout | None = None,
    skipped: SkipCounter | None = None,
    on_bad_row: BadRowPolicy = "skip",
) -> Iterator[CoreferenceDocument]:
    """Yield every document as it stands in the file, faults included."""
    name = os.fspath(path)
    laid = layout or detect_coreference(path)
    if laid is None:
        raise UserError(
            f"{name}: no column of mention brackets such as (3 … 3). Give one, with "
            "'#begin document (NAME)' and '#end document' around each document."
        )
    builder = _DocumentBuilder(laid, name)
    for number, raw in enumerate(LineSource(path).raw(), 1):
        line = decode_line(raw, number, BadRows(name, on_bad_row, skipped))
        if line is None:
            continue
        if opening := BEGIN.fullmatch(line):
            yield from builder.finish(number, ended=False)
            builder.begin(number, opening)
        elif END.fullmatch(line):
            yield from builder.finish(number, ended=True)
        else:
            builder.add(line, number)
    yield from builder.finish(builder.last, ended=not laid.has_documents)


class _DocumentBuilder:
    """Collects the rows of the document that is being read."""

    def __init__(self, layout: CoreferenceLayout, file: str) -> None:
        self.layout, self.file = layout, file
        self.last = 0  # line of the last row
        self._reset()

    def _reset(self) -> None:
        self.name, self.line, self.open = "", 0, False
        self.words: list[str] = []
        self.cells: list[str] = []
        self.lines: list[int] = []
        self.speakers: list[str] = []
        self.parse: list[str] = []
        self.sentences: list[int] = []
        self.faults: list[CoreferenceFault] = []
        self.width, self.fresh = 0, True

    def begin(self, number: int, opening: "re.Match[str]") -> None:
        part = f", part {opening[2]}" if opening[2] else ""
        self.name, self.line, self.open = f"{opening[1].strip()}{part}", number, True
        self.last = number

    def add(self, line: str, number: int) -> None:
        if not line.strip():
            self.fresh = True
            return
        cells = split_cells(line, self.layout.separator)
        if line.startswith("#") and len(cells) < 2:
            return  # a comment
        fixed, least = self.layout.mentions >= 0, max(self.layout.words, self.layout.mentions) + 1
        self.width = self.width or max(len(cells), least)
        if len(cells) < least or (fixed and len(cells) != self.width):
            detail = f"{len(cells)} columns instead of {self.width}"
            self.faults.append(CoreferenceFault(RAGGED, number, detail))
            cells = [*cells, *[""] * self.width][: max(self.width, least)]
        if self.fresh:
            self.sentences.append(len(self.words))
            self.fresh = False
        self.words.append(cells[self.layout.words])
        self.cells.append(cells[self.layout.mentions])
        self.lines.append(number)
        complete = self.layout.words == WORD and len(cells) >= COLUMNS
        speaker, bits = (cells[SPEAKER], cells[PARSE]) if complete else ("", "")
        self.speakers.append("" if speaker in NO_MENTION else speaker)
        self.parse.append(bits if PARSE_BIT.fullmatch(bits) else "")
        self.line, self.last = self.line or number, number

    def finish(self, number: int, ended: bool) -> Iterator[CoreferenceDocument]:
        """Yield the document that ends at a line, if there is one."""
        where = self.line or number
        if self.open and not ended:
            detail = f"document '{self.name}' has no '#end document'"
            self.faults.append(CoreferenceFault(UNENDED, where, detail))
        elif not self.open and ended and self.layout.has_documents:
            detail = "'#end document' without '#begin document'"
            self.faults.append(CoreferenceFault(UNBEGUN, number, detail))
        elif not self.open and self.words and self.layout.has_documents:
            detail = f"{len(self.words)} words before '#begin document'"
            self.faults.append(CoreferenceFault(OUTSIDE, where, detail))
        if self.words or self.open or self.faults:
            yield CoreferenceDocument(
                self.name, tuple(self.words), tuple(self.cells), tuple(self.lines),
                tuple(self.sentences), self.file, where, tuple(self.faults),
                tuple(self.speakers) if any(self.speakers) else (),
                tuple(self.parse) if all(self.parse) and "(" in "".join(self.parse) else (),
            )  # fmt: skip
        self._reset()


def read_coreference(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the documents as Examples whose label is their Coreference.

    A document with unbalanced brackets or marks is an error, or is dropped.
    """
    allowed = (CROSS_SENTENCE, SHARED, CROSSING)
    bad_rows = BadRows(os.fspath(path), on_bad_row, skipped)
    for document in read_documents(path, skipped=skipped, on_bad_row=on_bad_row):
        fault = next((f for f in document.faults() if f.kind not in allowed), None)
        if fault is None:
            yield document.to_example()
        else:
            message = f"document '{document.name}': {fault.kind}: {fault.detail}."
            bad_rows.report(fault.kind, fault.line, f"{message} Correct it, or {SKIP_HINT}.")


def format_document(example: Example) -> str:
    """Return a document as CoNLL-2012 writes it, with marks around it and a line after a sentence.

    Columns are those of the shared task: name, part, number of the word in its sentence, word,
    then unknown ones (-), and mention brackets at the end. Entities are numbered as they come.
    """
    if not isinstance(example.label, Coreference):
        raise UserError(
            f"{example.where}: no coreference to write as columns. Write JSONL instead."
        )
    bad = next((w for w in example.words if not w or any(map(str.isspace, w))), None)
    if bad is not None:
        raise UserError(
            f"{example.where}: the word {bad!r:.40} is empty or has a space, which CoNLL-2012 "
            "columns cannot hold. Write JSONL instead."
        )
    name, _, part = example.id.partition(", part ")
    name = re.sub(r"[\s()]+", "_", name) or "document"
    part = part if part.isdecimal() else "0"
    entities: dict[str, str] = {}
    mentions = [
        Mention(entities.setdefault(label, str(len(entities))), start, end)
        for label, start, end in sorted(example.label.mentions, key=lambda m: (m.start, -m.end))
    ]
    cells = format_mentions(mentions, len(example.words), "-")
    starts = {*example.label.sentences, 0}
    speakers = example.label.speakers or ("",) * len(example.words)
    lines, number = [f"#begin document ({name}); part {part.zfill(3)}"], 0
    for k, (word, cell) in enumerate(zip(example.words, cells, strict=True)):
        if k in starts:
            lines += [""] if k else []
            number = 0
        speaker = re.sub(r"\s+", "_", speakers[k]) or "-"
        lines.append("\t".join([name, part, str(number), word, *["-"] * 5, speaker, "-", cell]))
        number += 1
    return "\n".join([*lines, "", "#end document"]) + "\n"
