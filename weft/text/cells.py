"""What the cells of a table's column look like: texts, a few values, numbers."""

import re
from collections.abc import Sequence

_MIN_ROWS_TO_COMPARE = 20  # below this many rows, "few distinct values" says nothing
_MAX_MISSING_FRACTION = 0.1  # share of labels that may be missing
_MIN_MEAN_WORDS = 2.0  # of a cell on average, where a column holds texts
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def is_text(cells: Sequence[str]) -> bool:
    """Whether a column holds texts of its own: several words each, seldom the same twice."""
    nested = any(cell.startswith(("{", "[{")) for cell in cells)  # of JSON: no text
    if nested or len(cells) < 2 or has_few_values(cells):
        return False
    return sum(map(_count_words, cells)) >= _MIN_MEAN_WORDS * len(cells)


def _count_words(cell: str) -> int:
    """The words of a cell; scripts without spaces have about one in two characters."""
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
