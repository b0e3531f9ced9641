"""Which columns of column files are words and tags, decided once for all files of a run."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UndecidedError, UserError
from weft.text.annotation import schemes
from weft.text.column_layout import BIT, Layout, Sample, cut, look

SHOWN = 6  # tags in the line that tells of the decision
EXAMPLES = 3  # values of each column that could be the tags
# (0), (0|1), 1)2): the mentions that open and close at a word
_MENTIONS = re.compile(r"(?:\|?(?:\([^()|*\s]+\)?|[^()|*\s]+\)))+")
_NO_MENTION = {"", "-", "_", "*"}
_ROLE = re.compile(r"\((?:[CR]-)?(?:V|A\d|AA|AM-\w+|ARG[\w-]*)[(*]")
_OF_PREDICATE = re.compile(r"(?:A\d|P)-[BI]")


@dataclass(frozen=True)
class Choice:
    """The columns of words and tags, by name where all files have a header, else by position."""

    words: int | str
    tags: int | str | None  # None where no single column is asked for
    line: str  # what was decided, for people


def choose_columns(
    files: Sequence[str],
    words: int | str | None = None,
    tags: int | str | None = None,
    several: Sequence[str] = (),
) -> Choice:
    """Decide on the columns of words and tags that hold in every file, or raise a UserError.

    `several` are columns of tags that a task names itself; then there is no single one to find.
    """
    samples = [cut(look(path), path) for path in files]
    first = samples[0]
    if tags is None and not several:
        for sample in samples:
            refuse_structures(sample)
    asked = [_asked(sample, words, tags, several) for sample in samples]
    places: list[int | None]
    if tags is None and not several:
        found = _tags_of(samples)
        places = [found] * len(samples) if isinstance(found, int) else [*found]
    else:
        places = [place for _, place in asked]
    texts = [
        place if place is not None else _words_of(sample, tag)
        for sample, (place, _), tag in zip(samples, asked, places, strict=True)
    ]
    if len(set(texts)) > 1 and words is None and not _all_named(samples):
        told = ", ".join(
            f"{s.file}: column {place}" for s, place in zip(samples, texts, strict=True)
        )
        raise UndecidedError(f"The words stand in different columns ({told}). Pass --text COLUMN.")
    by_name = _all_named(samples)
    text = _recorded(first, texts[0], by_name)
    main = None if several and tags is None else _recorded(first, places[0], by_name)
    chosen = [first.names.index(c) if c in first.names else int(c) for c in several]
    return Choice(text, main, _line(samples, texts, places, chosen, by_name))


def _asked(
    sample: Sample, words: int | str | None, tags: int | str | None, several: Sequence[str]
) -> tuple[int | None, int | None]:
    """The positions of columns that were named, in one file."""
    width = len(sample.columns)
    layout = Layout(sample.separator, sample.names, 0, 0, sample.width or width, sample.header)
    try:
        for name in several:
            layout.number(name)
        return tuple(None if c is None else layout.number(c) for c in (words, tags))  # type: ignore[return-value]
    except UserError as error:
        raise UserError(f"{sample.file}: {error}") from None


def _words_of(sample: Sample, tag: int | None) -> int:
    named = sample.named()
    return named[0] if named is not None else sample.words_beside(tag)


def _all_named(samples: Sequence[Sample]) -> bool:
    return all(sample.header and sample.named() for sample in samples)


def _recorded(sample: Sample, place: int | None, by_name: bool) -> int | str:
    assert place is not None
    return sample.names[place] if by_name else place


def _tags_of(samples: Sequence[Sample]) -> int | list[int]:
    """The column of tags in all files: one position, or one a file where headers name them."""
    if _all_named(samples):
        return [sample.named()[1] for sample in samples]  # type: ignore[index]
    named = {found[1] for sample in samples if (found := sample.named())}
    if len(named) == 1 and all(sample.named() for sample in samples):
        return named.pop()
    count = min(len(sample.columns) for sample in samples)
    spans = [
        i
        for i in range(count)
        if all(s.holds_tags(i) for s in samples) and any(s.marks_spans(i) for s in samples)
    ]
    if spans and named & set(spans):
        spans = sorted(named & set(spans))  # a short file alone may not show its usual names
    text = samples[0].words_beside(None)
    if not spans and any(s.marks_spans(i) for s in samples for i in range(len(s.columns))):
        raise _none_common(samples, text)
    if not spans and count == 2:
        return 1
    few = [
        i
        for i in range(1, count)
        if i != text
        and all(s.holds_few(i) or len(set(s.columns[i])) == 1 for s in samples)
        and any(s.holds_few(i) for s in samples)
    ]
    fitting = spans or few
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _ambiguous(samples, fitting)
    raise _none_common(samples, text)


def _ambiguous(samples: Sequence[Sample], found: Sequence[int]) -> UserError:
    told = " and ".join(
        f"{_called(samples[0], i)} ({', '.join(_common(samples, i)[:EXAMPLES])}…)" for i in found
    )
    flags = " or ".join(f"--label {_named(samples[0], i)}" for i in found)
    files = ", ".join(sample.file for sample in samples)
    return UndecidedError(f"{files}: {told} could each be the tags. Pass {flags}.")


def _none_common(samples: Sequence[Sample], text: int) -> UserError:
    """The error for files that have no column of tags in common."""
    if len(samples) > 1:
        told = []
        for sample in samples:
            try:
                found = _tags_of([sample])
                told.append(f"column {found if isinstance(found, int) else found[0]}")
            except UserError:
                told.append("no single column")
        if len(set(told)) > 1:
            each = ", ".join(f"{s.file}: {t}" for s, t in zip(samples, told, strict=True))
            return UndecidedError(
                f"No column holds the tags in every file ({each}). Bring the files into one "
                "layout, or pass --label COLUMN."
            )
    others = [i for i in range(len(samples[0].columns)) if i != text]
    columns = ", ".join(str(_named(samples[0], i)) for i in others)
    return UndecidedError(
        f"{samples[0].file}: no column looks like tags (words: column {text}; others: {columns}). "
        "Pass --label COLUMN."
    )


def _common(samples: Sequence[Sample], column: int) -> list[str]:
    """The values of a column in all files, the commonest first."""
    counts: Counter[str] = Counter()
    for sample in samples:
        counts.update(sample.columns[column])
    return [value for value, _ in counts.most_common()]


def _named(sample: Sample, place: int) -> int | str:
    return sample.names[place] if sample.declared and place < len(sample.names) else place


def _called(sample: Sample, place: int) -> str:
    name = _named(sample, place)
    return f"column '{name}'" if isinstance(name, str) else f"column {name}"


def _line(
    samples: Sequence[Sample],
    texts: Sequence[int],
    tags: Sequence[int | None],
    several: Sequence[int],
    by_name: bool,
) -> str:
    """The decision in words: 'words: column 1; tags: column 2 (PER LOC, IOB2); ignored: 0, 3'."""
    first = samples[0]
    chosen = list(several) or [place for place in tags[:1] if place is not None]
    told = "; ".join(
        f"{_called(first, place)} ({_summary(samples, place)})"
        for place in chosen
        if place < len(first.columns)
    )
    used = {texts[0], *chosen}
    ignored = [str(_named(first, i)) for i in range(len(first.columns)) if i not in used]
    if not first.width:
        ignored.append(f"{len(first.columns)} and on")
    rest = f"; ignored: {', '.join(ignored)}" if ignored else ""
    counted = "" if by_name else " (columns count from 0)"
    return f"words: {_called(first, texts[0])}; tags: {told}{rest}{counted}"


def _summary(samples: Sequence[Sample], column: int) -> str:
    """The commonest tags of a column, and the scheme of those that mark spans."""
    values = _common(samples, column)
    scheme = ""
    if any(sample.marks_spans(column) for sample in samples):
        rows = ([row[column] for row in block] for s in samples for block in s.blocks)
        try:
            scheme = ", " + schemes.recognise(rows)
        except (UserError, IndexError):
            scheme = ", no single scheme"
        values = list(dict.fromkeys(v.partition("-")[2] for v in values if v[1:2] == "-"))
    more = f" … {len(values)} in all" if len(values) > SHOWN else ""
    return " ".join(values[:SHOWN]) + more + scheme


@dataclass(frozen=True)
class Structure:
    """A format of column files whose labels are no tags of single words.

    A task that reads one would be named here; until then the format is refused.
    """

    name: str
    found: Callable[[Sample], int | None]  # the column that gives it away, or None
    reason: str


def refuse_structures(sample: Sample) -> None:
    """Raise a UserError for a file of one of the STRUCTURES: its columns are no tags."""
    for structure in STRUCTURES:
        column = structure.found(sample)
        if column is None:
            continue
        last = column >= len(sample.columns)
        where = f"column {column} and on" if last else _called(sample, column)
        words = _words_of(sample, None)
        likely: int | str = next((n for n in ("upos", "pos") if n in sample.names), column)
        raise UndecidedError(
            f"{Path(sample.file)}: this is {structure.name}, in {where}; {structure.reason}. To "
            f"train a tagger on one column as it is, name it: --text {_named(sample, words)} "
            f"--label {likely if isinstance(likely, str) else _named(sample, likely)}."
        )


def _coreference(sample: Sample) -> int | None:
    for number, column in enumerate(sample.columns):
        values = set(column) - _NO_MENTION
        if values and all(map(_MENTIONS.fullmatch, values)):
            return number
    return None


def _predicates(sample: Sample) -> int | None:
    if {"pred", "label"} <= set(sample.names):
        return sample.names.index("label")
    for number, column in enumerate(sample.columns):
        values = set(column) - {"O"}
        if values and all(map(_OF_PREDICATE.fullmatch, values)):
            return number
    return None


def _roles(sample: Sample) -> int | None:
    count = len(sample.columns)
    columns = [*map(set, sample.columns), sample.rest]
    for number, values in enumerate(columns):
        bits = bool(values) and all(map(BIT.fullmatch, values))
        if bits and any(map(_ROLE.match, values)):
            return min(number, count)
    return None


STRUCTURES = (
    Structure(
        "semantic role labelling (PropBank, CoNLL-2005 or CoNLL-2012 columns)",
        _roles,
        "each column of roles belongs to one predicate, and no task reads predicates yet",
    ),
    Structure(
        "open information extraction (OIE2016 columns)",
        _predicates,
        "its labels belong to the predicate of each block, and no task reads predicates yet",
    ),
    Structure(
        "coreference (CoNLL-2012 brackets)",
        _coreference,
        "mentions that open and close are no tags, and no task reads coreference yet",
    ),
)
