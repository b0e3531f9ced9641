"""Brackets spread over the cells of a column: (ARG0* … *), and mentions (3 … 3)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from weft.text.annotation.schemes import Span
from weft.text.column_layout import PARSE_BIT

NO_MENTION = frozenset({"", "-", "_", "*"})
_ROLE_MARK = re.compile(r"\(([^()*\s]+)|(\))")
_NAME = re.compile(r"[^()|*\s]+")
MIN_LETTERS = 0.5  # fraction of cells of the word column that have a letter
MIN_RICHNESS = 0.7  # distinct words, relative to the richest column
MALFORMED, UNOPENED, UNCLOSED = "malformed bracket", "unopened bracket", "unclosed bracket"


@dataclass(frozen=True)
class BracketFault:
    """A fault of a bracket column at one word."""

    kind: str  # MALFORMED, UNOPENED or UNCLOSED
    word: int
    label: str  # of the bracket, or the cell


def parse_roles(cells: Sequence[str]) -> tuple[list[Span], list[BracketFault]]:
    """Return the labelled spans of a role column, in order, and its faults.

    A cell opens brackets before the star and closes them after it; the last one opened closes
    first.
    """
    spans: list[Span] = []
    faults: list[BracketFault] = []
    opened: list[tuple[str, int]] = []
    for word, cell in enumerate(cells):
        if not PARSE_BIT.fullmatch(cell):
            faults.append(BracketFault(MALFORMED, word, cell))
            continue
        for label, _ in _ROLE_MARK.findall(cell):
            if label:
                opened.append((label, word))
            elif opened:
                name, start = opened.pop()
                spans.append(Span(name, start, word + 1))
            else:
                faults.append(BracketFault(UNOPENED, word, cell))
    faults += [BracketFault(UNCLOSED, word, label) for label, word in opened]
    return sorted(spans, key=lambda span: (span.start, -span.end)), faults


def format_roles(spans: Sequence[Span], size: int) -> list[str]:
    """Return the cells of a role column; spans must be nested or apart."""
    opens = [""] * size
    closes = [0] * size
    for label, start, end in sorted(spans, key=lambda span: (span.start, -span.end)):
        opens[start] += f"({label}"
        closes[end - 1] += 1
    return [f"{a}*{')' * b}" for a, b in zip(opens, closes, strict=True)]


def parse_mentions(cells: Sequence[str]) -> tuple[list[Span], list[BracketFault]]:
    """Return the mentions of a coreference column, in order, and its faults.

    Brackets carry the name of their entity, so mentions of different entities may cross; of one
    entity the last one opened closes first.
    """
    spans: list[Span] = []
    faults: list[BracketFault] = []
    opened: dict[str, list[int]] = {}
    for word, cell in enumerate(cells):
        if cell in NO_MENTION:
            continue
        marks = split_mentions(cell)
        if marks is None:
            faults.append(BracketFault(MALFORMED, word, cell))
            continue
        for name, opens, closes in marks:
            if opens:
                opened.setdefault(name, []).append(word)
            if closes and opened.get(name):
                spans.append(Span(name, opened[name].pop(), word + 1))
            elif closes:
                faults.append(BracketFault(UNOPENED, word, name))
    faults += [BracketFault(UNCLOSED, w, name) for name, own in opened.items() for w in own]
    order = sorted(spans, key=lambda span: (span.start, -span.end, span.label))
    return order, sorted(faults, key=lambda fault: fault.word)


def format_mentions(mentions: Sequence[Span], size: int, nothing: str = "_") -> list[str]:
    """Return the cells of a coreference column."""
    opens: list[list[str]] = [[] for _ in range(size)]
    closes: list[list[str]] = [[] for _ in range(size)]
    single: list[list[str]] = [[] for _ in range(size)]
    for label, start, end in sorted(mentions, key=lambda m: (m.start, -m.end)):
        if end == start + 1:
            single[start].append(f"({label})")
        else:
            opens[start].append(f"({label}")
            closes[end - 1].append(f"{label})")
    cells = ("|".join([*a, *b, *c]) for a, b, c in zip(opens, single, closes, strict=True))
    return [cell or nothing for cell in cells]


def split_mentions(cell: str) -> list[tuple[str, bool, bool]] | None:
    """Return (entity, opens, closes) of each mark of a cell; None if it is malformed.

    Marks are (3, 3) and (3), side by side or separated by bars: (3(4), (3|4).
    """
    out: list[tuple[str, bool, bool]] = []
    at = 0
    while at < len(cell):
        at += cell[at] == "|"
        opens = cell[at : at + 1] == "("
        name = _NAME.match(cell, at + opens)
        if name is None:
            return None
        at = name.end()
        closes = cell[at : at + 1] == ")"
        if not (opens or closes):
            return None
        out.append((name[0], opens, closes))
        at += closes
    return out


def find_words(columns: Sequence[Sequence[str]], excluded: int = -1) -> int:
    """Return the word column: the first nearly as rich as the richest, among those with letters."""
    spelled = {
        number: len(set(column))
        for number, column in enumerate(columns)
        if number != excluded
        and sum(map(_has_letter, column)) >= MIN_LETTERS * len(column)
        and not all(map(PARSE_BIT.fullmatch, column))
    }
    most = max(spelled.values(), default=0)
    return next((n for n, distinct in spelled.items() if distinct >= MIN_RICHNESS * most), 0)


def _has_letter(cell: str) -> bool:
    return any(map(str.isalpha, cell))
