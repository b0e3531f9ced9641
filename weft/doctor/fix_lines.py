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
from weft.storage import atomic_write
from weft.text.annotation import schemes
from weft.text.annotation.schemes import OUTSIDE, Span
from weft.text.annotation.spans import SpanText
from weft.text.column_layout import DOCUMENT_MARK
from weft.text.columns import Columns
from weft.text.formats.conll import TaggedSentence
from weft.text.formats.standoff import list_brat_files, replace_brat_span, replace_spans
from weft.text.line_source import LineSource, strip_compression
from weft.text.write import open_text

# Faults that a copy has no more.
FIXABLE_FAULTS = frozenset(
    ("invalid tag", "mixed schemes", "duplicate span", "span with spaces", "span of white space")
)
_STAYS = re.compile(rb"# *new(?:doc|par)\b|" + DOCUMENT_MARK.encode())  # where a document begins
_BEGINS = re.compile(rb"# *newdoc\b|" + DOCUMENT_MARK.encode())
_CELLS = re.compile(r"([ \t]+)")
_MENTIONED = re.compile(r"\bT\d+\b")

Corrections = Mapping[str, Mapping[str, str]]  # by kind: the right name for a wrong one


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


class _SourceWithBom(LineSource):
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
        self._lines = self._lines or list(LineSource(self._path).raw())
        return self._lines[number - 1].decode("utf-8", "replace").rstrip("\r\n")


def line_edits(
    path: str,
    kind: str,
    columns: Columns,
    drops: Mapping[int, str],
    right: Corrections,
    scheme: str,
) -> Iterator[Edit]:
    """What is to be done in one file; `drops` are rows, counted from 0, and why they go."""
    if kind == "conllu":
        return _conllu_edits(path, drops, right)
    if kind == "conll":
        return _column_edits(path, columns, drops, right, scheme)
    if kind == "trees":
        return _tree_edits(path, drops)
    return _span_edits(path, kind == "standoff", drops, right.get(TYPES, {}))


def copy_with_edits(path: str, target: str, edits: list[Edit]) -> None:
    """The file again with some lines changed or left out, and every other byte as it was."""
    lines: dict[int, str | None] = {}
    for edit in edits:
        lines |= dict.fromkeys(range(edit.line, edit.last + 1), edit.after)
    with atomic_write(target) as part, open_text(part, strip_compression(target)[1]) as out:
        binary = cast(io.TextIOWrapper, out).buffer
        dropped, begun = False, b""  # where a document began whose first sentence goes
        for number, raw in enumerate(_SourceWithBom(path).raw(), 1):
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


def copy_brat(path: str, target: Path, edits: list[Edit]) -> None:
    """The texts and their annotation again, side by side, in a folder."""
    root = Path(path) if Path(path).is_dir() else Path(path).parent
    for place in list_brat_files(path):
        mark = place.with_suffix(".ann")
        mine = [edit for edit in edits if edit.file == str(mark)]
        if any(edit.last < edit.line for edit in mine):
            continue  # the whole text goes
        out = target / place.relative_to(root)
        out.parent.mkdir(parents=True, exist_ok=True)
        copy_with_edits(str(place), str(out), [])
        copy_with_edits(str(mark), str(out.with_suffix(".ann")), mine)


def _conllu_edits(path: str, drops: Mapping[int, str], right: Corrections) -> Iterator[Edit]:
    for row, sentence in enumerate(conllu.read_sentences(path)):
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


def _column_edits(
    path: str, columns: Columns, drops: Mapping[int, str], right: Corrections, scheme: str
) -> Iterator[Edit]:
    own = column_files.detect_scheme(path, columns)
    lines = _Lines(path)
    for row, sentence in enumerate(column_files.read_sentences(path, columns)):
        if row in drops:
            first = sentence.line - len(sentence.comments)
            text = " ".join(sentence.words)
            yield Edit(first, sentence.lines[-1], drops[row], sentence.id, text, None, path)
            continue
        better = _correct_tags(sentence.tags, own, scheme, right)
        for number, tag, new in zip(sentence.lines, sentence.tags, better, strict=True):
            if tag != new:
                what = "tag repaired" if own else "tag corrected"
                line = _replace_tag(lines[number], sentence, new)
                yield Edit(number, number, what, sentence.id, lines[number], line, path)


def _replace_tag(line: str, sentence: TaggedSentence, tag: str) -> str:
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


def _correct_tags(tags: list[str], own: str, scheme: str, right: Corrections) -> list[str]:
    if not own:
        return [right.get(TAGS, {}).get(tag, tag) for tag in tags]
    if not all(map(is_tag, tags)):
        return tags  # what such a tag was meant to be, nobody knows
    types = right.get(TYPES, {})
    named = [
        tag if tag == OUTSIDE else f"{tag[:2]}{types.get(tag[2:], tag[2:])}" for tag in tags
    ]  # fmt: skip
    return schemes.convert(named, own, scheme or own, "repair")


def _tree_edits(path: str, drops: Mapping[int, str]) -> Iterator[Edit]:
    every = list(brackets.read_trees(path))
    lines = [line for one in every for line in {one.line, one.last}]
    for row, one in enumerate(every):
        if row in drops and lines.count(one.line) == lines.count(one.last) == 1:
            yield Edit(one.line, one.last, drops[row], "", one.tree.text, None, path)


def _span_edits(
    path: str, brat: bool, drops: Mapping[int, str], right: Mapping[str, str]
) -> Iterator[Edit]:
    lines = _Lines(path)
    for row, marked in enumerate(spans.read_texts(path, brat)):
        if row in drops and brat:
            yield Edit(1, 0, drops[row], marked.id, marked.text, None, marked.file)
        elif row in drops:
            yield Edit(
                marked.line, marked.line, drops[row], marked.id, marked.text, None, marked.file
            )  # fmt: skip
        elif brat:
            yield from _brat_edits(marked, right)
        else:
            yield from _json_edits(marked, lines, right)


def _fix_span(text: str, span: Span, right: Mapping[str, str]) -> Span | None:
    if not 0 <= span.start < span.end <= len(text):
        return span
    return spans.trim_span(text, span._replace(label=right.get(span.label, span.label)))


def _json_edits(marked: SpanText, lines: _Lines, right: Mapping[str, str]) -> Iterator[Edit]:
    seen: set[Span] = set()

    def change(span: Span) -> Span | None:
        better = _fix_span(marked.text, span, right)
        if better is None or better in seen:
            return None
        seen.add(better)
        return better

    kept = [change(span) for span in marked.spans]
    if kept == list(marked.spans):
        return
    seen.clear()
    line = lines[marked.line]
    better = replace_spans(line, change)
    yield Edit(marked.line, marked.line, "spans mended", marked.id, line, better, marked.file)


def _brat_edits(marked: SpanText, right: Mapping[str, str]) -> Iterator[Edit]:
    lines = _Lines(marked.file)
    mentioned = set(_MENTIONED.findall(" ".join(marked.others)))
    seen: set[Span] = set()
    for span, number in zip(marked.spans, marked.lines, strict=True):
        line = lines[number]
        better = _fix_span(marked.text, span, right)
        needed = line.partition("\t")[0] in mentioned  # a relation would hang in the air
        if better is None or (better in seen and not needed):
            if not needed:
                yield Edit(number, number, "span removed", marked.id, line, None, marked.file)
            continue
        seen.add(better)
        if better != span:
            new = replace_brat_span(line, marked.text, better)
            yield Edit(number, number, "span mended", marked.id, line, new, marked.file)
