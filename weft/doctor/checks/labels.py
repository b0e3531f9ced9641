"""Check labels, tags, relations and types: missing, misspelt, rare or unseen."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.doctor.annotations import NOUNS, RELATIONS, ROLES, TAGS
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
from weft.text.annotation.frames import is_role
from weft.text.class_balance import MAX_CLASS_FRACTION, is_uneven

MIN_LABEL_EXAMPLES = 5  # fewer are too few to learn from
MAX_SLIP_COUNT = 3  # occurrences of a misspelt tag
MIN_SLIP_LETTERS = 4  # in shorter names a letter matters: NN, NNS and NNP are three tags
MIN_SLIP_RATIO = 100  # right name to misspelt one


@dataclass(frozen=True)
class NameTable:
    """The names of one kind in one split, with counts and rows."""

    split: Split
    names: Mapping[str, RowTally]


def check_labels(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings on missing, misspelt, rare, unseen and imbalanced labels of texts."""
    labelled = any(split.labels for split in survey.splits)
    for split in survey.splits:
        noted = split.unlabelled
        if labelled and noted.count:
            have = "has" if noted.count == 1 else "have"
            title = f"{pluralise(noted.count, 'row')} of {split.name} {have} no label."
            fix = "Add the labels or remove the rows."
            yield PendingFinding(
                "unlabelled", "error", title, noted.count, row_refs(split, noted.rows), fix
            )
    if survey.scale:
        yield from _check_scale(survey)
    if survey.scale or not labelled:
        return
    tables = [NameTable(split, split.labels) for split in survey.splits]
    variants = find_variants(count_labels(survey))
    slips = {variant.label for variant in variants}  # reported once
    fix = "Correct them (--fix corrects the clear ones), or rename one if both are intended."
    yield from _check_slips(tables, variants, "label", fix)
    yield from _check_unseen(tables, slips, "label", "error")
    yield from _check_rare(tables[0], slips, "label", "warning")
    yield from _check_balance(survey.splits[0], slips)
    yield from _check_label_count(survey)


def check_annotations(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings on misspelt, rare and unseen tags, relations, types and node labels."""
    for kind, noun in NOUNS.items():
        tables = [NameTable(split, split.layers.get(kind, {})) for split in survey.splits]
        if not any(table.names for table in tables):
            continue
        misspelt = find_slips(survey, kind)
        wrong = {variant.label for variant in misspelt}
        fix = "Correct them (--fix corrects those that differ only in case)."
        yield from _check_slips(tables, misspelt, noun, fix)
        yield from _check_unseen(tables, wrong, noun, "warning")
        yield from _check_rare(tables[0], wrong, noun, "note")
        if kind in (TAGS, RELATIONS) and len(tables[0].names) == 1:
            (only,) = tables[0].names
            title = f"Only 1 {noun} in {tables[0].split.name}, '{only}': nothing to learn."
            fix = "Is this the right column? Pass another one with --label."
            yield PendingFinding("one label", "error", title, 1, (), fix)


def _check_scale(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings on labels of a numeric scale that are not numbers."""
    for split in survey.splits:
        stray = {name: noted for name, noted in split.labels.items() if parse_number(name) is None}
        if count := sum(noted.count for noted in stray.values()):
            are = agree(count, "is not a number", "are not numbers")
            title = f"{pluralise(count, 'label')} of {split.name} {are}"
            rows = sorted(row for noted in stray.values() for row in noted.rows)
            fix = "Correct them or remove the rows; the others are numbers on a scale."
            here = row_refs(split, rows)
            yield PendingFinding(
                "no number", "error", f"{title}: {list_names(list(stray))}.", count, here, fix
            )


def count_labels(survey: Survey, kind: str = "") -> Counter[str]:
    """Count each label over all splits; with a kind, each annotation of that kind."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        table = split.layers.get(kind, {}) if kind else split.labels
        counts.update({name: noted.count for name, noted in table.items()})
    return counts


def find_slips(survey: Survey, kind: str) -> list[LabelVariant]:
    """Return tags, relations or types that are probably misspelt.

    Tag sets are full of names that differ by a letter, so only a difference in case, or a very
    rare name next to a very frequent one, counts as a slip.
    """
    counts, known = count_labels(survey, kind), {*UPOS, *UD_RELATIONS}
    return [
        variant
        for variant in find_variants(counts)
        if variant.kind in CERTAIN_KINDS
        or (
            variant.kind == "typo"
            and variant.label not in known
            and not (kind == ROLES and is_role(variant.label))
            and min(len(variant.label), len(variant.meant)) >= MIN_SLIP_LETTERS
            and counts[variant.label] <= MAX_SLIP_COUNT
            and counts[variant.meant] >= MIN_SLIP_RATIO * counts[variant.label]
        )
    ]


def _first_row(tables: list[NameTable], label: str) -> int:
    table = next(t for t in tables if label in t.names)
    return table.split.start + table.names[label].rows[0]


def _check_slips(
    tables: list[NameTable], variants: list[LabelVariant], noun: str, fix: str
) -> Iterator[PendingFinding]:
    if not variants:
        return
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update({name: noted.count for name, noted in table.names.items()})
    refs = tuple(
        RowRef(
            _first_row(tables, variant.label),
            detail=f"'{variant.label}' ({counts[variant.label]:,}×) "
            f"for '{variant.meant}' ({counts[variant.meant]:,}×)? {variant.kind}",
        )
        for variant in variants
    )
    look = "looks" if len(variants) == 1 else "look"
    listed = ", ".join(f"'{variant.label}' for '{variant.meant}'" for variant in variants[:3])
    more = "…" if len(variants) > 3 else ""
    misspelt = f"{pluralise(len(variants), noun)} {look} like a misspelling of another one"
    title = f"{misspelt}: {listed}{more}."
    yield PendingFinding(f"{noun} typo", "warning", title, len(variants), refs, fix)


def _check_unseen(
    tables: list[NameTable], slips: set[str], noun: str, level: Level
) -> Iterator[PendingFinding]:
    train, train_names = tables[0].split, tables[0].names
    for split, names in ((table.split, table.names) for table in tables[1:]):
        if not names or not train_names:
            continue
        unseen = [name for name in names if name not in train_names]
        if unseen:
            rows = sum(names[name].count for name in unseen)
            title = (
                f"{pluralise(len(unseen), noun)} of {split.name} never "
                f"{agree(len(unseen), 'occurs', 'occur')} in {train.name} "
                f"({_count_places(rows, noun)}): {list_names(unseen)}."
            )
            refs = tuple(RowRef(split.start + names[name].rows[0], detail=name) for name in unseen)
            fix = f"Add examples to {train.name}, or remove the rows: no model can predict them."
            yield PendingFinding(f"unseen {noun}", level, title, len(unseen), refs, fix)
        absent = [name for name in train_names if name not in names and name not in slips]
        if absent:
            have = agree(len(absent), "has", "have")
            title = (
                f"{pluralise(len(absent), noun)} of {train.name} {have} no example in "
                f"{split.name}: {list_names(absent)}."
            )
            fix = f"Scores on {split.name} say nothing about them."
            yield PendingFinding(f"{noun} not tested", "note", title, len(absent), (), fix)


def _count_places(count: int, noun: str) -> str:
    return pluralise(count, "row" if noun == "label" else "place")


def _check_rare(
    train: NameTable, slips: set[str], noun: str, level: Level
) -> Iterator[PendingFinding]:
    counts = {name: noted.count for name, noted in train.names.items() if name not in slips}
    single = [name for name, count in counts.items() if count == 1]
    few = [name for name, count in counts.items() if 1 < count < MIN_LABEL_EXAMPLES]
    for names, described in (
        (single, "a single example"),
        (few, f"fewer than {MIN_LABEL_EXAMPLES} examples"),
    ):
        if names:
            of, have = train.split.name, agree(len(names), "has", "have")
            title = (
                f"{pluralise(len(names), noun)} of {of} {have} {described}: {list_names(names)}."
            )
            refs = tuple(
                RowRef(
                    train.split.start + train.names[name].rows[0],
                    detail=f"{name}: {train.names[name].count}×",
                )
                for name in names
            )
            fix = f"Collect more, merge it into another {noun}, or remove it."
            yield PendingFinding(f"rare {noun}", level, title, len(names), refs, fix)


def _check_balance(train: Split, slips: set[str]) -> Iterator[PendingFinding]:
    named = ((n.count, name) for name, n in train.labels.items() if name not in slips)
    counts = sorted(named, reverse=True)
    if len(counts) < 2:
        if counts:
            title = f"Only 1 label in {train.name}, '{counts[0][1]}': nothing to learn."
            yield PendingFinding(
                "one label", "error", title, 1, (), "Add examples of another label."
            )
        return
    (most, largest), (least, smallest) = counts[0], counts[-1]
    fraction = most / max(1, train.rows)
    if is_uneven((most, least), train.rows):
        title = (
            f"{100 * fraction:.0f} % of {train.name} is '{largest}' ({most:,} rows), "
            f"'{smallest}' has {least:,}."
        )
        fix = (
            "Report macro_f1 besides accuracy, check each class, and try train.balance=weights, "
            "sampling or focal."
        )
        level: Level = "warning" if fraction >= MAX_CLASS_FRACTION else "note"
        yield PendingFinding("uneven labels", level, title, most, (), fix)


def _check_label_count(survey: Survey) -> Iterator[PendingFinding]:
    counts = count_labels(survey)
    uncounted = sum(split.uncounted for split in survey.splits)
    if len(counts) > MAX_COMPARED_LABELS or uncounted:
        limit = DISTINCT if uncounted else MAX_COMPARED_LABELS
        title = f"{len(counts):,} distinct labels: only {limit:,} were checked."
        fix = "If this column is not the label, pass another one with --label."
        yield PendingFinding("many labels", "warning", title, len(counts), (), fix)


def list_names(names: list[str]) -> str:
    """Return the first names, quoted, and how many more there are."""
    shown = ", ".join(f"'{excerpt(name, 40)}'" for name in names[:5])
    return shown + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
