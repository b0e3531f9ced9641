"""JSON-lines rows: the keys to read, and the faults of a row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject
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
    """The keys to read from an object."""

    text: str = "text"
    label: str | None = None
    id: str | None = None
    fields: tuple[str, ...] = ()
    extra_labels: tuple[str, ...] = ()
    other: str | None = None
    answer_start: str | None = None
    answers_in_text: bool = False
    joined: bool = False
    words: bool = False  # the text is a list of tokens
    word_columns: tuple[str, ...] = ()  # further lists, with a value for each token
    weight: str | None = None
    sentence_label: str | None = None  # of the tokens together, beside a tag for each

    @classmethod
    def from_layout(cls, layout: TableLayout) -> "Keys":
        """Return the keys of a detected layout."""
        names = layout.names
        label, identity, other, start = (
            None if i is None else names[i]
            for i in (layout.label, layout.id, layout.other, layout.answer_start)
        )
        fields, more = (
            tuple(names[i] for i in columns) for columns in (layout.fields, layout.extra_labels)
        )
        return cls(
            names[layout.text],
            label,
            identity,
            fields,
            more,
            other,
            start,
            layout.answers_in_text,
            layout.joined,
            layout.words,
            tuple(names[i] for i in layout.word_columns),
            None if layout.weight is None else names[layout.weight],
            None if layout.sentence_label is None else names[layout.sentence_label],
        )

    @property
    def used(self) -> list[str]:
        """All keys, each once."""
        names = (
            self.text,
            self.label,
            self.id,
            self.other,
            self.answer_start,
            self.weight,
            self.sentence_label,
            *self.fields,
            *self.extra_labels,
            *self.word_columns,
        )
        return list(dict.fromkeys(name for name in names if name is not None))

    def merge_text(self, row: JsonObject) -> None:
        """Join a list of sentences, or the fields of a record, to one text in place."""
        text = row.get(self.text)
        if self.fields:
            inner = len(self.fields) == 1 and isinstance(text, dict)
            record = text if inner else {k: row[k] for k in self.fields if k in row}
            row[self.text] = json.dumps(record, ensure_ascii=False)
        elif isinstance(text, list):
            sentences = [sentence for sentence in text if isinstance(sentence, str)]
            if len(sentences) == len(text):
                row[self.text] = " ".join(sentences)


def second_text(row: JsonObject, key: str | None) -> str | None:
    """Return the second text of a row, or None if it is not a text."""
    value = None if key is None else row.get(key)
    return value if isinstance(value, str) else None


def locate_answers(
    label: Label, passage: str | None, start: Json = None, within: bool = False
) -> Label:
    """Locate answers in the second text; raise a UserError if one is not there.

    `start` gives their character offsets; without it, `within` searches for them.
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


def add_references(label: Label, others: Sequence[str], joined: bool = False) -> Label:
    """Return a label with further references; if `joined`, as one of several cells."""
    if joined:
        cells = ("" if label is None else str(label), *others)
        return cells if any(cell.strip() for cell in cells) else None
    first = label if isinstance(label, tuple) else () if label in (None, "") else (str(label),)
    kept = tuple(text for text in (*first, *others) if text.strip())
    return kept or None


def to_cell(value: object) -> str:
    """Return a value as a table cell."""
    return "" if value is None else value if isinstance(value, str) else str(value)


def parse_row(line: str | bytes) -> Any:  # `find_row_fault` checks it
    """Parse a line of JSON; raise ValueError or RecursionError if it is invalid."""
    if len(line) > jsonio.MAX_DEPTH:  # a shorter line cannot be nested too deeply
        return jsonio.parse(line, "line")
    return json.loads(line)


def invalid_json_message(line: str, error: Exception) -> str:
    """Return the message for a line that is not JSON."""
    if isinstance(error, UserError):
        reason = str(error).partition("JSON: ")[2] or str(error)
        return f"invalid JSON: {reason} Correct the line, or {SKIP_HINT}."
    if line.strip() in ("{", "["):
        return "one JSON document over many lines. Put one object on each line: jq -c '.[]' FILE."
    if isinstance(error, json.JSONDecodeError):
        return (
            f"invalid JSON at column {error.colno}: {error.msg}. Correct the line, or {SKIP_HINT}."
        )
    return f"invalid JSON: {error}. Correct the line, or {SKIP_HINT}."


def find_row_fault(row: object, text_key: str, keep_empty: bool) -> tuple[str, str] | None:
    """Return the kind and the message of the fault in a row, if any."""
    if type(row) is not dict:
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(row), "a number")
        return "not an object", f'each line must be an object {{"text": …}}, found {kind}.'
    text = row.get(text_key)
    if type(text) is not str:
        if text is not None:
            shown = repr(text) if len(repr(text)) <= 40 else f"{text!r:.40}…"
            fix = "Decode it" if isinstance(text, bytes) else "Quote it"
            if isinstance(text, dict):
                fix = f"To read records, train with --set 'data.fields=[\"{text_key}\"]'"
            return (
                "text is not a text",
                f"'{text_key}' must be a text, found {shown}. {fix}, or {SKIP_HINT}.",
            )
        if text_key in row:
            return "no text", f"'{text_key}' has no value. Fill it in, or {SKIP_HINT}."
        return "no text", no_text_message(text_key, row)
    if not keep_empty and not text.strip():
        return EMPTY_TEXT, EMPTY_TEXT_MESSAGE
    return None


def find_surrogate_fault(row: JsonObject, keys: "Keys") -> tuple[str, str] | None:
    """Return the fault of a row whose values contain a lone surrogate, if any."""
    for name in keys.used:
        if has_surrogate((name, row.get(name))):
            return UNDECODABLE, f"'{name}' contains {SURROGATE_MESSAGE}"
    return None


def no_text_message(text_key: str, row: JsonObject) -> str:
    """Return the message for a row without the text field: the fields it has, and the fix."""
    others = {k: v for k, v in row.items() if isinstance(v, str) and k != text_key}
    longest = max(others, key=lambda name: len(others[name]), default=None)
    advice = f"Rename it or pass --text {longest}." if longest else f"Add it, or {SKIP_HINT}."
    return f"no '{text_key}' field; found {sorted(row)}. {advice}"
