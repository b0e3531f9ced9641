"""Questions about passages: SQuAD's JSON, of version 1.1 or 2.0, and answers checked against both.

A file is one document, so it is read whole.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.example import Example, GoldAnswers, Tally, parse_answers
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
_EMPTY_DOCUMENT = re.compile(  # of a document in which nothing is asked
    r'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\[\s*(\]|\{[^{}]*"paragraphs")'
)


def is_squad(head: str) -> bool:
    """Whether the beginning of a file is that of such a document, be it an empty one."""
    named = head.lstrip().startswith("{") and '"paragraphs"' in head and '"qas"' in head
    return named or _EMPTY_DOCUMENT.match(head) is not None


def read_squad(
    name: str,
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
    keep_empty: bool = False,
) -> Iterator[Example]:
    """An Example for each question: its text, the passage as the other, and the answers."""
    source = LineSource(name)
    faults = BadRows(source.name, on_bad_row, skipped, keep_empty)
    whole, document = _parse_document(source)
    lines = _QuestionLines(whole)
    paragraphs = list(_iter_paragraphs(document, source.name))
    if not any(asked for _, _, asked in paragraphs):
        raise UserError(
            f"{source.name}: there is no question in it: no 'qas' of its 'data' holds one. Give it "
            "at least one, or another file."
        )
    for title, passage, asked in paragraphs:
        for question in asked:
            line = lines.of(question)
            of = f"question '{question['id']}'" if question.get("id") else f"article '{title}'"
            told = f"{of:.200}"
            try:
                yield _build_example(question, passage, source.name, line, keep_empty)
            except _QuestionFault as fault:
                faults.found(fault.kind, line, f"{told}: {fault}")


def write_squad(examples: Iterable[Example], path: str | os.PathLike[str]) -> None:
    """Write questions as such a document: those about one passage, where they follow, together."""
    from weft.text.write import open_text  # which asks this file what is in SQuAD's layout

    paragraphs: list[dict[str, Any]] = []
    for number, example in enumerate(examples, 1):
        label = example.label
        assert label is None or isinstance(label, GoldAnswers)
        asked: dict[str, Any] = {"id": example.id or str(number), "question": example.text}
        if label is not None:
            pairs = zip(label.texts, label.starts, strict=True)
            asked["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
            asked["is_impossible"] = not label.texts
        if not paragraphs or paragraphs[-1]["context"] != example.other:
            paragraphs.append({"context": example.other, "qas": []})
        paragraphs[-1]["qas"].append(asked)
    document = {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}
    with (
        atomic_write(os.fspath(path)) as part,
        open_text(part, strip_compression(os.fspath(path))[1]) as out,
    ):
        json.dump(document, out, ensure_ascii=False)


def check_answers(answers: GoldAnswers, passage: str) -> None:
    """A UserError, without the place, where an answer is not where it should be."""
    for text, start in zip(answers.texts, answers.starts, strict=True):
        if not text.strip():
            raise _QuestionFault(EMPTY_TEXT, f"the answer is empty. Fill it in, or {SKIP_HINT}.")
        if start < 0 or not passage.startswith(text, start):
            raise _QuestionFault(MISPLACED, _misplaced_message(text, start, passage))


def locate_in_passage(texts: tuple[str, ...], passage: str) -> GoldAnswers:
    """Answers of which only the texts are known, where each stands first in the passage."""
    starts = tuple(passage.find(text) for text in texts)
    check_answers(GoldAnswers(texts, starts), passage)
    return GoldAnswers(texts, starts)


def fault_kind(error: UserError) -> str:
    """What is wrong with a label, in the few words that a tally has for it."""
    return error.kind if isinstance(error, _QuestionFault) else "unusable label"


class _QuestionFault(UserError):
    """Something wrong with one question."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _QuestionLines:
    """The line on which each question's id stands; ids come in the order of the file."""

    def __init__(self, text: str) -> None:
        self.text, self.place, self.line = text, 0, 1

    def of(self, question: dict[str, Any]) -> int:
        if "id" not in question:
            return self.line
        found = self.text.find(json.dumps(question["id"]), self.place)
        if found >= 0:  # else it is written with other escapes
            self.line += self.text.count("\n", self.place, found)
            self.place = found
        return self.line


def _parse_document(source: LineSource) -> tuple[str, Any]:
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
            f"{error} The file is one document of questions; copy or make it again."
        ) from None
    return text, document


def _iter_paragraphs(document: Any, name: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """(title of the article, passage, its questions)."""
    try:
        for number, article in enumerate(document["data"], 1):
            title = str(article.get("title", number))
            for paragraph in article["paragraphs"]:
                passage, asked = paragraph.get("context"), paragraph["qas"]
                if not all(isinstance(question, dict) for question in asked):
                    raise TypeError
                yield title, passage if isinstance(passage, str) else "", asked
    except (KeyError, TypeError, AttributeError):
        raise UserError(
            f'{name}: not in the layout of SQuAD, {{"data": [{{"paragraphs": [{{"context": …, '
            '"qas": [{"id": …, "question": …, "answers": […]}]}]}]}.'
        ) from None


def _build_example(
    question: dict[str, Any], passage: str, file: str, line: int, keep_empty: bool
) -> Example:
    asked = question.get("question")
    if not isinstance(asked, str) or not (asked.strip() or keep_empty):
        raise _QuestionFault(
            "no question", f"there is no text in 'question'. Add it, or {SKIP_HINT}."
        )
    if not (passage.strip() or keep_empty):
        raise _QuestionFault(
            "empty passage", f"its passage, 'context', is empty. Fill it in, or {SKIP_HINT}."
        )
    if has_surrogate((question, passage)):
        raise _QuestionFault(UNDECODABLE, f"the question or its passage holds {SURROGATE_MESSAGE}")
    label: GoldAnswers | None = None
    if question.get("is_impossible"):
        label = GoldAnswers()
    elif "answers" in question:
        try:
            label = parse_answers(question["answers"] or {"text": [], "answer_start": []})
        except UserError as error:
            raise _QuestionFault("unusable answer", f"{error} Mend it, or {SKIP_HINT}.") from None
        if label is None:
            raise _QuestionFault(
                "unusable answer", f"'answers' should be a list of them. Mend it, or {SKIP_HINT}."
            )
        check_answers(label, passage)
    return Example(asked, label, str(question.get("id", "")), file, line, other=passage)


def _misplaced_message(text: str, start: int, passage: str) -> str:
    """What stands where an answer should, and where it does stand."""
    places, place = [], passage.find(text)
    while place >= 0:
        places.append(place)
        place = passage.find(text, place + 1)
    if not places:
        alike = passage.lower().find(text.lower())
        near = f" ('{passage[alike : alike + len(text)]}' does)" if alike >= 0 else ""
        return (
            f"the answer '{text:.60}' does not stand in the passage{near}. Mend it, or {SKIP_HINT}."
        )
    nearest = min(places, key=lambda place: abs(place - start))
    there = passage[max(start, 0) : max(start, 0) + len(text)] if start >= 0 else ""
    return (
        f"the answer '{text:.60}' does not begin at character {start}, where '{there:.60}' stands, "
        f"but at {nearest}. Set answer_start to {nearest}, or {SKIP_HINT}."
    )
