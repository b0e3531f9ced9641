"""The stored outputs of open IE systems, each in its own format, as tuples by sentence."""

import gzip
from collections.abc import Iterator
from pathlib import Path

from weft.text.annotation.frames import Extraction, Extractions

Tuples = Iterator[tuple[str, Extractions]]


def _one(
    sentence: str, confidence: str, predicate: str, *arguments: str
) -> tuple[str, Extractions]:
    return sentence, Extractions((Extraction(predicate, arguments, float(confidence)),))


def _inside(cell: str) -> str:
    """The text of SimpleArgument(text,List(…))."""
    return cell[cell.index("(") + 1 : cell.index(",List(")]


def clausie(lines: Iterator[str]) -> Tuples:
    sentence = ""
    for cells in map(_cells, lines):
        if len(cells) == 1:
            sentence = cells[0]
        elif len(cells) == 5:
            first, predicate, second = (cell[1:-1] for cell in cells[1:4])
            yield _one(sentence, cells[4], predicate, first, second)


def openie4(lines: Iterator[str]) -> Tuples:
    for cells in map(_cells, lines):
        if all(cells[2:5]):
            first, predicate, second = map(_inside, cells[2:5])
            yield _one(cells[5], cells[0], predicate, first, second)


def openie5(lines: Iterator[str]) -> Tuples:
    for cells in map(_cells, lines):
        if not all(cells[2:5]):
            continue
        first, predicate = map(_inside, cells[2:4])
        others = map(_inside, cells[4].strip().split(");"))
        if cells[1] and not f"{first} {predicate}".startswith(context := _inside(cells[1])):
            first = f"{context} {first}"
        yield _one(cells[5], cells[0], predicate, first, *others)


def props(lines: Iterator[str]) -> Tuples:
    for cells in map(_cells, lines):
        if len(cells) >= 3:
            yield _one(cells[1], cells[0], cells[2], *cells[4::2])


def reverb(lines: Iterator[str]) -> Tuples:
    for cells in map(_cells, lines):
        yield _one(cells[12], cells[11], cells[3], cells[2], cells[4])


def _cells(line: str) -> list[str]:
    return line.strip().split("\t")


READERS = {
    "clausie": clausie,
    "openie4": openie4,
    "openie5": openie5,
    "props": props,
    "reverb": reverb,
}


def read_output(path: Path) -> Tuples:
    """Yield the tuples of SYSTEM_output.txt.gz with their sentences."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from READERS[path.name.split("_")[0]](lines)
