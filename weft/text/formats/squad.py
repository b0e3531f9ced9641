"""Read and write SQuAD JSON, version 1.1 or 2.0, and check answers against passages.

A file is one JSON document, so it is read whole.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject
from weft.storage import atomic_write
from weft.text.example import Example, GoldAnswers, SkipCounter, parse_answers
from weft.text.line_source import (
    EMPTY_TEXT,
    SKIP_HINT,
    SURROGATE_MESSAGE,
    UNDECODABLE,
    BadRowPolicy,
    BadRows,
    LineSource,
    strip_compression,
)
from weft.untrusted import has_surrogate

MISPLACED = "answer not at its place"
_EMPTY_DOCUMENT = re.compile(  # a document without questions
    r'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\[\s*(\]|\{[^{}]*"paragraphs")'
)


def is_squad(head: str) -> bool:
    """Return whether a file begins like a SQuAD document, even one without questions."""
    named = head.lstrip().startswith("{") and '"paragraphs"' in head and '"qas"' in head
    return named or _EMPTY_DOCUMENT.match(head) is not None


def read_squad(
    name: str,
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
    keep_empty: bool = False,
) -> Iterator[Example]:
    """Yield an Example for each question, with the passage as second text, and the answers."""
    source = LineSource(name)
    bad_rows = BadRows(source.name, on_bad_row, skipped, keep_empty)
    whole, document = _parse_document(source)
    lines = _QuestionLines(whole)
    paragraphs = list(_iter_paragraphs(document, source.name))
    if not any(questions for _, _, questions in paragraphs):
        raise UserError(
            f"{source.name}: no questions: every 'qas' in its 'data' is empty. Add at least "
            "one, or pass another file."
        )
    for title, passage, questions in paragraphs:
        for question in questions:
            line = lines.of(question)
            of = f"question '{question['id']}'" if question.get("id") else f"article '{title}'"
            named = f"{of:.200}"
            try:
                yield _build_example(question, passage, source.name, line, keep_empty)
            except _QuestionFault as fault:
                bad_rows.report(fault.kind, line, f"{named}: {fault}")


def write_squad(examples: Iterable[Example], path: str | os.PathLike[str]) -> None:
    """Write questions as a SQuAD document; consecutive ones about one passage share it."""
    from weft.text.write import open_text  # imports this module

    paragraphs: list[JsonObject] = []
    questions: list[Json] = []
    for number, example in enumerate(examples, 1):
        label = example.label
        assert label is None or isinstance(label, GoldAnswers)
        question: JsonObject = {"id": example.id or str(number), "question": example.text}
        if label is not None:
            pairs = zip(label.texts, label.starts, strict=True)
            question["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
            question["is_impossible"] = not label.texts
        if not paragraphs or paragraphs[-1]["context"] != example.other:
            questions = []
            paragraphs.append({"context": example.other, "qas": questions})
        questions.append(question)
    document = {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}
    with (
        atomic_write(os.fspath(path)) as part,
        open_text(part, strip_compression(os.fspath(path))[1]) as out,
    ):
        json.dump(document, out, ensure_ascii=False)


def check_answers(answers: GoldAnswers, passage: str) -> None:
    """Raise a UserError, without file and line, if an answer is not at its offset."""
    for text, start in zip(answers.texts, answers.starts, strict=True):
        if not text.strip():
            raise _QuestionFault(EMPTY_TEXT, f"the answer is empty. Fill it in, or {SKIP_HINT}.")
        if start < 0 or not passage.startswith(text, start):
            raise _QuestionFault(MISPLACED, _misplaced_message(text, start, passage))


def locate_in_passage(texts: tuple[str, ...], passage: str) -> GoldAnswers:
    """Locate answers given by text at their first occurrence in the passage."""
    starts = tuple(passage.find(text) for text in texts)
    check_answers(GoldAnswers(texts, starts), passage)
    return GoldAnswers(texts, starts)


def fault_kind(error: UserError) -> str:
    """Return the kind under which the fault of a label is counted."""
    return error.kind if isinstance(error, _QuestionFault) else "unusable label"


class _QuestionFault(UserError):
    """A fault of one question."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _QuestionLines:
    """Finds the line of each question's id; ids come in file order."""

    def __init__(self, text: str) -> None:
        self.text, self.position, self.line = text, 0, 1

    def of(self, question: JsonObject) -> int:
        if "id" not in question:
            return self.line
        position = self.text.find(json.dumps(question["id"]), self.position)
        if position >= 0:  # otherwise it is escaped differently
            self.line += self.text.count("\n", self.position, position)
            self.position = position
        return self.line


def _parse_document(source: LineSource) -> tuple[str, Any]:  # the reader checks its layout
    raw = b"".join(source.raw())
    try:
        text = raw.decode("utf-8")
        document = jsonio.parse(text, source.name)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source.name}: byte 0x{raw[error.start]:02x} at offset {error.start} is not UTF-8. "
            "Convert the file: iconv -f LATIN1 -t UTF-8 FILE."
        ) from None
    except UserError as error:
        raise UserError(
            f"{error} The file must be one JSON document; copy or create it again."
        ) from None
    return text, document


def _iter_paragraphs(document: Any, name: str) -> Iterator[tuple[str, str, list[JsonObject]]]:
    """Yield (article title, passage, questions)."""
    try:
        for number, article in enumerate(document["data"], 1):
            title = str(article.get("title", number))
            for paragraph in article["paragraphs"]:
                passage, questions = paragraph.get("context"), paragraph["qas"]
                if not all(isinstance(question, dict) for question in questions):
                    raise TypeError
                yield title, passage if isinstance(passage, str) else "", questions
    except (KeyError, TypeError, AttributeError):
        raise UserError(
            f'{name}: not in SQuAD layout, {{"data": [{{"paragraphs": [{{"context": …, '
            '"qas": [{"id": …, "question": …, "answers": […]}]}]}]}.'
        ) from None


def _build_example(
    question: JsonObject, passage: str, file: str, line: int, keep_empty: bool
) -> Example:
    text = question.get("question")
    if not isinstance(text, str) or not (text.strip() or keep_empty):
        raise _QuestionFault("no question", f"'question' has no text. Add it, or {SKIP_HINT}.")
    if not (passage.strip() or keep_empty):
        raise _QuestionFault(
            "empty passage", f"the passage ('context') is empty. Fill it in, or {SKIP_HINT}."
        )
    if has_surrogate((question, passage)):
        raise _QuestionFault(
            UNDECODABLE, f"the question or its passage contains {SURROGATE_MESSAGE}"
        )
    label: GoldAnswers | None = None
    if question.get("is_impossible"):
        label = GoldAnswers()
    elif "answers" in question:
        try:
            label = parse_answers(question["answers"] or {"text": [], "answer_start": []})
        except UserError as error:
            raise _QuestionFault(
                "unusable answer", f"{error} Correct it, or {SKIP_HINT}."
            ) from None
        if label is None:
            raise _QuestionFault(
                "unusable answer", f"'answers' must be a list. Correct it, or {SKIP_HINT}."
            )
        check_answers(label, passage)
    return Example(text, label, str(question.get("id", "")), file, line, other=passage)


def _misplaced_message(text: str, start: int, passage: str) -> str:
    """Return the message for an answer that is not at its offset, with the nearest match."""
    positions, position = [], passage.find(text)
    while position >= 0:
        positions.append(position)
        position = passage.find(text, position + 1)
    if not positions:
        alike = passage.lower().find(text.lower())
        near = f" ('{passage[alike : alike + len(text)]}' does)" if alike >= 0 else ""
        return f"the answer '{text:.60}' is not in the passage{near}. Correct it, or {SKIP_HINT}."
    nearest = min(positions, key=lambda position: abs(position - start))
    found_text = passage[max(start, 0) : max(start, 0) + len(text)] if start >= 0 else ""
    return (
        f"the answer '{text:.60}' is not at character {start} ('{found_text:.60}' is) but at "
        f"{nearest}. Set answer_start to {nearest}, or {SKIP_HINT}."
    )
