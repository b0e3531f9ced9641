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
from weft.storage import replacing
from weft.text.example import Answers, Example, Tally, answers_of
from weft.text.line_source import (
    EMPTY,
    SKIP,
    SURROGATE,
    UNDECODABLE,
    Handling,
    Problems,
    Source,
    peel,
)
from weft.untrusted import has_surrogate

MISPLACED = "answer not at its place"
_BARE = re.compile(  # of a document in which nothing is asked
    r'\s*\{\s*("version"\s*:\s*"[^"]*"\s*,\s*)?"data"\s*:\s*\[\s*(\]|\{[^{}]*"paragraphs")'
)


def is_squad(head: str) -> bool:
    """Whether the beginning of a file is that of such a document, be it an empty one."""
    named = head.lstrip().startswith("{") and '"paragraphs"' in head and '"qas"' in head
    return named or _BARE.match(head) is not None


def squad_examples(
    name: str, *, problems: Handling = "error", tally: Tally | None = None, keep_empty: bool = False
) -> Iterator[Example]:
    """An Example for each question: its text, the passage as the other, and the answers."""
    source = Source(name)
    faults = Problems(source.name, problems, tally, keep_empty)
    whole, document = _document(source)
    lines = _Lines(whole)
    paragraphs = list(_paragraphs(document, source.name))
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
                yield _example(question, passage, source.name, line, keep_empty)
            except _Fault as fault:
                faults.found(fault.kind, line, f"{told}: {fault}")


def write_squad(examples: Iterable[Example], path: str | os.PathLike[str]) -> None:
    """Write questions as such a document: those about one passage, where they follow, together."""
    from weft.text.write import opened  # which asks this file what is in SQuAD's layout

    paragraphs: list[dict[str, Any]] = []
    for number, example in enumerate(examples, 1):
        label = example.label
        assert label is None or isinstance(label, Answers)
        asked: dict[str, Any] = {"id": example.id or str(number), "question": example.text}
        if label is not None:
            pairs = zip(label.texts, label.starts, strict=True)
            asked["answers"] = [{"text": text, "answer_start": start} for text, start in pairs]
            asked["is_impossible"] = not label.texts
        if not paragraphs or paragraphs[-1]["context"] != example.other:
            paragraphs.append({"context": example.other, "qas": []})
        paragraphs[-1]["qas"].append(asked)
    document = {"version": "v2.0", "data": [{"title": "", "paragraphs": paragraphs}]}
    with replacing(os.fspath(path)) as part, opened(part, peel(os.fspath(path))[1]) as out:
        json.dump(document, out, ensure_ascii=False)


def check_answers(answers: Answers, passage: str) -> None:
    """A UserError, without the place, where an answer is not where it should be."""
    for text, start in zip(answers.texts, answers.starts, strict=True):
        if not text.strip():
            raise _Fault(EMPTY, f"the answer is empty. Fill it in, or {SKIP}.")
        if start < 0 or not passage.startswith(text, start):
            raise _Fault(MISPLACED, _misplaced(text, start, passage))


def found_in(texts: tuple[str, ...], passage: str) -> Answers:
    """Answers of which only the texts are known, where each stands first in the passage."""
    starts = tuple(passage.find(text) for text in texts)
    check_answers(Answers(texts, starts), passage)
    return Answers(texts, starts)


def kind_of(error: UserError) -> str:
    """What is wrong with a label, in the few words that a tally has for it."""
    return error.kind if isinstance(error, _Fault) else "unusable label"


class _Fault(UserError):
    """Something wrong with one question."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Lines:
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


def _document(source: Source) -> tuple[str, Any]:
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


def _paragraphs(document: Any, name: str) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
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


def _example(
    question: dict[str, Any], passage: str, file: str, line: int, keep_empty: bool
) -> Example:
    asked = question.get("question")
    if not isinstance(asked, str) or not (asked.strip() or keep_empty):
        raise _Fault("no question", f"there is no text in 'question'. Add it, or {SKIP}.")
    if not (passage.strip() or keep_empty):
        raise _Fault("empty passage", f"its passage, 'context', is empty. Fill it in, or {SKIP}.")
    if has_surrogate((question, passage)):
        raise _Fault(UNDECODABLE, f"the question or its passage holds {SURROGATE}")
    label: Answers | None = None
    if question.get("is_impossible"):
        label = Answers()
    elif "answers" in question:
        try:
            label = answers_of(question["answers"] or {"text": [], "answer_start": []})
        except UserError as error:
            raise _Fault("unusable answer", f"{error} Mend it, or {SKIP}.") from None
        if label is None:
            raise _Fault(
                "unusable answer", f"'answers' should be a list of them. Mend it, or {SKIP}."
            )
        check_answers(label, passage)
    return Example(asked, label, str(question.get("id", "")), file, line, other=passage)


def _misplaced(text: str, start: int, passage: str) -> str:
    """What stands where an answer should, and where it does stand."""
    places, place = [], passage.find(text)
    while place >= 0:
        places.append(place)
        place = passage.find(text, place + 1)
    if not places:
        alike = passage.lower().find(text.lower())
        near = f" ('{passage[alike : alike + len(text)]}' does)" if alike >= 0 else ""
        return f"the answer '{text:.60}' does not stand in the passage{near}. Mend it, or {SKIP}."
    nearest = min(places, key=lambda place: abs(place - start))
    there = passage[max(start, 0) : max(start, 0) + len(text)] if start >= 0 else ""
    return (
        f"the answer '{text:.60}' does not begin at character {start}, where '{there:.60}' stands, "
        f"but at {nearest}. Set answer_start to {nearest}, or {SKIP}."
    )
