"""Files to measure word vectors with: word pairs with people's scores, analogies, dictionaries."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UserError
from weft.text.line_source import LineSource

Question = tuple[str, str, str, str]  # a is to b as c is to d

SHOWN = 60  # characters of a line that an error repeats


@dataclass(frozen=True)
class Pairs:
    """Word pairs, each with how alike people found the two."""

    name: str
    rows: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class Questions:
    """Analogies by section: a is to b as c is to d; d is the answer."""

    name: str
    sections: tuple[tuple[str, tuple[Question, ...]], ...]


def read(path: str | os.PathLike[str]) -> Pairs | Questions:
    """Read a list in either format, detected by its first line.

    Pairs are 'word word score' with tabs, commas or spaces between; analogies are four words a
    line under headings ': section', as in Google's questions-words.txt. '#' begins a remark.
    """
    lines = list(_lines(path))
    name = _name(path)
    if not lines:
        raise UserError(f"{path} is empty: no word pairs and no analogies in it.")
    first = _cells(lines[0][1])
    if lines[0][1].startswith(":") or (len(first) == 4 and _number(first[3]) is None):
        return Questions(name, _sections(path, lines))
    return Pairs(name, _pairs(path, lines))


def dictionary(path: str | os.PathLike[str]) -> tuple[tuple[str, str], ...]:
    """Word and translation, one pair a line; a word may come again with another translation."""
    out = []
    for number, line in _lines(path):
        cells = _cells(line)
        if len(cells) != 2:
            raise UserError(
                f"{path}:{number}: a word and its translation expected, found {len(cells)} "
                f"columns: {_short(line)}. Words that hold spaces need a tab between them."
            )
        out.append((cells[0], cells[1]))
    if not out:
        raise UserError(f"{path} is empty: no word pairs in it.")
    return tuple(out)


def words(path: str | os.PathLike[str]) -> list[str]:
    """Words of a file, a line each."""
    found = [line for _, line in _lines(path)]
    if not found:
        raise UserError(f"{path} is empty: no words in it.")
    return found


def _pairs(
    path: str | os.PathLike[str], lines: list[tuple[int, str]]
) -> tuple[tuple[str, str, float], ...]:
    out = []
    for place, (number, line) in enumerate(lines):
        cells = _cells(line)
        if len(cells) != 3:
            raise UserError(
                f"{path}:{number}: two words and a score expected, found {len(cells)} columns: "
                f"{_short(line)}."
            )
        score = _number(cells[2])
        if score is None:
            if place == 0 and not any(c.isdigit() for c in cells[2]):
                continue  # the names of the columns
            raise UserError(f"{path}:{number}: the score '{cells[2]}' is not a number.")
        out.append((cells[0], cells[1], score))
    if not out:
        raise UserError(f"{path} holds the names of columns, but no word pairs.")
    return tuple(out)


def _sections(
    path: str | os.PathLike[str], lines: list[tuple[int, str]]
) -> tuple[tuple[str, tuple[Question, ...]], ...]:
    found: dict[str, list[Question]] = {}
    section = found.setdefault("", [])
    for number, line in lines:
        if line.startswith(":"):
            section = found.setdefault(line[1:].strip(), [])
            continue
        words = _cells(line)
        if len(words) != 4:
            raise UserError(
                f"{path}:{number}: an analogy is four words, found {len(words)}: {_short(line)}."
            )
        section.append((words[0], words[1], words[2], words[3]))
    kept = tuple((name, tuple(rows)) for name, rows in found.items() if rows)
    if not kept:
        raise UserError(f"{path} holds headings, but no analogies under them.")
    return kept


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """Lines that say something, with their numbers."""
    source = LineSource(path)
    for number, raw in enumerate(source.raw(), 1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{source.name}:{number}: byte 0x{raw[error.start]:02x} is not UTF-8. "
                "Convert the file: iconv -f LATIN1 -t UTF-8 FILE."
            ) from error
        if line and not line.startswith("#"):
            yield number, line


def _cells(line: str) -> list[str]:
    for separator in ("\t", ","):
        if separator in line:
            return [cell.strip() for cell in line.split(separator)]
    return line.split()


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _short(line: str) -> str:
    return repr(line if len(line) <= SHOWN else f"{line[:SHOWN]}…")


def _name(path: str | os.PathLike[str]) -> str:
    """The file without its folder and endings."""
    return Path(path).name.split(".")[0]
