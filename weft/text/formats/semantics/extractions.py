"""Tuples of open information extraction, one a line (CaRB).

Gold lines are sentence, predicate, arguments; those of a system have a confidence after the
sentence. Cells are separated by tabs.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

from weft.errors import UserError
from weft.text.annotation.frames import Extraction, Extractions
from weft.text.example import Example, SkipCounter
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource

MIN_AGREEMENT = 0.8  # fraction of lines that must look like tuples of their sentence
MIN_SENTENCE_WORDS = 4
MIN_REPEATED = 0.05  # fraction of lines with the sentence of the line before, or another width
_WORD = re.compile(r"\w+|[^\w\s]")
SHORT, NO_PREDICATE, BAD_CONFIDENCE, NO_SENTENCE = (
    "too few columns",
    "missing predicate",
    "confidence not a number",
    "missing sentence",
)


@dataclass(frozen=True)
class ExtractionLine:
    """One line of a file of tuples."""

    cells: tuple[str, ...]
    line: int
    scored: bool  # has a confidence
    file: str = ""

    @property
    def sentence(self) -> str:
        return self.cells[0].strip()

    def fault(self) -> tuple[str, str] | None:
        """Return the kind of fault that makes the line unusable, and what is wrong."""
        least = 3 + self.scored
        if not self.sentence:
            return NO_SENTENCE, "the first column is empty"
        if len(self.cells) < least:
            wanted = "sentence, confidence, predicate" if self.scored else "sentence, predicate"
            detail = f"{len(self.cells)} columns instead of {least} or more: {wanted}, arguments"
            return SHORT, detail
        if self.scored and _parse_confidence(self.cells[1]) is None:
            return BAD_CONFIDENCE, f"'{self.cells[1]}'"
        if not self.cells[1 + self.scored].strip():
            rest = ", ".join(f"'{cell.strip()}'" for cell in self.cells[2 + self.scored :])
            return NO_PREDICATE, f"arguments {rest}" if rest else "no arguments either"
        return None

    def extraction(self) -> Extraction:
        """Return the tuple, without empty arguments."""
        confidence = _parse_confidence(self.cells[1]) if self.scored else None
        predicate, *arguments = (cell.strip() for cell in self.cells[1 + self.scored :])
        return Extraction(predicate, tuple(a for a in arguments if a), confidence, self.line)


def detect_extractions(path: str | os.PathLike[str]) -> bool | None:
    """Return whether the tuples of a file have a confidence; None for other files.

    The arguments of most lines are words of the sentence in their first column, and sentences
    have several tuples, or tuples several lengths.
    """
    with closing(LineSource(path)) as source:
        lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    rows = [line.split("\t") for line in lines if line.strip()]
    if len(rows) < 2 or len(rows[0][0].split()) < MIN_SENTENCE_WORDS:
        return None
    wide = [row for row in rows if len(row) >= 3]
    scores = [_parse_confidence(row[1]) is not None for row in wide]
    scored = sum(scores) >= MIN_AGREEMENT * len(rows)
    if any(scores) and not scored and sum(scores) > (1 - MIN_AGREEMENT) * len(rows):
        return None
    fitting = sum(_is_tuple(row, scored) for row in rows)
    before = [None, *(row[0] for row in rows[:-1])]
    repeated = sum(row[0] == other for row, other in zip(rows, before, strict=True))
    varied = sum(len(row) != len(rows[0]) for row in rows)
    if fitting < MIN_AGREEMENT * len(rows) or repeated + varied < MIN_REPEATED * len(rows):
        return None
    return scored


def _is_tuple(row: Sequence[str], scored: bool) -> bool:
    first = 2 + scored
    words = set(split_tokens(row[0]))
    return len(row) > first and any(overlap(cell, words) >= 0.5 for cell in row[first:] if cell)


def split_tokens(text: str) -> list[str]:
    """Return the words and marks of a text, without case."""
    return _WORD.findall(text.casefold())


def overlap(part: str, words: set[str]) -> float:
    """Return the fraction of the tokens of a part that are words of the sentence."""
    tokens = split_tokens(part)
    return sum(token in words for token in tokens) / len(tokens) if tokens else 1.0


def read_lines(
    path: str | os.PathLike[str],
    scored: bool | None = None,
    skipped: SkipCounter | None = None,
    on_bad_row: BadRowPolicy = "skip",
) -> Iterator[ExtractionLine]:
    """Yield every line as it stands in the file, faults included."""
    name = os.fspath(path)
    if scored is None:
        scored = detect_extractions(path)
    if scored is None:
        raise UserError(
            f"{name}: no tuples of sentence, predicate and arguments. Write one a line, separated "
            "by tabs; after the sentence may stand a confidence."
        )
    for number, line in LineSource(path).lines(BadRows(name, on_bad_row, skipped)):
        if line.strip():
            yield ExtractionLine(tuple(line.split("\t")), number, scored, name)


def read_extractions(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield the sentences as Examples whose label is their Extractions.

    Lines of one sentence stand together. An unusable line is an error, or is dropped.
    """
    bad_rows = BadRows(os.fspath(path), on_bad_row, skipped)

    def usable() -> Iterator[ExtractionLine]:
        for row in read_lines(path, skipped=skipped, on_bad_row=on_bad_row):
            if fault := row.fault():
                message = f"{fault[0]}: {fault[1]}. Correct it, or {SKIP_HINT}."
                bad_rows.report(fault[0], row.line, message)
            else:
                yield row

    return group_tuples(usable())


def read_gold_tuples(
    path: str | os.PathLike[str], on_bad_row: BadRowPolicy = "error"
) -> Iterator[Example]:
    """Yield the sentences with their tuples as CaRB counts them.

    Its gold has tuples without a predicate. No tuple matches them, but they are to be found.
    """
    bad_rows = BadRows(os.fspath(path), on_bad_row, None)

    def usable() -> Iterator[ExtractionLine]:
        for row in read_lines(path, on_bad_row=on_bad_row):
            fault = row.fault()
            if fault and fault[0] != NO_PREDICATE:
                message = f"{fault[0]}: {fault[1]}. Correct it, or {SKIP_HINT}."
                bad_rows.report(fault[0], row.line, message)
            else:
                yield row

    return group_tuples(usable())


def group_tuples(rows: Iterable[ExtractionLine]) -> Iterator[Example]:
    """Yield an Example for each run of usable lines of one sentence."""
    for sentence, run in groupby(rows, key=lambda row: row.sentence):
        own = list(run)
        tuples = Extractions(tuple(row.extraction() for row in own))
        yield Example(sentence, tuples, "", own[0].file, own[0].line)


def _parse_confidence(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
