"""Rows of two texts: one that is missing, two that are the same, a label nobody agreed on."""

from collections.abc import Iterator

from weft.doctor.finding import Level, many, verb
from weft.doctor.pending import Draft, spots
from weft.doctor.survey import Survey
from weft.text.pair_columns import UNAGREED

OFTEN = 0.01  # share of pairs of equal texts from which it is more than a note


def drafts(survey: Survey) -> Iterator[Draft]:
    """What to say of pairs of texts, a kind a split."""
    for split in survey.splits:
        if (lone := split.lone).count:
            have = verb(lone.count, "has", "have")
            title = f"{many(lone.count, 'row')} of {split.name} {have} no second text."
            fix = "Fill it in, or remove the rows."
            here = spots(split, lone.rows)
            yield Draft("no second text", "warning", title, lone.count, here, fix)
        if survey.two and (unagreed := split.labels.get(UNAGREED)) is not None:
            count = unagreed.count
            pairs = f"{many(count, 'pair')} of {split.name} {verb(count, 'is', 'are')}"
            title = f"{pairs} labelled '-', which stands for no agreement."
            fix = "Remove them, or train with --problems skip; call a class of yours by a word."
            here = spots(split, unagreed.rows)
            yield Draft("no agreement", "error", title, count, here, fix)
        if (twice := split.twice).count:
            have = verb(twice.count, "has", "have")
            title = f"{many(twice.count, 'pair')} of {split.name} {have} the same text twice."
            level: Level = "warning" if twice.count >= OFTEN * split.rows else "note"
            fix = "Look whether a column was copied, or whether they are meant."
            yield Draft("equal texts", level, title, twice.count, spots(split, twice.rows), fix)
