"""Tuples of open information extraction, one a line (CaRB).

Gold lines are sentence, predicate, arguments; those of a system have a confidence after the
sentence. Cells are separated by tabs. JSON lines of `weft extract` have all tuples of a sentence,
with their characters.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

from weft import jsonio
from weft.errors import UserError
from weft.text.annotation.frames import Extraction, Extractions
from weft.text.example import Example, SkipCounter
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource

MIN_AGREEMENT = 0.8  # fraction of lines that must look like tuples of their sentence
MIN_SENTENCE_WORDS = 4
MIN_REPEATED = 0.05  # fraction of lines with the sentence of the line before, or another width
_WORD = re.compile(r"\w+|[^\w\s]")
SHORT, NO_PREDICATE, BAD_CONFIDENCE, NO_SENTENCE, BAD_ROW = (
    "too few columns",
    "missing predicate",
    "confidence not a number",
    "missing sentence",
    "malformed row of tuples",
)
Spans = tuple[tuple[tuple[int, int], ...], ...]  # characters of a predicate and its arguments


@dataclass(frozen=True)
class ExtractionLine:
    """One line of a file of tuples."""

    cells: tuple[str, ...]
    line: int
    scored: bool  # has a confidence
    file: str = ""
    spans: Spans = ()
    malformed: str = ""  # what is wrong with a row of JSON

    @property
    def sentence(self) -> str:
        return self.cells[0].strip() if self.cells else ""

    def fault(self) -> tuple[str, str] | None:
        """Return the kind of fault that makes the line unusable, and what is wrong."""
        least = 3 + self.scored
        if self.malformed:
            return BAD_ROW, self.malformed
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
        kept = [k for k, argument in enumerate(arguments) if argument]
        spans = (self.spans[0], *(self.spans[k + 1] for k in kept)) if self.spans else ()
        parts = tuple(arguments[k] for k in kept)
        return Extraction(predicate, parts, confidence, self.line, spans)


def detect_extractions(path: str | os.PathLike[str]) -> bool | None:
    """Return whether the tuples of a file have a confidence; None for other files.

    The arguments of most lines are words of the sentence in their first column, and sentences
    have several tuples, or tuples several lengths.
    """
    with closing(LineSource(path)) as source:
        lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head()]
    if _are_json_rows(lines):
        return True
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


def _are_json_rows(lines: Sequence[str]) -> bool:
    """Return whether the first line that can be read is a sentence with its tuples."""
    for line in lines:
        if line.strip() and not line.lstrip().startswith("{"):
            return False
        try:
            row = jsonio.parse(line, "") if line.strip() else None
        except UserError:
            continue
        if isinstance(row, dict):
            return isinstance(row.get("text"), str) and isinstance(row.get("tuples"), list)
    return False


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
    with closing(LineSource(path)) as source:
        head = [raw.decode("utf-8", "replace") for raw in source.head()]
    from_json = _are_json_rows(head)
    for number, line in LineSource(path).lines(BadRows(name, on_bad_row, skipped)):
        if line.strip() and from_json:
            yield from _json_lines(line, number, name)
        elif line.strip():
            yield ExtractionLine(tuple(line.split("\t")), number, scored, name)


def _json_lines(line: str, number: int, name: str) -> Iterator[ExtractionLine]:
    """Yield the tuples of a row of JSON; of a malformed one, a line that says so."""
    try:
        row = jsonio.parse(line, name, number)
    except UserError:
        yield ExtractionLine((), number, True, name, malformed="not readable as JSON")
        return
    try:
        text, tuples = row["text"], row["tuples"]
        if not isinstance(text, str) or not isinstance(tuples, list):
            raise TypeError
        for one in tuples:
            parts = (one["predicate"], *one["arguments"])
            spans = tuple(_parse_spans(part["spans"], len(text)) for part in parts)
            cells = (text, f"{float(one['confidence'])}", *(f"{part['text']}" for part in parts))
            flat = tuple(" ".join(cell.split()) for cell in cells[1:])
            yield ExtractionLine((text, *flat), number, True, name, spans)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        wanted = 'a "text" and its "tuples", with confidence, predicate, arguments and their spans'
        yield ExtractionLine((), number, True, name, malformed=f"it should have {wanted}")


def _parse_spans(spans: object, size: int) -> tuple[tuple[int, int], ...]:
    """Return characters from and up to in a text of this size, or raise a ValueError."""
    if not isinstance(spans, list):
        raise ValueError
    out = []
    for span in spans:
        start, end = span
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= size:
            raise ValueError
        out.append((start, end))
    return tuple(out)


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
    for sentence, run in groupby(rows, key=lambda row: row.cells[0] if row.spans else row.sentence):
        own = list(run)
        tuples = Extractions(tuple(row.extraction() for row in own))
        yield Example(sentence, tuples, "", own[0].file, own[0].line)


def format_tuples(example: Example) -> Iterator[str]:
    """Yield the tuples of a sentence as lines."""
    assert isinstance(example.label, Extractions)
    text = " ".join(example.text.split())
    for one in example.label.tuples:
        score = [] if one.confidence is None else [f"{one.confidence:.4f}"]
        yield "\t".join([text, *score, one.predicate, *one.arguments]) + "\n"


def _parse_confidence(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
