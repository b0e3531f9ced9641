"""Find the text and label columns: as requested, else by header, else by contents."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from weft.errors import AmbiguousColumnError, UserError, near_miss
from weft.text.cells import has_few_values, is_number, is_numeric_scale, is_text
from weft.text.pair_columns import are_extractive_answers, find_text_pair, infer_text_pair
from weft.untrusted import parse_integer

TEXT_NAMES = (
    *("text", "sentence", "review", "question", "utterance", "content", "document", "body"),
    *("tweet", "comment", "message", "query", "phrase", "reviewtext", "title", "headline"),
)
LABEL_NAMES = (
    *("label", "labels", "category", "categories", "class", "classes", "target", "sentiment"),
    *("intent", "topic", "emotion", "polarity", "score", "rating", "stars", "tag", "tags", "gold"),
    "gold_label",
)
# Source and target texts: these names count only together.
SOURCE_NAMES = ("source", "src", "input", "mr", "article", "abstract", *TEXT_NAMES)
TARGET_NAMES = (
    *("target", "tgt", "output", "ref", "reference", "references", "summary", "highlights"),
    *("translation", "response", "answer", "tldr", "answers"),
)
ANSWER_NAMES = ("answer", "answers", "answer_text")
START_NAMES = (
    "answer_start",
    "answerstart",
    "answer_starts",
)  # character offsets of answers in the second text
WORD_NAMES = ("tokens", "words")  # lists of words, with a tag for each
SENTENCE_NAMES = ("intent", "label")  # of the words together, beside a tag for each
ID_NAMES = ("id", "idx", "uid", "guid", "index", "example_id")
NO_LABEL = ""

MAX_LABEL_ROWS = 20_000  # read when the first rows do not decide on the label
_MIN_ROWS_BELOW_HEADER = 5  # for a header guessed from contents
_NAME = re.compile(r"[^\W\d][\w-]{0,39}")  # a column name: one word without punctuation


@dataclass(frozen=True)
class Columns:
    """Requested columns, by name or position; None means detect, label="" means none."""

    text: str | int | None = None
    label: str | int | None = None
    id: str | int | None = None
    fields: tuple[str, ...] = ()  # that form a record instead of a text; "*": all others
    extra_labels: tuple[str, ...] = ()  # further references, besides the label
    text_pair: str | int | None = None  # second text; None: detect by name
    requires_pair: bool = False  # a second text must exist
    label_is_text: bool = False  # the label is a target text (seq2seq)
    strict: bool = False  # equally good candidates are an error
    joined: bool = False  # label and extra labels are one label of several cells
    weight: str | int | None = None  # of the row's loss; None: all are 1

    def split_labels(self, names: Sequence[str]) -> "Columns":
        """Return the columns with a label A,B,C as three; a column of that name is one."""
        if not isinstance(self.label, str) or "," not in self.label or self.label in names:
            return self
        first, *others = (part.strip() for part in self.label.split(","))
        return replace(self, label=first, extra_labels=(*others, *self.extra_labels), joined=True)


@dataclass(frozen=True)
class TableLayout:
    """The positions of text, label and other fields in a row."""

    text: int
    label: int | None
    id: int | None
    names: tuple[str, ...]  # all "" without a header
    header: bool
    fields: tuple[int, ...] = ()
    extra_labels: tuple[int, ...] = ()
    other: int | None = None  # second text
    answer_start: int | None = None  # character offset of the answer
    answers_in_text: bool = False  # labels are answers in the second text
    guessed: bool = False  # the header was inferred from the rows below it
    joined: bool = False  # label and extra labels are one label of several cells
    words: bool = False  # the text is a list of tokens, the label a list with a tag for each
    word_columns: tuple[int, ...] = ()  # further lists
    weight: int | None = None
    sentence_label: int | None = None  # of all words together, beside their tags

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> Columns:
        """The same by name if there is a header, to read a sibling file alike."""
        text, label, other = (
            self.names[i] if self.header and i is not None else i
            for i in (self.text, self.label, self.other)
        )
        fields, more = (
            tuple(self.names[i] for i in some) for some in (self.fields, self.extra_labels)
        )
        if self.joined:
            others = more if self.header else tuple(map(str, self.extra_labels))
            label, more = ",".join((str(label), *others)), ()
        return Columns(text, label, fields=fields, extra_labels=more, text_pair=other)

    def describe(self) -> str:
        """Describe the use of each column: "text: column 'a'; label: column 'b'; ignored: 'c'"."""
        rows = [("text", self.text), ("second text", self.other), ("label", self.label)]
        if self.words:
            rows = [("words", self.text), ("tags", self.label), ("label", self.sentence_label)]
        if self.fields:
            rows[0] = ("record", None)
        parts = [f"{role}: {_column_name(i, self.names)}" for role, i in rows if i is not None]
        if self.fields:
            parts.insert(0, "record: " + ", ".join(repr(self.names[i]) for i in self.fields))
        if self.extra_labels:
            others = ", ".join(repr(self.names[i] or i) for i in self.extra_labels)
            if self.joined:
                parts[-1] += f", {others}"
            else:
                parts.append(f"more references: {others}")
        if self.label is None:
            parts.append("label: none")
        if self.weight is not None:
            parts.append(f"weight: {_column_name(self.weight, self.names)}")
        used = {
            self.text,
            self.other,
            self.label,
            self.answer_start,
            self.weight,
            self.sentence_label,
            *self.fields,
            *self.extra_labels,
        }
        free = [i for i in range(self.width) if i not in used]
        if free:
            parts.append("ignored: " + ", ".join(repr(self.names[i] or i) for i in free))
        counted = "" if self.header else " (columns count from 0)"
        return "; ".join(parts) + counted


Rows = Sequence[Sequence[str]]
MoreRows = Callable[[], Iterator[Sequence[str]]]


def layout_from_rows(
    rows: Rows, requested: Columns, file: str, more: MoreRows | None = None
) -> TableLayout:
    """Detect the layout of a table whose first row may be a header."""
    header = _is_header(rows, requested)
    guessed = not header and _is_above_texts(rows)
    header = header or guessed
    width = len(rows[0]) if header else Counter(map(len, rows)).most_common(1)[0][0]
    body = [row for row in (rows[1:] if header else rows) if len(row) == width]
    names = tuple(name.strip() for name in rows[0]) if header else ("",) * width
    return replace(
        layout_from_names(names, body, requested, file, more, header=header), guessed=guessed
    )


def layout_from_names(
    names: tuple[str, ...],
    body: Rows,
    requested: Columns,
    file: str,
    more: MoreRows | None = None,
    *,
    header: bool = True,
    lists: frozenset[int] = frozenset(),
) -> TableLayout:
    """Detect the layout of rows under given column names (all "" without a header).

    `lists` are the columns whose cells are lists.
    """
    requested = requested.split_labels(names)
    columns = list(zip(*body, strict=True)) if body else [()] * len(names)
    text = _resolve_column(requested.text, names, file, "text")
    label = (
        None
        if requested.label == NO_LABEL
        else _resolve_column(requested.label, names, file, "label")
    )
    identity = _resolve_column(requested.id, names, file, "id")
    other = _resolve_column(requested.text_pair, names, file, "text-pair")
    others = _resolve_columns(requested.extra_labels, names, file, "label")
    weight = _resolve_column(requested.weight, names, file, "weight")
    fields = _resolve_fields(requested.fields, names, file, {label, identity, weight, *others})
    if fields:
        if requested.label is None and list(requested.fields) != ["*"]:
            label = _find_by_name(names, TARGET_NAMES, {*fields, identity, *others})
        return TableLayout(fields[0], label, identity, names, header, fields, others, weight=weight)
    words = _find_words(names, text, lists)
    if words is not None and requested.label is None:
        tags = _find_tags(names, columns, lists - {words}, file)
    else:
        tags = label if label in lists else None
    if words is not None and tags is not None:
        if identity is None:
            identity = _find_by_name(names, ID_NAMES, {words, tags})
        more_lists = tuple(sorted(lists - {words, tags}))
        taken_columns = {identity, weight, *lists}
        return TableLayout(
            words, tags, identity, names, header, words=True, word_columns=more_lists,
            weight=weight, sentence_label=_find_by_name(names, SENTENCE_NAMES, taken_columns),
        )  # fmt: skip
    taken_by_request: set[int | None] = {
        column for column in (label, identity, weight) if column is not None
    }
    text, other = find_text_pair(names, text, other, taken_by_request)
    taken = taken_by_request | {column for column in (other,) if column is not None}
    if identity is None:
        identity = _find_by_name(names, ID_NAMES, {text, label})
    if label is None and requested.text_pair is None:
        text, target = _find_source_and_target(names, columns, text, identity)
        label = target if requested.label is None else None
        other = None if label is not None and label == other else other  # seq2seq
    if requested.label_is_text and label is None and requested.label is None:
        text, label = _find_target(names, columns, text, {identity, other}, file)
    if requested.requires_pair and other is None:
        labels = {i for i, name in enumerate(names) if name.lower() in LABEL_NAMES}
        text, other = infer_text_pair(names, text, taken_by_request | labels, file)
    if text is None:
        text = _find_by_name(names, TEXT_NAMES, taken)
    if text is None:
        if requested.strict:
            _require_single_text(names, columns, taken | {identity}, file)
        text = _find_text_by_content(columns, taken | {identity})
    for first, second in itertools.combinations((text, label, identity, other, weight), 2):
        if first is not None and first == second:
            raise UserError(
                f"{file}: {_column_name(first, names)} has two roles. Pass another one."
            )
    if label is None and requested.label is None:
        label = _find_label(names, columns, {text, identity, other, weight}, file, more)
    used = {text, label, identity, other}
    start, within = None, False
    if label is not None and other is not None:
        start = _find_by_name(names, START_NAMES, used)
        named = names[label].lower() in ANSWER_NAMES
        within = start is None and are_extractive_answers(columns[label], columns[other], named)
    return TableLayout(
        text, label, identity, names, header,
        extra_labels=others, other=other, answer_start=start, answers_in_text=within,
        joined=requested.joined, weight=weight,
    )  # fmt: skip


def _find_words(names: tuple[str, ...], text: int | None, lists: frozenset[int]) -> int | None:
    """Return the column of tokens, if a column of lists has such a name."""
    candidates = sorted(lists) if text is None else sorted(lists & {text})
    return next((i for i in candidates if names[i].lower() in WORD_NAMES), None)


def _find_tags(
    names: tuple[str, ...], columns: Sequence[Sequence[str]], lists: frozenset[int], file: str
) -> int | None:
    """Return the list column of tags: the one with the name of a label, or the only other one.

    If another column has the name of a label, the tokens have a label together.
    """
    named = sorted(i for i in lists if names[i].lower() in LABEL_NAMES)
    candidates = named or ([] if _has_label_name(names, {*lists}) else sorted(lists))
    if len(candidates) > 1:
        raise _ambiguous([(i, columns[i]) for i in candidates], names, file, "tags")
    return candidates[0] if candidates else None


def _find_source_and_target(
    names: tuple[str, ...],
    columns: Sequence[Sequence[str]],
    text: int | None,
    identity: int | None,
) -> tuple[int | None, int | None]:
    """Return source and target columns, by their names or as the only two columns."""
    target = _find_by_name(names, TARGET_NAMES, {text, identity})
    source = _find_by_name(names, SOURCE_NAMES, {target, identity}) if text is None else text
    if None not in (source, target) and not _has_label_name(names, {source, identity, target}):
        return source, target
    free = [column for column in range(len(columns)) if column != identity]
    if len(free) != 2 or not all(is_text(columns[column]) for column in free):
        return text, None
    if text is None:
        text = _find_by_name(names, TEXT_NAMES, {identity})
    first = free[0] if text is None else text
    return first, free[1] if first == free[0] else free[0]


def _find_target(
    names: tuple[str, ...],
    columns: Sequence[Sequence[str]],
    text: int | None,
    taken: set[int | None],
    file: str,
) -> tuple[int | None, int | None]:
    """Return source and target columns: the only two text columns, or the only other one."""
    if _has_label_name(names, {text, *taken}):
        return text, None
    if text is None:
        text = _find_by_name(names, TEXT_NAMES, taken)
    texts = [i for i, cells in enumerate(columns) if i not in taken and is_text(cells)]
    others = [i for i in texts if i != text]
    if text is not None and len(others) == 1:
        return text, others[0]
    if text is None and len(others) == 2:
        return others[0], others[1]
    if len(others) < 2:
        return text, None
    candidates = " and ".join(_column_with_example(i, columns[i], names) for i in others)
    raise AmbiguousColumnError(
        f"{file}: {candidates} could each be source or target. Pass --text COLUMN and "
        "--label COLUMN."
    )


def _require_single_text(
    names: tuple[str, ...], columns: Sequence[Sequence[str]], taken: set[int | None], file: str
) -> None:
    """Raise a UserError if several columns could be the text."""
    texts = [i for i, cells in enumerate(columns) if i not in taken and is_text(cells)]
    sizes = {i: sum(map(len, columns[i])) for i in texts}
    texts = [i for i in texts if sizes[i] * 2 >= max(sizes.values())]
    if len(texts) > 1:
        candidates = " and ".join(_column_with_example(i, columns[i], names) for i in texts)
        flags = " or ".join(f"--text {names[i] or i}" for i in texts)
        raise AmbiguousColumnError(f"{file}: {candidates} could each be the text. Pass {flags}.")


def _column_with_example(column: int, cells: Sequence[str], names: tuple[str, ...]) -> str:
    """Return a column name with its first value, for messages."""
    first = next((cell for cell in cells if cell.strip()), "")
    return f"{_column_name(column, names)} ({first[:20]!r}…)"


def _has_label_name(names: tuple[str, ...], taken: set[int | None]) -> bool:
    return any(n.lower() in LABEL_NAMES for i, n in enumerate(names) if i not in taken)


def _resolve_columns(
    requested: Sequence[str], names: tuple[str, ...], file: str, role: str
) -> tuple[int, ...]:
    columns = (_resolve_column(name, names, file, role) for name in requested)
    return tuple(column for column in columns if column is not None)


def _resolve_fields(
    requested: Sequence[str], names: tuple[str, ...], file: str, taken: set[int | None]
) -> tuple[int, ...]:
    """Return the columns of a record; "*" means all without another role."""
    if not requested:
        return ()
    if not any(names):
        raise UserError(f"{file}: no header row. The columns of a record name its slots: add one.")
    if list(requested) != ["*"]:
        return _resolve_columns(requested, names, file, "set data.fields")
    return tuple(i for i in range(len(names)) if i not in taken)


def _resolve_column(
    requested: str | int | None, names: tuple[str, ...], file: str, role: str
) -> int | None:
    if requested is None:
        return None
    if isinstance(requested, str):
        exact = [i for i, name in enumerate(names) if name == requested]
        matches = exact or [i for i, name in enumerate(names) if name.lower() == requested.lower()]
        if len(matches) > 1:
            raise UserError(
                f"{file}: {len(matches)} columns are named '{requested}'. Pass --{role} 0, 1…"
            )
        if matches:
            return matches[0]
        number = parse_integer(requested)
        if number is None:
            raise _unknown_column(requested, names, file, role)
        requested = number
    column = requested
    if not 0 <= column < len(names):
        raise UserError(
            f"{file}: no column {column}; the file has {len(names)} columns, "
            f"0 to {len(names) - 1}. Pass another --{role}."
        )
    return column


def _unknown_column(requested: str, names: tuple[str, ...], file: str, role: str) -> UserError:
    if not any(names):
        return UserError(
            f"{file}: no column '{requested}': the file has no header row. "
            f"Pass a position, --{role} 0 to --{role} {len(names) - 1}."
        )
    return UserError(
        f"{file}: no '{requested}' column; found {list(names)}.{near_miss(requested, names)} "
        f"Rename it or pass another --{role}."
    )


def _is_header(rows: Rows, requested: Columns) -> bool:
    first = [cell.strip() for cell in rows[0]]
    requested = requested.split_labels(first)
    options = (
        requested.text,
        requested.label,
        requested.id,
        requested.text_pair,
        *requested.fields,
        *requested.extra_labels,
    )
    named = [a for a in options if isinstance(a, str) and a]
    if any(name in first and not name.isdecimal() for name in named):
        return True
    plausible = all(cell and len(cell) <= 40 and len(cell.split()) <= 6 for cell in first)
    if not plausible or len(set(first)) < len(first) or any(map(is_number, first)):
        return False
    if _is_above_numbers(rows):
        return True
    if any(len(cell.split()) > 3 for cell in first):
        return False  # too long for names
    lowered = {cell.lower() for cell in first}
    if lowered & {*TEXT_NAMES, *LABEL_NAMES}:
        return True
    if lowered & {*SOURCE_NAMES} and lowered & {*TARGET_NAMES}:
        return True
    return None not in find_text_pair(first, None, None, set())


def _is_above_numbers(rows: Rows) -> bool:
    """Return whether a column of numbers follows: a word above it must be its name."""
    body = [row for row in rows[1:] if len(row) == len(rows[0])]
    return len(body) > 1 and any(all(map(is_number, column)) for column in zip(*body, strict=True))


def _is_above_texts(rows: Rows) -> bool:
    """Return whether the first row holds single words, absent below, above columns of text.

    In a file with other rows of single words, it may well be a row of data.
    """
    first = [cell.strip() for cell in rows[0]]
    body = [row for row in rows[1:] if len(row) == len(first)]
    if len(first) < 2 or len(body) < _MIN_ROWS_BELOW_HEADER or len(set(first)) < len(first):
        return False
    if not all(_NAME.fullmatch(name) for name in first):
        return False
    if any(all(len(cell.split()) < 2 for cell in row) for row in body):
        return False
    columns = zip(first, zip(*body, strict=True), strict=True)
    return all(is_text(cells) and _is_absent(name, cells) for name, cells in columns)


def _is_absent(name: str, cells: Sequence[str]) -> bool:
    """Return whether a word occurs nowhere in a column."""
    whole = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
    return not any(map(whole.search, cells))


def _find_by_name(
    names: tuple[str, ...], wanted: Sequence[str], taken: set[int | None]
) -> int | None:
    lowered = [name.lower() for name in names]
    for name in wanted:
        if name in lowered and lowered.index(name) not in taken:
            return lowered.index(name)
    return None


def _find_text_by_content(columns: Sequence[Sequence[str]], taken: set[int | None]) -> int:
    """Return the column with the most text: many distinct, long values, not numbers."""

    def weight(column: int) -> tuple[bool, int]:
        cells = columns[column]
        worded = not all(map(is_number, cells))
        return worded, len(set(cells)) * sum(map(len, cells))

    free = [column for column in range(len(columns)) if column not in taken]
    return max(free or range(len(columns)), key=weight)


def _find_label(
    names: tuple[str, ...],
    columns: Sequence[Sequence[str]],
    taken: set[int | None],
    file: str,
    more: MoreRows | None,
) -> int | None:
    named = [i for i, n in enumerate(names) if n.lower() in LABEL_NAMES and i not in taken]
    plain = [i for i in named if names[i].lower() in ("label", "labels")]
    if plain or len(named) == 1:
        return (plain or named)[0]
    if len(named) > 1:
        raise _ambiguous([(i, columns[i]) for i in named], names, file)
    free = [i for i in range(len(columns)) if i not in taken]
    candidates = _label_candidates(columns, free)
    decided = len(candidates) == 1 or _coarsest(columns, candidates) is not None
    if free and not decided and more is not None:
        columns = _read_more_rows(len(columns), free, more)
        candidates = _label_candidates(columns, free)
    if len(candidates) <= 1:
        return candidates[0] if candidates else None
    best = _coarsest(columns, candidates)
    if best is None:
        raise _ambiguous([(i, columns[i]) for i in candidates], names, file)
    return best


def _label_candidates(columns: Sequence[Sequence[str]], free: list[int]) -> list[int]:
    candidates = [column for column in free if has_few_values(columns[column])]
    return candidates or [column for column in free if is_numeric_scale(columns[column])]


def _coarsest(columns: Sequence[Sequence[str]], candidates: list[int]) -> int | None:
    """Return the column that every other one refines (`DESC` of `DESC:manner`), if any."""
    if not candidates:
        return None
    best = min(candidates, key=lambda column: len(set(columns[column])))
    if len(set(columns[best])) == 1 and len(candidates) > 1:
        return None  # any column refines a constant
    for column in candidates:
        pairs = set(zip(columns[column], columns[best], strict=True))
        if len(pairs) != len(set(columns[column])):
            return None
    return best


def _read_more_rows(width: int, free: list[int], more: MoreRows) -> list[list[str]]:
    """Read the free columns of many more rows: files are often sorted by label."""
    wide: list[list[str]] = [[] for _ in range(width)]
    seen: dict[str, str] = {}  # one object per value, so that 20,000 rows stay small
    rows = (row for row in more() if len(row) == width)
    for row in itertools.islice(rows, MAX_LABEL_ROWS):
        for column in free:
            cell = row[column][:64]
            wide[column].append(seen.setdefault(cell, cell))
    return wide


def _ambiguous(
    candidates: list[tuple[int, Sequence[str]]],
    names: tuple[str, ...],
    file: str,
    role: str = "label",
) -> UserError:
    parts = []
    for column, cells in candidates:
        values = [cell[:30] for cell in dict.fromkeys(cells)][:3]
        parts.append(f"{_column_name(column, names)} ({', '.join(map(repr, values))}…)")
    flags = " or ".join(f"--label {names[column] or column}" for column, _ in candidates)
    return AmbiguousColumnError(
        f"{file}: {' and '.join(parts)} could each be the {role}. Pass {flags}."
    )


def _column_name(column: int, names: tuple[str, ...]) -> str:
    return f"column '{names[column]}'" if names[column] else f"column {column}"
