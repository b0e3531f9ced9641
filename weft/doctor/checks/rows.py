"""What single rows and the counts of lengths and scripts have to say."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from weft.doctor.checks.encoding import describe_invisible, describe_unicode_form, fix_mojibake
from weft.doctor.checks.scripts import NO_LETTERS
from weft.doctor.checks.target_stats import target_text
from weft.doctor.finding import Finding, Histogram, Level, Place, agree, excerpt, pluralise
from weft.doctor.pending import PendingFinding, RowRef, row_refs
from weft.doctor.survey import Split, Survey
from weft.text.example import Example, Tally
from weft.text.line_source import EMPTY_TEXT, NUL_BYTE, SKIP_HINT, UNDECODABLE, SkipLog
from weft.text.read import GUESSED_HEADER

OUTLIER_FACTOR = 10  # times the 95th percentile
MIN_MEDIAN_WORDS = 5  # words of the usual text from which a single word is odd
MAX_MINORITY_FRACTION = 0.1  # of all texts: below this, another script is worth a look

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
        "invisible characters (zero-width space or joiner, soft hyphen, byte order mark)",
        "Remove them (--fix does): they make equal words different.",
    ),
    "normalisation": (
        "note",
        "letters in decomposed Unicode form (NFD, not NFC): equal words are written in two ways",
        "Normalise them to NFC (--fix does).",
    ),
    "markup": (
        "note",
        "leftovers of HTML (<br />, &amp;)",
        "Strip the mark-up where it means nothing.",
    ),
}
_SKIPPED: dict[str, tuple[str, str]] = {
    UNDECODABLE: (
        "not UTF-8",
        "Convert the file: iconv -f LATIN1 -t UTF-8 FILE (or WINDOWS-1252).",
    ),
    NUL_BYTE: ("a NUL byte", "Remove it: tr -d '\\0' < FILE."),
    EMPTY_TEXT: ("no text", "Fill them in or remove the rows."),
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
    "ragged columns": (
        "another number of columns than the rest",
        "Give every word a line with as many columns as the others.",
    ),
    "wrong number of columns": (
        "not ten columns",
        "Separate ten cells by one tab each, with _ for an empty one.",
    ),
    "malformed id": ("an id that is none", "Number the words from 1; 3-4 is a range, 3.1 empty."),
    "empty word": ("a word is missing", "Fill it in."),
    "malformed span": (
        "a span that is not written as one",
        'Write {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"] with whole numbers.',
    ),
}
_FIX_HINT = re.compile(r" \(--fix [^)]*\)|, or let --fix repair it|; --fix [^.;]*")
_NOT_USED = " not used"  # relations, events and notes of BRAT, which no task here learns
_REJECTED = "text not accepted"
_UNITS = {"broken tree": "tree", "malformed span": "span", "ragged columns": "sentence"}
_UNITS |= dict.fromkeys(("wrong number of columns", "malformed id", "empty word"), "sentence")


def report_skipped(skipped: Tally, split: str) -> Iterator[Finding]:
    """Rows that the reader could not use."""
    said = skipped.told if isinstance(skipped, SkipLog) else {}
    for kind, count in skipped.counts.items():
        told, fix = _SKIPPED.get(kind, (kind, "Look at them."))
        # What the finding says once for all is not said again at every place.
        places = tuple(
            Place(where, "", said.get(where, "").partition(f", or {SKIP_HINT}")[0])
            for where in skipped.places[kind]
        )
        level: Level = "warning" if kind == EMPTY_TEXT else "error"
        unit = _UNITS.get(kind, "row")
        title = f"{pluralise(count, unit)} of {split} could not be used: {told}."
        if kind.endswith(_NOT_USED):
            noun = kind.removesuffix(_NOT_USED)
            level, title = (
                "note",
                f"{pluralise(count, noun)} of {split} {agree(count, 'is', 'are')}",
            )
            title, fix = f"{title} not used.", "Tasks here learn the spans of a text."
        elif kind == GUESSED_HEADER:
            level, fix = "note", "Where it is a row like the others, put a header above it."
            title = f"The first line of {split} is taken for a header: single words over sentences."
        elif kind == _REJECTED:
            level, fix = "note", 'They are left out: their "answer" is not "accept".'
            title = (
                f"{pluralise(count, 'text')} of {split} {agree(count, 'was', 'were')} not accepted."
            )
        yield Finding(kind, level, title, count, places, fix)


def check_texts(survey: Survey) -> Iterator[PendingFinding]:
    """Empty and damaged texts, a kind a split."""
    for split in survey.splits:
        noted = split.empty
        if noted.count:
            is_are = agree(noted.count, "is", "are")
            title = f"{pluralise(noted.count, survey.unit)} of {split.name} {is_are} empty."
            fix = "Fill them in or remove the rows (--fix removes them)."
            fix = without_fix_hint(fix) if survey.structured else fix
            level: Level = "warning"
            if survey.unlabelled:  # blank lines stand between the paragraphs of any text
                level = "note"
                fix = "They are left out, or with task.lines = false are line breaks of the text."
            yield PendingFinding(
                "empty", level, title, noted.count, row_refs(split, noted.rows), fix
            )
    for kind, (level, told, fix) in _DAMAGE.items():
        for split in survey.splits:
            if kind in split.damage:
                noted = split.damage[kind]
                have = agree(noted.count, "has", "have")
                title = f"{pluralise(noted.count, survey.unit)} of {split.name} {have} {told}."
                if kind == "normalisation" and split.composed:
                    whole = pluralise(split.composed, survey.unit)
                    title = f"{title[:-1]}; {whole} {agree(split.composed, 'is', 'are')} in NFC."
                here = row_refs(split, noted.rows)
                fix = without_fix_hint(fix) if survey.structured else fix
                explain = _DAMAGE_DETAILS.get(kind)
                yield PendingFinding(kind, level, title, noted.count, here, fix, explain)
            damage = survey.pairs.damage.get(split.name, {}) if survey.pairs else {}
            if kind in damage:
                noted, have = damage[kind], agree(damage[kind].count, "has", "have")
                title = f"{pluralise(noted.count, 'target')} of {split.name} {have} {told}."
                here = row_refs(split, noted.rows)
                yield PendingFinding(
                    kind, level, title, noted.count, here, without_fix_hint(fix), _show_target
                )


def without_fix_hint(fix: str) -> str:
    """The advice without what --fix does to texts: it would move words away from their tags."""
    return _FIX_HINT.sub("", fix)


def _show_target(example: Example) -> str:
    return excerpt(target_text(example.label))


def _show_repaired(example: Example) -> str:
    return f"probably: {excerpt(fix_mojibake(example.text))}"


_DAMAGE_DETAILS: dict[str, Callable[[Example], str]] = {
    "mojibake": _show_repaired,
    "invisible": lambda example: describe_invisible(example.whole),
    "normalisation": lambda example: describe_unicode_form(example.whole),
}


def check_lengths(survey: Survey, limit: int) -> Iterator[PendingFinding]:
    """Texts beyond the limit, far longer than the rest, or of a single word."""
    for split in survey.splits:
        figures = length_stats(split.lengths, limit)
        beyond = sum(n for words, n in split.lengths.items() if words > limit)
        if beyond:
            title = (
                f"{pluralise(beyond, survey.unit)} of {split.name} "
                f"({100 * beyond / split.rows:.1f} %) {'has' if beyond == 1 else 'have'} "
                f"more than {limit:,} words."
            )
            here = tuple(
                RowRef(split.start + row, detail=f"{words:,} words")
                for words, row in split.longer_than(limit)
            )
            fix = (
                "A model with that limit reads only a part of them: choose what with data.truncate."
            )
            if survey.sentences:
                fix = (
                    "A model with that limit reads them in pieces that do not see each other; one "
                    "without needs memory for every word, a parser for every pair. Cut them."
                )
            yield PendingFinding("long", "note", title, beyond, here, fix)
        if not survey.unlabelled:
            yield from _check_single_words(split, figures.get("median", 0), survey.unit)
        edge = OUTLIER_FACTOR * figures.get("p95", 0)
        far = split.longer_than(max(edge, 100))
        if far:
            count = sum(n for words, n in split.lengths.items() if words > max(edge, 100))
            title = (
                f"{pluralise(count, survey.unit)} of {split.name} {agree(count, 'is', 'are')} over "
                f"{OUTLIER_FACTOR} times as long as 95 % of the others (up to {far[0][0]:,} words)."
            )
            here = tuple(RowRef(split.start + row, detail=f"{words:,} words") for words, row in far)
            lost = (
                "a blank line lost between sentences" if survey.sentences else "an unclosed quote"
            )
            fix = f"Look whether several ran together, as after {lost}."
            yield PendingFinding("outlier", "warning", title, count, here, fix)


def _check_single_words(split: Split, median: float, unit: str) -> Iterator[PendingFinding]:
    count = split.single.count
    if count and median >= MIN_MEDIAN_WORDS:
        texts = f"{pluralise(count, unit)} of {split.name} {agree(count, 'has', 'have')}"
        title = f"{texts} a single word, where {median:.0f} are usual."
        fix = "Look whether the rest was lost."
        yield PendingFinding("short", "note", title, count, row_refs(split, split.single.rows), fix)


def length_stats(counts: Mapping[int, int], limit: int) -> dict[str, float]:
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


def length_histogram(lengths: Mapping[str, Mapping[int, int]]) -> Histogram:
    """Texts of each split by length, in steps that double every fourth time."""
    longest = max((max(counts, default=0) for counts in lengths.values()), default=0)
    edges = sorted({round(2 ** (step / 4)) for step in range(4 * (longest.bit_length() + 1))})
    edges = [edge for i, edge in enumerate(edges) if i == 0 or edges[i - 1] <= longest]
    counts = {
        name: tuple(
            sum(n for words, n in found.items() if low <= words < high)
            for low, high in pairwise(edges)
        )
        for name, found in lengths.items()
    }
    return Histogram(tuple(edges), counts)


def check_scripts(survey: Survey) -> Iterator[PendingFinding]:
    """Texts in another script than most, and texts without any letter."""
    counts = count_scripts(survey)
    written = {name: n for name, n in counts.items() if name != NO_LETTERS}
    main = max(written, key=lambda name: written[name], default="")
    for name, count in counts.items():
        if name == main or (
            name != NO_LETTERS and count >= MAX_MINORITY_FRACTION * sum(counts.values())
        ):
            continue
        here = [
            spot
            for split in survey.splits
            if name in split.scripts
            for spot in row_refs(split, split.scripts[name].rows)
        ]
        have = agree(count, "has", "have")
        told = "no letters" if name == NO_LETTERS else f"mostly {name} letters, not {main}"
        title = f"{pluralise(count, survey.unit)} {have} {told}."
        fix = (
            "Look whether they belong here."
            if name == NO_LETTERS
            else "Keep one language, or train on both."
        )
        yield PendingFinding("script", "note", title, count, tuple(here), fix)
    large = [
        name for name, n in written.items() if n >= MAX_MINORITY_FRACTION * sum(counts.values())
    ]
    if len(large) > 1:
        told = ", ".join(f"{name} {counts[name]:,}" for name in large)
        title = f"{len(large)} scripts are mixed: {told}."
        fix = "Choose a tokenizer that knows them all, or train a model each."
        yield PendingFinding("script", "note", title, len(large), (), fix)


def count_scripts(survey: Survey) -> dict[str, int]:
    """Texts by script, the largest first."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        counts.update({name: noted.count for name, noted in split.scripts.items()})
    return dict(counts.most_common())
