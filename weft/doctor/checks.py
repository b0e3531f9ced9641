"""What single rows and the counts of labels, lengths and scripts have to say."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

from weft.doctor.damage import unmojibake
from weft.doctor.draft import Draft, Spot, spots
from weft.doctor.finding import SHOWN, Finding, Histogram, Level, Place, excerpt, many, verb
from weft.doctor.labels import COMPARED, Twin, twins
from weft.doctor.scripts import NONE
from weft.doctor.survey import DISTINCT, Split, Survey
from weft.text.example import Example, Tally
from weft.text.source import EMPTY, NUL, UNDECODABLE

FEW = 5  # examples of a class that are too few to learn from
UNEVEN = 50  # times as many examples in the largest class as in the smallest
MAJORITY = 0.9  # of all rows in one class
OUTLIER = 10  # times the 95th percentile
SENTENCE = 5  # words of the usual text from which a single word is odd
MINORITY = 0.1  # of all texts: below this, another script is worth a look

_DAMAGE: dict[str, tuple[Level, str, str]] = {
    "replacement": (
        "warning",
        "the replacement character U+FFFD: something was lost when the file was made",
        "Make the file again from its source with the right encoding.",
    ),
    "mojibake": (
        "warning",
        "garbled letters: UTF-8 that was read in another encoding (mojibake)",
        "Make the file again as UTF-8, or let --fix repair it.",
    ),
    "control": (
        "warning",
        "control characters",
        "Remove them (--fix does).",
    ),
    "invisible": (
        "note",
        "invisible characters (zero-width space, soft hyphen, byte order mark)",
        "Remove them (--fix does): they make equal words different.",
    ),
    "normalisation": (
        "note",
        "letters in decomposed Unicode form (not NFC), so that equal words are written in two ways",
        "Normalise them to NFC (--fix does).",
    ),
    "markup": (
        "note",
        "leftovers of HTML (<br />, &amp;)",
        "Strip the mark-up where it means nothing.",
    ),
}
_LEFT_OUT: dict[str, tuple[str, str]] = {
    UNDECODABLE: (
        "not UTF-8",
        "Convert the file: iconv -f LATIN1 -t UTF-8 FILE (or WINDOWS-1252).",
    ),
    NUL: ("a NUL byte", "Remove it: tr -d '\\0' < FILE."),
    EMPTY: ("no text", "Fill them in or remove the rows."),
    "ragged row": (
        "more or fewer columns than the rest",
        "Quote cells that hold the separator, and pass --format csv.",
    ),
    "broken quoting": ("broken quotes", "Double the quotes inside a quoted cell."),
    "invalid JSON": ("not JSON", "Mend the lines: one object on each."),
    "not an object": ("not an object", 'Write each line as {"text": …, "label": …}.'),
    "no text": ("no text field", "Rename the field, or pass --text."),
    "text is not a text": ("the text is not a text", "Quote it."),
    "unusable label": ("an unusable label", "Give a text, a number or a list of texts."),
    "broken tree": ("not a tree", "Close every bracket: (3 (2 The) (4 good))."),
}


def left_out(tally: Tally, split: str) -> Iterator[Finding]:
    """Rows that the reader could not use."""
    for kind, count in tally.counts.items():
        told, fix = _LEFT_OUT.get(kind, (kind, "Look at them."))
        places = tuple(Place(where) for where in tally.places[kind])
        level: Level = "warning" if kind == EMPTY else "error"
        title = f"{many(count, 'row')} of {split} could not be used: {told}."
        yield Finding(kind, level, title, count, places, fix)


def texts(survey: Survey) -> Iterator[Draft]:
    """Empty and damaged texts, a kind a split."""
    for split in survey.splits:
        noted = split.empty
        if noted.count:
            is_are = verb(noted.count, "is", "are")
            title = f"{many(noted.count, 'text')} of {split.name} {is_are} empty."
            fix = "Fill them in or remove the rows (--fix removes them)."
            yield Draft("empty", "warning", title, noted.count, spots(split, noted.rows), fix)
    for kind, (level, told, fix) in _DAMAGE.items():
        for split in survey.splits:
            if kind in split.damage:
                noted = split.damage[kind]
                have = verb(noted.count, "has", "have")
                title = f"{many(noted.count, 'text')} of {split.name} {have} {told}."
                here = spots(split, noted.rows)
                explain = _probably if kind == "mojibake" else None
                yield Draft(kind, level, title, noted.count, here, fix, explain)


def _probably(example: Example) -> str:
    return f"probably: {excerpt(unmojibake(example.text))}"


def labels(survey: Survey) -> Iterator[Draft]:
    """Missing, misspelt, rare, unseen and unevenly spread labels."""
    labelled = any(split.labels for split in survey.splits)
    for split in survey.splits:
        noted = split.unlabelled
        if labelled and noted.count:
            have = "has" if noted.count == 1 else "have"
            title = f"{many(noted.count, 'row')} of {split.name} {have} no label."
            fix = "Fill the label in or remove the rows."
            yield Draft("unlabelled", "error", title, noted.count, spots(split, noted.rows), fix)
    if survey.scale or not labelled:
        return
    found = twins(totals(survey))
    slips = {twin.label for twin in found}  # said once is enough
    yield from _misspelt(survey, found)
    yield from _unseen(survey, slips)
    yield from _rare(survey.splits[0], slips)
    yield from _uneven(survey.splits[0], slips)
    yield from _too_many(survey)


def totals(survey: Survey) -> Counter[str]:
    """How often each label occurs in all splits together."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        counts.update({name: noted.count for name, noted in split.labels.items()})
    return counts


def _first(survey: Survey, label: str) -> int:
    split = next(s for s in survey.splits if label in s.labels)
    return split.start + split.labels[label].rows[0]


def _misspelt(survey: Survey, found: list[Twin]) -> Iterator[Draft]:
    counts = totals(survey)
    if not found:
        return
    here = tuple(
        Spot(
            _first(survey, twin.label),
            detail=f"'{twin.label}' ({counts[twin.label]:,}×) "
            f"for '{twin.meant}' ({counts[twin.meant]:,}×)? {twin.kind}",
        )
        for twin in found
    )
    look = "looks" if len(found) == 1 else "look"
    told = ", ".join(f"'{twin.label}' for '{twin.meant}'" for twin in found[:3])
    more = "…" if len(found) > 3 else ""
    title = f"{many(len(found), 'label')} {look} like a slip for another one: {told}{more}."
    fix = "Correct them (--fix changes the clear ones), or rename one if both are meant."
    yield Draft("label typo", "warning", title, len(found), here, fix)


def _unseen(survey: Survey, slips: set[str]) -> Iterator[Draft]:
    train = survey.splits[0]
    for split in survey.splits[1:]:
        if not split.labels or not train.labels:
            continue
        fresh = [name for name in split.labels if name not in train.labels]
        if fresh:
            rows = sum(split.labels[name].count for name in fresh)
            title = (
                f"{many(len(fresh), 'label')} of {split.name} never "
                f"{'occurs' if len(fresh) == 1 else 'occur'} in {train.name} "
                f"({many(rows, 'row')}): {_listed(fresh)}."
            )
            here = tuple(
                Spot(split.start + split.labels[name].rows[0], detail=name) for name in fresh
            )
            fix = f"Add examples to {train.name}, or take the rows out: no model can answer them."
            yield Draft("unseen label", "error", title, len(fresh), here, fix)
        absent = [n for n in train.labels if n not in split.labels and n not in slips]
        if absent:
            have = "has" if len(absent) == 1 else "have"
            title = (
                f"{many(len(absent), 'label')} of {train.name} {have} no example in "
                f"{split.name}: {_listed(absent)}."
            )
            fix = f"What {split.name} measures says nothing about them."
            yield Draft("label not tested", "note", title, len(absent), (), fix)


def _rare(train: Split, slips: set[str]) -> Iterator[Draft]:
    counts = {name: noted.count for name, noted in train.labels.items() if name not in slips}
    single = [name for name, count in counts.items() if count == 1]
    few = [name for name, count in counts.items() if 1 < count < FEW]
    for names, told in ((single, "a single example"), (few, f"fewer than {FEW} examples")):
        if names:
            have = "has" if len(names) == 1 else "have"
            title = f"{many(len(names), 'label')} of {train.name} {have} {told}: {_listed(names)}."
            here = tuple(
                Spot(
                    train.start + train.labels[name].rows[0],
                    detail=f"{name}: {train.labels[name].count}×",
                )
                for name in names
            )
            fix = "Collect more, merge it into another label, or leave it out."
            yield Draft("rare label", "warning", title, len(names), here, fix)


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


def lengths(survey: Survey, limit: int) -> Iterator[Draft]:
    """Texts beyond the limit, far longer than the rest, or of a single word."""
    for split in survey.splits:
        figures = of_lengths(split.lengths, limit)
        beyond = sum(n for words, n in split.lengths.items() if words > limit)
        if beyond:
            title = (
                f"{many(beyond, 'text')} of {split.name} "
                f"({100 * beyond / split.rows:.1f} %) {'has' if beyond == 1 else 'have'} "
                f"more than {limit:,} words."
            )
            here = tuple(
                Spot(split.start + row, detail=f"{words:,} words")
                for words, row in split.longest
                if words > limit
            )
            fix = (
                "A model with that limit reads only a part of them: choose what with data.truncate."
            )
            yield Draft("long", "note", title, beyond, here, fix)
        yield from _short(split, figures.get("median", 0))
        edge = OUTLIER * figures.get("p95", 0)
        far = [(words, row) for words, row in split.longest if words > max(edge, 100)]
        if far:
            count = sum(n for words, n in split.lengths.items() if words > max(edge, 100))
            title = (
                f"{many(count, 'text')} of {split.name} {'is' if count == 1 else 'are'} over "
                f"{OUTLIER} times as long as 95 % of the others (up to {far[0][0]:,} words)."
            )
            here = tuple(Spot(split.start + row, detail=f"{words:,} words") for words, row in far)
            fix = "Look whether several texts ran together, as after an unclosed quote."
            yield Draft("outlier", "warning", title, count, here, fix)


def _short(split: Split, median: float) -> Iterator[Draft]:
    count = split.single.count
    if count and median >= SENTENCE:
        texts = f"{many(count, 'text')} of {split.name} {verb(count, 'has', 'have')}"
        title = f"{texts} a single word, where {median:.0f} are usual."
        fix = "Look whether the rest was lost."
        yield Draft("short", "note", title, count, spots(split, split.single.rows), fix)


def of_lengths(counts: Mapping[int, int], limit: int) -> dict[str, float]:
    """Median, 95th and 99th percentile, longest, and the share beyond the limit."""
    total = sum(counts.values())
    if not total:
        return {}
    figures: dict[str, float] = {}
    seen, wanted = 0, [("median", 0.5), ("p95", 0.95), ("p99", 0.99)]
    for words in sorted(counts):
        seen += counts[words]
        while wanted and seen >= wanted[0][1] * total:
            figures[wanted.pop(0)[0]] = words
    figures["max"] = max(counts)
    figures["beyond"] = sum(n for words, n in counts.items() if words > limit) / total
    return figures


def histogram(survey: Survey) -> Histogram:
    """Texts by length, in steps that double every fourth time."""
    longest = max((max(s.lengths, default=0) for s in survey.splits), default=0)
    edges = sorted({round(2 ** (step / 4)) for step in range(4 * (longest.bit_length() + 1))})
    edges = [edge for i, edge in enumerate(edges) if i == 0 or edges[i - 1] <= longest]
    counts = {
        split.name: tuple(
            sum(n for words, n in split.lengths.items() if low <= words < high)
            for low, high in pairwise(edges)
        )
        for split in survey.splits
    }
    return Histogram(tuple(edges), counts)


def scripts(survey: Survey) -> Iterator[Draft]:
    """Texts in another script than most, and texts without any letter."""
    counts = of_scripts(survey)
    written = {name: n for name, n in counts.items() if name != NONE}
    main = max(written, key=lambda name: written[name], default="")
    for name, count in counts.items():
        if name == main or (name != NONE and count >= MINORITY * sum(counts.values())):
            continue
        here = [
            spot
            for split in survey.splits
            if name in split.scripts
            for spot in spots(split, split.scripts[name].rows)
        ]
        have = verb(count, "has", "have")
        told = "no letters" if name == NONE else f"mostly {name} letters, not {main}"
        title = f"{many(count, 'text')} {have} {told}."
        fix = (
            "Look whether they belong here."
            if name == NONE
            else "Keep one language, or train on both."
        )
        yield Draft("script", "note", title, count, tuple(here[:SHOWN]), fix)
    large = [name for name, n in written.items() if n >= MINORITY * sum(counts.values())]
    if len(large) > 1:
        told = ", ".join(f"{name} {counts[name]:,}" for name in large)
        title = f"{len(large)} scripts are mixed: {told}."
        fix = "Choose a tokenizer that knows them all, or train a model each."
        yield Draft("script", "note", title, len(large), (), fix)


def of_scripts(survey: Survey) -> dict[str, int]:
    """Texts by script, the largest first."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        counts.update({name: noted.count for name, noted in split.scripts.items()})
    return dict(counts.most_common())
