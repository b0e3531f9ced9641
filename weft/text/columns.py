"""Which column is text and which is label: as the user said, else by header, else by contents."""

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
# Two texts, of which one should become the other: only together do these names say so.
SOURCE_NAMES = ("source", "src", "input", "mr", "article", "abstract", *TEXT_NAMES)
TARGET_NAMES = (
    *("target", "tgt", "output", "ref", "reference", "references", "summary", "highlights"),
    *("translation", "response", "answer", "tldr", "answers"),
)
ANSWER_NAMES = ("answer", "answers", "answer_text")
START_NAMES = ("answer_start", "answerstart", "answer_starts")  # of answers in a second text
ID_NAMES = ("id", "idx", "uid", "guid", "index", "example_id")
NO_LABEL = ""

MAX_LABEL_ROWS = 20_000  # rows looked at when the first ones do not settle the label
_MIN_ROWS_BELOW_HEADER = 5  # rows that must stand below words to make them a header
_NAME = re.compile(r"[^\W\d][\w-]{0,39}")  # of a column: one word, without stops


@dataclass(frozen=True)
class Columns:
    """What the user said about columns, by name or position; None means find out, label="" none."""

    text: str | int | None = None
    label: str | int | None = None
    id: str | int | None = None
    fields: tuple[str, ...] = ()  # that make up a record in the place of the text; "*": all others
    more: tuple[str, ...] = ()  # with other right answers, beside the label
    text_pair: str | int | None = (
        None  # of the second text; None: where names say that there are two
    )
    two: bool = False  # whether there must be a second text
    writes: bool = False  # whether the label is a text that the first should become
    strict: bool = False  # whether several columns that fit equally well are an error


@dataclass(frozen=True)
class TableLayout:
    """Where things are in a row, by position."""

    text: int
    label: int | None
    id: int | None
    names: tuple[str, ...]  # "" names when there is no header
    header: bool
    fields: tuple[int, ...] = ()
    more: tuple[int, ...] = ()
    other: int | None = None  # the second text, where there are two
    start: int | None = None  # where in it the label begins, where a column tells
    within: bool = False  # labels are answers, which stand in it
    guessed: bool = False  # the header is one by what stands below it, not by its words

    @property
    def width(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> Columns:
        """The same by name where there is a header, so that a sister file can be read alike."""
        text, label, other = (
            self.names[i] if self.header and i is not None else i
            for i in (self.text, self.label, self.other)
        )
        fields, more = (tuple(self.names[i] for i in some) for some in (self.fields, self.more))
        return Columns(text, label, fields=fields, more=more, text_pair=other)

    def describe(self) -> str:
        """Say what each column is read as: "text: column 'a'; label: column 'b'; ignored: 'c'"."""
        rows = [("text", self.text), ("second text", self.other), ("label", self.label)]
        if self.fields:
            rows[0] = ("record", None)
        told = [f"{role}: {_column_name(i, self.names)}" for role, i in rows if i is not None]
        if self.fields:
            told.insert(0, "record: " + ", ".join(repr(self.names[i]) for i in self.fields))
        if self.more:
            others = ", ".join(repr(self.names[i]) for i in self.more)
            told.append(f"more right answers: {others}")
        if self.label is None:
            told.append("label: none")
        used = {self.text, self.other, self.label, self.start, *self.fields, *self.more}
        free = [i for i in range(self.width) if i not in used]
        if free:
            told.append("ignored: " + ", ".join(repr(self.names[i] or i) for i in free))
        counted = "" if self.header else " (columns count from 0)"
        return "; ".join(told) + counted


Rows = Sequence[Sequence[str]]
MoreRows = Callable[[], Iterator[Sequence[str]]]


def layout_from_rows(
    rows: Rows, requested: Columns, file: str, more: MoreRows | None = None
) -> TableLayout:
    """The layout of a table whose first row may be a header."""
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
) -> TableLayout:
    """The layout of rows under known names (all "" when there are none)."""
    columns = list(zip(*body, strict=True)) if body else [()] * len(names)
    text = _resolve_column(requested.text, names, file, "text")
    label = (
        None
        if requested.label == NO_LABEL
        else _resolve_column(requested.label, names, file, "label")
    )
    identity = _resolve_column(requested.id, names, file, "id")
    other = _resolve_column(requested.text_pair, names, file, "text-pair")
    others = _resolve_columns(requested.more, names, file, "label")
    fields = _resolve_fields(requested.fields, names, file, {label, identity, *others})
    if fields:
        if requested.label is None and list(requested.fields) != ["*"]:
            label = _find_by_name(names, TARGET_NAMES, {*fields, identity, *others})
        return TableLayout(fields[0], label, identity, names, header, fields, others)
    given: set[int | None] = {place for place in (label, identity) if place is not None}
    text, other = find_text_pair(names, text, other, given)
    taken = given | {place for place in (other,) if place is not None}
    if identity is None:
        identity = _find_by_name(names, ID_NAMES, {text, label})
    if label is None and requested.text_pair is None:
        text, target = _find_source_and_target(names, columns, text, identity)
        label = target if requested.label is None else None
        other = None if label is not None and label == other else other  # one becomes the other
    if requested.writes and label is None and requested.label is None:
        text, label = _find_target(names, columns, text, {identity, other}, file)
    if requested.two and other is None:
        labels = {i for i, name in enumerate(names) if name.lower() in LABEL_NAMES}
        text, other = infer_text_pair(names, text, given | labels, file)
    if text is None:
        text = _find_by_name(names, TEXT_NAMES, taken)
    if text is None:
        if requested.strict:
            _require_single_text(names, columns, taken | {identity}, file)
        text = _find_text_by_content(columns, taken | {identity})
    for first, second in itertools.combinations((text, label, identity, other), 2):
        if first is not None and first == second:
            raise UserError(
                f"{file}: {_column_name(first, names)} is asked for twice. Pass another one."
            )
    if label is None and requested.label is None:
        label = _find_label(names, columns, {text, identity, other}, file, more)
    told = {text, label, identity, other}
    start, within = None, False
    if label is not None and other is not None:
        start = _find_by_name(names, START_NAMES, told)
        named = names[label].lower() in ANSWER_NAMES
        within = start is None and are_extractive_answers(columns[label], columns[other], named)
    return TableLayout(
        text, label, identity, names, header,
        more=others, other=other, start=start, within=within,
    )  # fmt: skip


def _find_source_and_target(
    names: tuple[str, ...],
    columns: Sequence[Sequence[str]],
    text: int | None,
    identity: int | None,
) -> tuple[int | None, int | None]:
    """A text and what it should become, by their names, or as the only two columns."""
    target = _find_by_name(names, TARGET_NAMES, {text, identity})
    source = _find_by_name(names, SOURCE_NAMES, {target, identity}) if text is None else text
    if None not in (source, target) and not _has_label_name(names, {source, identity, target}):
        return source, target
    free = [place for place in range(len(columns)) if place != identity]
    if len(free) != 2 or not all(is_text(columns[place]) for place in free):
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
    """A text and the text it should become: the only two columns of texts, or the only other."""
    if _has_label_name(names, {text, *taken}):
        return text, None
    if text is None:
        text = _find_by_name(names, TEXT_NAMES, taken)
    found = [i for i, cells in enumerate(columns) if i not in taken and is_text(cells)]
    others = [i for i in found if i != text]
    if text is not None and len(others) == 1:
        return text, others[0]
    if text is None and len(others) == 2:
        return others[0], others[1]
    if len(others) < 2:
        return text, None
    told = " and ".join(_column_with_example(i, columns[i], names) for i in others)
    raise AmbiguousColumnError(
        f"{file}: {told} could each be a source or a target. Pass --text COLUMN and --label COLUMN."
    )


def _require_single_text(
    names: tuple[str, ...], columns: Sequence[Sequence[str]], taken: set[int | None], file: str
) -> None:
    """Raise a UserError where no name tells which of several columns is the text."""
    found = [i for i, cells in enumerate(columns) if i not in taken and is_text(cells)]
    sizes = {i: sum(map(len, columns[i])) for i in found}
    found = [i for i in found if sizes[i] * 2 >= max(sizes.values())]
    if len(found) > 1:
        told = " and ".join(_column_with_example(i, columns[i], names) for i in found)
        flags = " or ".join(f"--text {names[i] or i}" for i in found)
        raise AmbiguousColumnError(f"{file}: {told} could each be the text. Pass {flags}.")


def _column_with_example(place: int, cells: Sequence[str], names: tuple[str, ...]) -> str:
    """A column with its first value, for messages."""
    first = next((cell for cell in cells if cell.strip()), "")
    return f"{_column_name(place, names)} ({first[:20]!r}…)"


def _has_label_name(names: tuple[str, ...], taken: set[int | None]) -> bool:
    return any(n.lower() in LABEL_NAMES for i, n in enumerate(names) if i not in taken)


def _resolve_columns(
    requested: Sequence[str], names: tuple[str, ...], file: str, role: str
) -> tuple[int, ...]:
    places = (_resolve_column(name, names, file, role) for name in requested)
    return tuple(place for place in places if place is not None)


def _resolve_fields(
    requested: Sequence[str], names: tuple[str, ...], file: str, taken: set[int | None]
) -> tuple[int, ...]:
    """The columns of a record; "*" are all that are nothing else."""
    if not requested:
        return ()
    if not any(names):
        raise UserError(
            f"{file}: the columns of a record are its slots, but there is no header row. Add one."
        )
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
        found = exact or [i for i, name in enumerate(names) if name.lower() == requested.lower()]
        if len(found) > 1:
            raise UserError(
                f"{file}: {len(found)} columns are called '{requested}'. Pass --{role} 0, 1…"
            )
        if found:
            return found[0]
        number = parse_integer(requested)
        if number is None:
            raise _unknown_column(requested, names, file, role)
        requested = number
    place = requested
    if not 0 <= place < len(names):
        raise UserError(
            f"{file}: no column {place}; the file has {len(names)}, "
            f"counted from 0 to {len(names) - 1}. Pass another --{role}."
        )
    return place


def _unknown_column(requested: str, names: tuple[str, ...], file: str, role: str) -> UserError:
    if not any(names):
        return UserError(
            f"{file}: no column '{requested}', for there is no header row. "
            f"Pass a position instead, --{role} 0 to --{role} {len(names) - 1}."
        )
    return UserError(
        f"{file}: no '{requested}' column; found {list(names)}.{near_miss(requested, names)} "
        f"Rename it or pass another --{role}."
    )


def _is_header(rows: Rows, requested: Columns) -> bool:
    first = [cell.strip() for cell in rows[0]]
    given = (
        requested.text,
        requested.label,
        requested.id,
        requested.text_pair,
        *requested.fields,
        *requested.more,
    )
    named = [a for a in given if isinstance(a, str) and a]
    if any(name in first and not name.isdecimal() for name in named):
        return True
    plausible = all(cell and len(cell) <= 40 and len(cell.split()) <= 6 for cell in first)
    if not plausible or len(set(first)) < len(first) or any(map(is_number, first)):
        return False
    if _is_above_numbers(rows):
        return True
    if any(len(cell.split()) > 3 for cell in first):
        return False  # as texts have
    lowered = {cell.lower() for cell in first}
    if lowered & {*TEXT_NAMES, *LABEL_NAMES}:
        return True
    if lowered & {*SOURCE_NAMES} and lowered & {*TARGET_NAMES}:
        return True
    return None not in find_text_pair(first, None, None, set())


def _is_above_numbers(rows: Rows) -> bool:
    """Whether a column of nothing but numbers follows: a word above it can only be its name."""
    body = [row for row in rows[1:] if len(row) == len(rows[0])]
    return len(body) > 1 and any(all(map(is_number, column)) for column in zip(*body, strict=True))


def _is_above_texts(rows: Rows) -> bool:
    """Whether the first row is of plain words that come nowhere else, over columns of sentences.

    A row of data would be such as well now and then, in a file that has others of single words.
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
    """Whether a word occurs nowhere in a column."""
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
    """The column with the most to say: many distinct values, long ones, not numbers."""

    def weight(place: int) -> tuple[bool, int]:
        cells = columns[place]
        worded = not all(map(is_number, cells))
        return worded, len(set(cells)) * sum(map(len, cells))

    free = [place for place in range(len(columns)) if place not in taken]
    return max(free or range(len(columns)), key=weight)


def _find_label(
    names: tuple[str, ...],
    columns: Sequence[Sequence[str]],
    taken: set[int | None],
    file: str,
    more: MoreRows | None,
) -> int | None:
    known = [i for i, n in enumerate(names) if n.lower() in LABEL_NAMES and i not in taken]
    plain = [i for i in known if names[i].lower() in ("label", "labels")]
    if plain or len(known) == 1:
        return (plain or known)[0]
    if len(known) > 1:
        raise _ambiguous([(i, columns[i]) for i in known], names, file)
    free = [i for i in range(len(columns)) if i not in taken]
    found = _label_candidates(columns, free)
    settled = len(found) == 1 or _coarsest(columns, found) is not None
    if free and not settled and more is not None:
        columns = _read_more_rows(len(columns), free, more)
        found = _label_candidates(columns, free)
    if len(found) <= 1:
        return found[0] if found else None
    best = _coarsest(columns, found)
    if best is None:
        raise _ambiguous([(i, columns[i]) for i in found], names, file)
    return best


def _label_candidates(columns: Sequence[Sequence[str]], free: list[int]) -> list[int]:
    found = [place for place in free if has_few_values(columns[place])]
    return found or [place for place in free if is_numeric_scale(columns[place])]


def _coarsest(columns: Sequence[Sequence[str]], found: list[int]) -> int | None:
    """The column that every other one refines (`DESC` of `DESC:manner`), where there is one."""
    if not found:
        return None
    best = min(found, key=lambda place: len(set(columns[place])))
    if len(set(columns[best])) == 1 and len(found) > 1:
        return None  # a column that never changes would be refined by anything
    for place in found:
        pairs = set(zip(columns[place], columns[best], strict=True))
        if len(pairs) != len(set(columns[place])):
            return None
    return best


def _read_more_rows(width: int, free: list[int], more: MoreRows) -> list[list[str]]:
    """The free columns of many more rows: files are often sorted by label."""
    wide: list[list[str]] = [[] for _ in range(width)]
    seen: dict[str, str] = {}  # one object a value, so that 20,000 rows stay small
    rows = (row for row in more() if len(row) == width)
    for row in itertools.islice(rows, MAX_LABEL_ROWS):
        for place in free:
            cell = row[place][:64]
            wide[place].append(seen.setdefault(cell, cell))
    return wide


def _ambiguous(
    found: list[tuple[int, Sequence[str]]], names: tuple[str, ...], file: str
) -> UserError:
    told = []
    for place, cells in found:
        values = list(dict.fromkeys(cells))[:3]
        told.append(f"{_column_name(place, names)} ({', '.join(map(repr, values))}…)")
    flags = " or ".join(f"--label {names[place] or place}" for place, _ in found)
    return AmbiguousColumnError(
        f"{file}: {' and '.join(told)} could each be the label. Pass {flags}."
    )


def _column_name(place: int, names: tuple[str, ...]) -> str:
    return f"column '{names[place]}'" if names[place] else f"column {place}"
