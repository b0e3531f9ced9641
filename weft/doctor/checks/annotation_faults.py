"""What can be wrong with a sentence and what is known of its words, by the name of the fault."""

from collections.abc import Iterable
from dataclasses import dataclass

from weft.doctor.finding import Finding, Level, Place, SentenceSketch, agree, excerpt, pluralise


@dataclass(frozen=True)
class AnnotationFault:
    """One thing wrong, where ('file:line'), in which sentence, and what exactly."""

    kind: str
    where: str
    text: str
    told: str
    sketch: SentenceSketch | None = None


def sentence_name(id: str, number: int, noun: str = "sentence") -> str:
    """How to speak of a sentence: by its id or, without one, by its number in the file."""
    return f"{noun} '{id}'" if id else f"{noun} {number}"


# level, what is counted (one|more), what it does (one|more), what to do
_KINDS: dict[str, tuple[Level, str, str, str]] = {
    "cycle": (
        "error",
        "sentence",
        "has|have heads that go round in a circle",
        "Give one of these words a head outside of the circle.",
    ),
    "no root": (
        "error",
        "sentence",
        "has|have no root",
        "Give the main word the head 0 and the relation root.",
    ),
    "two roots": (
        "error",
        "sentence",
        "has|have more than one root",
        "Keep one head 0, and hang the other words on it.",
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
        "has|have no number for a head",
        "Write the id of the head, 0 for the root; or _ for every word of the sentence.",
    ),
    "self head": (
        "error",
        "word",
        "is its own head|are their own heads",
        "Give it another, or 0 for the root.",
    ),
    "ids not in sequence": (
        "error",
        "sentence",
        "does|do not count the words 1, 2, 3…",
        "Number the words anew, and the heads with them.",
    ),
    "bad range": (
        "error",
        "sentence",
        "has|have a multi-word token over the wrong words",
        "Correct the range: first and last word, on the line before the first.",
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
        'says|say something else than "# text ="',
        'Correct the form, or the comment "# text =".',
    ),
    "repeated id": (
        "warning",
        "sentence",
        "has|have the id of an earlier one",
        "Make ids unique: messages and drawings go by them.",
    ),
    "no tag": ("warning", "word", "has|have no tag", "Fill it in, or remove the sentence."),
    "unknown tag": (
        "warning",
        "word",
        "has|have a tag that is not one of Universal Dependencies",
        "Write one of its seventeen in capitals: ADJ, ADP, ADV, AUX, …, VERB, X.",
    ),
    "unknown relation": (
        "warning",
        "word",
        "has|have a relation that is not one of Universal Dependencies",
        "Correct what stands before the colon; the rest is free.",
    ),
    "root relation": (
        "warning",
        "word",
        "is|are root by head or by relation, but not by both",
        "The head 0 and the relation root go together.",
    ),
    "invalid tag": (
        "error",
        "tag",
        "does|do not follow from the tag before",
        "Begin every span as the scheme does (--fix writes what conlleval reads).",
    ),
    "not a tag": (
        "error",
        "tag",
        "is|are not O, B-X or I-X",
        "Use IOB, BILOU or BIOES tags, or say with --label which column has the tags.",
    ),
    "mixed schemes": (
        "error",
        "tag",
        "is|are of another scheme than the rest",
        "Use L- and U- (BILOU) or E- and S- (BIOES), not both (--fix writes one of them).",
    ),
    "malformed span": (
        "error",
        "span",
        "is|are not written as one",
        'Write {"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"] with whole numbers.',
    ),
    "span out of range": (
        "error",
        "span",
        "reaches|reach outside the text",
        "Count characters from 0, the end excluded; check that the text was not changed since.",
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
        "cuts|cut a character in two",
        "Move it to the edge; if offsets count bytes or UTF-16 units, convert them.",
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
        "Move an end: neither holds the other, so one of them is probably wrong.",
    ),
    "duplicate span": (
        "error",
        "span",
        "stands|stand there twice",
        "Remove the second one (--fix does).",
    ),
    "span without label": ("error", "span", "has|have no label", "Give it one, or remove it."),
    "span inside a word": (
        "warning",
        "span",
        "cuts|cut through a word",
        "Move the end to the edge of the word: training widens it.",
    ),
    "span with spaces": (
        "warning",
        "span",
        "has|have spaces at the edges",
        "Leave the spaces out (--fix does).",
    ),
    "broken tree": (
        "error",
        "tree",
        "is|are not written as one",
        "Close every bracket, and put a word or sub-trees into each: (3 (2 The) (4 good)).",
    ),
    "node without label": (
        "warning",
        "node",
        "has|have no label",
        "Give it one; only the bracket around a whole tree may do without.",
    ),
    "no numbers": (
        "error",
        "matrix|matrices",
        "holds|hold something else than numbers",
        "Save numbers: floats or integers.",
    ),
    "other axes": (
        "error",
        "matrix|matrices",
        "has|have not two axes",
        "Reshape it: vectors by numbers.",
    ),
    "empty matrix": ("error", "matrix|matrices", "has|have no number in it", "Leave it out."),
    "not finite": (
        "error",
        "matrix|matrices",
        "has|have numbers that are not finite",
        "Mend them, or leave the matrix out: one NaN spoils all that is learned.",
    ),
    "other width": (
        "error",
        "matrix|matrices",
        "has|have vectors of another width than the first",
        "Make all vectors alike: a model reads one width.",
    ),
    "unreadable matrix": (
        "error",
        "matrix|matrices",
        "cannot be read|cannot be read",
        "Correct the name, or save the matrix again.",
    ),
    "label outside the scale": (
        "error",
        "node",
        "has|have a label that is not on the scale of the others",
        "Correct it.",
    ),
}
_RANGES = ("overlapping ranges", "malformed range", "range beyond the sentence")


def group_faults(faults: Iterable[AnnotationFault], name: str) -> list[Finding]:
    """One finding for each kind of fault, with its places."""
    counts: dict[str, int] = {}
    places: dict[str, list[Place]] = {}
    for fault in faults:
        kind = "bad range" if fault.kind in _RANGES else fault.kind
        counts[kind] = counts.get(kind, 0) + 1
        sketch = fault.sketch if not places.get(kind) else None  # one drawing says enough
        place = Place(fault.where, excerpt(fault.text), fault.told, sketch)
        places.setdefault(kind, []).append(place)
    return [_build_finding(kind, count, places[kind], name) for kind, count in counts.items()]


def _build_finding(kind: str, count: int, places: list[Place], name: str) -> Finding:
    level, noun, told, fix = _KINDS[kind]
    noun, _, nouns = noun.partition("|")
    counted = pluralise(count, noun, nouns)
    first, _, rest = told.partition("|")
    if " " in first:  # the forms differ in more than the verb
        title = f"{counted} of {name} {agree(count, first, rest)}."
    else:
        plural, _, tail = rest.partition(" ")
        title = f"{counted} of {name} {agree(count, first, plural)} {tail}."
    return Finding(kind, level, title, count, tuple(places), fix)
