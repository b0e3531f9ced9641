"""Which columns of column files are words and tags, decided once for all files of a run."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import AmbiguousColumnError, UserError
from weft.text.annotation import schemes
from weft.text.column_layout import (
    PARSE_BIT,
    ColumnLayout,
    ColumnSample,
    read_sample,
    split_sample,
)

MAX_SHOWN_TAGS = 6  # tags in the line that tells of the decision
MAX_SHOWN_VALUES = 3  # values of each column that could be the tags
# (0), (0|1), 1)2): the mentions that open and close at a word
_MENTIONS = re.compile(r"(?:\|?(?:\([^()|*\s]+\)?|[^()|*\s]+\)))+")
_NO_MENTION = {"", "-", "_", "*"}
_ROLE = re.compile(r"\((?:[CR]-)?(?:V|A\d|AA|AM-\w+|ARG[\w-]*)[(*]")
_PREDICATE_TAG = re.compile(r"(?:A\d|P)-[BI]")


@dataclass(frozen=True)
class TagColumns:
    """The columns of words and tags, by name where all files have a header, else by position."""

    words: int | str
    tags: int | str | None  # None where no single column is asked for
    line: str  # what was decided, for people


def choose_tag_columns(
    files: Sequence[str],
    words: int | str | None = None,
    tags: int | str | None = None,
    tag_names: Sequence[str] = (),
) -> TagColumns:
    """Decide on the columns of words and tags that hold in every file, or raise a UserError.

    `several` are columns of tags that a task names itself; then there is no single one to find.
    """
    samples = [split_sample(read_sample(path), path) for path in files]
    first = samples[0]
    if tags is None and not tag_names:
        for sample in samples:
            reject_unsupported(sample)
    asked = [_resolve_requested(sample, words, tags, tag_names) for sample in samples]
    places: list[int | None]
    if tags is None and not tag_names:
        found = _find_tags(samples)
        places = [found] * len(samples) if isinstance(found, int) else [*found]
    else:
        places = [place for _, place in asked]
    texts = [
        place if place is not None else _find_words(sample, tag)
        for sample, (place, _), tag in zip(samples, asked, places, strict=True)
    ]
    if len(set(texts)) > 1 and words is None and not _all_have_names(samples):
        told = ", ".join(
            f"{s.file}: column {place}" for s, place in zip(samples, texts, strict=True)
        )
        raise AmbiguousColumnError(
            f"The words stand in different columns ({told}). Pass --text COLUMN."
        )
    by_name = _all_have_names(samples)
    text = _column_reference(first, texts[0], by_name)
    main = None if tag_names and tags is None else _column_reference(first, places[0], by_name)
    chosen = [first.names.index(c) if c in first.names else int(c) for c in tag_names]
    return TagColumns(text, main, _describe_choice(samples, texts, places, chosen, by_name))


def _resolve_requested(
    sample: ColumnSample, words: int | str | None, tags: int | str | None, tag_names: Sequence[str]
) -> tuple[int | None, int | None]:
    """The positions of columns that were named, in one file."""
    width = len(sample.columns)
    layout = ColumnLayout(
        sample.separator, sample.names, 0, 0, sample.width or width, sample.header
    )
    try:
        for name in tag_names:
            layout.number(name)
        return tuple(None if c is None else layout.number(c) for c in (words, tags))  # type: ignore[return-value]
    except UserError as error:
        raise UserError(f"{sample.file}: {error}") from None


def _find_words(sample: ColumnSample, tag: int | None) -> int:
    named = sample.named()
    return named[0] if named is not None else sample.find_words(tag)


def _all_have_names(samples: Sequence[ColumnSample]) -> bool:
    return all(sample.header and sample.named() for sample in samples)


def _column_reference(sample: ColumnSample, place: int | None, by_name: bool) -> int | str:
    assert place is not None
    return sample.names[place] if by_name else place


def _find_tags(samples: Sequence[ColumnSample]) -> int | list[int]:
    """The column of tags in all files: one position, or one a file where headers name them."""
    if _all_have_names(samples):
        return [sample.named()[1] for sample in samples]  # type: ignore[index]
    named = {found[1] for sample in samples if (found := sample.named())}
    if len(named) == 1 and all(sample.named() for sample in samples):
        return named.pop()
    count = min(len(sample.columns) for sample in samples)
    spans = [
        i
        for i in range(count)
        if all(s.is_iob(i) for s in samples) and any(s.marks_spans(i) for s in samples)
    ]
    if spans and named & set(spans):
        spans = sorted(named & set(spans))  # a short file alone may not show its usual names
    text = samples[0].find_words(None)
    if not spans and any(s.marks_spans(i) for s in samples for i in range(len(s.columns))):
        raise _no_common_column(samples, text)
    if not spans and count == 2:
        return 1
    few = [
        i
        for i in range(1, count)
        if i != text
        and all(s.has_few_values(i) or len(set(s.columns[i])) == 1 for s in samples)
        and any(s.has_few_values(i) for s in samples)
    ]
    fitting = spans or few
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise _ambiguous(samples, fitting)
    raise _no_common_column(samples, text)


def _ambiguous(samples: Sequence[ColumnSample], found: Sequence[int]) -> UserError:
    values = [_values_by_frequency(samples, i)[:MAX_SHOWN_VALUES] for i in found]
    told = " and ".join(
        f"{_column_name(samples[0], i)} ({', '.join(shown)}…)"
        for i, shown in zip(found, values, strict=True)
    )
    flags = " or ".join(f"--label {_name_or_index(samples[0], i)}" for i in found)
    files = ", ".join(sample.file for sample in samples)
    return AmbiguousColumnError(f"{files}: {told} could each be the tags. Pass {flags}.")


def _no_common_column(samples: Sequence[ColumnSample], text: int) -> UserError:
    """The error for files that have no column of tags in common."""
    if len(samples) > 1:
        told = []
        for sample in samples:
            try:
                found = _find_tags([sample])
                told.append(f"column {found if isinstance(found, int) else found[0]}")
            except UserError:
                told.append("no single column")
        if len(set(told)) > 1:
            each = ", ".join(f"{s.file}: {t}" for s, t in zip(samples, told, strict=True))
            return AmbiguousColumnError(
                f"No column holds the tags in every file ({each}). Bring the files into one "
                "layout, or pass --label COLUMN."
            )
    others = [i for i in range(len(samples[0].columns)) if i != text]
    columns = ", ".join(str(_name_or_index(samples[0], i)) for i in others)
    return AmbiguousColumnError(
        f"{samples[0].file}: no column looks like tags (words: column {text}; others: {columns}). "
        "Pass --label COLUMN."
    )


def _values_by_frequency(samples: Sequence[ColumnSample], column: int) -> list[str]:
    """The values of a column in all files, the commonest first."""
    counts: Counter[str] = Counter()
    for sample in samples:
        counts.update(sample.columns[column])
    return [value for value, _ in counts.most_common()]


def _name_or_index(sample: ColumnSample, place: int) -> int | str:
    return sample.names[place] if sample.declared and place < len(sample.names) else place


def _column_name(sample: ColumnSample, place: int) -> str:
    name = _name_or_index(sample, place)
    return f"column '{name}'" if isinstance(name, str) else f"column {name}"


def _describe_choice(
    samples: Sequence[ColumnSample],
    texts: Sequence[int],
    tags: Sequence[int | None],
    tag_columns: Sequence[int],
    by_name: bool,
) -> str:
    """The decision in words: 'words: column 1; tags: column 2 (PER LOC, IOB2); ignored: 0, 3'."""
    first = samples[0]
    chosen = list(tag_columns) or [place for place in tags[:1] if place is not None]
    told = "; ".join(
        f"{_column_name(first, place)} ({_summarise_tags(samples, place)})"
        for place in chosen
        if place < len(first.columns)
    )
    used = {texts[0], *chosen}
    ignored = [str(_name_or_index(first, i)) for i in range(len(first.columns)) if i not in used]
    if not first.width:
        ignored.append(f"{len(first.columns)} and on")
    rest = f"; ignored: {', '.join(ignored)}" if ignored else ""
    counted = "" if by_name else " (columns count from 0)"
    return f"words: {_column_name(first, texts[0])}; tags: {told}{rest}{counted}"


def _summarise_tags(samples: Sequence[ColumnSample], column: int) -> str:
    """The commonest tags of a column, and the scheme of those that mark spans."""
    values = _values_by_frequency(samples, column)
    scheme = ""
    if any(sample.marks_spans(column) for sample in samples):
        rows = ([row[column] for row in block] for s in samples for block in s.blocks)
        try:
            scheme = ", " + schemes.recognise(rows)
        except (UserError, IndexError):
            scheme = ", no single scheme"
        values = list(dict.fromkeys(v.partition("-")[2] for v in values if v[1:2] == "-"))
    more = f" … {len(values)} in all" if len(values) > MAX_SHOWN_TAGS else ""
    return " ".join(values[:MAX_SHOWN_TAGS]) + more + scheme


@dataclass(frozen=True)
class UnsupportedStructure:
    """A format of column files whose labels are no tags of single words.

    A task that reads one would be named here; until then the format is refused.
    """

    name: str
    found: Callable[[ColumnSample], int | None]  # the column that gives it away, or None
    reason: str


def reject_unsupported(sample: ColumnSample) -> None:
    """Raise a UserError for a file of one of the STRUCTURES: its columns are no tags."""
    for structure in UNSUPPORTED_STRUCTURES:
        column = structure.found(sample)
        if column is None:
            continue
        last = column >= len(sample.columns)
        where = f"column {column} and on" if last else _column_name(sample, column)
        words = _find_words(sample, None)
        likely: int | str = next((n for n in ("upos", "pos") if n in sample.names), column)
        raise AmbiguousColumnError(
            f"{Path(sample.file)}: this is {structure.name}, in {where}; {structure.reason}. To "
            "train a tagger on one column as it is, name it: --text "
            f"{_name_or_index(sample, words)} --label "
            f"{likely if isinstance(likely, str) else _name_or_index(sample, likely)}."
        )


def _find_coreference(sample: ColumnSample) -> int | None:
    for number, column in enumerate(sample.columns):
        values = set(column) - _NO_MENTION
        if values and all(map(_MENTIONS.fullmatch, values)):
            return number
    return None


def _find_predicates(sample: ColumnSample) -> int | None:
    if {"pred", "label"} <= set(sample.names):
        return sample.names.index("label")
    for number, column in enumerate(sample.columns):
        values = set(column) - {"O"}
        if values and all(map(_PREDICATE_TAG.fullmatch, values)):
            return number
    return None


def _find_roles(sample: ColumnSample) -> int | None:
    count = len(sample.columns)
    columns = [*map(set, sample.columns), sample.rest]
    for number, values in enumerate(columns):
        bits = bool(values) and all(map(PARSE_BIT.fullmatch, values))
        if bits and any(map(_ROLE.match, values)):
            return min(number, count)
    return None


UNSUPPORTED_STRUCTURES = (
    UnsupportedStructure(
        "semantic role labelling (PropBank, CoNLL-2005 or CoNLL-2012 columns)",
        _find_roles,
        "each column of roles belongs to one predicate, and no task reads predicates yet",
    ),
    UnsupportedStructure(
        "open information extraction (OIE2016 columns)",
        _find_predicates,
        "its labels belong to the predicate of each block, and no task reads predicates yet",
    ),
    UnsupportedStructure(
        "coreference (CoNLL-2012 brackets)",
        _find_coreference,
        "mentions that open and close are no tags, and no task reads coreference yet",
    ),
)
