"""Check tuples of open information extraction: columns, predicates and arguments."""

from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault
from weft.text.annotation.frames import Extraction
from weft.text.example import Example, SkipCounter
from weft.text.formats.semantics.extractions import (
    ExtractionLine,
    group_tuples,
    overlap,
    read_lines,
    split_tokens,
)


def read_examples(path: str, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the sentences as Examples, with their usable tuples; the other lines are findings."""
    return group_tuples(row for row in read_lines(path, skipped=skipped) if not row.fault())


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Yield the faults of each line, in file order."""
    tuples: dict[Extraction, int] = {}
    sentence, seen = "", dict[str, int]()
    for row in read_lines(path):
        where = f"{row.file}:{row.line}"
        if fault := row.fault():
            yield AnnotationFault(fault[0], where, row.sentence, fault[1])
            continue
        if row.sentence != sentence:
            sentence, tuples = row.sentence, {}
            if sentence in seen:
                detail = f"its tuples begin at line {seen[sentence]}"
                yield AnnotationFault("scattered sentence", where, sentence, detail)
            seen.setdefault(sentence, row.line)
        extraction = row.extraction()
        bare = Extraction(extraction.predicate, extraction.arguments)
        if bare in tuples:
            detail = f"{_describe(extraction)}, as in line {tuples[bare]}"
            yield AnnotationFault("duplicate tuple", where, sentence, detail)
        tuples.setdefault(bare, row.line)
        yield from _argument_faults(row, extraction, where)


def _argument_faults(
    row: ExtractionLine, extraction: Extraction, where: str
) -> Iterator[AnnotationFault]:
    words = set(split_tokens(row.sentence))
    for argument in extraction.arguments:
        if overlap(argument, words) == 0:
            detail = f"'{argument}' in {_describe(extraction)}"
            yield AnnotationFault("argument outside the sentence", where, row.sentence, detail)
    cells = row.cells[2 + row.scored :]
    if not extraction.arguments:
        yield AnnotationFault("tuple without arguments", where, row.sentence, _describe(extraction))
    elif any(not cell.strip() for cell in cells):
        yield AnnotationFault("empty argument", where, row.sentence, _describe(extraction))


def _describe(extraction: Extraction) -> str:
    return f"({'; '.join((extraction.predicate, *extraction.arguments)):.80})"
