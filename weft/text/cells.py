"""What the cells of a table's column look like: texts, a few values, numbers."""

import re
from collections.abc import Sequence

_FEW = 20  # below this many rows, "few distinct values" says nothing
_BLANK = 0.1  # share of labels that may be missing
_WORDS = 2.0  # of a cell on average, where a column holds texts
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def is_text(cells: Sequence[str]) -> bool:
    """Whether a column holds texts of its own: several words each, seldom the same twice."""
    nested = any(cell.startswith(("{", "[{")) for cell in cells)  # of JSON: no text
    if nested or len(cells) < 2 or few_values(cells):
        return False
    return sum(map(_word_count, cells)) >= _WORDS * len(cells)


def _word_count(cell: str) -> int:
    """The words of a cell; scripts without spaces have about one in two characters."""
    return len(cell.split()) + len(_UNSPACED.findall(cell)) // 2


def few_values(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell.strip()]
    if not filled or len(cells) - len(filled) > _BLANK * len(cells):
        return False
    cells, values = filled, set(filled)
    if len(cells) >= _FEW:
        return len(values) * 2 <= len(cells)
    if len(cells) > 2 and len(values) == len(cells) and all(cell.isdecimal() for cell in cells):
        return False  # running numbers
    return all(len(cell) <= 30 and " " not in cell for cell in values)


def is_scale(cells: Sequence[str]) -> bool:
    return bool(cells) and all(map(is_number, cells)) and any("." in cell for cell in cells)


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
