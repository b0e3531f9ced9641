"""What can be mended line by line where words have tags; no other byte of the file changes."""

import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from weft.doctor.annotations import RELATIONS, TAGS, TYPES, is_tag
from weft.doctor.formats import brackets, column_files, conllu, spans
from weft.storage import replacing
from weft.text.annotation import schemes
from weft.text.annotation.schemes import OUTSIDE, Span
from weft.text.annotation.spans import Marked
from weft.text.column_layout import DOCUMENT
from weft.text.columns import Columns
from weft.text.formats.conll import Tagged
from weft.text.formats.standoff import pairs, with_span, with_spans
from weft.text.line_source import Source, peel
from weft.text.write import opened

# Faults that a copy has no more.
MENDED = frozenset(
    ("invalid tag", "mixed schemes", "duplicate span", "span with spaces", "span of white space")
)
_STAYS = re.compile(rb"# *new(?:doc|par)\b|" + DOCUMENT.encode())  # where a document begins
_BEGINS = re.compile(rb"# *newdoc\b|" + DOCUMENT.encode())
_CELLS = re.compile(r"([ \t]+)")
_MENTIONED = re.compile(r"\bT\d+\b")

Right = Mapping[str, Mapping[str, str]]  # by kind: the right name for a wrong one


@dataclass(frozen=True)
class Edit:
    """Lines of a file that become another line, or none; what was done, in which sentence."""

    line: int
    last: int
    what: str
    id: str
    before: str
    after: str | None
    file: str


class _Whole(Source):
    """A source that keeps the byte order mark."""

    def _opening(self, raw: bytes) -> bytes:
        super()._opening(raw)
        return raw


class _Lines:
    """The lines of a file by their numbers from 1, read when the first is asked for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: list[bytes] = []

    def __getitem__(self, number: int) -> str:
        self._lines = self._lines or list(Source(self._path).raw())
        return self._lines[number - 1].decode("utf-8", "replace").rstrip("\r\n")


def edits(
    path: str, kind: str, columns: Columns, drops: Mapping[int, str], right: Right, scheme: str
) -> Iterator[Edit]:
    """What is to be done in one file; `drops` are rows, counted from 0, and why they go."""
    if kind == "conllu":
        return _treebank(path, drops, right)
    if kind == "conll":
        return _columns(path, columns, drops, right, scheme)
    if kind == "trees":
        return _trees(path, drops)
    return _spans(path, kind == "standoff", drops, right.get(TYPES, {}))


def copy(path: str, target: str, found: list[Edit]) -> None:
    """The file again with some lines changed or left out, and every other byte as it was."""
    lines: dict[int, str | None] = {}
    for edit in found:
        lines |= dict.fromkeys(range(edit.line, edit.last + 1), edit.after)
    with replacing(target) as part, opened(part, peel(target)[1]) as out:
        binary = cast(io.TextIOWrapper, out).buffer
        dropped, begun = False, b""  # where a document began whose first sentence goes
        for number, raw in enumerate(_Whole(path).raw(), 1):
            line = lines.get(number, "")
            if number in lines and line is None:
                dropped = True
                begun += raw if _STAYS.match(raw) else b""
                continue
            if dropped and not raw.strip():
                dropped = False  # the blank line after a sentence goes with it
                continue
            binary.write(b"" if _BEGINS.match(raw) else begun)
            dropped, begun = False, b""
            mark = BOM_UTF8 if raw.startswith(BOM_UTF8) else b""
            end = raw[len(raw.rstrip(b"\r\n")) :]
            binary.write(mark + line.encode() + end if number in lines and line else raw)


def copy_brat(path: str, target: Path, found: list[Edit]) -> None:
    """The texts and their annotation again, side by side, in a folder."""
    root = Path(path) if Path(path).is_dir() else Path(path).parent
    for place in pairs(path):
        mark = place.with_suffix(".ann")
        mine = [edit for edit in found if edit.file == str(mark)]
        if any(edit.last < edit.line for edit in mine):
            continue  # the whole text goes
        out = target / place.relative_to(root)
        out.parent.mkdir(parents=True, exist_ok=True)
        copy(str(place), str(out), [])
        copy(str(mark), str(out.with_suffix(".ann")), mine)


def _treebank(path: str, drops: Mapping[int, str], right: Right) -> Iterator[Edit]:
    for row, sentence in enumerate(conllu.sentences(path)):
        if row in drops:
            last = sentence.line + len(sentence.parts) - 1
            text = sentence.text or " ".join(word.form for word in sentence.words)
            yield Edit(sentence.line, last, drops[row], sentence.sent_id, text, None, path)
            continue
        for word in sentence.words:
            better = replace(
                word,
                upos=right.get(TAGS, {}).get(word.upos, word.upos),
                deprel=right.get(RELATIONS, {}).get(word.deprel, word.deprel),
            )
            if better != word:
                line = sentence.line_of(word)
                what = "tag corrected" if better.upos != word.upos else "relation corrected"
                yield Edit(line, line, what, sentence.sent_id, str(word), str(better), path)


def _columns(
    path: str, columns: Columns, drops: Mapping[int, str], right: Right, scheme: str
) -> Iterator[Edit]:
    own = column_files.scheme_of(path, columns)
    lines = _Lines(path)
    for row, sentence in enumerate(column_files.sentences(path, columns)):
        if row in drops:
            first = sentence.line - len(sentence.comments)
            text = " ".join(sentence.words)
            yield Edit(first, sentence.lines[-1], drops[row], sentence.id, text, None, path)
            continue
        better = _better(sentence.tags, own, scheme, right)
        for number, tag, new in zip(sentence.lines, sentence.tags, better, strict=True):
            if tag != new:
                what = "tag repaired" if own else "tag corrected"
                line = _with_cell(lines[number], sentence, new)
                yield Edit(number, number, what, sentence.id, lines[number], line, path)


def _with_cell(line: str, sentence: Tagged, tag: str) -> str:
    """The line with another tag, and its spaces as they were."""
    layout = sentence.layout
    at = layout.number(layout.tags)
    if layout.separator == "\t":
        cells = line.split("\t")
        cells[at] = tag
        return "\t".join(cells)
    pieces = _CELLS.split(line)  # cells and the spaces between them, in turns
    pieces[2 * (at + (not pieces[0]))] = tag  # a line may begin with spaces
    return "".join(pieces)


def _better(tags: list[str], own: str, scheme: str, right: Right) -> list[str]:
    if not own:
        return [right.get(TAGS, {}).get(tag, tag) for tag in tags]
    if not all(map(is_tag, tags)):
        return tags  # what such a tag was meant to be, nobody knows
    types = right.get(TYPES, {})
    named = [
        tag if tag == OUTSIDE else f"{tag[:2]}{types.get(tag[2:], tag[2:])}" for tag in tags
    ]  # fmt: skip
    return schemes.convert(named, own, scheme or own, "repair")


def _trees(path: str, drops: Mapping[int, str]) -> Iterator[Edit]:
    every = list(brackets.grown(path))
    lines = [line for one in every for line in {one.line, one.last}]
    for row, one in enumerate(every):
        if row in drops and lines.count(one.line) == lines.count(one.last) == 1:
            yield Edit(one.line, one.last, drops[row], "", one.tree.text, None, path)


def _spans(
    path: str, brat: bool, drops: Mapping[int, str], right: Mapping[str, str]
) -> Iterator[Edit]:
    lines = _Lines(path)
    for row, marked in enumerate(spans.texts(path, brat)):
        if row in drops and brat:
            yield Edit(1, 0, drops[row], marked.id, marked.text, None, marked.file)
        elif row in drops:
            yield Edit(
                marked.line, marked.line, drops[row], marked.id, marked.text, None, marked.file
            )  # fmt: skip
        elif brat:
            yield from _annotation(marked, right)
        else:
            yield from _json(marked, lines, right)


def _mended(text: str, span: Span, right: Mapping[str, str]) -> Span | None:
    if not 0 <= span.start < span.end <= len(text):
        return span
    return spans.trimmed(text, span._replace(label=right.get(span.label, span.label)))


def _json(marked: Marked, lines: _Lines, right: Mapping[str, str]) -> Iterator[Edit]:
    seen: set[Span] = set()

    def change(span: Span) -> Span | None:
        better = _mended(marked.text, span, right)
        if better is None or better in seen:
            return None
        seen.add(better)
        return better

    kept = [change(span) for span in marked.spans]
    if kept == list(marked.spans):
        return
    seen.clear()
    line = lines[marked.line]
    better = with_spans(line, change)
    yield Edit(marked.line, marked.line, "spans mended", marked.id, line, better, marked.file)


def _annotation(marked: Marked, right: Mapping[str, str]) -> Iterator[Edit]:
    lines = _Lines(marked.file)
    mentioned = set(_MENTIONED.findall(" ".join(marked.others)))
    seen: set[Span] = set()
    for span, number in zip(marked.spans, marked.lines, strict=True):
        line = lines[number]
        better = _mended(marked.text, span, right)
        needed = line.partition("\t")[0] in mentioned  # a relation would hang in the air
        if better is None or (better in seen and not needed):
            if not needed:
                yield Edit(number, number, "span removed", marked.id, line, None, marked.file)
            continue
        seen.add(better)
        if better != span:
            new = with_span(line, marked.text, better)
            yield Edit(number, number, "span mended", marked.id, line, new, marked.file)
