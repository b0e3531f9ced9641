"""Findings by row number, completed by reading those rows again."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.doctor.annotations import annotation_hash, describe_word, is_sentence
from weft.doctor.checks.annotation_faults import sentence_name
from weft.doctor.finding import MAX_SHOWN_PLACES, Finding, Level, Place, excerpt
from weft.doctor.survey import Split, Survey, reread_rows
from weft.text.annotation.frames import Coreference
from weft.text.example import Example


@dataclass(frozen=True)
class RowRef:
    """A row, and the row it conflicts with if any, numbered over all splits."""

    row: int
    other: int | None = None
    detail: str = ""
    word: int | None = None  # index of the word


@dataclass(frozen=True)
class PendingFinding:
    """A finding before its texts are read again for excerpts."""

    kind: str
    level: Level
    title: str
    count: int
    rows: tuple[RowRef, ...]
    fix: str
    explain: Callable[[Example], str] | None = None  # describes a place from its text
    compare: Callable[[Example, Example], str] | None = None  # describes a place and the other


def _unit(example: Example) -> str:
    """Return the noun for an annotated row."""
    if isinstance(example.label, Coreference):
        return "document"
    return "sentence" if is_sentence(example) else "text"


def row_refs(split: Split, rows: Iterable[int]) -> tuple[RowRef, ...]:
    """Return references to rows of one split."""
    return tuple(RowRef(split.start + row) for row in rows)


def complete_findings(
    pending: Iterable[PendingFinding], survey: Survey, max_places: int | None = MAX_SHOWN_PLACES
) -> list[Finding]:
    """Return the findings with file, line and excerpt of the first `max_places`, None for all."""
    pending = list(pending)
    wanted: dict[str, set[int]] = defaultdict(set)
    for finding in pending:
        for ref in finding.rows[:max_places]:
            for row in (ref.row, ref.other):
                if row is not None:
                    split = survey.split_of(row)
                    wanted[split.name].add(row - split.start)
    examples = reread_rows(survey.splits, wanted)

    def example(row: int) -> tuple[str, Example]:
        split = survey.split_of(row)
        example = examples[split.name, row - split.start]
        number = f"{split.name}, row {row - split.start + 1:,}"
        return (example.where if example.file else number), example

    def place(ref: RowRef, finding: PendingFinding) -> Place:
        where, here = example(ref.row)
        is_annotated = here.id and annotation_hash(here) is not None
        details = [sentence_name(here.id, 0, _unit(here))] if is_annotated else []
        if ref.word is not None:
            details.append(describe_word(here, ref.word))
        details += [ref.detail] if ref.detail else []
        if finding.explain is not None:
            details.append(finding.explain(here))
        if ref.other is not None:
            other, counterpart = example(ref.other)
            if finding.compare is not None:
                details.append(finding.compare(here, counterpart))
            same = counterpart.full_text == here.full_text
            details.append(other if same else f"{other}: {excerpt(counterpart.full_text)}")
        return Place(where, excerpt(here.full_text), " · ".join(details))

    return [
        Finding(
            kind=finding.kind,
            level=finding.level,
            title=finding.title,
            count=finding.count,
            places=tuple(place(ref, finding) for ref in finding.rows[:max_places]),
            fix=finding.fix,
        )
        for finding in pending
    ]
