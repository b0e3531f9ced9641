"""Say in one sentence how a student's value differs from the reference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.errors import escape_control

MAX_SHOWN_CHARACTERS = 60


def describe_difference(expected: Any, actual: Any, tolerance: float) -> str:
    """Return where two values differ first, or "" if they agree up to `tolerance`.

    Whole numbers, texts and shapes must be equal; a list may take the place of a tuple or array.
    """
    return _compare(expected, actual, tolerance, "the result")


def _compare(expected: Any, actual: Any, tolerance: float, where: str) -> str:
    if isinstance(expected, np.ndarray):
        return _compare_arrays(expected, actual, tolerance, where)
    if isinstance(expected, Mapping):
        return _compare_dicts(expected, actual, tolerance, where)
    if isinstance(expected, (list, tuple)):
        return _compare_sequences(expected, actual, tolerance, where)
    if isinstance(expected, (bool, str)) or expected is None:
        same = type(expected) is type(actual) and expected == actual
    elif isinstance(actual, bool) or not isinstance(actual, (int, float)):
        same = False
    elif isinstance(expected, int):
        same = expected == actual
    else:
        same = bool(np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True))
    return "" if same else f"{where} should be {_show(expected)}, not {_show(actual)}"


def _compare_arrays(expected: np.ndarray, actual: Any, tolerance: float, where: str) -> str:
    try:
        array = np.asarray(actual)
    except ValueError:
        return f"{where} should be an array of shape {expected.shape}; rows differ in length"
    if array.shape != expected.shape:
        return f"{where} should have shape {expected.shape}, not {array.shape}"
    if array.dtype.kind not in "biuf":
        return f"{where} should hold numbers"
    exact = expected.dtype.kind in "biu"
    margin = 0.0 if exact else tolerance
    right = np.isclose(
        array.astype(float), expected.astype(float), rtol=margin, atol=margin, equal_nan=True
    )
    if right.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~right)[0])
    index = f"[{', '.join(map(str, place))}]" if place else ""
    wrong = int((~right).sum())
    return (
        f"{where}{index} should be {_show(expected[place])}, not {_show(array[place])} "
        f"({wrong} of {right.size} values differ)"
    )


def _compare_dicts(expected: Mapping[Any, Any], actual: Any, tolerance: float, where: str) -> str:
    if not isinstance(actual, Mapping):
        return f"{where} should be a dict, not {type(actual).__name__}"
    for key in expected:
        if key not in actual:
            return f"{where} has no key {_show(key)}"
    for key in actual:
        if key not in expected:
            return f"{where} has the key {_show(key)} too many"
    pairs = ((expected[key], actual[key], f"{where}[{_show(key)}]") for key in expected)
    return next(filter(None, (_compare(a, b, tolerance, at) for a, b, at in pairs)), "")


def _compare_sequences(expected: Sequence[Any], actual: Any, tolerance: float, where: str) -> str:
    values = actual.tolist() if isinstance(actual, np.ndarray) else actual
    if not isinstance(values, (list, tuple)):
        return f"{where} should be a {type(expected).__name__} of {len(expected)} values"
    if len(values) != len(expected):
        return f"{where} should have {len(expected)} values, not {len(values)}"
    for i, (one, other) in enumerate(zip(expected, values, strict=True)):
        if difference := _compare(one, other, tolerance, f"{where}[{i}]"):
            return difference
    return ""


def _show(value: Any) -> str:
    plain = value.item() if isinstance(value, np.generic) else value
    text = f"{plain:.10g}" if isinstance(plain, float) else repr(plain)
    short = text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"
    return escape_control(short)
