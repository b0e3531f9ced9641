"""Names that are missing, misspelt, rare or unseen: of labels, tags, relations and types."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weft.doctor.annotations import NOUNS, RELATIONS, TAGS
from weft.doctor.checks.label_variants import COMPARED, SURE, Twin, twins
from weft.doctor.finding import Level, excerpt, many, verb
from weft.doctor.formats.conllu import RELATIONS as UD_RELATIONS
from weft.doctor.formats.conllu import UPOS
from weft.doctor.pending import Draft, Spot, spots
from weft.doctor.survey import DISTINCT, Noted, Split, Survey, number

FEW = 5  # examples of a class that are too few to learn from
UNEVEN = 50  # times as many examples in the largest class as in the smallest
MAJORITY = 0.9  # of all rows in one class
SLIP = 3  # times a misspelt tag occurs at most
SPELT = 4  # letters of a name in which one can be wrong: NN, NNS and NNP are three tags
CLEAR = 100  # times as frequent the right one is


@dataclass(frozen=True)
class Table:
    """The names of one kind in one split, with how often and where they occur."""

    split: Split
    names: Mapping[str, Noted]


def labels(survey: Survey) -> Iterator[Draft]:
    """Missing, misspelt, rare, unseen and unevenly spread labels of texts."""
    labelled = any(split.labels for split in survey.splits)
    for split in survey.splits:
        noted = split.unlabelled
        if labelled and noted.count:
            have = "has" if noted.count == 1 else "have"
            title = f"{many(noted.count, 'row')} of {split.name} {have} no label."
            fix = "Fill the label in or remove the rows."
            yield Draft("unlabelled", "error", title, noted.count, spots(split, noted.rows), fix)
    if survey.scale:
        yield from _no_numbers(survey)
    if survey.scale or not labelled:
        return
    tables = [Table(split, split.labels) for split in survey.splits]
    found = twins(totals(survey))
    slips = {twin.label for twin in found}  # said once is enough
    fix = "Correct them (--fix changes the clear ones), or rename one if both are meant."
    yield from _misspelt(tables, found, "label", fix)
    yield from _unseen(tables, slips, "label", "error")
    yield from _rare(tables[0], slips, "label", "warning")
    yield from _uneven(survey.splits[0], slips)
    yield from _too_many(survey)


def of_words(survey: Survey) -> Iterator[Draft]:
    """Misspelt, rare and unseen tags, relations and types, and labels of nodes."""
    for kind, noun in NOUNS.items():
        tables = [Table(split, split.layers.get(kind, {})) for split in survey.splits]
        if not any(table.names for table in tables):
            continue
        found = slips(survey, kind)
        wrong = {twin.label for twin in found}
        fix = "Correct them (--fix changes those that differ in case only)."
        yield from _misspelt(tables, found, noun, fix)
        yield from _unseen(tables, wrong, noun, "warning")
        yield from _rare(tables[0], wrong, noun, "note")
        if kind in (TAGS, RELATIONS) and len(tables[0].names) == 1:
            (only,) = tables[0].names
            title = f"1 {noun} only in {tables[0].split.name}, '{only}': there is nothing to learn."
            fix = "Is this the right column? Name another one with --label."
            yield Draft("one label", "error", title, 1, (), fix)


def _no_numbers(survey: Survey) -> Iterator[Draft]:
    """Labels among those of a scale that are none of its numbers."""
    for split in survey.splits:
        stray = {name: noted for name, noted in split.labels.items() if number(name) is None}
        if count := sum(noted.count for noted in stray.values()):
            title = f"{many(count, 'label')} of {split.name} {verb(count, 'is', 'are')} no number"
            rows = sorted(row for noted in stray.values() for row in noted.rows)
            fix = "Correct them or remove the rows; the others are numbers on a scale."
            here = spots(split, rows)
            yield Draft("no number", "error", f"{title}: {_listed(list(stray))}.", count, here, fix)


def totals(survey: Survey, kind: str = "") -> Counter[str]:
    """How often each label occurs in all splits together; with a kind, what is said of words."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        table = split.layers.get(kind, {}) if kind else split.labels
        counts.update({name: noted.count for name, noted in table.items()})
    return counts


def slips(survey: Survey, kind: str) -> list[Twin]:
    """Tags, relations or types that are probably another one.

    Tag sets are full of names that differ in a letter, so only what differs in case, or is very
    rare beside a very frequent one, is taken for a slip.
    """
    counts, known = totals(survey, kind), {*UPOS, *UD_RELATIONS}
    return [
        twin
        for twin in twins(counts)
        if twin.kind in SURE
        or (
            twin.kind == "typo"
            and twin.label not in known
            and min(len(twin.label), len(twin.meant)) >= SPELT
            and counts[twin.label] <= SLIP
            and counts[twin.meant] >= CLEAR * counts[twin.label]
        )
    ]


def _first(tables: list[Table], label: str) -> int:
    table = next(t for t in tables if label in t.names)
    return table.split.start + table.names[label].rows[0]


def _misspelt(tables: list[Table], found: list[Twin], noun: str, fix: str) -> Iterator[Draft]:
    if not found:
        return
    counts: Counter[str] = Counter()
    for table in tables:
        counts.update({name: noted.count for name, noted in table.names.items()})
    here = tuple(
        Spot(
            _first(tables, twin.label),
            detail=f"'{twin.label}' ({counts[twin.label]:,}×) "
            f"for '{twin.meant}' ({counts[twin.meant]:,}×)? {twin.kind}",
        )
        for twin in found
    )
    look = "looks" if len(found) == 1 else "look"
    told = ", ".join(f"'{twin.label}' for '{twin.meant}'" for twin in found[:3])
    more = "…" if len(found) > 3 else ""
    title = f"{many(len(found), noun)} {look} like a slip for another one: {told}{more}."
    yield Draft(f"{noun} typo", "warning", title, len(found), here, fix)


def _unseen(tables: list[Table], slips: set[str], noun: str, level: Level) -> Iterator[Draft]:
    train, learnt = tables[0].split, tables[0].names
    for split, names in ((table.split, table.names) for table in tables[1:]):
        if not names or not learnt:
            continue
        fresh = [name for name in names if name not in learnt]
        if fresh:
            rows = sum(names[name].count for name in fresh)
            title = (
                f"{many(len(fresh), noun)} of {split.name} never "
                f"{verb(len(fresh), 'occurs', 'occur')} in {train.name} "
                f"({_times(rows, noun)}): {_listed(fresh)}."
            )
            here = tuple(Spot(split.start + names[name].rows[0], detail=name) for name in fresh)
            fix = f"Add examples to {train.name}, or take the rows out: no model can answer them."
            yield Draft(f"unseen {noun}", level, title, len(fresh), here, fix)
        absent = [name for name in learnt if name not in names and name not in slips]
        if absent:
            have = verb(len(absent), "has", "have")
            title = (
                f"{many(len(absent), noun)} of {train.name} {have} no example in "
                f"{split.name}: {_listed(absent)}."
            )
            fix = f"What {split.name} measures says nothing about them."
            yield Draft(f"{noun} not tested", "note", title, len(absent), (), fix)


def _times(count: int, noun: str) -> str:
    return many(count, "row" if noun == "label" else "place")


def _rare(train: Table, slips: set[str], noun: str, level: Level) -> Iterator[Draft]:
    counts = {name: noted.count for name, noted in train.names.items() if name not in slips}
    single = [name for name, count in counts.items() if count == 1]
    few = [name for name, count in counts.items() if 1 < count < FEW]
    for names, told in ((single, "a single example"), (few, f"fewer than {FEW} examples")):
        if names:
            of, have = train.split.name, verb(len(names), "has", "have")
            title = f"{many(len(names), noun)} of {of} {have} {told}: {_listed(names)}."
            here = tuple(
                Spot(
                    train.split.start + train.names[name].rows[0],
                    detail=f"{name}: {train.names[name].count}×",
                )
                for name in names
            )
            fix = f"Collect more, merge it into another {noun}, or leave it out."
            yield Draft(f"rare {noun}", level, title, len(names), here, fix)


def _uneven(train: Split, slips: set[str]) -> Iterator[Draft]:
    named = ((n.count, name) for name, n in train.labels.items() if name not in slips)
    counts = sorted(named, reverse=True)
    if len(counts) < 2:
        if counts:
            title = f"1 label only in {train.name}, '{counts[0][1]}': there is nothing to learn."
            yield Draft("one label", "error", title, 1, (), "Give examples of at least two labels.")
        return
    (most, largest), (least, smallest) = counts[0], counts[-1]
    share = most / max(1, train.rows)
    if most >= UNEVEN * least or share >= MAJORITY:
        title = (
            f"{100 * share:.0f} % of {train.name} is '{largest}' ({most:,} rows), "
            f"'{smallest}' has {least:,}."
        )
        fix = "Measure macro_f1 beside accuracy, and look at each class."
        level: Level = "warning" if share >= MAJORITY else "note"
        yield Draft("uneven labels", level, title, most, (), fix)


def _too_many(survey: Survey) -> Iterator[Draft]:
    counts = totals(survey)
    uncounted = sum(split.uncounted for split in survey.splits)
    if len(counts) > COMPARED or uncounted:
        limit = DISTINCT if uncounted else COMPARED
        title = f"{len(counts):,} different labels: only {limit:,} were looked at closely."
        fix = "If this column is no class, pass another one with --label."
        yield Draft("many labels", "warning", title, len(counts), (), fix)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{excerpt(name, 40)}'" for name in names[:5])
    return shown + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
