"""Check column files: the tagging scheme, and tags that violate it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from weft.doctor.annotations import are_span_tags, is_tag
from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.doctor.finding import Finding, SentenceSketch, pluralise
from weft.errors import UserError
from weft.text.annotation import schemes
from weft.text.annotation.schemes import OUTSIDE
from weft.text.column_layout import ColumnLayout
from weft.text.columns import Columns
from weft.text.example import TAG_COLUMN, Example, SkipCounter, WordAnnotations
from weft.text.formats.conll import TaggedSentence, read_columns

_LAYOUT = ColumnLayout("\t", ("token", "tag"), 0, 1, 2)  # of a row of tokens
_DISTINCTIVE_MARKS = {"BILOU": "LU", "BIOES": "ES"}  # marks that only one scheme has


def read_sentences(
    path: str, columns: Columns, skipped: SkipCounter | None = None
) -> Iterator[TaggedSentence]:
    """Yield every sentence with the usual number of columns."""
    return read_columns(
        path, words=columns.text, tags=columns.label, on_bad_row="skip", skipped=skipped
    )  # fmt: skip


def read_examples(path: str, columns: Columns, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the sentences as Examples, with only their tags."""
    for sentence in read_sentences(path, columns, skipped):
        words = tuple(sentence.words)
        tags = {TAG_COLUMN: tuple(sentence.tags)}
        annotations = WordAnnotations(tags, TAG_COLUMN, sentence.label)
        yield Example(
            " ".join(words), annotations, sentence.id, sentence.file, sentence.line, words
        )


def as_sentence(example: Example) -> TaggedSentence:
    """Return an example with tagged words, such as a row of tokens, as a sentence of columns."""
    assert isinstance(example.label, WordAnnotations)
    tags = example.label.columns[example.label.main]
    rows = tuple(zip(example.words, tags, strict=True))
    return TaggedSentence(rows, (example.line,) * len(rows), _LAYOUT, example.file)


def detect_scheme(path: str, columns: Columns) -> str:
    """Return the tagging scheme, the more frequent one if two are mixed, or ""."""
    return scheme_of(read_sentences(path, columns))


def scheme_of(sentences: Iterable[TaggedSentence]) -> str:
    """Return the tagging scheme of sentences, the more frequent one if two are mixed, or ""."""
    marks: Counter[str] = Counter()
    sound: list[list[str]] = []
    good = 0
    for sentence in sentences:
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
    """Yield the tag faults of each sentence, in file order."""
    return find_tag_faults(lambda: read_sentences(path, columns))


def find_tag_faults(
    sentences: Callable[[], Iterable[TaggedSentence]],
) -> Iterator[AnnotationFault]:
    """Yield the tag faults of sentences that can be read twice, in order."""
    scheme = scheme_of(sentences())
    if not scheme:
        return
    foreign_marks = "".join(marks for name, marks in _DISTINCTIVE_MARKS.items() if name != scheme)
    for number, sentence in enumerate(sentences(), 1):
        of, tags = sentence_name(sentence.id, number), sentence.tags
        repaired = repair_tags(tags, scheme)
        for position, (tag, better) in enumerate(zip(tags, repaired, strict=True)):
            if tag == better:
                continue
            where = f"{sentence.file}:{sentence.lines[position]}"
            word = f"{of}: word {position + 1} '{sentence.words[position]}'"
            text = " ".join(sentence.words)
            if not is_tag(tag):
                yield AnnotationFault("not a tag", where, text, f"{word} has '{tag}'")
            elif tag[0] in foreign_marks and scheme in _DISTINCTIVE_MARKS:
                detail = f"{word} has '{tag}', the file is {scheme}: write '{better}'"
                yield AnnotationFault("mixed schemes", where, text, detail)
            else:
                after = f"after '{tags[position - 1]}'" if position else "at the beginning"
                detail = f"{word} has '{tag}' {after}: {scheme} writes '{better}'"
                sketch = SentenceSketch(tuple(sentence.words), tuple(tags), tuple(repaired))
                yield AnnotationFault("invalid tag", where, text, detail, sketch)


def repair_tags(tags: list[str], scheme: str) -> list[str]:
    """Rewrite the tags as conlleval reads them; invalid tags become O."""
    sound = [tag if is_tag(tag) else OUTSIDE for tag in tags]
    return schemes.convert(sound, scheme, scheme, "repair")


def check_schemes(schemes_by_split: dict[str, str], paths: dict[str, str]) -> Iterator[Finding]:
    """Yield a finding if files use different tagging schemes."""
    used = {name: scheme for name, scheme in schemes_by_split.items() if scheme}
    if len(set(used.values())) < 2:
        return
    listed = ", ".join(f"{name} {scheme}" for name, scheme in used.items())
    first = next(iter(used.values()))
    others = [name for name, scheme in used.items() if scheme != first]
    yield Finding(
        "schemes differ", "warning",
        f"{pluralise(len(set(used.values())), 'tagging scheme')} are used: {listed}.",
        len(others), (), f"Write all files in one scheme (--fix writes {first}).",
    )  # fmt: skip
