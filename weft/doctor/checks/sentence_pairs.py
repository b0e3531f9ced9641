"""Check text pairs: a missing second text, equal texts, no annotator agreement."""

from collections.abc import Iterator

from weft.doctor.finding import Level, agree, pluralise
from weft.doctor.pending import PendingFinding, row_refs
from weft.doctor.survey import Survey
from weft.text.pair_columns import NO_AGREEMENT

WARNING_FRACTION = 0.01  # of pairs of equal texts, to warn


def check_pairs(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings about text pairs, per split and kind."""
    for split in survey.splits:
        if (lone := split.lone).count:
            have = agree(lone.count, "has", "have")
            title = f"{pluralise(lone.count, 'row')} of {split.name} {have} no second text."
            fix = "Fill it in, or remove the rows."
            refs = row_refs(split, lone.rows)
            yield PendingFinding("no second text", "warning", title, lone.count, refs, fix)
        if survey.two and (unagreed := split.labels.get(NO_AGREEMENT)) is not None:
            count = unagreed.count
            pairs = f"{pluralise(count, 'pair')} of {split.name} {agree(count, 'is', 'are')}"
            title = f"{pairs} labelled '-', which means no annotator agreement."
            fix = "Remove them, or train with --on-bad-row skip; if '-' is a class, rename it."
            refs = row_refs(split, unagreed.rows)
            yield PendingFinding("no agreement", "error", title, count, refs, fix)
        if (twice := split.twice).count:
            have = agree(twice.count, "has", "have")
            title = f"{pluralise(twice.count, 'pair')} of {split.name} {have} the same text twice."
            level: Level = "warning" if twice.count >= WARNING_FRACTION * split.rows else "note"
            fix = "Check whether a column was copied by mistake."
            yield PendingFinding(
                "equal texts", level, title, twice.count, row_refs(split, twice.rows), fix
            )
