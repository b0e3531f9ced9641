"""Column files under the doctor's eyes: the scheme of their tags, and tags that break it."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.annotations import is_tag, marks_spans
from weft.doctor.checks.annotation_faults import Fault, named
from weft.doctor.finding import Finding, Sketch, many
from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import OUTSIDE
from weft.text.columns import Columns
from weft.text.example import TAG, Example, Layers, Tally
from weft.text.formats.conll import Tagged, read_columns

_PAIRS = {"BILOU": "LU", "BIOES": "ES"}  # marks that only one scheme has


def sentences(path: str, columns: Columns, tally: Tally | None = None) -> Iterator[Tagged]:
    """Every sentence whose rows have as many columns as the others."""
    return read_columns(
        path, words=columns.text, tags=columns.label, problems="skip", tally=tally
    )  # fmt: skip


def examples(path: str, columns: Columns, tally: Tally) -> Iterator[Example]:
    """The sentences as the survey takes them; of the columns only the tags."""
    for sentence in sentences(path, columns, tally):
        words = tuple(sentence.words)
        known = Layers({TAG: tuple(sentence.tags)}, TAG)
        yield Example(" ".join(words), known, sentence.id, sentence.file, sentence.line, words)


def scheme_of(path: str, columns: Columns) -> str:
    """The scheme of the tags, the commoner one where two are mixed; empty where none fits."""
    marks: Counter[str] = Counter()
    sound: list[list[str]] = []
    good = 0
    for sentence in sentences(path, columns):
        tags = [tag for tag in sentence.tags if is_tag(tag)]
        good += marks_spans(sentence.tags) - (not marks_spans(sentence.tags))
        marks.update(tag[0] for tag in tags if tag != OUTSIDE)
        sound.append(tags)
    if good <= 0 or not marks:
        return ""
    try:
        return schemes.recognise(sound)
    except UserError:  # L- and U- beside E- and S-
        return max(_PAIRS, key=lambda name: sum(marks[mark] for mark in _PAIRS[name]))


def faults(path: str, columns: Columns) -> Iterator[Fault]:
    """What is wrong with the tags of each sentence, in the order of the file."""
    scheme = scheme_of(path, columns)
    if not scheme:
        return
    strange = "".join(marks for name, marks in _PAIRS.items() if name != scheme)
    for number, sentence in enumerate(sentences(path, columns), 1):
        of, tags = named(sentence.id, number), sentence.tags
        right = repaired(tags, scheme)
        for place, (tag, better) in enumerate(zip(tags, right, strict=True)):
            if tag == better:
                continue
            where = f"{sentence.file}:{sentence.lines[place]}"
            word = f"{of}: word {place + 1} '{sentence.words[place]}'"
            text = " ".join(sentence.words)
            if not is_tag(tag):
                yield Fault("not a tag", where, text, f"{word} has '{tag}'")
            elif tag[0] in strange and scheme in _PAIRS:
                told = f"{word} has '{tag}', the file is {scheme}: write '{better}'"
                yield Fault("mixed schemes", where, text, told)
            else:
                after = f"after '{tags[place - 1]}'" if place else "at the beginning"
                told = f"{word} has '{tag}' {after}: {scheme} writes '{better}'"
                sketch = Sketch(tuple(sentence.words), tuple(tags), tuple(right))
                yield Fault("invalid tag", where, text, told, sketch)


def repaired(tags: list[str], scheme: str) -> list[str]:
    """The tags as the scheme writes what conlleval reads; what is no tag is outside of all."""
    sound = [tag if is_tag(tag) else OUTSIDE for tag in tags]
    return schemes.convert(sound, scheme, scheme, "repair")


def differing(found: dict[str, str], paths: dict[str, str]) -> Iterator[Finding]:
    """Files of one task whose tags are written in different schemes."""
    known = {name: scheme for name, scheme in found.items() if scheme}
    if len(set(known.values())) < 2:
        return
    told = ", ".join(f"{name} {scheme}" for name, scheme in known.items())
    first = next(iter(known.values()))
    others = [name for name, scheme in known.items() if scheme != first]
    yield Finding(
        "schemes differ", "warning",
        f"{many(len(set(known.values())), 'tagging scheme')} are used: {told}.",
        len(others), (), f"Write all files in one scheme (--fix writes {first}).",
    )  # fmt: skip
