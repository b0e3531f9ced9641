"""Matrices that texts name, under the doctor's eyes: what no model could read of them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from weft.doctor.checks.annotation_faults import AnnotationFault, group_faults
from weft.doctor.finding import Finding
from weft.doctor.survey import ExampleSource
from weft.errors import UserError
from weft.text.example import Example
from weft.text.formats.features import MatrixError, is_matrix_reference, load_matrix

SAMPLE_TEXTS = 20  # texts by which names of matrices are told from others


def check_matrices(sources: Mapping[str, ExampleSource]) -> list[Finding]:
    """What is wrong with the matrices of these files; all should be as wide as the first is."""
    own = {name: source for name, source in sources.items() if reference_matrices(source())}
    widths = (_vector_width(example) for source in own.values() for example in source())
    width = next(filter(None, widths), 0)
    return [
        finding
        for name, source in own.items()
        for finding in group_faults(find_faults(source(), width), name)
    ]


def reference_matrices(examples: Iterable[Example]) -> bool:
    """Whether texts name matrices, or most of them do."""
    some = [is_matrix_reference(example.text) for example in islice(examples, SAMPLE_TEXTS)]
    return 2 * sum(some) > len(some)


def find_faults(examples: Iterable[Example], width: int) -> Iterator[AnnotationFault]:
    """What is wrong with each matrix, in the order of the file."""
    for example in examples:
        try:
            wide = load_matrix(example).shape[1]
        except MatrixError as flaw:
            yield AnnotationFault(flaw.kind, example.where, example.text, flaw.told)
        except UserError as error:
            told = str(error).removeprefix(f"{example.where}: ")
            yield AnnotationFault("unreadable matrix", example.where, example.text, told)
        else:
            if wide != width:
                told = f"vectors of {wide} numbers, where those of the first have {width}"
                yield AnnotationFault("other width", example.where, example.text, told)


def _vector_width(example: Example) -> int:
    """Of the vectors of a matrix; nothing where it cannot be used."""
    try:
        return int(load_matrix(example).shape[1])
    except UserError:
        return 0
