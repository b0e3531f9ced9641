"""Classify a table column by its cells: texts, few distinct values, numbers."""

import re
from collections.abc import Sequence

_MIN_ROWS_TO_COMPARE = 20  # below, the number of distinct values says nothing
_MAX_MISSING_FRACTION = 0.1  # of labels
_MIN_MEAN_WORDS = 2.0  # per cell of a text column
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def is_text(cells: Sequence[str]) -> bool:
    """Return whether a column holds free text: several words each, rarely repeated."""
    nested = any(cell.startswith(("{", "[{")) for cell in cells)  # JSON, not text
    if nested or len(cells) < 2 or has_few_values(cells):
        return False
    return sum(map(_count_words, cells)) >= _MIN_MEAN_WORDS * len(cells)


def _count_words(cell: str) -> int:
    """Count words; scripts without spaces have about one per two characters."""
    return len(cell.split()) + len(_UNSPACED.findall(cell)) // 2


def has_few_values(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    if not filled or len(cells) - len(filled) > _MAX_MISSING_FRACTION * len(cells):
        return False
    cells, values = filled, set(filled)
    if len(cells) >= _MIN_ROWS_TO_COMPARE:
        return len(values) * 2 <= len(cells)
    if len(cells) > 2 and len(values) == len(cells) and all(cell.isdecimal() for cell in cells):
        return False  # running numbers
    return all(len(cell) <= 30 and " " not in cell for cell in values)


def is_numeric_scale(cells: Sequence[str]) -> bool:
    return bool(cells) and all(map(is_number, cells)) and any("." in cell for cell in cells)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
