"""Confusion matrices: the whole matrix, or the part with the most confused labels."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

MAX_MATRIX_LABELS = 15  # of a whole matrix that is still readable
MAX_CORNER_LABELS = 12  # of the most confused part
MAX_PAIRS = 15


@dataclass(frozen=True)
class Cell:
    """Texts with one gold label and one prediction."""

    count: int
    fraction: float  # of the gold label's texts
    is_correct: bool


@dataclass(frozen=True)
class ConfusionMatrix:
    """Rows are gold labels, columns predictions; `elsewhere` counts those without a column."""

    labels: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    elsewhere: tuple[int, ...]
    is_whole: bool  # no label is left out


@dataclass(frozen=True)
class ConfusedPair:
    """A gold label and a wrong prediction for it."""

    label: str
    predicted: str
    count: int
    fraction: float  # of the gold label's texts


def build_matrix(cells: Mapping[tuple[str, str], int]) -> ConfusionMatrix:
    """Build the whole confusion matrix if it is readable, else that of the most confused labels."""
    names = list(dict.fromkeys(name for cell in sorted(cells) for name in cell))
    whole = len(names) <= MAX_MATRIX_LABELS
    labels = sorted(names, key=_label_order) if whole else _most_confused_labels(cells)
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
    return ConfusionMatrix(tuple(labels), rows, rest, whole)


def most_confused_pairs(
    cells: Mapping[tuple[str, str], int], most: int = MAX_PAIRS
) -> tuple[ConfusedPair, ...]:
    """Return the most frequent confusions."""
    total: dict[str, int] = {}
    for (label, _), count in cells.items():
        total[label] = total.get(label, 0) + count
    confused = [
        ConfusedPair(label, value, count, count / total[label])
        for (label, value), count in cells.items()
        if label != value
    ]
    confused.sort(key=lambda pair: (-pair.count, -pair.fraction, pair.label, pair.predicted))
    return tuple(confused[:most])


def _most_confused_labels(cells: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the labels of the most frequent confusions, confused labels next to each other."""
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
        if size + (here is None) + (there is None) > MAX_CORNER_LABELS:
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


def _label_order(name: str) -> tuple[int, float, str]:
    """Return a sort key: numbers by value, then other labels alphabetically."""
    try:
        value = float(name)
    except ValueError:
        value = math.nan
    return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
