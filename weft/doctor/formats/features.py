"""Matrices that texts name, under the doctor's eyes: what no model could read of them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from weft.doctor.checks.annotation_faults import Fault, findings
from weft.doctor.finding import Finding
from weft.doctor.survey import Source
from weft.errors import UserError
from weft.text.example import Example
from weft.text.formats.features import Flaw, matrix, names_matrix

FIRST = 20  # texts by which names of matrices are told from others


def look(sources: Mapping[str, Source]) -> list[Finding]:
    """What is wrong with the matrices of these files; all should be as wide as the first is."""
    own = {name: source for name, source in sources.items() if names(source())}
    widths = (_width(example) for source in own.values() for example in source())
    width = next(filter(None, widths), 0)
    return [
        one for name, source in own.items() for one in findings(faults(source(), width), name)
    ]  # fmt: skip


def names(examples: Iterable[Example]) -> bool:
    """Whether texts name matrices, or most of them do."""
    some = [names_matrix(example.text) for example in islice(examples, FIRST)]
    return 2 * sum(some) > len(some)


def faults(examples: Iterable[Example], width: int) -> Iterator[Fault]:
    """What is wrong with each matrix, in the order of the file."""
    for example in examples:
        try:
            wide = matrix(example).shape[1]
        except Flaw as flaw:
            yield Fault(flaw.kind, example.where, example.text, flaw.told)
        except UserError as error:
            told = str(error).removeprefix(f"{example.where}: ")
            yield Fault("unreadable matrix", example.where, example.text, told)
        else:
            if wide != width:
                told = f"vectors of {wide} numbers, where those of the first have {width}"
                yield Fault("other width", example.where, example.text, told)


def _width(example: Example) -> int:
    """Of the vectors of a matrix; nothing where it cannot be used."""
    try:
        return int(matrix(example).shape[1])
    except UserError:
        return 0
