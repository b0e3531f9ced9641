"""Rows of JSON lines: which of their keys are read, and what is wrong with a row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.text.columns import TableLayout
from weft.text.example import GoldAnswers, Label, parse_answers
from weft.text.formats.squad import check_answers, locate_in_passage
from weft.text.line_source import (
    EMPTY_TEXT,
    EMPTY_TEXT_MESSAGE,
    SKIP_HINT,
    SURROGATE_MESSAGE,
    UNDECODABLE,
)
from weft.untrusted import has_surrogate


@dataclass(frozen=True)
class Keys:
    """The names of what is read from an object."""

    text: str = "text"
    label: str | None = None
    id: str | None = None
    fields: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    other: str | None = None
    start: str | None = None
    within: bool = False

    @classmethod
    def of(cls, found: TableLayout) -> "Keys":
        """The names of what a layout found."""
        names = found.names
        label, identity, other, start = (
            None if i is None else names[i]
            for i in (found.label, found.id, found.other, found.start)
        )
        fields, more = (tuple(names[i] for i in places) for places in (found.fields, found.more))
        return cls(names[found.text], label, identity, fields, more, other, start, found.within)

    @property
    def used(self) -> list[str]:
        """All of them, each once."""
        names = (self.text, self.label, self.id, self.other, self.start, *self.fields, *self.more)
        return list(dict.fromkeys(name for name in names if name is not None))

    def gather(self, row: dict[str, Any]) -> None:
        """Make one text of a list of sentences, or of the fields of a record."""
        text = row.get(self.text)
        if self.fields:
            inner = len(self.fields) == 1 and isinstance(text, dict)
            found = text if inner else {k: row[k] for k in self.fields if k in row}
            row[self.text] = json.dumps(found, ensure_ascii=False)
        elif isinstance(text, list) and all(isinstance(one, str) for one in text):
            row[self.text] = " ".join(text)


def second_text(row: dict[str, Any], key: str | None) -> str | None:
    """The second text of a row, where there is one; what is no text is none."""
    found = None if key is None else row.get(key)
    return found if isinstance(found, str) else None


def locate_answers(
    label: Label, passage: str | None, start: Any = None, within: bool = False
) -> Label:
    """An answer, or several, where they stand in the second text; a UserError where one does not.

    `start` tells the characters at which they begin; without it, `within` looks for them.
    """
    texts = label if isinstance(label, tuple) else (label,)
    if texts and all(isinstance(text, str) for text in texts):
        if start not in (None, "", []):
            starts = start if isinstance(start, (list, tuple)) else (start,)
            label = parse_answers({"text": list(texts), "answer_start": list(starts)})
        elif within:
            return locate_in_passage(tuple(map(str, texts)), passage or "")
    if isinstance(label, GoldAnswers) and passage is not None:
        check_answers(label, passage)
    return label


def add_references(label: Label, others: Sequence[str]) -> Label:
    """A label with other right answers beside it."""
    first = label if isinstance(label, tuple) else () if label in (None, "") else (str(label),)
    kept = tuple(one for one in (*first, *others) if one.strip())
    return kept or None


def to_cell(value: Any) -> str:
    """A value as the cell of a table would have it."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def parse_row(line: str | bytes) -> Any:
    """The value of a line of JSON; ValueError or RecursionError where it has none."""
    if len(line) > jsonio.MAX_DEPTH:  # else it cannot be nested too deep
        return jsonio.parse(line, "line")
    return json.loads(line)


def invalid_json_message(line: str, error: Exception) -> str:
    """The message for a line that is no JSON."""
    if isinstance(error, UserError):
        reason = str(error).partition("JSON: ")[2] or str(error)
        return f"invalid JSON: {reason} Mend the line, or {SKIP_HINT}."
    if line.strip() in ("{", "["):
        return "one JSON document over many lines. Put one object on each line: jq -c '.[]' FILE."
    if isinstance(error, json.JSONDecodeError):
        return f"invalid JSON at column {error.colno}: {error.msg}. Mend the line, or {SKIP_HINT}."
    return f"invalid JSON: {error}. Mend the line, or {SKIP_HINT}."


def find_row_fault(row: Any, text_key: str, line: str, keep_empty: bool) -> tuple[str, str] | None:
    """What is wrong with a row, in a few words and in a message."""
    if type(row) is not dict:
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(row), "a number")
        return "not an object", f'each line should be an object {{"text": …}}, found {kind}.'
    text = row.get(text_key)
    if type(text) is not str:
        if text is not None:
            shown = repr(text) if len(repr(text)) <= 40 else f"{text!r:.40}…"
            fix = "Quote it"
            if isinstance(text, dict):
                fix = f"For a model of records, train with --set 'data.fields=[\"{text_key}\"]'"
            return (
                "text is not a text",
                f"'{text_key}' should be a text, found {shown}. {fix}, or {SKIP_HINT}.",
            )
        return "no text", no_text_message(text_key, row)
    if not keep_empty and not text.strip():
        return EMPTY_TEXT, EMPTY_TEXT_MESSAGE
    return None


def find_surrogate_fault(row: dict[str, Any], keys: "Keys", line: str) -> tuple[str, str] | None:
    """What is wrong where a value that is read holds half of a surrogate pair."""
    if "\\u" not in line or "\\ud" not in line.lower():
        return None
    for name in keys.used:
        if has_surrogate((name, row.get(name))):
            return UNDECODABLE, f"'{name}' holds {SURROGATE_MESSAGE}"
    return None


def no_text_message(text_key: str, row: dict[str, Any]) -> str:
    """The message for a row without the text field: what it has, and what to do."""
    others = [name for name, value in row.items() if isinstance(value, str) and name != text_key]
    longest = max(others, key=lambda name: len(row[name]), default=None)
    advice = f"Rename it or pass --text {longest}." if longest else f"Add it, or {SKIP_HINT}."
    return f"no '{text_key}' field; found {sorted(row)}. {advice}"
