"""The kinds of annotation faults, and the findings about them."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.doctor.checks.fault_kinds import FAULT_KINDS
from weft.doctor.finding import Finding, Place, SentenceSketch, agree, excerpt, pluralise


@dataclass(frozen=True)
class AnnotationFault:
    """A fault with its kind, 'file:line', sentence and detail."""

    kind: str
    where: str
    text: str
    detail: str
    sketch: SentenceSketch | None = None


def sentence_name(id: str, number: int, noun: str = "sentence") -> str:
    """Return how to refer to a sentence: by its id, or by its number in the file."""
    return f"{noun} '{id}'" if id else f"{noun} {number}"


_RANGES = ("overlapping ranges", "malformed range", "range beyond the sentence")


def group_faults(faults: Iterable[AnnotationFault], name: str) -> list[Finding]:
    """Return one finding per kind of fault, with its places."""
    counts: dict[str, int] = {}
    places: dict[str, list[Place]] = {}
    for fault in faults:
        kind = "bad range" if fault.kind in _RANGES else fault.kind
        counts[kind] = counts.get(kind, 0) + 1
        sketch = fault.sketch if not places.get(kind) else None  # one drawing is enough
        place = Place(fault.where, excerpt(fault.text), fault.detail, sketch)
        places.setdefault(kind, []).append(place)
    return [_build_finding(kind, count, places[kind], name) for kind, count in counts.items()]


def _build_finding(kind: str, count: int, places: list[Place], name: str) -> Finding:
    level, noun, predicate, fix = FAULT_KINDS[kind]
    noun, _, nouns = noun.partition("|")
    counted = pluralise(count, noun, nouns)
    first, _, rest = predicate.partition("|")
    if " " in first:  # the forms differ by more than the verb
        title = f"{counted} of {name} {agree(count, first, rest)}."
    else:
        plural, _, tail = rest.partition(" ")
        title = f"{counted} of {name} {agree(count, first, plural)} {tail}."
    return Finding(kind, level, title, count, tuple(places), fix)
