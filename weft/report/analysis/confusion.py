"""Which labels are taken for which: the whole matrix, or its most confused corner."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

WHOLE = 15  # labels up to which the whole matrix can be read
CORNER = 12  # labels of the most confused corner
PAIRS = 15


@dataclass(frozen=True)
class Cell:
    """Texts of one label that got one answer."""

    count: int
    share: float  # of the label's texts
    right: bool


@dataclass(frozen=True)
class Matrix:
    """A row a label, a column an answer; `rest` counts the answers that have no column."""

    labels: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rest: tuple[int, ...]
    whole: bool  # no label was left out


@dataclass(frozen=True)
class Pair:
    """A label and a wrong answer that was given for it."""

    label: str
    value: str
    count: int
    share: float  # of the label's texts


def matrix(cells: Mapping[tuple[str, str], int]) -> Matrix:
    """The confusion matrix where it can be read, else the labels confused the most."""
    names = list(dict.fromkeys(name for cell in sorted(cells) for name in cell))
    whole = len(names) <= WHOLE
    labels = sorted(names, key=_order) if whole else _corner(cells)
    total: dict[str, int] = {}
    for (label, _), count in cells.items():
        total[label] = total.get(label, 0) + count
    rows = tuple(
        tuple(_cell(cells.get((label, value), 0), total.get(label, 0), label == value)
              for value in labels)
        for label in labels
    )  # fmt: skip
    rest = tuple(
        total.get(label, 0) - sum(cell.count for cell in row)
        for label, row in zip(labels, rows, strict=True)
    )
    return Matrix(tuple(labels), rows, rest, whole)


def pairs(cells: Mapping[tuple[str, str], int], most: int = PAIRS) -> tuple[Pair, ...]:
    """The most frequent mistakes."""
    total: dict[str, int] = {}
    for (label, _), count in cells.items():
        total[label] = total.get(label, 0) + count
    found = [
        Pair(label, value, count, count / total[label])
        for (label, value), count in cells.items()
        if label != value
    ]
    found.sort(key=lambda pair: (-pair.count, -pair.share, pair.label, pair.value))
    return tuple(found[:most])


def _corner(cells: Mapping[tuple[str, str], int]) -> list[str]:
    """Labels of the most frequent mistakes; those confused with each other stand together."""
    weight: dict[tuple[str, str], int] = {}
    for (label, value), count in cells.items():
        if label != value:
            low, high = sorted((label, value))
            weight[low, high] = weight.get((low, high), 0) + count
    groups: list[list[str]] = []
    for (a, b), _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        here = next((g for g in groups if a in g), None)
        there = next((g for g in groups if b in g), None)
        size = sum(map(len, groups))
        if size + (here is None) + (there is None) > CORNER:
            continue
        if here is None and there is None:
            groups.append([a, b])
        elif here is None and there is not None:
            there.append(a)
        elif there is None and here is not None:
            here.append(b)
        elif here is not None and there is not None and here is not there:
            here.extend(there)
            groups.remove(there)
    return [name for group in groups for name in group]


def _cell(count: int, total: int, right: bool) -> Cell:
    return Cell(count, count / total if total else 0.0, right)


def _order(name: str) -> tuple[int, float, str]:
    """Numbers by value, then the rest by letter."""
    try:
        value = float(name)
    except ValueError:
        value = math.nan
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
