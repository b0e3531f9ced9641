"""The kinds of annotation faults, and the findings about them."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.doctor.finding import Finding, Level, Place, SentenceSketch, agree, excerpt, pluralise


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


# level, noun (singular|plural), predicate (singular|plural), fix
_KINDS: dict[str, tuple[Level, str, str, str]] = {
    "cycle": (
        "error",
        "sentence",
        "has|have heads that form a cycle",
        "Give one of these words a head outside the cycle.",
    ),
    "no root": (
        "error",
        "sentence",
        "has|have no root",
        "Give the main word head 0 and relation root.",
    ),
    "two roots": (
        "error",
        "sentence",
        "has|have more than one root",
        "Keep one head 0, and attach the other words to it.",
    ),
    "head out of range": (
        "error",
        "word",
        "has|have a head that is not in the sentence",
        "Correct it, or write 0 for the root.",
    ),
    "head not a number": (
        "error",
        "word",
        "has|have a head that is not a number",
        "Write the id of the head, 0 for the root, or _ for every word of the sentence.",
    ),
    "self head": (
        "error",
        "word",
        "is its own head|are their own heads",
        "Give it another head, or 0 for the root.",
    ),
    "ids not in sequence": (
        "error",
        "sentence",
        "does|do not number the words 1, 2, 3…",
        "Renumber the words and their heads.",
    ),
    "bad range": (
        "error",
        "sentence",
        "has|have a multi-word token over the wrong words",
        "Correct the range: first and last word, on the line before the first word.",
    ),
    "no words": (
        "error",
        "sentence",
        "has|have ranges or empty nodes, but no word",
        "Add the words, or remove the sentence.",
    ),
    "text disagrees": (
        "warning",
        "sentence",
        'differs|differ from "# text ="',
        'Correct the form, or the comment "# text =".',
    ),
    "repeated id": (
        "warning",
        "sentence",
        "has|have the id of an earlier one",
        "Make ids unique: messages and drawings use them.",
    ),
    "no tag": ("warning", "word", "has|have no tag", "Fill it in, or remove the sentence."),
    "unknown tag": (
        "warning",
        "word",
        "has|have a tag outside Universal Dependencies",
        "Use one of its seventeen tags, in capitals: ADJ, ADP, ADV, AUX, …, VERB, X.",
    ),
    "unknown relation": (
        "warning",
        "word",
        "has|have a relation outside Universal Dependencies",
        "Correct the part before the colon; the rest is free.",
    ),
    "root relation": (
        "warning",
        "word",
        "is|are root by head or by relation, but not both",
        "Head 0 and relation root go together.",
    ),
    "invalid tag": (
        "error",
        "tag",
        "does|do not fit the previous tag",
        "Begin every span as the scheme requires (--fix writes what conlleval reads).",
    ),
    "not a tag": (
        "error",
        "tag",
        "is|are not O, B-X or I-X",
        "Use IOB, BILOU or BIOES tags, or pass the tag column with --label.",
    ),
    "mixed schemes": (
        "error",
        "tag",
        "does|do not belong to the scheme of the rest",
        "Use L- and U- (BILOU) or E- and S- (BIOES), not both (--fix writes one of them).",
    ),
    "malformed span": (
        "error",
        "span",
        "is|are malformed",
        'Write {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"] with whole numbers.',
    ),
    "span out of range": (
        "error",
        "span",
        "extends|extend beyond the text",
        "Count characters from 0, the end excluded; check that the text has not changed.",
    ),
    "span without length": (
        "error",
        "span",
        "has|have no length",
        "The end is excluded and must be larger than the start.",
    ),
    "span of white space": (
        "error",
        "span",
        "covers|cover only white space",
        "Move it, or remove it (--fix does).",
    ),
    "span inside a character": (
        "error",
        "span",
        "splits|split a character",
        "Move it to the edge; convert offsets that count bytes or UTF-16 units.",
    ),
    "overlapping spans": (
        "error",
        "span",
        "overlaps|overlap another one",
        "Keep one of the two: a word has one tag.",
    ),
    "crossing spans": (
        "error",
        "span",
        "crosses|cross another one",
        "Move an end: neither contains the other, so one is probably wrong.",
    ),
    "duplicate span": (
        "error",
        "span",
        "is|are duplicated",
        "Remove the duplicate (--fix does).",
    ),
    "span without label": ("error", "span", "has|have no label", "Add one, or remove the span."),
    "span inside a word": (
        "warning",
        "span",
        "cuts|cut through a word",
        "Move it to the word boundary: training widens it.",
    ),
    "span with spaces": (
        "warning",
        "span",
        "has|have spaces at the edges",
        "Exclude the spaces (--fix does).",
    ),
    "broken tree": (
        "error",
        "tree",
        "is|are malformed",
        "Close every bracket, and put a word or sub-trees in each: (3 (2 The) (4 good)).",
    ),
    "node without label": (
        "warning",
        "node",
        "has|have no label",
        "Add one; only the bracket around a whole tree may have none.",
    ),
    "no numbers": (
        "error",
        "matrix|matrices",
        "contains|contain values other than numbers",
        "Save numbers: floats or integers.",
    ),
    "other axes": (
        "error",
        "matrix|matrices",
        "does|do not have two axes",
        "Reshape it: vectors by numbers.",
    ),
    "empty matrix": ("error", "matrix|matrices", "is|are empty", "Remove it."),
    "not finite": (
        "error",
        "matrix|matrices",
        "has|have non-finite numbers",
        "Correct them, or remove the matrix: one NaN ruins training.",
    ),
    "other width": (
        "error",
        "matrix|matrices",
        "has|have vectors of a different width than the first",
        "Use one width for all vectors: a model reads only one.",
    ),
    "unreadable matrix": (
        "error",
        "matrix|matrices",
        "cannot be read|cannot be read",
        "Correct the reference, or save the matrix again.",
    ),
    "label outside the scale": (
        "error",
        "node",
        "has|have a label outside the scale of the others",
        "Correct it.",
    ),
}
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
    level, noun, predicate, fix = _KINDS[kind]
    noun, _, nouns = noun.partition("|")
    counted = pluralise(count, noun, nouns)
    first, _, rest = predicate.partition("|")
    if " " in first:  # the forms differ by more than the verb
        title = f"{counted} of {name} {agree(count, first, rest)}."
    else:
        plural, _, tail = rest.partition(" ")
        title = f"{counted} of {name} {agree(count, first, plural)} {tail}."
    return Finding(kind, level, title, count, tuple(places), fix)
