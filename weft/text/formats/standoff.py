"""Read and write texts with labelled spans: JSON lines with offsets, BRAT .txt and .ann."""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject
from weft.storage import atomic_write
from weft.text.annotation.schemes import Span
from weft.text.annotation.spans import OffsetUnit, SpanText, find_faults, to_character_offsets
from weft.text.columns import ID_NAMES, TEXT_NAMES
from weft.text.example import SkipCounter
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
    skipped: SkipCounter | None = None,
) -> Iterator[SpanText]:
    """Yield the texts of a JSON-lines file with their spans, in any common notation.

    A span is {"start", "end", "label"}, {"start_offset", "end_offset", …} or [start, end, label];
    the list is named spans, entities, label… Rows that Prodigy's `answer` rejects are skipped.
    A fault is an error, or drops its text; without `check`, spans are not validated.
    """
    source = LineSource(path)
    bad_rows = BadRows(source.name, on_bad_row, skipped)
    for number, line in source.lines(bad_rows):
        if not line.strip():
            continue
        row = _parse_object(line)
        if isinstance(row, str):
            bad_rows.report("invalid JSON", number, row)
            continue
        if row.get("answer", "accept") != "accept":
            bad_rows.skipped.add("text not accepted", f"{source.name}:{number}")
            continue
        try:
            span_text = _parse_row(row, unit)
        except UserError as error:
            bad_rows.report("malformed span", number, str(error))
            continue
        span_text = SpanText(span_text.text, span_text.spans, span_text.id, source.name, number)
        if not check or _check_spans(span_text, bad_rows):
            yield span_text


def format_spans(span_text: SpanText) -> str:
    """Format the text and its spans as one line of JSON."""
    row: JsonObject = {"id": span_text.id} if span_text.id else {}
    row["text"] = span_text.text
    row["spans"] = [{"start": s.start, "end": s.end, "label": s.label} for s in span_text.spans]
    return json.dumps(row, ensure_ascii=False)


def write_spans(texts: Iterable[SpanText], path: str | os.PathLike[str]) -> None:
    """Write texts to a JSON-lines file, atomically."""
    from weft.text.write import open_text

    name = os.fspath(path)
    with atomic_write(name) as part, open_text(part, strip_compression(name)[1]) as out:
        for span_text in texts:
            out.write(format_spans(span_text) + "\n")


def replace_spans(line: str, change: Callable[[Span], Span | None]) -> str:
    """Return a line of JSON with changed spans, None to remove one; other values stay."""
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
    """Return a text-bound BRAT line with another span of its text."""
    cells = line.split("\t")
    covered = _flatten(text[span.start : span.end])
    return "\t".join([cells[0], f"{span.label} {span.start} {span.end}", covered])


def read_brat(
    path: str | os.PathLike[str],
    *,
    discontinuous: Literal["error", "join"] = "error",
    check: bool = True,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[SpanText]:
    """Yield the texts of a folder of .txt and .ann files, or of one such pair, sorted by name.

    Text-bound lines (T1) become spans. Relations, events, attributes and notes are kept in
    `others` and counted in `skipped`. A discontinuous span is an error, or is joined to one from
    its first to its last fragment. Without `check`, spans are not validated.
    """
    for text_path in list_brat_files(path):
        bad_rows = BadRows(os.fspath(text_path.with_suffix(".ann")), on_bad_row, skipped)
        span_text = _read_brat_text(text_path, discontinuous, bad_rows, check)
        if span_text is not None:
            yield span_text


def are_span_rows(lines: Sequence[str]) -> bool:
    """Return whether JSON lines hold lists of spans, rather than of labels."""
    rows = [row for row in map(_parse_object, lines) if isinstance(row, dict)]
    span_lists = [items for row in rows if (items := _span_items(row))]
    return bool(span_lists) and all(_looks_like_span(items[0]) for items in span_lists)


def list_brat_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the .txt files of .txt and .ann pairs."""
    target = Path(path)
    if not target.exists():
        raise file_not_found(os.fspath(path))
    if target.is_dir():
        annotations = sorted(target.rglob("*.ann"))
        if not annotations:
            raise UserError(f"{path}: no .ann file in this folder. Each .txt needs one next to it.")
    else:
        annotations = [target.with_suffix(".ann")]
    for annotation in annotations:
        for path_needed in (annotation, annotation.with_suffix(".txt")):
            if not path_needed.exists():
                reason = f"BRAT needs a .txt and an .ann file, and {path_needed} is missing"
                raise UserError(
                    f"{annotation}: {reason}. Add it, empty if there are no annotations."
                )
    return [annotation.with_suffix(".txt") for annotation in annotations]


def _read_brat_text(
    path: Path, discontinuous: Literal["error", "join"], bad_rows: BadRows, check: bool
) -> SpanText | None:
    source = LineSource(path)
    try:
        # Line breaks count as characters: do not strip or translate them.
        text = b"".join(source.raw()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: {not_utf8_message(error)}") from error
    spans: list[tuple[Span, int]] = []  # with the line of each
    others: list[str] = []
    good = True
    for number, raw in enumerate(LineSource(path.with_suffix(".ann")).raw(), 1):
        line = decode_line(raw, number, bad_rows)
        if line is None:
            good = False
            continue
        if not line.strip():
            continue
        if not line.startswith("T"):
            others.append(line)
            kind = _OTHER_LINES.get(line[0], "other line")
            bad_rows.skipped.add(f"{kind} not used", f"{bad_rows.file}:{number}")
            continue
        try:
            span = _parse_text_bound(line, text, discontinuous)
        except UserError as error:
            bad_rows.report("malformed span", number, f"text '{path.stem}': {error}")
            good = False
            continue
        spans.append((span, number))
    spans.sort(key=lambda pair: (pair[0].start, pair[0].end))
    lines = tuple(number for _, number in spans)
    span_text = SpanText(
        text, tuple(span for span, _ in spans), path.stem, bad_rows.file, min(lines, default=1),
        tuple(others), lines,
    )  # fmt: skip
    return span_text if not check or (good and _check_spans(span_text, bad_rows)) else None


def _parse_text_bound(line: str, text: str, discontinuous: Literal["error", "join"]) -> Span:
    """Parse `T1<tab>PER 0 5<tab>words` and check the words against the text."""
    cells = line.split("\t")
    match = _OFFSETS.fullmatch(cells[1]) if len(cells) > 1 else None
    if match is None:
        raise UserError(
            f"'{line[:40]}' is not a text-bound line. Write T1, a tab, label start end, a tab, "
            f"and the covered words, or {SKIP_HINT}."
        )
    fragments = [tuple(map(int, fragment.split())) for fragment in match[2].split(";")]
    if len(fragments) > 1 and discontinuous == "error":
        raise UserError(
            f"{cells[0]} {match[1]} has {len(fragments)} fragments ({match[2]}); only one is "
            "supported. Keep one, or pass discontinuous='join' to span from first to last."
        )
    covered = " ".join(text[start:end] for start, end in fragments)
    fits = all(0 <= start < end <= len(text) for start, end in fragments)
    if fits and len(cells) > 2 and cells[2] != _flatten(covered):
        raise UserError(
            f"{cells[0]} {match[1]} [{match[2]}) covers '{_flatten(covered)[:30]}' in the text, "
            f"but the line says '{cells[2][:30]}'. If the text has changed, correct the offsets."
        )
    return Span(
        match[1],
        min(fragment[0] for fragment in fragments),
        max(fragment[1] for fragment in fragments),
    )


def _flatten(text: str) -> str:
    """Return the text on one line, as BRAT repeats it."""
    return text.replace("\n", " ")


def _check_spans(span_text: SpanText, bad_rows: BadRows) -> bool:
    """Return whether all spans are valid; report the first fault otherwise."""
    fault = next(find_faults(span_text.text, span_text.spans), None)
    if fault is None:
        return True
    named = f"text '{span_text.id}': " if span_text.id else ""
    lines = dict(zip(span_text.spans, span_text.lines, strict=False))
    bad_rows.report(fault.kind, lines.get(fault.span, span_text.line), f"{named}{fault.reason}")
    return False


def _parse_object(line: str) -> JsonObject | str:
    """Parse a row; return a message if it is invalid."""
    try:
        row = jsonio.parse(line, "line")
    except UserError as error:
        reason = str(error).partition("JSON: ")[2]
        return f"not JSON: {reason} Write one object per line, or {SKIP_HINT}."
    return (
        row
        if isinstance(row, dict)
        else f"not an object: '{line[:30]}'. Write {{…}}, or {SKIP_HINT}."
    )


def _parse_row(row: JsonObject, unit: OffsetUnit) -> SpanText:
    lowered = {key.lower(): value for key, value in row.items()}
    texts = (lowered.get(name) for name in TEXT_NAMES)
    text = next((text for text in texts if isinstance(text, str)), None)
    if text is None:
        raise UserError(f"no text; found {sorted(row)}. Name it 'text', or {SKIP_HINT}.")
    name = next((str(lowered[n]) for n in ID_NAMES if lowered.get(n) is not None), "")
    of = f"text '{name}': " if name else ""
    if has_surrogate((text, name, row.get(_span_field(row)))):
        raise UserError(f"{of}the text or a span contains {SURROGATE_MESSAGE}")
    spans = []
    for item in _span_items(row):
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


def _span_field(row: JsonObject) -> str:
    return next((name for name in SPAN_NAMES if isinstance(row.get(name), list)), "")


def _span_items(row: JsonObject) -> list[Json]:
    items = row.get(_span_field(row))
    return items if isinstance(items, list) else []


def _looks_like_span(item: Json) -> bool:
    if isinstance(item, dict):
        return any(n in item for n in _START_NAMES) and any(n in item for n in _END_NAMES)
    return isinstance(item, list) and len(item) == 3 and isinstance(item[0], int)


def _update_item(item: Json, span: Span | None) -> Json:
    assert span is not None
    if not isinstance(item, dict):
        return [span.start, span.end, span.label]
    names = [next(n for n in ns if n in item) for ns in (_START_NAMES, _END_NAMES, _LABEL_NAMES)]
    return item | dict(zip(names, (span.start, span.end, span.label), strict=True))


def _parse_span(item: Json) -> Span | None:
    if isinstance(item, dict):
        item = [
            next((item[n] for n in ns if n in item), None)
            for ns in (_START_NAMES, _END_NAMES, _LABEL_NAMES)
        ]
    if not isinstance(item, list) or len(item) != 3:
        return None
    start, end, label = item
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(label, (str, int)):
        return None
    return None if bool in (type(start), type(end)) else Span(str(label), start, end)
