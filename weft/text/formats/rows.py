"""Rows with named values to Examples: the one path of JSON lines, Parquet and tables in memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.text.columns import Columns, MoreRows, TableLayout, layout_from_names
from weft.text.example import (
    TAG_COLUMN,
    Example,
    Label,
    WordAnnotations,
    parse_label,
    parse_weight,
)
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.jsonl import (
    Keys,
    add_references,
    find_row_fault,
    locate_answers,
    second_text,
    to_cell,
)
from weft.text.formats.squad import fault_kind
from weft.text.line_source import BAD_WEIGHT, SKIP_HINT, BadRows, UniqueIds


@dataclass(frozen=True)
class RowFault:
    """A row that cannot be read: the kind of fault, and what is wrong with it."""

    kind: str
    message: str


Row: TypeAlias = Any  # a JsonObject or a RowFault; `find_row_fault` checks it


def layout_of_rows(
    names: tuple[str, ...],
    rows: Sequence[JsonObject],
    columns: Columns,
    file: str,
    more: MoreRows | None = None,
) -> TableLayout:
    """Detect the layout of rows of typed values by their first rows."""
    cells = [[to_cell(row.get(name)) for name in names] for row in rows]
    lists = frozenset(
        i for i, name in enumerate(names) if any(isinstance(row.get(name), list) for row in rows)
    )
    return layout_from_names(names, cells, columns, file, more, lists=lists)


def examples_from_rows(
    rows: Iterable[tuple[int, Row]], keys: Keys, file: str, columns: Columns, bad_rows: BadRows
) -> Iterator[Example]:
    """Yield the examples of numbered rows; bad ones are reported."""
    ids = UniqueIds(columns.id is not None, bad_rows)
    text_key, label_key, id_key, other_key = keys.text, keys.label, keys.id, keys.other
    for number, row in rows:
        if isinstance(row, RowFault):
            bad_rows.report(row.kind, number, row.message)
            continue
        weight = 1.0
        if type(row) is dict:
            if keys.weight is not None:
                try:
                    weight = parse_weight(row.get(keys.weight))
                except UserError as error:
                    bad_rows.report(BAD_WEIGHT, number, str(error))
                    continue
            if weight == 0:
                continue
            if keys.words and type(row.get(text_key)) is list:
                tagged = _tagged_words(row, keys, file, number, bad_rows)
                if tagged is not None and not ids.is_repeated(tagged.id, number):
                    yield tagged if weight == 1 else replace(tagged, weight=weight)
                continue
            keys.merge_text(row)
        fault = find_row_fault(row, text_key, bad_rows.keep_empty)
        if fault:
            bad_rows.report(fault[0], number, fault[1])
            continue
        label = row.get(label_key) if label_key is not None else None
        other = second_text(row, other_key)
        if type(label) is not str or other is not None or keys.extra_labels:
            try:
                start = None if keys.answer_start is None else row.get(keys.answer_start)
                label = parse_label(label)
                if keys.extra_labels:
                    label = add_references(
                        label, [to_cell(row.get(key)) for key in keys.extra_labels], keys.joined
                    )
                label = locate_answers(label, other, start, keys.answers_in_text)
            except UserError as error:
                bad_rows.report(fault_kind(error), number, str(error))
                continue
        identity = row.get(id_key) if id_key is not None else None
        name = "" if identity is None else str(identity)
        if ids.is_repeated(name, number):
            continue
        yield Example(row[text_key], label, name, file, number, other=other, weight=weight)


def _tagged_words(
    row: JsonObject, keys: Keys, file: str, number: int, bad_rows: BadRows
) -> Example | None:
    """Return a row of tokens, with a tag for each if the row has them; bad ones are reported."""
    cells: dict[str, Any] = dict(row)
    words: list[Any] = cells[keys.text]
    tags = None if keys.label is None else cells.get(keys.label)
    kind, fault = "text is not a text", ""
    for position, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            fault = f"token {position} of '{keys.text}' must be a word, found {word!r:.40}"
            break
    if not fault and tags is not None:
        kind = "tags that do not match the words"
        if not isinstance(tags, list):
            fault = f"'{keys.label}' must be a list with a tag for each token, found {tags!r:.40}"
        elif len(tags) != len(words):
            fault = f"{len(tags)} tags in '{keys.label}' for {len(words)} tokens"
        else:
            missing = next((i for i, tag in enumerate(tags) if not _is_tag(tag)), None)
            fault = "" if missing is None else f"tag {missing} is {tags[missing]!r:.40}, not a tag"
    if fault:
        bad_rows.report(kind, number, f"{fault}. Correct it, or {SKIP_HINT}.")
        return None
    if bad_rows.rejects_empty(" ".join(words), number):
        return None
    label: Label = None
    if tags is not None:
        columns = {
            name: tuple(map(_tag_name, values))
            for name in keys.word_columns
            if isinstance(values := cells.get(name), list)
            and len(values) == len(words)
            and all(map(_is_tag, values))
        }
        whole = None if keys.sentence_label is None else cells.get(keys.sentence_label)
        columns[TAG_COLUMN] = tuple(map(_tag_name, tags))
        label = WordAnnotations(columns, TAG_COLUMN, to_cell(whole))
    identity = "" if keys.id is None else to_cell(cells.get(keys.id))
    spaced = tuple(words)
    return Example(
        " ".join(spaced), label, identity, file, number, spaced, locate_spaced_words(spaced)
    )


def _is_tag(value: object) -> bool:
    return isinstance(value, (str, int, float)) and value != ""


def _tag_name(value: object) -> str:
    return str(parse_label(value))
