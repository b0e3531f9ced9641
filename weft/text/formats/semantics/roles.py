"""Semantic roles in columns: one column of brackets per predicate (PropBank, CoNLL-2005 and 2012).

The words with a roleset are the predicates of a sentence; the n-th role column belongs to the n-th.
"""

import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, zip_longest

from weft.errors import UserError
from weft.text.annotation.frames import Frames, Predicate
from weft.text.annotation.schemes import Span
from weft.text.column_layout import METADATA, PARSE_BIT, is_comment, split_cells, split_sample
from weft.text.example import Example, SkipCounter
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.parallel import resolve_files
from weft.text.formats.semantics.bracket_cells import (
    MALFORMED,
    UNCLOSED,
    UNOPENED,
    find_words,
    format_roles,
    parse_roles,
)
from weft.text.line_source import (
    MAX_HEAD_LINES,
    SKIP_HINT,
    BadRowPolicy,
    BadRows,
    LineSource,
    decode_line,
)

_ROLESET = re.compile(r"\S+\.\S+|\d\d")  # come.03; CoNLL-2012 has the lemma in a column before
NO_PREDICATE = frozenset({"_", "-"})
PREDICATE_ROLES = ("V", "C-V")  # the predicate itself, and its continuation
MIN_AGREEMENT = 0.8  # fraction of sentences that must have a column per predicate
MAX_TRAILING = 1  # columns after the roles: CoNLL-2012 ends with coreference
RAGGED, COLUMNS, NO_VERB, ELSEWHERE = (
    "ragged sentence",
    "role columns",
    "predicate without V",
    "V elsewhere",
)
FATAL_FAULTS = (RAGGED, COLUMNS, MALFORMED, UNOPENED, UNCLOSED)  # the roles cannot be read


@dataclass(frozen=True)
class RoleLayout:
    """The columns of a file of semantic roles."""

    separator: str
    words: int
    predicates: int  # the column of rolesets
    first: int  # the first role column
    trailing: int = 0  # columns after the roles


@dataclass(frozen=True)
class RoleFault:
    """A fault of one sentence: its kind, the word at fault, and what is wrong."""

    kind: str
    word: int
    detail: str


@dataclass(frozen=True)
class RoleSentence:
    """The rows of one sentence with semantic roles."""

    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    layout: RoleLayout
    file: str = ""
    id: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The cells of the word column."""
        return tuple(self._column(self.layout.words))

    @property
    def predicates(self) -> list[tuple[int, str]]:
        """(word, sense) of each predicate."""
        senses = self._column(self.layout.predicates)
        return [
            (i, f"{self._lemma(i)}.{sense}" if sense.isdecimal() else sense)
            for i, sense in enumerate(senses)
            if sense and sense not in NO_PREDICATE
        ]

    def _lemma(self, word: int) -> str:
        """Return the lemma beside a number: before it in CoNLL-2012, after it in CoNLL-2005."""
        at = self.layout.predicates
        before, after = (self._column(column)[word] for column in (at - 1, at + 1))
        spelled = any(map(str.isalpha, before)) and at - 1 != self.layout.words
        return before if spelled or at + 1 >= self.layout.first else after

    def role_columns(self) -> list[list[str]]:
        """Return the cells of each role column, as far as the rows have them."""
        last = min(len(row) for row in self.rows) - self.layout.trailing
        return [self._column(k) for k in range(self.layout.first, last)]

    def frames(self) -> Frames:
        """Return the predicates with their roles; those without a column have none."""
        roles = [tuple(parse_roles(cells)[0]) for cells in self.role_columns()]
        own = self.predicates
        return Frames(
            tuple(
                Predicate(word, sense, roles[k] if k < len(roles) else ())
                for k, (word, sense) in enumerate(own)
            )
        )

    def faults(self) -> Iterator[RoleFault]:
        """Yield the faults of the columns, and of each predicate."""
        widths = [len(row) for row in self.rows]
        for word, width in enumerate(widths):
            if width != widths[0]:
                detail = f"{width} columns, the first word has {widths[0]}"
                yield RoleFault(RAGGED, word, detail)
                return
        columns, own = self.role_columns(), self.predicates
        if len(columns) != len(own):
            word = own[-1][0] if own else 0
            yield RoleFault(COLUMNS, word, f"{len(columns)} role columns, {len(own)} predicates")
            return
        for k, (cells, (word, sense)) in enumerate(zip(columns, own, strict=True), 1):
            spans, broken = parse_roles(cells)
            for fault in broken:
                detail = f"role column {k} ('{sense}'): '{fault.label}'"
                yield RoleFault(fault.kind, fault.word, detail)
            if not broken:
                yield from _predicate_faults(spans, word, f"role column {k} ('{sense}')")

    def to_example(self) -> Example:
        """Return the sentence as an Example; its text is the words joined by spaces."""
        words = self.words
        return Example(
            " ".join(words), self.frames(), self.id, self.file, self.lines[0], words,
            locate_spaced_words(words),
        )  # fmt: skip

    def _column(self, index: int) -> list[str]:
        return [row[index] if index < len(row) else "" for row in self.rows]


def _predicate_faults(spans: Sequence[Span], word: int, where: str) -> Iterator[RoleFault]:
    verbs = [span for span in spans if span.label in PREDICATE_ROLES]
    if not any(span.label == PREDICATE_ROLES[0] for span in verbs):
        yield RoleFault(NO_VERB, word, where)
    elif not any(span.start <= word < span.end for span in verbs):
        yield RoleFault(ELSEWHERE, word, f"{where} marks word {verbs[0].start + 1}")


def detect_roles(path: str | os.PathLike[str]) -> RoleLayout | None:
    """Return the layout of a file with a role column per predicate; None for other files."""
    with closing(_raw_lines(path)) as raw_lines:
        head = islice(raw_lines, MAX_HEAD_LINES)
        lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in head]
    try:
        sample = split_sample(lines, os.fspath(path))
    except UserError:
        return None
    layouts = _find_layouts(sample.blocks)
    if layouts is None:
        return None
    predicates, first, trailing = layouts
    return RoleLayout(sample.separator, find_words(sample.columns), predicates, first, trailing)


def _raw_lines(path: str | os.PathLike[str]) -> Generator[bytes]:
    """Yield the lines of a file, or of files joined by commas side by side (CoNLL-2005)."""
    files = resolve_files(path)
    if len(files) == 1:
        yield from LineSource(path).raw()
        return
    sources = (LineSource(file).raw() for file in files)
    for number, parts in enumerate(zip_longest(*sources), 1):
        cells = [b"" if part is None else part.strip() for part in parts]
        if any(cells) and not all(cells):
            empty = files[cells.index(b"")]
            raise UserError(
                f"{empty}:{number}: no word here, but {files[cells.index(max(cells))]} has one. "
                "Give files whose lines belong together."
            )
        yield b"\t".join(b"\t".join(part.split()) for part in cells) + b"\n"


def _find_layouts(blocks: Sequence[Sequence[Sequence[str]]]) -> tuple[int, int, int] | None:
    """Return the roleset column, the first role column and the columns after the roles.

    They are those for which most sentences have as many role columns as predicates, and some
    roles mark a predicate (V).
    """
    even = [block for block in blocks if len({len(row) for row in block}) == 1]
    least = min((len(block[0]) for block in even), default=0)
    best: tuple[tuple[int, int], int, int, int] | None = None
    for predicates in range(1, least):
        senses = [[s for row in block if (s := row[predicates]) not in NO_PREDICATE]
                  for block in even]  # fmt: skip
        # CoNLL-2012 has three columns of predicates: lemma, roleset, word sense.
        named = sum(bool(_ROLESET.fullmatch(sense)) for own in senses for sense in own)
        for trailing in range(MAX_TRAILING + 1):
            for first in range(predicates + 1, least - trailing + 1):
                fitting = sum(
                    len(block[0]) - first - trailing == len(own)
                    and _are_roles(block, first, trailing)
                    for block, own in zip(even, senses, strict=True)
                )
                if (best is None or (fitting, named) > best[0]) and _marks_verbs(
                    even, first, trailing
                ):
                    best = ((fitting, named), predicates, first, trailing)
    if best is None or best[0][0] < MIN_AGREEMENT * len(blocks):
        return None
    return best[1:]


def _marks_verbs(blocks: Sequence[Sequence[Sequence[str]]], first: int, trailing: int) -> bool:
    """Return whether some role column marks its predicate."""
    return any(
        cell.startswith("(V*")
        for block in blocks
        for row in block
        for cell in row[first : len(row) - trailing]
    )


def _are_roles(block: Sequence[Sequence[str]], first: int, trailing: int) -> bool:
    cells = [cell for row in block for cell in row[first : len(row) - trailing]]
    return sum(bool(PARSE_BIT.fullmatch(cell)) for cell in cells) >= MIN_AGREEMENT * len(cells)


def read_role_sentences(
    path: str | os.PathLike[str],
    layout: RoleLayout | None = None,
    skipped: SkipCounter | None = None,
    on_bad_row: BadRowPolicy = "skip",
) -> Iterator[RoleSentence]:
    """Yield every sentence as it stands in the file, faults included."""
    name = os.fspath(path)
    laid = layout or detect_roles(path)
    if laid is None:
        raise UserError(
            f"{name}: no column of brackets such as (ARG0* … *) for each predicate. Give a column "
            "of rolesets, then one role column per predicate."
        )
    bad_rows = BadRows(name, on_bad_row, skipped)
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    id, bad = "", False
    for number, raw in enumerate(_raw_lines(path), 1):
        line = decode_line(raw, number, bad_rows)
        if line is None:
            bad = True
        elif not line.strip():
            if rows and not bad:
                yield RoleSentence(tuple(rows), tuple(lines), laid, name, id)
            rows, lines, id, bad = [], [], "", False
        elif is_comment(line, cells := split_cells(line, laid.separator), 0, laid.separator,
                        bool(rows)):  # fmt: skip
            field = METADATA.fullmatch(line)
            id = field[2].strip() if field and field[1] in ("sent_id", "id") else id
        else:
            rows.append(tuple(cells))
            lines.append(number)
    if rows and not bad:
        yield RoleSentence(tuple(rows), tuple(lines), laid, name, id)


def read_roles(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the sentences as Examples whose label is their Frames.

    A sentence whose columns cannot be read is an error, or is dropped.
    """
    bad_rows = BadRows(os.fspath(path), on_bad_row, skipped)
    for sentence in read_role_sentences(path, skipped=skipped, on_bad_row=on_bad_row):
        fault = next((f for f in sentence.faults() if f.kind in FATAL_FAULTS), None)
        if fault is None:
            yield sentence.to_example()
        else:
            named = f"sentence '{sentence.id}': " if sentence.id else ""
            message = f"{named}{fault.kind}: {fault.detail}. Correct it, or {SKIP_HINT}."
            bad_rows.report(fault.kind, sentence.lines[fault.word], message)


def props_lines(frames: Frames, size: int) -> Iterator[str]:
    """Yield the lines of a sentence as CoNLL-2005 writes propositions, the blank one included.

    The first column has the senses of predicates, then there is a column of brackets for each.
    """
    senses = ["-"] * size
    for one in frames.predicates:
        senses[one.word] = one.sense
    columns = [format_roles(one.roles, size) for one in frames.predicates]
    for cells in zip(senses, *columns, strict=True):
        yield "\t".join(cells)
    yield ""


def sentence_lines(frames: Frames, words: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a sentence that `read_roles` reads, the blank one included.

    Columns are the number of a word, the word, its sense, then one column per predicate.
    """
    for number, line in enumerate(props_lines(frames, len(words)), 1):
        yield f"{number}\t{words[number - 1]}\t{line}" if line else ""


def format_example(example: Example) -> str:
    """Return a sentence with its id and its columns, as `read_roles` reads it."""
    assert isinstance(example.label, Frames)
    lines = [f"# sent_id = {example.id}"] if example.id else []
    return "\n".join([*lines, *sentence_lines(example.label, example.words)]) + "\n"
