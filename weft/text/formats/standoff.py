"""Files of texts with labelled spans: JSON lines with offsets, and BRAT's .txt with its .ann."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from weft import jsonio
from weft.errors import UserError
from weft.storage import atomic_write
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import OffsetUnit, SpanText, find_faults, to_character_offsets
from weft.text.columns import ID_NAMES, TEXT_NAMES
from weft.text.example import Tally
from weft.text.line_source import (
    SKIP_HINT,
    SURROGATE_MESSAGE,
    BadRowPolicy,
    BadRows,
    LineSource,
    decode_line,
    file_not_found,
    not_utf8_message,
    strip_compression,
)
from weft.untrusted import has_surrogate

SPAN_NAMES = ("spans", "entities", "ents", "labels", "label", "annotations")
_START_NAMES, _END_NAMES = ("start", "start_offset", "begin"), ("end", "end_offset", "stop")
_LABEL_NAMES = ("label", "type", "tag", "entity")
_OTHER_LINES = {
    "R": "relation",
    "E": "event",
    "A": "attribute",
    "M": "attribute",
    "N": "normalisation",
    "#": "note",
    "*": "equivalence",
}
_OFFSETS = re.compile(r"(\S+) ([0-9]{1,18} [0-9]{1,18}(?:;[0-9]{1,18} [0-9]{1,18})*)")


def read_spans(
    path: str | os.PathLike[str],
    *,
    unit: OffsetUnit = "character",
    check: bool = True,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[SpanText]:
    """The texts of a JSON-lines file with their spans, in any of the usual spellings.

    A span is {"start", "end", "label"}, {"start_offset", "end_offset", …} or [start, end, label];
    the list is called spans, entities, label… Rows that Prodigy's `answer` rejects are left out.
    A fault stops the reading, or leaves out its text; without `check`, spans are taken as they are.
    """
    source = LineSource(path)
    watch = BadRows(source.name, on_bad_row, skipped)
    for number, line in source.lines(watch):
        if not line.strip():
            continue
        row = _parse_object(line)
        if isinstance(row, str):
            watch.found("invalid JSON", number, row)
            continue
        if row.get("answer", "accept") != "accept":
            watch.tally.add("text not accepted", f"{source.name}:{number}")
            continue
        try:
            marked = _parse_row(row, unit)
        except UserError as error:
            watch.found("malformed span", number, str(error))
            continue
        marked = SpanText(marked.text, marked.spans, marked.id, source.name, number)
        if not check or _check_spans(marked, watch):
            yield marked


def format_spans(marked: SpanText) -> str:
    """The text and its spans as one line of JSON."""
    row: dict[str, Any] = {"id": marked.id} if marked.id else {}
    row["text"] = marked.text
    row["spans"] = [{"start": s.start, "end": s.end, "label": s.label} for s in marked.spans]
    return json.dumps(row, ensure_ascii=False)


def write_spans(texts: Iterable[SpanText], path: str | os.PathLike[str]) -> None:
    """A JSON-lines file of these texts; it appears complete or not at all."""
    from weft.text.write import open_text

    name = os.fspath(path)
    with atomic_write(name) as part, open_text(part, strip_compression(name)[1]) as out:
        for marked in texts:
            out.write(format_spans(marked) + "\n")


def replace_spans(line: str, change: Callable[[Span], Span | None]) -> str:
    """A line of JSON with other spans, None for one that goes; every other value stays as it is."""
    row = json.loads(line)
    field = _span_field(row)
    items = [(item, _parse_span(item)) for item in row.get(field) or ()]
    changed = [(item, span, change(span) if span else None) for item, span in items]
    if all(before == after for _, before, after in changed):
        return line
    row[field] = [
        item if before == after else _update_item(item, after)
        for item, before, after in changed
        if before is None or after is not None
    ]
    return json.dumps(row, ensure_ascii=line.isascii())


def replace_brat_span(line: str, text: str, span: Span) -> str:
    """A text-bound line of BRAT with another span of its text."""
    cells = line.split("\t")
    covered = _flatten(text[span.start : span.end])
    return "\t".join([cells[0], f"{span.label} {span.start} {span.end}", covered])


def read_brat(
    path: str | os.PathLike[str],
    *,
    discontinuous: Literal["error", "join"] = "error",
    check: bool = True,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[SpanText]:
    """The texts of a folder of .txt and .ann files, or of one such pair, in the order of names.

    Text-bound lines (T1) become spans. Relations, events, attributes and notes are kept as they
    are in `others` and counted in the tally. A span of several pieces is an error, or is joined
    to the stretch that holds them all. Without `check`, spans are taken as they are.
    """
    for place in list_brat_files(path):
        watch = BadRows(os.fspath(place.with_suffix(".ann")), on_bad_row, skipped)
        marked = _read_brat_text(place, discontinuous, watch, check)
        if marked is not None:
            yield marked


def are_span_rows(lines: Sequence[str]) -> bool:
    """Whether JSON lines hold lists of spans, rather than of labels."""
    rows = [row for row in map(_parse_object, lines) if isinstance(row, dict)]
    found = [row[name] for row in rows if (name := _span_field(row)) and row[name]]
    return bool(found) and all(_looks_like_span(items[0]) for items in found)


def list_brat_files(path: str | os.PathLike[str]) -> list[Path]:
    """The .txt files that have an .ann beside them."""
    target = Path(path)
    if not target.exists():
        raise file_not_found(os.fspath(path))
    if target.is_dir():
        marks = sorted(target.rglob("*.ann"))
        if not marks:
            raise UserError(f"{path}: no .ann file in this folder. Each .txt needs one beside it.")
    else:
        marks = [target.with_suffix(".ann")]
    for mark in marks:
        for place in (mark, mark.with_suffix(".txt")):
            if not place.exists():
                told = f"BRAT keeps a text and its annotation side by side, and {place} is missing"
                raise UserError(f"{mark}: {told}. Add it, empty if there is nothing to mark.")
    return [mark.with_suffix(".txt") for mark in marks]


def _read_brat_text(
    place: Path, discontinuous: Literal["error", "join"], watch: BadRows, check: bool
) -> SpanText | None:
    source = LineSource(place)
    try:
        # Line breaks count as characters: nothing is stripped or translated.
        text = b"".join(source.raw()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: {not_utf8_message(error)}") from error
    spans: list[tuple[Span, int]] = []  # with the line of each
    others: list[str] = []
    good = True
    for number, raw in enumerate(LineSource(place.with_suffix(".ann")).raw(), 1):
        line = decode_line(raw, number, watch)
        if line is None:
            good = False
            continue
        if not line.strip():
            continue
        if not line.startswith("T"):
            others.append(line)
            kind = _OTHER_LINES.get(line[0], "other line")
            watch.tally.add(f"{kind} not used", f"{watch.file}:{number}")
            continue
        try:
            span = _parse_text_bound(line, text, discontinuous)
        except UserError as error:
            watch.found("malformed span", number, f"text '{place.stem}': {error}")
            good = False
            continue
        spans.append((span, number))
    spans.sort(key=lambda found: (found[0].start, found[0].end))
    lines = tuple(number for _, number in spans)
    marked = SpanText(
        text, tuple(span for span, _ in spans), place.stem, watch.file, min(lines, default=1),
        tuple(others), lines,
    )  # fmt: skip
    return marked if not check or (good and _check_spans(marked, watch)) else None


def _parse_text_bound(line: str, text: str, discontinuous: Literal["error", "join"]) -> Span:
    """The span of `T1<tab>PER 0 5<tab>words`, checked against the words it repeats."""
    cells = line.split("\t")
    match = _OFFSETS.fullmatch(cells[1]) if len(cells) > 1 else None
    if match is None:
        raise UserError(
            f"'{line[:40]}' is not a text-bound line. Write T1, a tab, label start end, a tab, "
            f"and the words covered, or {SKIP_HINT}."
        )
    pieces = [tuple(map(int, piece.split())) for piece in match[2].split(";")]
    if len(pieces) > 1 and discontinuous == "error":
        raise UserError(
            f"{cells[0]} {match[1]} has {len(pieces)} pieces ({match[2]}), a span here one. "
            "Mark one piece, or pass discontinuous='join' to take all from first to last."
        )
    covered = " ".join(text[start:end] for start, end in pieces)
    fits = all(0 <= start < end <= len(text) for start, end in pieces)
    if fits and len(cells) > 2 and cells[2] != _flatten(covered):
        raise UserError(
            f"{cells[0]} {match[1]} [{match[2]}) covers '{_flatten(covered)[:30]}' in the text, "
            f"but the line says '{cells[2][:30]}'. If the text has changed, correct the offsets."
        )
    return Span(match[1], min(piece[0] for piece in pieces), max(piece[1] for piece in pieces))


def _flatten(text: str) -> str:
    """As BRAT repeats a text: on one line."""
    return text.replace("\n", " ")


def _check_spans(marked: SpanText, watch: BadRows) -> bool:
    """Whether no span is at fault; otherwise that is a problem of this text."""
    found = next(find_faults(marked.text, marked.spans), None)
    if found is None:
        return True
    named = f"text '{marked.id}': " if marked.id else ""
    lines = dict(zip(marked.spans, marked.lines, strict=False))
    watch.found(found.kind, lines.get(found.span, marked.line), f"{named}{found.told}")
    return False


def _parse_object(line: str) -> dict[str, Any] | str:
    """The row, or what is wrong with it."""
    try:
        row = jsonio.parse(line, "line")
    except UserError as error:
        reason = str(error).partition("JSON: ")[2]
        return f"not JSON: {reason} Write one object a line, or {SKIP_HINT}."
    return (
        row
        if isinstance(row, dict)
        else f"not an object: '{line[:30]}'. Write {{…}}, or {SKIP_HINT}."
    )


def _parse_row(row: dict[str, Any], unit: OffsetUnit) -> SpanText:
    lowered = {key.lower(): value for key, value in row.items()}
    text = next((lowered[n] for n in TEXT_NAMES if isinstance(lowered.get(n), str)), None)
    if text is None:
        raise UserError(f"no text; found {sorted(row)}. Call it 'text', or {SKIP_HINT}.")
    name = next((str(lowered[n]) for n in ID_NAMES if lowered.get(n) is not None), "")
    of = f"text '{name}': " if name else ""
    if has_surrogate((text, name, row.get(_span_field(row)))):
        raise UserError(f"{of}the text or a span holds {SURROGATE_MESSAGE}")
    spans = []
    for item in row.get(_span_field(row)) or ():
        span = _parse_span(item)
        if span is None:
            raise UserError(
                f"{of}{item!r:.60} is not a span. Write "
                '{"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"] with whole numbers.'
            )
        try:
            start, end = to_character_offsets(text, (span.start, span.end), unit)
        except UserError as error:
            raise UserError(f"{of}span {span.label} [{span.start}, {span.end}): {error}") from None
        spans.append(Span(span.label, start, end))
    spans.sort(key=lambda span: (span.start, span.end))
    return SpanText(text, tuple(spans), name)


def _span_field(row: dict[str, Any]) -> str:
    return next((name for name in SPAN_NAMES if isinstance(row.get(name), list)), "")


def _looks_like_span(item: Any) -> bool:
    if isinstance(item, dict):
        return any(n in item for n in _START_NAMES) and any(n in item for n in _END_NAMES)
    return isinstance(item, list) and len(item) == 3 and isinstance(item[0], int)


def _update_item(item: Any, span: Span | None) -> Any:
    assert span is not None
    if isinstance(item, list):
        return [span.start, span.end, span.label]
    names = [next(n for n in ns if n in item) for ns in (_START_NAMES, _END_NAMES, _LABEL_NAMES)]
    return item | dict(zip(names, (span.start, span.end, span.label), strict=True))


def _parse_span(item: Any) -> Span | None:
    if isinstance(item, dict):
        item = [
            next((item[n] for n in ns if n in item), None)
            for ns in (_START_NAMES, _END_NAMES, _LABEL_NAMES)
        ]
    if not isinstance(item, list) or len(item) != 3:
        return None
    start, end, label = item
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
    return Span(str(label), start, end) if whole and isinstance(label, (str, int)) else None
