"""Tagging schemes (IO, IOB1, IOB2, BILOU, BIOES): convert spans to word tags and back."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from weft.errors import UserError, unknown_name

if TYPE_CHECKING:
    import numpy as np

SCHEMES = ("IO", "IOB1", "IOB2", "BILOU", "BIOES")
ALIASES = {"BIO": "IOB2", "IOBES": "BIOES", "BILUO": "BILOU"}
OUTSIDE = "O"
InvalidTagPolicy = Literal["error", "repair", "discard"]

# first word, words between, last word, only word of a span
_MARKS = {
    "IO": ("I", "I", "I", "I"),
    "IOB1": ("I", "I", "I", "I"),  # B only right after a span of the same label
    "IOB2": ("B", "I", "I", "B"),
    "BILOU": ("B", "I", "L", "U"),
    "BIOES": ("B", "I", "E", "S"),
}
_ALLOWED_MARKS = {"IO": "I", "IOB1": "BI", "IOB2": "BI", "BILOU": "BILU", "BIOES": "BIES"}
_CLOSING = "LEUS"  # marks that end a span
_OPENING = "BUS"  # marks that always begin a span


class Span(NamedTuple):
    """A labelled span of words or characters, the end excluded."""

    label: str
    start: int
    end: int


def canonical_scheme(name: str) -> str:
    """Return the canonical name of a scheme; aliases such as 'BIO' are accepted."""
    upper = name.upper()
    scheme = ALIASES.get(upper, upper)
    if scheme not in SCHEMES:
        raise unknown_name("tagging scheme", name, (*SCHEMES, *ALIASES))
    return scheme


@functools.lru_cache(maxsize=4096)
def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into (mark, label): 'B-PER' is ('B', 'PER'), 'O' is ('O', '')."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    mark, hyphen, label = tag.partition("-")
    if not hyphen or len(mark) != 1 or mark not in "BILUES" or not label:
        raise UserError(f"'{tag}' is not a tag. Write O, or a mark and a label such as B-PER.")
    return mark, label


def recognise(sequences: Iterable[Sequence[str]]) -> str:
    """Detect the scheme of tags; between IOB1 and IOB2, the one with fewer faults.

    Tags with no mark but I- are IO: IOB1 would mean the same spans.
    """
    marks: set[str] = set()
    bare = needless = 0  # spans begun by I-, and B- where IOB1 would write I-
    for tags in sequences:
        before = (OUTSIDE, "")
        for tag in tags:
            mark, label = split_tag(tag)
            begins = before[0] == OUTSIDE or before[1] != label
            bare += mark == "I" and begins
            needless += mark == "B" and begins
            marks.add(mark)
            before = (mark, label)
    if marks & set("LU") and marks & set("ES"):
        listed = ", ".join(f"{mark}-" for mark in sorted(marks - {OUTSIDE}))
        raise UserError(
            f"Two schemes are mixed: {listed}. BILOU has L- and U-, BIOES has E- and S-."
        )
    if marks & set("LU"):
        return "BILOU"
    if marks & set("ES"):
        return "BIOES"
    if "B" not in marks:
        return "IO" if "I" in marks else "IOB2"
    return "IOB1" if bare > needless else "IOB2"


def tags_to_spans(
    tags: Sequence[str], scheme: str, invalid: InvalidTagPolicy = "error"
) -> list[Span]:
    """Return the spans of a tag sequence, in order.

    A tag that the scheme does not allow is an error; 'repair' reads it as the conlleval script
    does, so that I- after O or another label begins a span; 'discard' drops every span that does
    not follow the scheme.
    """
    scheme = canonical_scheme(scheme)
    if invalid not in ("error", "repair", "discard"):
        raise unknown_name("way with invalid tags", invalid, ("error", "repair", "discard"))
    if invalid == "error" and (violation := find_fault(tags, scheme)):
        raise UserError(f"word {violation[0] + 1}: {violation[1]}")
    all_spans = list(_conlleval_spans(tags))
    if invalid != "discard":
        return all_spans
    valid_tags = _write_tags(all_spans, len(tags), scheme)
    return [s for s in all_spans if valid_tags[s.start : s.end] == list(tags[s.start : s.end])]


def find_fault(tags: Sequence[str], scheme: str) -> tuple[int, str] | None:
    """Return (position, message) of the first tag that violates the scheme, if any."""
    scheme = canonical_scheme(scheme)
    before: str | None = None
    for position, tag in enumerate([*tags, None]):
        if tag is not None and split_tag(tag)[0] not in OUTSIDE + _ALLOWED_MARKS[scheme]:
            return position, f"{scheme} has no tag '{tag}'; its marks are {_list_marks(scheme)}."
        if not is_allowed(before, tag, scheme):
            return _explain_fault(position, before, tag, scheme)
        before = tag
    return None


def spans_to_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    """Return a tag for each of `length` words.

    IO cannot separate adjacent spans of the same label: they are read back as one.
    """
    ordered = sorted((Span(*span) for span in spans), key=lambda span: (span.start, span.end))
    reach, before = 0, None
    for span in ordered:
        if not 0 <= span.start < span.end <= length:
            misfit = f"Span {span.label} [{span.start}, {span.end}) does not fit"
            raise UserError(f"{misfit} a sentence of {length} words. Count words from 0.")
        if span.start < reach and before is not None:
            raise UserError(
                f"Spans {before.label} [{before.start}, {before.end}) and {span.label} "
                f"[{span.start}, {span.end}) overlap, but a word has one tag. Keep one of them."
            )
        reach, before = span.end, span
    return _write_tags(ordered, length, canonical_scheme(scheme))


def convert(
    tags: Sequence[str], source: str, target: str, invalid: InvalidTagPolicy = "error"
) -> list[str]:
    """Convert tags to another scheme; invalid tags are handled as in `tags_to_spans`."""
    return _write_tags(tags_to_spans(tags, source, invalid), len(tags), canonical_scheme(target))


def is_allowed(before: str | None, after: str | None, scheme: str) -> bool:
    """Return whether one tag may follow another; None is the sentence boundary."""
    scheme = canonical_scheme(scheme)
    was, previous_label = (OUTSIDE, "") if before is None else split_tag(before)
    mark, label = (OUTSIDE, "") if after is None else split_tag(after)
    if not {was, mark} <= {OUTSIDE, *_ALLOWED_MARKS[scheme]}:
        return False
    same = was != OUTSIDE and previous_label == label
    if scheme == "IO":
        return True
    if scheme == "IOB1":
        return mark != "B" or same
    if scheme == "IOB2":
        return mark != "I" or same
    is_open = was in "BI"
    goes_on = mark in "ILE"
    return is_open == goes_on and (same or not goes_on)


def allowed_transitions(
    labels: Sequence[str], scheme: str
) -> "tuple[np.ndarray, np.ndarray, np.ndarray]":
    """Return masks of tags that may begin (C,), follow each other (C, C) and end a sentence (C,).

    `pairs[a, b]` is True if tag b may follow tag a.
    """
    import numpy as np

    start = np.array([is_allowed(None, tag, scheme) for tag in labels], dtype=bool)
    pairs = np.array([[is_allowed(a, b, scheme) for b in labels] for a in labels], dtype=bool)
    end = np.array([is_allowed(tag, None, scheme) for tag in labels], dtype=bool)
    return start, pairs.reshape(len(labels), len(labels)), end


def _conlleval_spans(tags: Sequence[str]) -> Iterator[Span]:
    """Yield spans as conlleval finds them, with L/E and U/S closing them.

    The script itself handles B, I, O and the E of IOE; L, U and S extend its rules.
    """
    start = -1
    open_label = ""
    for position, tag in enumerate(tags):
        mark, label = split_tag(tag)
        if start >= 0 and (mark == OUTSIDE or mark in _OPENING or label != open_label):
            yield Span(open_label, start, position)
            start = -1
        if mark != OUTSIDE and start < 0:
            start, open_label = position, label
        if mark in _CLOSING:
            yield Span(open_label, start, position + 1)
            start = -1
    if start >= 0:
        yield Span(open_label, start, len(tags))


def _write_tags(spans: Iterable[Span], length: int, scheme: str) -> list[str]:
    out = [OUTSIDE] * length
    first, inner, last, only = _MARKS[scheme]
    reach, before = 0, ""
    for label, start, end in spans:
        out[start:end] = [f"{inner}-{label}"] * (end - start)
        out[start] = f"{first}-{label}"
        out[end - 1] = f"{last if end - start > 1 else only}-{label}"
        if scheme == "IOB1" and start == reach and label == before:
            out[start] = f"B-{label}"
        reach, before = end, label
    return out


def _list_marks(scheme: str) -> str:
    return ", ".join([OUTSIDE, *(f"{mark}-" for mark in _ALLOWED_MARKS[scheme])])


def _explain_fault(
    position: int, before: str | None, tag: str | None, scheme: str
) -> tuple[int, str]:
    ways = "or pass invalid='repair' or 'discard'"
    after = f"after '{before}'" if before is not None else "at the beginning"
    if scheme == "IOB1" and tag is not None:
        label = split_tag(tag)[1]
        return position, (
            f"'{tag}' {after}: IOB1 writes B- only right after another {label}. "
            f"Write I-{label}, {ways}."
        )
    if tag is not None and split_tag(tag)[0] in "ILE":
        mark, label = split_tag(tag)
        begin = _MARKS[scheme][3] if mark in "LE" else "B"
        return position, f"'{tag}' {after} continues nothing. Write {begin}-{label}, {ways}."
    # The fault is in the previous tag: its span is left open.
    assert before is not None
    label = split_tag(before)[1]
    end = "at the end of the sentence" if tag is None else f"before '{tag}'"
    closing = _MARKS[scheme][2]
    return position - 1, f"'{before}' is left open {end}. Close it with {closing}-{label}, {ways}."
