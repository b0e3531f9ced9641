"""Check the feature matrices that texts refer to."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from weft.doctor.checks.annotation_faults import AnnotationFault, group_faults
from weft.doctor.finding import Finding
from weft.doctor.survey import ExampleSource
from weft.errors import UserError
from weft.text.audio.log_mel import LogMel
from weft.text.example import Example
from weft.text.formats.features import MatrixError, is_matrix_reference, load_matrix

SAMPLE_TEXTS = 20  # to recognise matrix references


def check_matrices(sources: Mapping[str, ExampleSource]) -> list[Finding]:
    """Return findings about the matrices of files; all must be as wide as the first."""
    with_matrices = {
        name: source for name, source in sources.items() if reference_matrices(source())
    }
    widths = (_vector_width(example) for source in with_matrices.values() for example in source())
    width = next(filter(None, widths), 0)
    return [
        finding
        for name, source in with_matrices.items()
        for finding in group_faults(find_faults(source(), width), name)
    ]


def reference_matrices(examples: Iterable[Example]) -> bool:
    """Return whether most texts refer to matrices."""
    is_reference = [is_matrix_reference(example.text) for example in islice(examples, SAMPLE_TEXTS)]
    return 2 * sum(is_reference) > len(is_reference)


def find_faults(examples: Iterable[Example], width: int) -> Iterator[AnnotationFault]:
    """Yield the fault of each unusable matrix, in file order."""
    for example in examples:
        try:
            wide = load_matrix(example, audio=LogMel()).shape[1]
        except MatrixError as flaw:
            yield AnnotationFault(flaw.kind, example.where, example.text, flaw.reason)
        except UserError as error:
            detail = str(error).removeprefix(f"{example.where}: ")
            yield AnnotationFault("unreadable matrix", example.where, example.text, detail)
        else:
            if wide != width:
                detail = f"vectors of {wide} numbers; the first has {width}"
                yield AnnotationFault("other width", example.where, example.text, detail)


def _vector_width(example: Example) -> int:
    """Return the vector width of a matrix, 0 if it is unusable."""
    try:
        return int(load_matrix(example, audio=LogMel()).shape[1])
    except UserError:
        return 0
