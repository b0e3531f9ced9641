"""Check the feature matrices, recordings and images that texts refer to."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from weft.doctor.checks.annotation_faults import AnnotationFault, group_faults
from weft.doctor.finding import Finding
from weft.doctor.survey import ExampleSource
from weft.errors import UserError
from weft.text.audio.log_mel import LogMel
from weft.text.example import Example
from weft.text.formats.features import (
    MatrixError,
    is_matrix_reference,
    load_image,
    load_matrix,
    names_image,
)
from weft.text.images import describe_shape

SAMPLE_TEXTS = 20  # to recognise matrix references


def check_matrices(sources: Mapping[str, ExampleSource]) -> list[Finding]:
    """Return findings about the matrices of files; all must be like the first."""
    with_matrices = {
        name: source for name, source in sources.items() if reference_matrices(source())
    }
    shapes = (_shape(example) for source in with_matrices.values() for example in source())
    shape = next(filter(None, shapes), ())
    return [
        finding
        for name, source in with_matrices.items()
        for finding in group_faults(find_faults(source(), shape), name)
    ]


def reference_matrices(examples: Iterable[Example]) -> bool:
    """Return whether most texts refer to matrices."""
    is_reference = [is_matrix_reference(example.text) for example in islice(examples, SAMPLE_TEXTS)]
    return 2 * sum(is_reference) > len(is_reference)


def find_faults(
    examples: Iterable[Example], expected: tuple[int, ...]
) -> Iterator[AnnotationFault]:
    """Yield the fault of each unusable matrix or image, in file order."""
    for example in examples:
        try:
            shape = _read_shape(example, len(expected) == 3)
        except MatrixError as flaw:
            yield AnnotationFault(flaw.kind, example.where, example.text, flaw.reason)
        except UserError as error:
            detail = str(error).removeprefix(f"{example.where}: ")
            yield AnnotationFault("unreadable matrix", example.where, example.text, detail)
        else:
            if shape != expected:
                kind, detail = "other width", f"vectors of {shape[-1]} numbers; the first has "
                if len(expected) == 3:
                    kind, detail = "other size", f"an image of {describe_shape(shape)}; the first "
                    detail += f"has {describe_shape(expected)}"
                else:
                    detail += str(expected[-1])
                yield AnnotationFault(kind, example.where, example.text, detail)


def _shape(example: Example) -> tuple[int, ...]:
    """Return what all sources share: the width of vectors or the shape of images; () if broken."""
    try:
        return _read_shape(example, names_image(example))
    except UserError:
        return ()


def _read_shape(example: Example, is_image: bool) -> tuple[int, ...]:
    """Return the width of a matrix, or the shape of an image."""
    if not is_image:
        return load_matrix(example, frontend=LogMel()).shape[1:]
    return load_image(example).shape
