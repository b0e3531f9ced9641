"""Texts with marked spans under the doctor's eyes: JSON lines with offsets, and BRAT's files."""

import re
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.text.annotation import spans as offsets
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import SpanText
from weft.text.example import CharSpans, Example, Tally
from weft.text.formats.standoff import read_brat, read_spans

_WORD = re.compile(r"\w")


def read_texts(path: str, brat: bool, skipped: Tally | None = None) -> Iterator[SpanText]:
    """Every text, its spans as they are."""
    read = read_brat if brat else read_spans
    return read(path, check=False, on_bad_row="skip", skipped=skipped)


def read_examples(path: str, brat: bool, skipped: Tally) -> Iterator[Example]:
    """The texts as the survey takes them."""
    for one in read_texts(path, brat, skipped):
        yield Example(one.text, CharSpans(one.spans), one.id, one.file, one.line)


def find_faults(path: str, brat: bool) -> Iterator[AnnotationFault]:
    """What is wrong with the spans of each text, in the order of the file."""
    for number, marked in enumerate(read_texts(path, brat), 1):
        of = sentence_name(marked.id, number, "text")
        lines = dict(zip(marked.spans, marked.lines, strict=False))
        for kind, span, told in _find_text_faults(marked):
            line = lines.get(span, marked.line)
            yield AnnotationFault(kind, f"{marked.file}:{line}", marked.text, f"{of}: {told}")


def _find_text_faults(marked: SpanText) -> Iterator[tuple[str, Span, str]]:
    text = marked.text
    once = list(dict.fromkeys(marked.spans))
    for span in once:
        if marked.spans.count(span) > 1:
            yield "duplicate span", span, f"{describe_span(text, span)} stands there twice"
        if not span.label.strip():
            yield "span without label", span, describe_span(text, span)
    bad = set()
    for fault in offsets.find_faults(text, once):
        kind = fault.kind
        if kind != "overlapping spans":
            bad.add(fault.span)
        elif _crosses_any(fault.span, once):
            kind = "crossing spans"
        yield kind, fault.span, _without_fix(fault.told)
    for span in once:
        if span not in bad:
            if trim_span(text, span) != span:
                yield "span with spaces", span, describe_span(text, span)
            if _splits_word(text, span.start) or _splits_word(text, span.end):
                yield "span inside a word", span, describe_span(text, span)


def trim_span(text: str, span: Span) -> Span | None:
    """The span without white space at its edges; None when there is nothing else in it."""
    covered = text[span.start : span.end]
    if not covered.strip():
        return None
    start = span.start + len(covered) - len(covered.lstrip())
    return Span(span.label, start, span.end - len(covered) + len(covered.rstrip()))


def describe_span(text: str, span: Span) -> str:
    """The span as messages name it."""
    return f"{span.label} [{span.start}, {span.end}) '{text[span.start : span.end]:.40}'"


def _crosses_any(span: Span, others: list[Span]) -> bool:
    return any(a.start < b.start < a.end < b.end for o in others for a, b in ((o, span), (span, o)))


def _splits_word(text: str, place: int) -> bool:
    inside = 0 < place < len(text)
    return inside and all(_WORD.match(text[i]) for i in (place - 1, place))


def _without_fix(told: str) -> str:
    """What is wrong, without the advice that the finding gives once for all."""
    fixes = (". Keep one", ". The end is", ". Count from", ". Move it")
    return min((told.partition(fix)[0] for fix in fixes), key=len).removeprefix("the span ")
