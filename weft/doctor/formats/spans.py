"""Texts with marked spans under the doctor's eyes: JSON lines with offsets, and BRAT's files."""

import re
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import Fault, named
from weft.text.annotation import spans as offsets
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import Marked
from weft.text.example import Example, Marks, Tally
from weft.text.formats.standoff import read_brat, read_spans

_WORD = re.compile(r"\w")


def texts(path: str, brat: bool, tally: Tally | None = None) -> Iterator[Marked]:
    """Every text, its spans as they are."""
    read = read_brat if brat else read_spans
    return read(path, check=False, problems="skip", tally=tally)


def examples(path: str, brat: bool, tally: Tally) -> Iterator[Example]:
    """The texts as the survey takes them."""
    for one in texts(path, brat, tally):
        yield Example(one.text, Marks(one.spans), one.id, one.file, one.line)


def faults(path: str, brat: bool) -> Iterator[Fault]:
    """What is wrong with the spans of each text, in the order of the file."""
    for number, marked in enumerate(texts(path, brat), 1):
        of = named(marked.id, number, "text")
        lines = dict(zip(marked.spans, marked.lines, strict=False))
        for kind, span, told in _faults(marked):
            line = lines.get(span, marked.line)
            yield Fault(kind, f"{marked.file}:{line}", marked.text, f"{of}: {told}")


def _faults(marked: Marked) -> Iterator[tuple[str, Span, str]]:
    text = marked.text
    once = list(dict.fromkeys(marked.spans))
    for span in once:
        if marked.spans.count(span) > 1:
            yield "duplicate span", span, f"{shown(text, span)} stands there twice"
        if not span.label.strip():
            yield "span without label", span, shown(text, span)
    bad = set()
    for fault in offsets.faults(text, once):
        kind = fault.kind
        if kind != "overlapping spans":
            bad.add(fault.span)
        elif _crosses(fault.span, once):
            kind = "crossing spans"
        yield kind, fault.span, _without_fix(fault.told)
    for span in once:
        if span not in bad:
            if trimmed(text, span) != span:
                yield "span with spaces", span, shown(text, span)
            if _cut(text, span.start) or _cut(text, span.end):
                yield "span inside a word", span, shown(text, span)


def trimmed(text: str, span: Span) -> Span | None:
    """The span without white space at its edges; None when there is nothing else in it."""
    covered = text[span.start : span.end]
    if not covered.strip():
        return None
    start = span.start + len(covered) - len(covered.lstrip())
    return Span(span.label, start, span.end - len(covered) + len(covered.rstrip()))


def shown(text: str, span: Span) -> str:
    """The span as messages name it."""
    return f"{span.label} [{span.start}, {span.end}) '{text[span.start : span.end]:.40}'"


def _crosses(span: Span, others: list[Span]) -> bool:
    return any(a.start < b.start < a.end < b.end for o in others for a, b in ((o, span), (span, o)))


def _cut(text: str, place: int) -> bool:
    inside = 0 < place < len(text)
    return inside and all(_WORD.match(text[i]) for i in (place - 1, place))


def _without_fix(told: str) -> str:
    """What is wrong, without the advice that the finding gives once for all."""
    fixes = (". Keep one", ". The end is", ". Count from", ". Move it")
    return min((told.partition(fix)[0] for fix in fixes), key=len).removeprefix("the span ")
