"""Column files under the doctor's eyes: the scheme of their tags, and tags that break it."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.annotations import are_span_tags, is_tag
from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.doctor.finding import Finding, SentenceSketch, pluralise
from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import OUTSIDE
from weft.text.columns import Columns
from weft.text.example import TAG_COLUMN, Example, Tally, WordAnnotations
from weft.text.formats.conll import TaggedSentence, read_columns

_DISTINCTIVE_MARKS = {"BILOU": "LU", "BIOES": "ES"}  # marks that only one scheme has


def read_sentences(
    path: str, columns: Columns, skipped: Tally | None = None
) -> Iterator[TaggedSentence]:
    """Every sentence whose rows have as many columns as the others."""
    return read_columns(
        path, words=columns.text, tags=columns.label, on_bad_row="skip", skipped=skipped
    )  # fmt: skip


def read_examples(path: str, columns: Columns, skipped: Tally) -> Iterator[Example]:
    """The sentences as the survey takes them; of the columns only the tags."""
    for sentence in read_sentences(path, columns, skipped):
        words = tuple(sentence.words)
        known = WordAnnotations({TAG_COLUMN: tuple(sentence.tags)}, TAG_COLUMN)
        yield Example(" ".join(words), known, sentence.id, sentence.file, sentence.line, words)


def detect_scheme(path: str, columns: Columns) -> str:
    """The scheme of the tags, the commoner one where two are mixed; empty where none fits."""
    marks: Counter[str] = Counter()
    sound: list[list[str]] = []
    good = 0
    for sentence in read_sentences(path, columns):
        tags = [tag for tag in sentence.tags if is_tag(tag)]
        good += are_span_tags(sentence.tags) - (not are_span_tags(sentence.tags))
        marks.update(tag[0] for tag in tags if tag != OUTSIDE)
        sound.append(tags)
    if good <= 0 or not marks:
        return ""
    try:
        return schemes.recognise(sound)
    except UserError:  # L- and U- beside E- and S-
        return max(
            _DISTINCTIVE_MARKS,
            key=lambda name: sum(marks[mark] for mark in _DISTINCTIVE_MARKS[name]),
        )


def find_faults(path: str, columns: Columns) -> Iterator[AnnotationFault]:
    """What is wrong with the tags of each sentence, in the order of the file."""
    scheme = detect_scheme(path, columns)
    if not scheme:
        return
    strange = "".join(marks for name, marks in _DISTINCTIVE_MARKS.items() if name != scheme)
    for number, sentence in enumerate(read_sentences(path, columns), 1):
        of, tags = sentence_name(sentence.id, number), sentence.tags
        right = repair_tags(tags, scheme)
        for place, (tag, better) in enumerate(zip(tags, right, strict=True)):
            if tag == better:
                continue
            where = f"{sentence.file}:{sentence.lines[place]}"
            word = f"{of}: word {place + 1} '{sentence.words[place]}'"
            text = " ".join(sentence.words)
            if not is_tag(tag):
                yield AnnotationFault("not a tag", where, text, f"{word} has '{tag}'")
            elif tag[0] in strange and scheme in _DISTINCTIVE_MARKS:
                told = f"{word} has '{tag}', the file is {scheme}: write '{better}'"
                yield AnnotationFault("mixed schemes", where, text, told)
            else:
                after = f"after '{tags[place - 1]}'" if place else "at the beginning"
                told = f"{word} has '{tag}' {after}: {scheme} writes '{better}'"
                sketch = SentenceSketch(tuple(sentence.words), tuple(tags), tuple(right))
                yield AnnotationFault("invalid tag", where, text, told, sketch)


def repair_tags(tags: list[str], scheme: str) -> list[str]:
    """The tags as the scheme writes what conlleval reads; what is no tag is outside of all."""
    sound = [tag if is_tag(tag) else OUTSIDE for tag in tags]
    return schemes.convert(sound, scheme, scheme, "repair")


def check_schemes(found: dict[str, str], paths: dict[str, str]) -> Iterator[Finding]:
    """Files of one task whose tags are written in different schemes."""
    known = {name: scheme for name, scheme in found.items() if scheme}
    if len(set(known.values())) < 2:
        return
    told = ", ".join(f"{name} {scheme}" for name, scheme in known.items())
    first = next(iter(known.values()))
    others = [name for name, scheme in known.items() if scheme != first]
    yield Finding(
        "schemes differ", "warning",
        f"{pluralise(len(set(known.values())), 'tagging scheme')} are used: {told}.",
        len(others), (), f"Write all files in one scheme (--fix writes {first}).",
    )  # fmt: skip
