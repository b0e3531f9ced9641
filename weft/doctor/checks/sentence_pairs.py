"""Rows of two texts: one that is missing, two that are the same, a label nobody agreed on."""

from collections.abc import Iterator

from weft.doctor.finding import Level, agree, pluralise
from weft.doctor.pending import PendingFinding, row_refs
from weft.doctor.survey import Survey
from weft.text.pair_columns import NO_AGREEMENT

WARNING_FRACTION = 0.01  # share of pairs of equal texts from which it is more than a note


def check_pairs(survey: Survey) -> Iterator[PendingFinding]:
    """What to say of pairs of texts, a kind a split."""
    for split in survey.splits:
        if (lone := split.lone).count:
            have = agree(lone.count, "has", "have")
            title = f"{pluralise(lone.count, 'row')} of {split.name} {have} no second text."
            fix = "Fill it in, or remove the rows."
            here = row_refs(split, lone.rows)
            yield PendingFinding("no second text", "warning", title, lone.count, here, fix)
        if survey.two and (unagreed := split.labels.get(NO_AGREEMENT)) is not None:
            count = unagreed.count
            pairs = f"{pluralise(count, 'pair')} of {split.name} {agree(count, 'is', 'are')}"
            title = f"{pairs} labelled '-', which stands for no agreement."
            fix = "Remove them, or train with --on-bad-row skip; call a class of yours by a word."
            here = row_refs(split, unagreed.rows)
            yield PendingFinding("no agreement", "error", title, count, here, fix)
        if (twice := split.twice).count:
            have = agree(twice.count, "has", "have")
            title = f"{pluralise(twice.count, 'pair')} of {split.name} {have} the same text twice."
            level: Level = "warning" if twice.count >= WARNING_FRACTION * split.rows else "note"
            fix = "Look whether a column was copied, or whether they are meant."
            yield PendingFinding(
                "equal texts", level, title, twice.count, row_refs(split, twice.rows), fix
            )
