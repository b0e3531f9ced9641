"""Check texts with labelled spans: JSON lines with offsets, and BRAT files."""

import re
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.text.annotation import spans as offsets
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import SpanText
from weft.text.example import CharSpans, Example, SkipCounter
from weft.text.formats.standoff import read_brat, read_spans

_WORD = re.compile(r"\w")


def read_texts(path: str, brat: bool, skipped: SkipCounter | None = None) -> Iterator[SpanText]:
    """Yield every text with its unvalidated spans."""
    read = read_brat if brat else read_spans
    return read(path, check=False, on_bad_row="skip", skipped=skipped)


def read_examples(path: str, brat: bool, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the texts as Examples."""
    for span_text in read_texts(path, brat, skipped):
        yield Example(
            span_text.text, CharSpans(span_text.spans), span_text.id, span_text.file, span_text.line
        )


def find_faults(path: str, brat: bool) -> Iterator[AnnotationFault]:
    """Yield the span faults of each text, in file order."""
    for number, span_text in enumerate(read_texts(path, brat), 1):
        of = sentence_name(span_text.id, number, "text")
        lines = dict(zip(span_text.spans, span_text.lines, strict=False))
        for kind, span, reason in _find_text_faults(span_text):
            line = lines.get(span, span_text.line)
            yield AnnotationFault(
                kind, f"{span_text.file}:{line}", span_text.text, f"{of}: {reason}"
            )


def _find_text_faults(span_text: SpanText) -> Iterator[tuple[str, Span, str]]:
    text = span_text.text
    distinct = list(dict.fromkeys(span_text.spans))
    for span in distinct:
        if span_text.spans.count(span) > 1:
            yield "duplicate span", span, f"{describe_span(text, span)} is duplicated"
        if not span.label.strip():
            yield "span without label", span, describe_span(text, span)
    bad = set()
    for fault in offsets.find_faults(text, distinct):
        kind = fault.kind
        if kind != "overlapping spans":
            bad.add(fault.span)
        elif _crosses_any(fault.span, distinct):
            kind = "crossing spans"
        yield kind, fault.span, _without_fix(fault.reason)
    for span in distinct:
        if span not in bad:
            if trim_span(text, span) != span:
                yield "span with spaces", span, describe_span(text, span)
            if _splits_word(text, span.start) or _splits_word(text, span.end):
                yield "span inside a word", span, describe_span(text, span)


def trim_span(text: str, span: Span) -> Span | None:
    """Return the span without white space at its edges; None if nothing is left."""
    covered = text[span.start : span.end]
    if not covered.strip():
        return None
    start = span.start + len(covered) - len(covered.lstrip())
    return Span(span.label, start, span.end - len(covered) + len(covered.rstrip()))


def describe_span(text: str, span: Span) -> str:
    """Return the span as messages name it."""
    return f"{span.label} [{span.start}, {span.end}) '{text[span.start : span.end]:.40}'"


def _crosses_any(span: Span, others: list[Span]) -> bool:
    return any(a.start < b.start < a.end < b.end for o in others for a, b in ((o, span), (span, o)))


def _splits_word(text: str, offset: int) -> bool:
    inside = 0 < offset < len(text)
    return inside and all(_WORD.match(text[i]) for i in (offset - 1, offset))


def _without_fix(reason: str) -> str:
    """Return the fault without the advice, which the finding gives once."""
    fixes = (". Keep one", ". The end is", ". Count from", ". Move it")
    return min((reason.partition(fix)[0] for fix in fixes), key=len).removeprefix("span ")
