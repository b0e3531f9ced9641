"""Annotated spans: JSON lines with offsets and columns of BIO or BILOU tags, checked for sense."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from weft.doctor.finding import SHOWN, Finding, Level, Place, excerpt, many, verb
from weft.text.columns import TEXT_NAMES
from weft.text.example import Example, Tally
from weft.text.source import Problems, Source

SPAN_NAMES = ("spans", "entities", "ents", "labels", "label", "annotations")
HEAD = 200  # lines by which a file is recognised
_TAG = re.compile(r"(?:O|[BILUES]-\S+)")
_PREFIXED = re.compile(r"([A-Za-z])-(.+)")
_WORD = re.compile(r"\w")

Kind = Literal["spans", "tags"]
Fault = tuple[str, Place]

_FAULTS: dict[str, tuple[Level, str, str]] = {
    "span out of range": (
        "error",
        "reaches|reach outside the text",
        "Count characters from 0, the end excluded; check that the text was not changed since.",
    ),
    "span without length": ("error", "ends|end before the beginning", "The end must be larger."),
    "malformed span": (
        "error",
        "is|are not [start, end, label]",
        'Write [start, end, label] or {"start": …, "end": …, "label": …} with whole numbers.',
    ),
    "overlapping spans": (
        "warning",
        "overlaps|overlap an earlier one",
        "Keep one of the two: a tag for each word cannot hold both.",
    ),
    "span inside a word": (
        "warning",
        "cuts|cut through a word",
        "Move the end to the edge of the word.",
    ),
    "span with spaces": ("warning", "has|have spaces at the edges", "Leave the spaces out."),
    "I- without B-": (
        "error",
        "continues|continue nothing",
        "Begin every entity with B- (or U-/S- for one word in BILOU/BIOES).",
    ),
    "type changes": (
        "error",
        "changes|change the type inside an entity",
        "Begin the second entity with B-, or give both words one type.",
    ),
    "unclosed entity": ("error", "leaves|leave an entity open", "Close it with L- (or E-)."),
    "unknown tag": ("error", "is|are not O, B-X or I-X", "Use BIO, BILOU or BIOES tags."),
    "ragged columns": (
        "error",
        "has|have another number of columns",
        "Give every word a line with as many columns as the first.",
    ),
}


def recognise(path: str) -> Kind | None:
    """What sort of annotated file this is, if it is one."""
    source = Source(path)
    try:
        lines = [raw.decode("utf-8", "replace").rstrip("\r\n") for raw in source.head(HEAD)]
    finally:
        source.close()
    if _looks_like_spans(lines):
        return "spans"
    return "tags" if _looks_like_tags(lines) else None


def _looks_like_spans(lines: list[str]) -> bool:
    rows = [row for row in map(_json, lines) if isinstance(row, dict)]
    found = [row[name] for row in rows if (name := _span_field(row)) and row[name]]
    return bool(found) and any(_is_span(items[0]) for items in found)


def _span_field(row: dict[str, Any]) -> str:
    return next((n for n in SPAN_NAMES if isinstance(row.get(n), list)), "")


def _is_span(item: Any) -> bool:
    if isinstance(item, dict):
        return {"start", "end"} <= item.keys()
    return isinstance(item, list) and len(item) == 3


def _looks_like_tags(lines: list[str]) -> bool:
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    if len(rows) < 2 or any(len(row) < 2 for row in rows[:20]):
        return False
    tags = [row[-1] for row in rows]
    good = sum(1 for tag in tags if _TAG.fullmatch(tag))
    return good >= 0.8 * len(tags) and any("-" in tag for tag in tags)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def examples(path: str, kind: Kind, tally: Tally | None = None) -> Iterator[Example]:
    """The texts without their spans; of tagged words, joined by spaces."""
    if kind == "spans":
        for number, row in _rows(path, tally):
            yield Example(_text(row), None, "", path, number)
        return
    for _, words in _sentences(path, tally):
        yield Example(" ".join(cells[0] for _, cells in words), None, "", path, words[0][0])


def faults(path: str, kind: Kind, name: str) -> list[Finding]:
    """One finding for each kind of fault, with the first places."""
    found: dict[str, list[Place]] = {}
    counts: Counter[str] = Counter()
    stream = _span_faults(path) if kind == "spans" else _tag_faults(path)
    for fault, place in stream:
        counts[fault] += 1
        if len(found.setdefault(fault, [])) < SHOWN:
            found[fault].append(place)
    out = [_finding(fault, count, found[fault], name, kind) for fault, count in counts.items()]
    return _as_iob1(path, out, name) if kind == "tags" else out


def _finding(fault: str, count: int, places: list[Place], name: str, kind: Kind) -> Finding:
    level, told, fix = _FAULTS[fault]
    what = "line" if fault == "ragged columns" else "span" if kind == "spans" else "tag"
    (one, more), rest = told.split(" ", 1)[0].split("|"), told.split(" ", 1)[1]
    title = f"{many(count, what)} of {name} {verb(count, one, more)} {rest}."
    return Finding(fault, level, title, count, tuple(places), fix)


def _rows(path: str, tally: Tally | None) -> Iterator[tuple[int, dict[str, Any]]]:
    problems = Problems(path, "skip", tally)
    for number, line in Source(path).lines(problems):
        if not line.strip():
            continue
        row = _json(line)
        if not isinstance(row, dict):
            problems.found("invalid JSON" if row is None else "not an object", number, "")
        elif not _text(row):
            problems.found("no text", number, "")
        else:
            yield number, row


def _text(row: dict[str, Any]) -> str:
    lowered = {key.lower(): value for key, value in row.items()}
    return next((lowered[n] for n in TEXT_NAMES if isinstance(lowered.get(n), str)), "")


def _span_faults(path: str) -> Iterator[Fault]:
    for number, row in _rows(path, None):
        text, where = _text(row), f"{path}:{number}"
        sound: list[tuple[int, int, str]] = []
        for item in row.get(_span_field(row), ()):
            span = _span(item)
            if span is None:
                yield "malformed span", Place(where, excerpt(text), f"{item!r:.80}")
                continue
            start, end, label = span
            told = f"[{start}, {end}) {label}"
            if start >= end:
                yield "span without length", Place(where, excerpt(text), told)
            elif start < 0 or end > len(text):
                detail = f"{told}, the text has {len(text)} characters"
                yield "span out of range", Place(where, excerpt(text), detail)
            else:
                sound.append(span)
                yield from _edges(text, span, where)
        yield from _overlaps(text, sorted(sound), where)


def _span(item: Any) -> tuple[int, int, str] | None:
    if isinstance(item, dict):
        item = [item.get("start"), item.get("end"), item.get("label", item.get("type", ""))]
    if not isinstance(item, list) or len(item) != 3:
        return None
    start, end, label = item
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in (start, end))
    return (start, end, str(label)) if whole and isinstance(label, (str, int)) else None


def _edges(text: str, span: tuple[int, int, str], where: str) -> Iterator[Fault]:
    start, end, label = span
    covered = text[start:end]
    told = f"'{covered}' [{start}, {end}) {label}"
    if covered != covered.strip():
        yield "span with spaces", Place(where, excerpt(text), told)

    def cut(place: int) -> bool:
        return 0 < place < len(text) and all(_WORD.match(text[i]) for i in (place - 1, place))

    if cut(start) or cut(end):
        yield "span inside a word", Place(where, excerpt(text), told)


def _overlaps(text: str, spans: list[tuple[int, int, str]], where: str) -> Iterator[Fault]:
    reach, before = -1, ("", 0, 0)
    for start, end, label in spans:
        if start < reach:
            told = f"'{text[start:end]}' {label} and '{text[before[1] : before[2]]}' {before[0]}"
            yield "overlapping spans", Place(where, excerpt(text), told)
        if end > reach:
            reach, before = end, (label, start, end)


Words = list[tuple[int, list[str]]]  # (line, cells)


def _sentences(path: str, tally: Tally | None) -> Iterator[tuple[int, Words]]:
    """(number of the sentence from 1, its words)."""
    words: Words = []
    count = 0
    for line, text in Source(path).lines(Problems(path, "skip", tally)):
        if text.strip() and not (text.startswith("#") and "\t" not in text):
            words.append((line, text.split("\t") if "\t" in text else text.split()))
        elif words and not text.strip():
            count += 1
            yield count, words
            words = []
    if words:
        yield count + 1, words


def _tag_faults(path: str) -> Iterator[Fault]:
    width = 0
    closing = _closing(path)
    for number, words in _sentences(path, None):
        width = width or len(words[0][1])
        before = ("O", "")
        for line, cells in words:
            place = Place(f"{path}:{line}", " ".join(cells), f"sentence {number}")
            if len(cells) != width:
                told = f"sentence {number}: {len(cells)} columns, not {width}"
                yield "ragged columns", Place(place.where, place.text, told)
            tag = _split_tag(cells[-1])
            if tag is None:
                yield "unknown tag", place
                tag = ("O", "")
            yield from ((fault, place) for fault in _transition(before, tag, closing))
            before = tag
        if closing and before[0] in "BI":
            last = Place(f"{path}:{words[-1][0]}", " ".join(words[-1][1]), f"sentence {number}")
            yield "unclosed entity", last


def _closing(path: str) -> bool:
    """Whether the file marks the last word of an entity: BILOU or BIOES."""
    seen = {cells[-1][:2] for _, words in _sentences(path, None) for _, cells in words}
    return bool(seen & {"L-", "U-", "E-", "S-"})


def _split_tag(tag: str) -> tuple[str, str] | None:
    if tag == "O":
        return "O", ""
    match = _PREFIXED.fullmatch(tag)
    return (match[1], match[2]) if match and match[1] in "BILUES" else None


def _transition(before: tuple[str, str], now: tuple[str, str], closing: bool) -> Iterator[str]:
    (was, kind), (mark, own) = before, now
    is_open = was in "BI"
    if mark in "ILE":
        if not is_open:
            yield "I- without B-"
        elif kind != own:
            yield "type changes"
    elif closing and is_open:
        yield "unclosed entity"


def _as_iob1(path: str, findings: list[Finding], name: str) -> list[Finding]:
    """In IOB1, I- begins an entity; where nearly all do, that is the scheme and not a fault."""
    bare = next((f for f in findings if f.kind == "I- without B-"), None)
    begun = sum(
        cells[-1].startswith("B-") for _, words in _sentences(path, None) for _, cells in words
    )
    if bare is None or bare.count < 9 * max(1, begun):
        return findings
    title = f"{many(bare.count, 'entity', 'entities')} of {name} begin with I-: the tags are IOB1."
    fix = "Convert them to BIO: B- on the first word of every entity."
    scheme = Finding("IOB1 tags", "warning", title, bare.count, bare.places, fix)
    kept = [f for f in findings if f.kind not in ("I- without B-", "type changes")]
    return [*kept, scheme]
