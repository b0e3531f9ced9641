"""Texts with labelled character spans: validate them and convert them to word tags."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from weft.errors import UserError, unknown_name
from weft.text.annotation import schemes
from weft.text.annotation.schemes import InvalidTagPolicy, Span

OffsetUnit = Literal["character", "utf16", "byte"]
BorderPolicy = Literal["widen", "error", "discard"]

_JOINER = "\u200d"
_TONES = range(0x1F3FB, 0x1F400)  # skin tones
_FLAGS = range(0x1F1E6, 0x1F200)  # two of them are one flag
_TAGS = range(0xE0020, 0xE0080)  # spell the flag of a region
_LEAD, _VOWEL, _TAIL = range(0x1100, 0x1160), range(0x1160, 0x11A8), range(0x11A8, 0x1200)
_BLOCKS = range(0xAC00, 0xD7A4)  # Hangul syllables; every 28th has no tail


@dataclass(frozen=True)
class SpanText:
    """A text with its spans in order, and its origin."""

    text: str
    spans: tuple[Span, ...] = ()
    id: str = ""
    file: str = ""
    line: int = 0
    others: tuple[str, ...] = ()  # lines of a stand-off file that are not spans
    lines: tuple[int, ...] = ()  # of each span; empty: all on `line`

    @property
    def where(self) -> str:
        """'file:line: text …', for messages."""
        named = f": text '{self.id}'" if self.id else ""
        return (f"{self.file}:{self.line}" if self.file else "input") + named


@dataclass(frozen=True)
class SpanFault:
    """An invalid span: the kind of fault, the span, and how to fix it."""

    kind: str
    span: Span
    reason: str


@dataclass(frozen=True)
class AdjustedSpan:
    """A span off word borders and the span it was widened to; None if it was dropped."""

    span: Span
    adjusted: Span | None

    def __str__(self) -> str:
        label, start, end = self.span
        became = (
            f"became [{self.adjusted.start}, {self.adjusted.end})"
            if self.adjusted
            else "was dropped"
        )
        return f"{label} [{start}, {end}) {became}"


@dataclass(frozen=True)
class AlignedTags:
    """A tag for each word, and the spans that were adjusted."""

    tags: tuple[str, ...]
    adjusted: tuple[AdjustedSpan, ...] = ()


def find_faults(text: str, spans: Sequence[Span]) -> Iterator[SpanFault]:
    """Yield the faults of character spans, counted from 0 with the end excluded."""
    sound = []
    for span in spans:
        fault = _find_fault(text, span)
        if fault is None:
            sound.append(span)
        else:
            yield SpanFault(fault[0], span, f"{_describe_span(text, span)} {fault[1]}")
    before: Span | None = None
    for span in sorted(sound, key=lambda span: (span.start, span.end)):
        if before is not None and span.start < before.end:
            overlap = f"{_describe_span(text, span)} overlaps {_describe_span(text, before)}"
            fix = "Keep one of the two: a word has one tag."
            yield SpanFault("overlapping spans", span, f"{overlap}. {fix}")
        if before is None or span.end > before.end:
            before = span


def splits_character(text: str, offset: int) -> bool:
    """Return whether an offset falls inside a user-perceived character.

    Examples are a letter and its accent, the parts of a flag, family or skin tone, the jamo of a
    Hangul syllable, a carriage return and its line feed (after Unicode Annex 29).
    """
    if not 0 < offset < len(text):
        return False
    left, right = text[offset - 1], text[offset]
    if left == "\r" or left == "\n":
        return left == "\r" and right == "\n"
    code = ord(right)
    if right == _JOINER or code in _TONES or code in _TAGS or unicodedata.category(right)[0] == "M":
        return True
    if left == _JOINER:
        return unicodedata.category(right) in ("So", "Sm")  # most emoji, and ↔
    if code in _FLAGS:
        run = 0
        while run < offset and ord(text[offset - 1 - run]) in _FLAGS:
            run += 1
        return run % 2 == 1
    return _is_one_syllable(ord(left), code)


def to_character_offsets(text: str, offsets: Sequence[int], unit: OffsetUnit) -> list[int]:
    """Convert offsets counted in UTF-16 units or UTF-8 bytes to character offsets.

    An offset inside a character (a surrogate half, a continuation byte) is an error.
    """
    if unit == "character":
        return list(offsets)
    if unit not in ("utf16", "byte"):
        raise unknown_name("unit of offsets", unit, ("character", "utf16", "byte"))
    starts: dict[int, int] = {}
    reach = 0
    for position, sign in enumerate(text):
        starts[reach] = position
        reach += len(sign.encode()) if unit == "byte" else 1 + (ord(sign) > 0xFFFF)
    starts[reach] = len(text)
    out = []
    for offset in offsets:
        # An offset beyond the text stays beyond it: the span check reports it.
        if 0 <= offset <= reach and offset not in starts:
            near = max(position for position in starts if position < offset)
            sign = text[starts[near]]
            what = "bytes" if unit == "byte" else "UTF-16 units"
            raise UserError(
                f"offset {offset} falls inside the character '{sign}', which takes several {what}. "
                f"Move it to {near}, or count in another unit."
            )
        out.append(starts.get(offset, offset if offset < 0 else len(text) + offset - reach))
    return out


def align_tags(
    spans: Sequence[Span],
    offsets: Sequence[tuple[int, int]],
    *,
    scheme: str = "IOB2",
    borders: BorderPolicy = "widen",
) -> AlignedTags:
    """Return a tag for each word from character spans and the (start, end) of each word.

    A span that cuts a word is widened to the whole word, an error, or dropped; one that covers no
    free word is dropped or an error. `adjusted` lists each.
    """
    if borders not in ("widen", "error", "discard"):
        raise unknown_name("way with borders", borders, ("widen", "error", "discard"))
    taken: list[Span] = []  # in words
    adjusted: list[AdjustedSpan] = []
    reach = 0
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        words = [i for i, (a, b) in enumerate(offsets) if a < span.end and b > span.start]
        wide = None
        if words and words[0] >= reach:
            wide = Span(span.label, offsets[words[0]][0], max(offsets[i][1] for i in words))
        if wide != span:
            if borders == "error":
                raise _border_error(span, wide)
            wide = wide if borders == "widen" else None
            adjusted.append(AdjustedSpan(span, wide))
        if wide is not None:
            reach = words[-1] + 1
            taken.append(Span(span.label, words[0], reach))
    return AlignedTags(tuple(schemes.spans_to_tags(taken, len(offsets), scheme)), tuple(adjusted))


def locate_spans(
    tags: Sequence[str],
    offsets: Sequence[tuple[int, int]],
    *,
    scheme: str = "IOB2",
    invalid: InvalidTagPolicy = "error",
) -> list[Span]:
    """Return character spans from word tags, the inverse of `align_tags`."""
    word_spans = schemes.tags_to_spans(tags, scheme, invalid)
    return [Span(label, offsets[a][0], offsets[b - 1][1]) for label, a, b in word_spans]


def _find_fault(text: str, span: Span) -> tuple[str, str] | None:
    if span.start >= span.end:
        return "span without length", "has no length. The end is excluded and must be larger."
    if span.start < 0 or span.end > len(text):
        reason = f"extends beyond the text, which has {len(text)} characters."
        return "span out of range", f"{reason} Count from 0, the end excluded.{_unit_hint(text)}"
    if not text[span.start : span.end].strip():
        return "span of white space", "covers only white space. Move it, or remove it."
    for offset in (span.start, span.end):
        if splits_character(text, offset):
            reason = f"splits a character at {offset}, '{_whole_character(text, offset)}'."
            return "span inside a character", f"{reason} Move it to the edge.{_unit_hint(text)}"
    return None


def _unit_hint(text: str) -> str:
    """Return a hint if other offset units would give other numbers."""
    if text.isascii():
        return ""
    far = any(ord(sign) > 0xFFFF for sign in text)
    return " If offsets count bytes" + (" or UTF-16 units" * far) + ", pass unit=."


def _describe_span(text: str, span: Span) -> str:
    covered = text[max(0, span.start) : max(0, span.end)]
    shown = covered if len(covered) <= 30 else f"{covered[:29]}…"
    return f"span {span.label} [{span.start}, {span.end}) '{shown}'"


def _whole_character(text: str, offset: int) -> str:
    """Return the character that contains an offset."""
    start, end = offset, offset
    while splits_character(text, start):
        start -= 1
    while splits_character(text, end):
        end += 1
    return text[start:end]


def _is_one_syllable(left: int, right: int) -> bool:
    if left in _LEAD:
        return right in _LEAD or right in _VOWEL or right in _BLOCKS
    open_block = left in _BLOCKS and (left - _BLOCKS.start) % 28 == 0
    if left in _VOWEL or open_block:
        return right in _VOWEL or right in _TAIL
    return (left in _TAIL or left in _BLOCKS) and right in _TAIL


def _border_error(span: Span, wide: Span | None) -> UserError:
    described = f"Span {span.label} [{span.start}, {span.end})"
    if wide is None:
        return UserError(f"{described} covers no free word. Remove it, or pass borders='discard'.")
    return UserError(
        f"{described} cuts words at [{wide.start}, {wide.end}). Move the span, or pass "
        "borders='widen' to take whole words or 'discard' to drop it."
    )
