"""Check single rows: skipped, empty and damaged texts, lengths and scripts."""

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
from weft.text.example import Example, SkipCounter
from weft.text.line_source import EMPTY_TEXT, NUL_BYTE, SKIP_HINT, UNDECODABLE, SkipLog
from weft.text.read import GUESSED_HEADER

OUTLIER_FACTOR = 10  # times the 95th percentile
MIN_MEDIAN_WORDS = 5  # of texts, to report single words
MAX_MINORITY_FRACTION = 0.1  # of texts: a rarer script is reported

_DAMAGE: dict[str, tuple[Level, str, str]] = {
    "replacement": (
        "warning",
        "the replacement character U+FFFD: text was lost when the file was created",
        "Create the file again from its source with the right encoding.",
    ),
    "mojibake": (
        "warning",
        "mojibake: UTF-8 that was read in another encoding",
        "Create the file again as UTF-8, or let --fix repair it.",
    ),
    "control": (
        "warning",
        "control characters",
        "Remove them (--fix does).",
    ),
    "invisible": (
        "note",
        "invisible characters (zero-width space or joiner, soft hyphen, byte order mark)",
        "Remove them (--fix does): they make equal words differ.",
    ),
    "normalisation": (
        "note",
        "letters in decomposed Unicode form (NFD, not NFC), so that equal words differ",
        "Normalise them to NFC (--fix does).",
    ),
    "markup": (
        "note",
        "HTML remnants (<br />, &amp;)",
        "Strip the markup where it has no meaning.",
    ),
}
_SKIPPED: dict[str, tuple[str, str]] = {
    UNDECODABLE: (
        "not UTF-8",
        "Convert the file: iconv -f LATIN1 -t UTF-8 FILE (or WINDOWS-1252).",
    ),
    NUL_BYTE: ("a NUL byte", "Remove it: tr -d '\\0' < FILE."),
    EMPTY_TEXT: ("no text", "Add the texts or remove the rows."),
    "ragged row": (
        "more or fewer columns than the rest",
        "Quote cells that contain the separator, and pass --format csv.",
    ),
    "broken quoting": ("broken quotes", "Double the quotes inside a quoted cell."),
    "invalid JSON": ("not JSON", "Correct the lines: one object on each."),
    "not an object": ("not an object", 'Write each line as {"text": …, "label": …}.'),
    "no text": ("no text field", "Rename the field, or pass --text."),
    "text is not a text": ("the text is not a text", "Quote it."),
    "unusable label": ("an unusable label", "Give a text, a number or a list of texts."),
    "broken tree": ("not a tree", "Close every bracket: (3 (2 The) (4 good))."),
    "ragged columns": (
        "a different number of columns than the rest",
        "Give every word as many columns as the others.",
    ),
    "wrong number of columns": (
        "not ten columns",
        "Separate ten cells by one tab each, with _ for an empty one.",
    ),
    "malformed id": (
        "an invalid id",
        "Number the words from 1; 3-4 is a range, 3.1 an empty node.",
    ),
    "empty word": ("a word is missing", "Fill it in."),
    "malformed span": (
        "a malformed span",
        'Write {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"] with whole numbers.',
    ),
}
_FIX_HINT = re.compile(r" \(--fix [^)]*\)|, or let --fix repair it|; --fix [^.;]*")
_NOT_USED = " not used"  # BRAT relations, events and notes, which no task reads
_REJECTED = "text not accepted"
_UNITS = {"broken tree": "tree", "malformed span": "span", "ragged columns": "sentence"}
_UNITS |= dict.fromkeys(("wrong number of columns", "malformed id", "empty word"), "sentence")


def report_skipped(skipped: SkipCounter, split: str) -> Iterator[Finding]:
    """Yield findings about rows that the reader skipped."""
    messages = skipped.messages if isinstance(skipped, SkipLog) else {}
    for kind, count in skipped.counts.items():
        described, fix = _SKIPPED.get(kind, (kind, "Check them."))
        # The advice of the finding is not repeated at every place.
        places = tuple(
            Place(where, "", messages.get(where, "").partition(f", or {SKIP_HINT}")[0])
            for where in skipped.places[kind]
        )
        level: Level = "warning" if kind == EMPTY_TEXT else "error"
        unit = _UNITS.get(kind, "row")
        title = f"{pluralise(count, unit)} of {split} could not be used: {described}."
        if kind.endswith(_NOT_USED):
            noun = kind.removesuffix(_NOT_USED)
            level, title = (
                "note",
                f"{pluralise(count, noun)} of {split} {agree(count, 'is', 'are')}",
            )
            title, fix = f"{title} not used.", "Tasks learn only the spans."
        elif kind == GUESSED_HEADER:
            level, fix = "note", "If it is a row of data, add a header above it."
            title = f"The first line of {split} is read as a header: single words above sentences."
        elif kind == _REJECTED:
            level, fix = "note", 'They are skipped: their "answer" is not "accept".'
            title = (
                f"{pluralise(count, 'text')} of {split} {agree(count, 'was', 'were')} not accepted."
            )
        yield Finding(kind, level, title, count, places, fix)


def check_texts(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings about empty and damaged texts, per kind and split."""
    for split in survey.splits:
        noted = split.empty
        if noted.count:
            is_are = agree(noted.count, "is", "are")
            title = f"{pluralise(noted.count, survey.unit)} of {split.name} {is_are} empty."
            fix = "Add the texts or remove the rows (--fix removes them)."
            fix = without_fix_hint(fix) if survey.structured else fix
            level: Level = "warning"
            if survey.unlabelled:  # blank lines separate paragraphs
                level = "note"
                fix = "They are skipped, or kept as line breaks with task.lines = false."
            yield PendingFinding(
                "empty", level, title, noted.count, row_refs(split, noted.rows), fix
            )
    for kind, (level, described, fix) in _DAMAGE.items():
        for split in survey.splits:
            if kind in split.damage:
                noted = split.damage[kind]
                have = agree(noted.count, "has", "have")
                title = f"{pluralise(noted.count, survey.unit)} of {split.name} {have} {described}."
                if kind == "normalisation" and split.composed:
                    whole = pluralise(split.composed, survey.unit)
                    title = f"{title[:-1]}; {whole} {agree(split.composed, 'is', 'are')} in NFC."
                refs = row_refs(split, noted.rows)
                fix = without_fix_hint(fix) if survey.structured else fix
                explain = _DAMAGE_DETAILS.get(kind)
                yield PendingFinding(kind, level, title, noted.count, refs, fix, explain)
            damage = survey.pairs.damage.get(split.name, {}) if survey.pairs else {}
            if kind in damage:
                noted, have = damage[kind], agree(damage[kind].count, "has", "have")
                title = f"{pluralise(noted.count, 'target')} of {split.name} {have} {described}."
                refs = row_refs(split, noted.rows)
                yield PendingFinding(
                    kind, level, title, noted.count, refs, without_fix_hint(fix), _show_target
                )


def without_fix_hint(fix: str) -> str:
    """Return the advice without --fix, which would shift words against their tags."""
    return _FIX_HINT.sub("", fix)


def _show_target(example: Example) -> str:
    return excerpt(target_text(example.label))


def _show_repaired(example: Example) -> str:
    return f"probably: {excerpt(fix_mojibake(example.text))}"


_DAMAGE_DETAILS: dict[str, Callable[[Example], str]] = {
    "mojibake": _show_repaired,
    "invisible": lambda example: describe_invisible(example.full_text),
    "normalisation": lambda example: describe_unicode_form(example.full_text),
}


def check_lengths(survey: Survey, max_words: int) -> Iterator[PendingFinding]:
    """Yield findings on texts over `max_words`, far longer than the rest, or of one word."""
    for split in survey.splits:
        stats = length_stats(split.lengths, max_words)
        beyond = sum(n for words, n in split.lengths.items() if words > max_words)
        if beyond:
            title = (
                f"{pluralise(beyond, survey.unit)} of {split.name} "
                f"({100 * beyond / split.rows:.1f} %) {'has' if beyond == 1 else 'have'} "
                f"more than {max_words:,} words."
            )
            refs = tuple(
                RowRef(split.start + row, detail=f"{words:,} words")
                for words, row in split.longer_than(max_words)
            )
            fix = "A model with that limit reads only part of them: choose it with data.truncate."
            if survey.sentences:
                fix = (
                    "A model with that limit reads them in independent windows; one without needs "
                    "memory for every word, a parser for every pair of words. Split them."
                )
            yield PendingFinding("long", "note", title, beyond, refs, fix)
        if not survey.unlabelled:
            yield from _check_single_words(split, stats.get("median", 0), survey.unit)
        edge = OUTLIER_FACTOR * stats.get("p95", 0)
        far = split.longer_than(max(edge, 100))
        if far:
            count = sum(n for words, n in split.lengths.items() if words > max(edge, 100))
            title = (
                f"{pluralise(count, survey.unit)} of {split.name} {agree(count, 'is', 'are')} over "
                f"{OUTLIER_FACTOR} times as long as 95 % of the rest (up to {far[0][0]:,} words)."
            )
            refs = tuple(RowRef(split.start + row, detail=f"{words:,} words") for words, row in far)
            lost = (
                "a missing blank line between sentences"
                if survey.sentences
                else "an unclosed quote"
            )
            fix = f"Check whether several were merged, as after {lost}."
            yield PendingFinding("outlier", "warning", title, count, refs, fix)


def _check_single_words(split: Split, median: float, unit: str) -> Iterator[PendingFinding]:
    count = split.single.count
    if count and median >= MIN_MEDIAN_WORDS:
        texts = f"{pluralise(count, unit)} of {split.name} {agree(count, 'has', 'have')}"
        title = f"{texts} a single word; the median is {median:.0f}."
        fix = "Check whether text was lost."
        yield PendingFinding("short", "note", title, count, row_refs(split, split.single.rows), fix)


def length_stats(counts: Mapping[int, int], max_words: int) -> dict[str, float]:
    """Return median, 95th and 99th percentile, maximum, and the fraction over `max_words`."""
    total = sum(counts.values())
    if not total:
        return {}
    stats: dict[str, float] = {}
    seen, wanted = 0, [("median", 0.5), ("p95", 0.95), ("p99", 0.99)]
    for words in sorted(counts):
        seen += counts[words]
        while wanted and seen >= wanted[0][1] * total:
            stats[wanted.pop(0)[0]] = words
    stats["max"] = max(counts)
    stats["beyond"] = sum(n for words, n in counts.items() if words > max_words) / total
    return stats


def length_histogram(lengths: Mapping[str, Mapping[int, int]]) -> Histogram:
    """Return a histogram of text lengths per split, with edges that double every fourth step."""
    longest = max((max(counts, default=0) for counts in lengths.values()), default=0)
    edges = sorted({round(2 ** (step / 4)) for step in range(4 * (longest.bit_length() + 1))})
    edges = [edge for i, edge in enumerate(edges) if i == 0 or edges[i - 1] <= longest]
    counts = {
        name: tuple(
            sum(n for words, n in lengths_of_split.items() if low <= words < high)
            for low, high in pairwise(edges)
        )
        for name, lengths_of_split in lengths.items()
    }
    return Histogram(tuple(edges), counts)


def check_scripts(survey: Survey) -> Iterator[PendingFinding]:
    """Yield findings on texts in another script than most, or without letters."""
    counts = count_scripts(survey)
    written = {name: n for name, n in counts.items() if name != NO_LETTERS}
    main = max(written, key=lambda name: written[name], default="")
    for name, count in counts.items():
        if name == main or (
            name != NO_LETTERS and count >= MAX_MINORITY_FRACTION * sum(counts.values())
        ):
            continue
        refs = [
            spot
            for split in survey.splits
            if name in split.scripts
            for spot in row_refs(split, split.scripts[name].rows)
        ]
        have = agree(count, "has", "have")
        described = "no letters" if name == NO_LETTERS else f"mostly {name} letters, not {main}"
        title = f"{pluralise(count, survey.unit)} {have} {described}."
        fix = (
            "Check whether they belong here."
            if name == NO_LETTERS
            else "Keep one language, or train on both."
        )
        yield PendingFinding("script", "note", title, count, tuple(refs), fix)
    large = [
        name for name, n in written.items() if n >= MAX_MINORITY_FRACTION * sum(counts.values())
    ]
    if len(large) > 1:
        described = ", ".join(f"{name} {counts[name]:,}" for name in large)
        title = f"{len(large)} scripts are mixed: {described}."
        fix = "Choose a tokenizer that covers them all, or train a model for each."
        yield PendingFinding("script", "note", title, len(large), (), fix)


def count_scripts(survey: Survey) -> dict[str, int]:
    """Count texts by script, the most frequent first."""
    counts: Counter[str] = Counter()
    for split in survey.splits:
        counts.update({name: noted.count for name, noted in split.scripts.items()})
    return dict(counts.most_common())
