"""Choose the word and tag columns of column files, once for all files of a run."""

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

MAX_SHOWN_TAGS = 6  # in the line about the choice
MAX_SHOWN_VALUES = 3  # of each candidate column
# (0), (0|1), 1)2): coreference mentions that open and close at a word
_MENTIONS = re.compile(r"(?:\|?(?:\([^()|*\s]+\)?|[^()|*\s]+\)))+")
_NO_MENTION = {"", "-", "_", "*"}
_ROLE = re.compile(r"\((?:[CR]-)?(?:V|A\d|AA|AM-\w+|ARG[\w-]*)[(*]")
_PREDICATE_TAG = re.compile(r"(?:A\d|P)-[BI]")


@dataclass(frozen=True)
class TagColumns:
    """The word and tag columns, by name if all files have a header, else by position."""

    words: int | str
    tags: int | str | None  # None if a task names several
    line: str  # describes the choice


def choose_tag_columns(
    files: Sequence[str],
    words: int | str | None = None,
    tags: int | str | None = None,
    tag_names: Sequence[str] = (),
) -> TagColumns:
    """Choose the word and tag columns that fit every file, or raise a UserError.

    `tag_names` are the tag columns a task names itself; then none is searched for.
    """
    samples = [split_sample(read_sample(path), path) for path in files]
    first = samples[0]
    if tags is None and not tag_names:
        for sample in samples:
            reject_unsupported(sample)
    requested = [_resolve_requested(sample, words, tags, tag_names) for sample in samples]
    tag_positions: list[int | None]
    if tags is None and not tag_names:
        tag = _find_tags(samples)
        tag_positions = [tag] * len(samples) if isinstance(tag, int) else [*tag]
    else:
        tag_positions = [column for _, column in requested]
    word_positions = [
        column if column is not None else _find_words(sample, tag)
        for sample, (column, _), tag in zip(samples, requested, tag_positions, strict=True)
    ]
    if len(set(word_positions)) > 1 and words is None and not _all_have_names(samples):
        columns = ", ".join(
            f"{s.file}: column {column}" for s, column in zip(samples, word_positions, strict=True)
        )
        raise AmbiguousColumnError(
            f"The files have their words in different columns ({columns}). Pass --text COLUMN."
        )
    by_name = _all_have_names(samples)
    text = _column_reference(first, word_positions[0], by_name)
    main = (
        None if tag_names and tags is None else _column_reference(first, tag_positions[0], by_name)
    )
    chosen = [first.names.index(c) if c in first.names else int(c) for c in tag_names]
    return TagColumns(
        text, main, _describe_choice(samples, word_positions, tag_positions, chosen, by_name)
    )


def _resolve_requested(
    sample: ColumnSample, words: int | str | None, tags: int | str | None, tag_names: Sequence[str]
) -> tuple[int | None, int | None]:
    """Return the positions of requested columns in one file."""
    width = len(sample.columns)
    layout = ColumnLayout(
        sample.separator, sample.names, 0, 0, sample.width or width, sample.header
    )
    try:
        for name in tag_names:
            layout.index_of(name)
        found = [None if column is None else layout.index_of(column) for column in (words, tags)]
        return found[0], found[1]
    except UserError as error:
        raise UserError(f"{sample.file}: {error}") from None


def _find_words(sample: ColumnSample, tag: int | None) -> int:
    named = sample.columns_by_name()
    return named[0] if named is not None else sample.find_words(tag)


def _all_have_names(samples: Sequence[ColumnSample]) -> bool:
    return all(sample.header and sample.columns_by_name() for sample in samples)


def _column_reference(sample: ColumnSample, column: int | None, by_name: bool) -> int | str:
    assert column is not None
    return sample.names[column] if by_name else column


def _find_tags(samples: Sequence[ColumnSample]) -> int | list[int]:
    """Return the tag column of all files: one position, or one per file if headers name them."""
    tags = [columns[1] for sample in samples if (columns := sample.columns_by_name())]
    if _all_have_names(samples):
        return tags
    named = set(tags)
    if len(named) == 1 and all(sample.columns_by_name() for sample in samples):
        return named.pop()
    count = min(len(sample.columns) for sample in samples)
    spans = [
        i
        for i in range(count)
        if all(s.is_iob(i) for s in samples) and any(s.has_iob_spans(i) for s in samples)
    ]
    if spans and named & set(spans):
        spans = sorted(named & set(spans))  # a short file alone may not show a standard format
    text = samples[0].find_words(None)
    if not spans and any(s.has_iob_spans(i) for s in samples for i in range(len(s.columns))):
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


def _ambiguous(samples: Sequence[ColumnSample], columns: Sequence[int]) -> UserError:
    values = [_values_by_frequency(samples, i)[:MAX_SHOWN_VALUES] for i in columns]
    candidates = " and ".join(
        f"{_column_name(samples[0], i)} ({', '.join(shown)}…)"
        for i, shown in zip(columns, values, strict=True)
    )
    flags = " or ".join(f"--label {_name_or_index(samples[0], i)}" for i in columns)
    files = ", ".join(sample.file for sample in samples)
    return AmbiguousColumnError(f"{files}: {candidates} could each be the tags. Pass {flags}.")


def _no_common_column(samples: Sequence[ColumnSample], text: int) -> UserError:
    """Return the error for files without a common tag column."""
    if len(samples) > 1:
        tag_columns = []
        for sample in samples:
            try:
                tag = _find_tags([sample])
                tag_columns.append(f"column {tag if isinstance(tag, int) else tag[0]}")
            except UserError:
                tag_columns.append("no single column")
        if len(set(tag_columns)) > 1:
            each = ", ".join(f"{s.file}: {t}" for s, t in zip(samples, tag_columns, strict=True))
            return AmbiguousColumnError(
                f"No column holds tags in every file ({each}). Use one layout for all files, or "
                "pass --label COLUMN."
            )
    others = [i for i in range(len(samples[0].columns)) if i != text]
    columns = ", ".join(str(_name_or_index(samples[0], i)) for i in others)
    return AmbiguousColumnError(
        f"{samples[0].file}: no column looks like tags (words: column {text}; others: {columns}). "
        "Pass --label COLUMN."
    )


def _values_by_frequency(samples: Sequence[ColumnSample], column: int) -> list[str]:
    """Return the values of a column in all files, the most frequent first."""
    counts: Counter[str] = Counter()
    for sample in samples:
        counts.update(sample.columns[column])
    return [value for value, _ in counts.most_common()]


def _name_or_index(sample: ColumnSample, column: int) -> int | str:
    return sample.names[column] if sample.declared and column < len(sample.names) else column


def _column_name(sample: ColumnSample, column: int) -> str:
    name = _name_or_index(sample, column)
    return f"column '{name}'" if isinstance(name, str) else f"column {name}"


def _describe_choice(
    samples: Sequence[ColumnSample],
    texts: Sequence[int],
    tags: Sequence[int | None],
    tag_columns: Sequence[int],
    by_name: bool,
) -> str:
    """Describe the choice: 'words: column 1; tags: column 2 (PER LOC, IOB2); ignored: 0, 3'."""
    first = samples[0]
    chosen = list(tag_columns) or [column for column in tags[:1] if column is not None]
    shown = "; ".join(
        f"{_column_name(first, column)} ({_summarise_tags(samples, column)})"
        for column in chosen
        if column < len(first.columns)
    )
    used = {texts[0], *chosen}
    ignored = [str(_name_or_index(first, i)) for i in range(len(first.columns)) if i not in used]
    if not first.width:
        ignored.append(f"{len(first.columns)} and on")
    rest = f"; ignored: {', '.join(ignored)}" if ignored else ""
    counted = "" if by_name else " (columns count from 0)"
    return f"words: {_column_name(first, texts[0])}; tags: {shown}{rest}{counted}"


def _summarise_tags(samples: Sequence[ColumnSample], column: int) -> str:
    """Return the most frequent tags of a column, and the scheme of span tags."""
    values = _values_by_frequency(samples, column)
    scheme = ""
    if any(sample.has_iob_spans(column) for sample in samples):
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
    """A column format whose labels are not tags of single words.

    No task reads it yet, so it is rejected.
    """

    name: str
    find: Callable[[ColumnSample], int | None]  # the column that identifies it, or None
    reason: str


def reject_unsupported(sample: ColumnSample) -> None:
    """Raise a UserError for a file with one of UNSUPPORTED_STRUCTURES."""
    for structure in UNSUPPORTED_STRUCTURES:
        column = structure.find(sample)
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
        "each role column belongs to one predicate; --recipe srl-bilstm-crf learns them",
    ),
    UnsupportedStructure(
        "open information extraction (OIE2016 columns)",
        _find_predicates,
        "its labels belong to the predicate of each block, and no task reads predicates yet",
    ),
    UnsupportedStructure(
        "coreference (CoNLL-2012 brackets)",
        _find_coreference,
        "mention brackets are not tags; --recipe coref-bilstm learns them",
    ),
)
