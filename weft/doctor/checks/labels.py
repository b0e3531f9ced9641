"""Names that are missing, misspelt, rare or unseen: of labels, tags, relations and types."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.doctor.annotations import NOUNS, RELATIONS, TAGS
from weft.doctor.checks.label_variants import (
    CERTAIN_KINDS,
    MAX_COMPARED_LABELS,
    LabelVariant,
    find_variants,
)
from weft.doctor.finding import Level, agree, excerpt, pluralise
from weft.doctor.formats.conllu import RELATIONS as UD_RELATIONS
from weft.doctor.formats.conllu import UPOS
from weft.doctor.pending import PendingFinding, RowRef, row_refs
from weft.doctor.survey import DISTINCT, RowTally, Split, Survey, parse_number

MIN_LABEL_EXAMPLES = 5  # examples of a class that are too few to learn from
MAX_CLASS_RATIO = 50  # times as many examples in the largest class as in the smallest
MAX_CLASS_FRACTION = 0.9  # of all rows in one class
MAX_SLIP_COUNT = 3  # times a misspelt tag occurs at most
MIN_SLIP_LETTERS = 4  # letters of a name in which one can be wrong: NN, NNS and NNP are three tags
MIN_SLIP_RATIO = 100  # times as frequent the right one is


@dataclass(frozen=True)
class NameTable:
    """The names of one kind in one split, with how often and where they occur."""

    split: Split
    names: Mapping[str, RowTally]


def check_labels(survey: Survey) -> Iterator[PendingFinding]:
    """Missing, misspelt, rare, unseen and unevenly spread labels of texts."""
    labelled = any(split.labels for split in survey.splits)
    for split in survey.splits:
        noted = split.unlabelled
        if labelled and noted.count:
            have = "has" if noted.count == 1 else "have"
            title = f"{pluralise(noted.count, 'row')} of {split.name} {have} no label."
            fix = "Fill the label in or remove the rows."
            yield PendingFinding(
                "unlabelled", "error", title, noted.count, row_refs(split, noted.rows), fix
            )
    if survey.scale:
        yield from _check_scale(survey)
    if survey.scale or not labelled:
        return
    tables = [NameTable(split, split.labels) for split in survey.splits]
    found = find_variants(count_labels(survey))
    slips = {twin.label for twin in found}  # said once is enough
    fix = "Correct them (--fix changes the clear ones), or rename one if both are meant."
    yield from _check_slips(tables, found, "label", fix)
    yield from _check_unseen(tables, slips, "label", "error")
    yield from _check_rare(tables[0], slips, "label", "warning")
    yield from _check_balance(survey.splits[0], slips)
    yield from _check_label_count(survey)


def check_annotations(survey: Survey) -> Iterator[PendingFinding]:
    """Misspelt, rare and unseen tags, relations and types, and labels of nodes."""
    for kind, noun in NOUNS.items():
        tables = [NameTable(split, split.layers.get(kind, {})) for split in survey.splits]
        if not any(table.names for table in tables):
            continue
        found = find_slips(survey, kind)
        wrong = {twin.label for twin in found}
        fix = "Correct them (--fix changes those that differ in case only)."
        yield from _check_slips(tables, found, noun, fix)
        yield from _check_unseen(tables, wrong, noun, "warning")
        yield from _check_rare(tables[0], wrong, noun, "note")
        if kind in (TAGS, RELATIONS) and len(tables[0].names) == 1:
            (only,) = tables[0].names
            title = f"1 {noun} only in {tables[0].split.name}, '{only}': there is nothing to learn."
            fix = "Is this the right column? Name another one with --label."
            yield PendingFinding("one label", "error", title, 1, (), fix)


def _check_scale(survey: Survey) -> Iterator[PendingFinding]:
    """Labels among those of a scale that are none of its numbers."""
    for split in survey.splits:
        stray = {name: noted for name, noted in split.labels.items() if parse_number(name) is None}
        if count := sum(noted.count for noted in stray.values()):
            title = (
                f"{pluralise(count, 'label')} of {split.name} {agree(count, 'is', 'are')} no number"
            )
            rows = sorted(row for noted in stray.values() for row in noted.rows)
            fix = "Correct them or remove the rows; the others are numbers on a scale."
            here = row_refs(split, rows)
            yield PendingFinding(
                "no number", "error", f"{title}: {_list_names(list(stray))}.", count, here, fix
            )


def count_labels(survey: Survey, kind: str = "") -> Counter[str]:
    """How often each label occurs in all splits together; with a kind, what is said of words."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        table = split.layers.get(kind, {}) if kind else split.labels
        counts.update({name: noted.count for name, noted in table.items()})
    return counts


def find_slips(survey: Survey, kind: str) -> list[LabelVariant]:
    """Tags, relations or types that are probably another one.

    Tag sets are full of names that differ in a letter, so only what differs in case, or is very
    rare beside a very frequent one, is taken for a slip.
    """
    counts, known = count_labels(survey, kind), {*UPOS, *UD_RELATIONS}
    return [
        twin
        for twin in find_variants(counts)
        if twin.kind in CERTAIN_KINDS
        or (
            twin.kind == "typo"
            and twin.label not in known
            and min(len(twin.label), len(twin.meant)) >= MIN_SLIP_LETTERS
            and counts[twin.label] <= MAX_SLIP_COUNT
            and counts[twin.meant] >= MIN_SLIP_RATIO * counts[twin.label]
        )
    ]


def _first_row(tables: list[NameTable], label: str) -> int:
    table = next(t for t in tables if label in t.names)
    return table.split.start + table.names[label].rows[0]


def _check_slips(
    tables: list[NameTable], found: list[LabelVariant], noun: str, fix: str
) -> Iterator[PendingFinding]:
    if not found:
        return
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update({name: noted.count for name, noted in table.names.items()})
    here = tuple(
        RowRef(
            _first_row(tables, twin.label),
            detail=f"'{twin.label}' ({counts[twin.label]:,}×) "
            f"for '{twin.meant}' ({counts[twin.meant]:,}×)? {twin.kind}",
        )
        for twin in found
    )
    look = "looks" if len(found) == 1 else "look"
    told = ", ".join(f"'{twin.label}' for '{twin.meant}'" for twin in found[:3])
    more = "…" if len(found) > 3 else ""
    title = f"{pluralise(len(found), noun)} {look} like a slip for another one: {told}{more}."
    yield PendingFinding(f"{noun} typo", "warning", title, len(found), here, fix)


def _check_unseen(
    tables: list[NameTable], slips: set[str], noun: str, level: Level
) -> Iterator[PendingFinding]:
    train, learnt = tables[0].split, tables[0].names
    for split, names in ((table.split, table.names) for table in tables[1:]):
        if not names or not learnt:
            continue
        fresh = [name for name in names if name not in learnt]
        if fresh:
            rows = sum(names[name].count for name in fresh)
            title = (
                f"{pluralise(len(fresh), noun)} of {split.name} never "
                f"{agree(len(fresh), 'occurs', 'occur')} in {train.name} "
                f"({_count_places(rows, noun)}): {_list_names(fresh)}."
            )
            here = tuple(RowRef(split.start + names[name].rows[0], detail=name) for name in fresh)
            fix = f"Add examples to {train.name}, or take the rows out: no model can answer them."
            yield PendingFinding(f"unseen {noun}", level, title, len(fresh), here, fix)
        absent = [name for name in learnt if name not in names and name not in slips]
        if absent:
            have = agree(len(absent), "has", "have")
            title = (
                f"{pluralise(len(absent), noun)} of {train.name} {have} no example in "
                f"{split.name}: {_list_names(absent)}."
            )
            fix = f"What {split.name} measures says nothing about them."
            yield PendingFinding(f"{noun} not tested", "note", title, len(absent), (), fix)


def _count_places(count: int, noun: str) -> str:
    return pluralise(count, "row" if noun == "label" else "place")


def _check_rare(
    train: NameTable, slips: set[str], noun: str, level: Level
) -> Iterator[PendingFinding]:
    counts = {name: noted.count for name, noted in train.names.items() if name not in slips}
    single = [name for name, count in counts.items() if count == 1]
    few = [name for name, count in counts.items() if 1 < count < MIN_LABEL_EXAMPLES]
    for names, told in (
        (single, "a single example"),
        (few, f"fewer than {MIN_LABEL_EXAMPLES} examples"),
    ):
        if names:
            of, have = train.split.name, agree(len(names), "has", "have")
            title = f"{pluralise(len(names), noun)} of {of} {have} {told}: {_list_names(names)}."
            here = tuple(
                RowRef(
                    train.split.start + train.names[name].rows[0],
                    detail=f"{name}: {train.names[name].count}×",
                )
                for name in names
            )
            fix = f"Collect more, merge it into another {noun}, or leave it out."
            yield PendingFinding(f"rare {noun}", level, title, len(names), here, fix)


def _check_balance(train: Split, slips: set[str]) -> Iterator[PendingFinding]:
    named = ((n.count, name) for name, n in train.labels.items() if name not in slips)
    counts = sorted(named, reverse=True)
    if len(counts) < 2:
        if counts:
            title = f"1 label only in {train.name}, '{counts[0][1]}': there is nothing to learn."
            yield PendingFinding(
                "one label", "error", title, 1, (), "Give examples of at least two labels."
            )
        return
    (most, largest), (least, smallest) = counts[0], counts[-1]
    share = most / max(1, train.rows)
    if most >= MAX_CLASS_RATIO * least or share >= MAX_CLASS_FRACTION:
        title = (
            f"{100 * share:.0f} % of {train.name} is '{largest}' ({most:,} rows), "
            f"'{smallest}' has {least:,}."
        )
        fix = "Measure macro_f1 beside accuracy, and look at each class."
        level: Level = "warning" if share >= MAX_CLASS_FRACTION else "note"
        yield PendingFinding("uneven labels", level, title, most, (), fix)


def _check_label_count(survey: Survey) -> Iterator[PendingFinding]:
    counts = count_labels(survey)
    uncounted = sum(split.uncounted for split in survey.splits)
    if len(counts) > MAX_COMPARED_LABELS or uncounted:
        limit = DISTINCT if uncounted else MAX_COMPARED_LABELS
        title = f"{len(counts):,} different labels: only {limit:,} were looked at closely."
        fix = "If this column is no class, pass another one with --label."
        yield PendingFinding("many labels", "warning", title, len(counts), (), fix)


def _list_names(names: list[str]) -> str:
    shown = ", ".join(f"'{excerpt(name, 40)}'" for name in names[:5])
    return shown + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
