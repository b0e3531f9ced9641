"""Findings by row number, turned into places by reading those rows once more."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.doctor.annotations import annotation_hash, describe_word, is_sentence
from weft.doctor.checks.annotation_faults import sentence_name
from weft.doctor.finding import MAX_SHOWN_PLACES, Finding, Level, Place, excerpt
from weft.doctor.survey import Split, Survey, reread_rows
from weft.text.example import Example


@dataclass(frozen=True)
class RowRef:
    """A row, and perhaps the row that it clashes with, by their numbers among all rows."""

    row: int
    other: int | None = None
    detail: str = ""
    place: int | None = None  # of the word that is meant


@dataclass(frozen=True)
class PendingFinding:
    """A finding whose texts were not read again yet."""

    kind: str
    level: Level
    title: str
    count: int
    spots: tuple[RowRef, ...]
    fix: str
    explain: Callable[[Example], str] | None = None  # what to say of a place, from its text
    compare: Callable[[Example, Example], str] | None = None  # the same of a place and the other


def row_refs(split: Split, rows: Iterable[int]) -> tuple[RowRef, ...]:
    """Rows of one split as spots."""
    return tuple(RowRef(split.start + row) for row in rows)


def complete_findings(
    pending: Iterable[PendingFinding], survey: Survey, max_places: int | None = MAX_SHOWN_PLACES
) -> list[Finding]:
    """The findings, with file, line and excerpt of the first `most` places, None for all."""
    pending = list(pending)
    wanted: dict[str, set[int]] = defaultdict(set)
    for draft in pending:
        for spot in draft.spots[:max_places]:
            for row in (spot.row, spot.other):
                if row is not None:
                    split = survey.split_of(row)
                    wanted[split.name].add(row - split.start)
    found = reread_rows(survey.splits, wanted)

    def example(row: int) -> tuple[str, Example]:
        split = survey.split_of(row)
        example = found[split.name, row - split.start]
        number = f"{split.name}, row {row - split.start + 1:,}"
        return (example.where if example.file else number), example

    def place(spot: RowRef, draft: PendingFinding) -> Place:
        where, here = example(spot.row)
        known = here.id and annotation_hash(here) is not None
        told = (
            [sentence_name(here.id, 0, "sentence" if is_sentence(here) else "text")]
            if known
            else []
        )
        if spot.place is not None:
            told.append(describe_word(here, spot.place))
        told += [spot.detail] if spot.detail else []
        if draft.explain is not None:
            told.append(draft.explain(here))
        if spot.other is not None:
            other, there = example(spot.other)
            if draft.compare is not None:
                told.append(draft.compare(here, there))
            same = there.whole == here.whole
            told.append(other if same else f"{other}: {excerpt(there.whole)}")
        return Place(where, excerpt(here.whole), " · ".join(told))

    return [
        Finding(
            kind=draft.kind,
            level=draft.level,
            title=draft.title,
            count=draft.count,
            places=tuple(place(spot, draft) for spot in draft.spots[:max_places]),
            fix=draft.fix,
        )
        for draft in pending
    ]
