"""Fix annotated files line by line; no other byte changes."""

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

# Faults that a fixed copy no longer has.
FIXABLE_FAULTS = frozenset(
    ("invalid tag", "mixed schemes", "duplicate span", "span with spaces", "span of white space")
)
_STAYS = re.compile(
    rb"# *new(?:doc|par)\b|" + DOCUMENT_MARK.encode()
)  # marks the start of a document
_BEGINS = re.compile(rb"# *newdoc\b|" + DOCUMENT_MARK.encode())
_CELLS = re.compile(r"([ \t]+)")
_MENTIONED = re.compile(r"\bT\d+\b")

Corrections = Mapping[str, Mapping[str, str]]  # by kind: wrong name -> right name


@dataclass(frozen=True)
class Edit:
    """Lines of a file to replace or remove, with the change and the sentence id."""

    line: int
    last: int
    what: str
    id: str
    before: str
    after: str | None
    file: str


class _RawSource(LineSource):
    """A source that keeps the byte order mark in its first line."""

    def _opening(self, raw: bytes) -> bytes:
        super()._opening(raw)
        return raw


class _Lines:
    """The lines of a file by number from 1, read on first access."""

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
    corrections: Corrections,
    scheme: str,
) -> Iterator[Edit]:
    """Yield the edits of one file; `drops` maps rows to remove, from 0, to reasons."""
    if kind == "conllu":
        return _conllu_edits(path, drops, corrections)
    if kind == "conll":
        return _column_edits(path, columns, drops, corrections, scheme)
    if kind == "trees":
        return _tree_edits(path, drops)
    return _span_edits(path, kind == "standoff", drops, corrections.get(TYPES, {}))


def copy_with_edits(path: str, target: str, edits: list[Edit]) -> None:
    """Copy a file with some lines changed or removed, and every other byte unchanged."""
    lines: dict[int, str | None] = {}
    for edit in edits:
        lines |= dict.fromkeys(range(edit.line, edit.last + 1), edit.after)
    with atomic_write(target) as part, open_text(part, strip_compression(target)[1]) as out:
        binary = cast(io.TextIOWrapper, out).buffer
        dropped, document_start = False, b""  # start of a document whose first sentence is dropped
        for number, raw in enumerate(_RawSource(path).raw(), 1):
            line = lines.get(number, "")
            if number in lines and line is None:
                dropped = True
                document_start += raw if _STAYS.match(raw) else b""
                continue
            if dropped and not raw.strip():
                dropped = False  # drop the blank line after a dropped sentence
                continue
            binary.write(b"" if _BEGINS.match(raw) else document_start)
            dropped, document_start = False, b""
            mark = BOM_UTF8 if raw.startswith(BOM_UTF8) else b""
            end = raw[len(raw.rstrip(b"\r\n")) :]
            binary.write(mark + line.encode() + end if number in lines and line else raw)


def copy_brat(path: str, target: Path, edits: list[Edit]) -> None:
    """Copy BRAT texts and their fixed annotations to a folder."""
    root = Path(path) if Path(path).is_dir() else Path(path).parent
    for text_path in list_brat_files(path):
        annotation_path = text_path.with_suffix(".ann")
        file_edits = [edit for edit in edits if edit.file == str(annotation_path)]
        if any(edit.last < edit.line for edit in file_edits):
            continue  # the whole text is dropped
        out = target / text_path.relative_to(root)
        out.parent.mkdir(parents=True, exist_ok=True)
        copy_with_edits(str(text_path), str(out), [])
        copy_with_edits(str(annotation_path), str(out.with_suffix(".ann")), file_edits)


def _conllu_edits(path: str, drops: Mapping[int, str], corrections: Corrections) -> Iterator[Edit]:
    for row, sentence in enumerate(conllu.read_sentences(path)):
        if row in drops:
            last = sentence.line + len(sentence.parts) - 1
            text = sentence.text or " ".join(word.form for word in sentence.words)
            yield Edit(sentence.line, last, drops[row], sentence.sent_id, text, None, path)
            continue
        for word in sentence.words:
            corrected = replace(
                word,
                upos=corrections.get(TAGS, {}).get(word.upos, word.upos),
                deprel=corrections.get(RELATIONS, {}).get(word.deprel, word.deprel),
            )
            if corrected != word:
                line = sentence.line_of(word)
                what = "tag corrected" if corrected.upos != word.upos else "relation corrected"
                yield Edit(line, line, what, sentence.sent_id, str(word), str(corrected), path)


def _column_edits(
    path: str, columns: Columns, drops: Mapping[int, str], corrections: Corrections, scheme: str
) -> Iterator[Edit]:
    file_scheme = column_files.detect_scheme(path, columns)
    lines = _Lines(path)
    for row, sentence in enumerate(column_files.read_sentences(path, columns)):
        if row in drops:
            first = sentence.line - len(sentence.comments)
            text = " ".join(sentence.words)
            yield Edit(first, sentence.lines[-1], drops[row], sentence.id, text, None, path)
            continue
        corrected = correct_tags(sentence.tags, file_scheme, scheme, corrections)
        for number, tag, new in zip(sentence.lines, sentence.tags, corrected, strict=True):
            if tag != new:
                what = "tag repaired" if file_scheme else "tag corrected"
                line = _replace_tag(lines[number], sentence, new)
                yield Edit(number, number, what, sentence.id, lines[number], line, path)


def _replace_tag(line: str, sentence: TaggedSentence, tag: str) -> str:
    """Return the line with another tag and the same spacing."""
    layout = sentence.layout
    column = layout.index_of(layout.tags)
    if layout.separator == "\t":
        cells = line.split("\t")
        cells[column] = tag
        return "\t".join(cells)
    parts = _CELLS.split(line)  # cells and separators, alternating
    parts[2 * (column + (not parts[0]))] = tag  # a line may begin with spaces
    return "".join(parts)


def correct_tags(
    tags: list[str], file_scheme: str, scheme: str, corrections: Corrections
) -> list[str]:
    """Return the tags of a sentence, repaired as conlleval reads them, in a scheme."""
    if not file_scheme:
        return [corrections.get(TAGS, {}).get(tag, tag) for tag in tags]
    if not all(map(is_tag, tags)):
        return tags  # the intended tag is unknown
    types = corrections.get(TYPES, {})
    named = [
        tag if tag == OUTSIDE else f"{tag[:2]}{types.get(tag[2:], tag[2:])}" for tag in tags
    ]  # fmt: skip
    return schemes.convert(named, file_scheme, scheme or file_scheme, "repair")


def _tree_edits(path: str, drops: Mapping[int, str]) -> Iterator[Edit]:
    trees = list(brackets.read_trees(path))
    lines = [line for located in trees for line in {located.line, located.last}]
    for row, located in enumerate(trees):
        if row in drops and lines.count(located.line) == lines.count(located.last) == 1:
            yield Edit(located.line, located.last, drops[row], "", located.tree.text, None, path)


def _span_edits(
    path: str, brat: bool, drops: Mapping[int, str], corrections: Mapping[str, str]
) -> Iterator[Edit]:
    lines = _Lines(path)
    for row, span_text in enumerate(spans.read_texts(path, brat)):
        if row in drops and brat:
            yield Edit(1, 0, drops[row], span_text.id, span_text.text, None, span_text.file)
        elif row in drops:
            yield Edit(
                span_text.line, span_text.line, drops[row], span_text.id, span_text.text, None,
                span_text.file,
            )  # fmt: skip
        elif brat:
            yield from _brat_edits(span_text, corrections)
        else:
            yield from _json_edits(span_text, lines, corrections)


def _fix_span(text: str, span: Span, corrections: Mapping[str, str]) -> Span | None:
    if not 0 <= span.start < span.end <= len(text):
        return span
    return spans.trim_span(text, span._replace(label=corrections.get(span.label, span.label)))


def _json_edits(
    span_text: SpanText, lines: _Lines, corrections: Mapping[str, str]
) -> Iterator[Edit]:
    seen: set[Span] = set()

    def change(span: Span) -> Span | None:
        fixed = _fix_span(span_text.text, span, corrections)
        if fixed is None or fixed in seen:
            return None
        seen.add(fixed)
        return fixed

    kept = [change(span) for span in span_text.spans]
    if kept == list(span_text.spans):
        return
    seen.clear()
    line = lines[span_text.line]
    fixed = replace_spans(line, change)
    yield Edit(
        span_text.line, span_text.line, "spans fixed", span_text.id, line, fixed, span_text.file
    )


def _brat_edits(span_text: SpanText, corrections: Mapping[str, str]) -> Iterator[Edit]:
    lines = _Lines(span_text.file)
    mentioned = set(_MENTIONED.findall(" ".join(span_text.others)))
    seen: set[Span] = set()
    for span, number in zip(span_text.spans, span_text.lines, strict=True):
        line = lines[number]
        fixed = _fix_span(span_text.text, span, corrections)
        needed = line.partition("\t")[0] in mentioned  # a relation refers to it
        if fixed is None or (fixed in seen and not needed):
            if not needed:
                yield Edit(number, number, "span removed", span_text.id, line, None, span_text.file)
            continue
        seen.add(fixed)
        if fixed != span:
            new = replace_brat_span(line, span_text.text, fixed)
            yield Edit(number, number, "span fixed", span_text.id, line, new, span_text.file)
