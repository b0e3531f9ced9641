"""Check the X, y and sample_weight of an estimator; errors name the row.

n rows   C classes   K numbers of a row
"""

import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from weft.errors import UserError, UserNote

Row = TypeVar("Row")
ArrayLike = Any  # a list, an array, a Series: anything with a length that yields rows


@dataclass(frozen=True)
class Labels:
    """The classes of y in scikit-learn's order, and the label of every row as Weft has it."""

    classes: np.ndarray  # (C,) sorted, of the user's type
    names: tuple[str, ...]  # (C,) their labels in the model
    rows: list[Any]  # (n,) a label, or a list of them where y is an indicator matrix
    multi_label: bool = False


def check_texts(X: ArrayLike, name: str = "X") -> list[str]:
    """Return one text per row."""
    return _check_rows(X, name, "a text", _as_text)


def check_pairs(X: ArrayLike, name: str = "X") -> list[tuple[str, str]]:
    """Return two texts per row, from pairs or from an array of two columns."""
    return _check_rows(X, name, "a pair of texts", _as_pair, columns=2)


def check_sentences(X: ArrayLike, name: str = "X") -> list[list[str]]:
    """Return the words of each row."""
    return _check_rows(X, name, "a list of words", _as_words)


def check_tags(
    y: ArrayLike, sentences: Sequence[Sequence[str]], name: str = "y"
) -> list[list[str]]:
    """Return a tag for every word of every row."""
    tags = _check_rows(y, name, "a list of tags", _as_words)
    check_lengths(sentences, tags, name)
    for i, (row, words) in enumerate(zip(tags, sentences, strict=True)):
        if len(row) != len(words):
            raise UserError(
                f"{name}[{i}] has {len(row)} tags, but X[{i}] has {len(words)} words. Give each "
                "word one tag."
            )
    return tags


def check_labels(y: ArrayLike, name: str = "y") -> Labels:
    """Return the classes: of one label per row, or of an indicator matrix (n, C)."""
    from sklearn.utils.multiclass import check_classification_targets

    _require_labels(y, name)
    array, locate = _as_array(y, name), _locator(y, name)
    if array.ndim == 2 and array.shape[1] > 1:
        return _check_indicators(array, locate)
    array = _flatten(array, name)
    _require_one_type(array, name, locate)
    check_classification_targets(array)
    classes, codes = np.unique(array, return_inverse=True)
    names = label_names(classes)
    if "" in names or len(set(names)) < len(names):
        raise UserError(f"{name}: the labels {names} are empty or not distinct. Rename them.")
    return Labels(classes, names, [names[code] for code in codes.tolist()])


def label_names(labels: np.ndarray) -> tuple[str, ...]:
    """Return labels as the model stores them: as texts."""
    return tuple(str(label) for label in labels.tolist())


def check_numbers(y: ArrayLike, name: str = "y") -> np.ndarray:
    """Return one number per row (n,), or several (n, K)."""
    _require_labels(y, name)
    array, locate = _as_array(y, name), _locator(y, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = _flatten(array, name)
    flat: np.ndarray = np.empty(array.shape, np.float64)
    for place, value in np.ndenumerate(array):
        if isinstance(value, (bool, np.bool_, str)) or not isinstance(value, numbers.Real):
            raise UserError(f"{locate(place[0])} is {_describe(value)}, not a number.")
        if not np.isfinite(float(value)):
            raise UserError(f"{locate(place[0])} is {value}: NaN and infinity cannot be learned.")
        flat[place] = float(value)
    return flat


def check_weights(sample_weight: ArrayLike, rows: int) -> np.ndarray | None:
    """Return the weight of each row, 0 or more; None if all count the same."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(rows, float(sample_weight))
    weights = check_numbers(sample_weight, "sample_weight")
    if weights.ndim != 1:
        raise UserError(f"sample_weight has the shape {weights.shape}: give one weight per row.")
    check_lengths(range(rows), weights, "sample_weight")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        at = int(negative[0])
        where = _locator(sample_weight, "sample_weight")(at)
        raise UserError(f"{where} is {weights[at]:g}: a weight is 0 or more.")
    if not weights.any():
        raise UserError("Every sample_weight is zero: there is nothing to learn from.")
    return None if (weights == 1).all() else weights


def check_lengths(X: Any, y: Any, name: str = "y") -> None:
    """Raise UserError unless X and y have as many rows."""
    if len(X) != len(y):
        raise UserError(
            f"X has {len(X)} rows, but {name} has {len(y)}: inconsistent numbers of samples. Give "
            "one value per row."
        )


def check_order(X: ArrayLike, y: ArrayLike, of: str = "") -> None:
    """Warn if the indexes of two Series hold the same rows in another order.

    scikit-learn joins rows by position, so texts would silently get the labels of others.
    """
    first, second = getattr(X, "iloc", None), getattr(y, "iloc", None)
    if first is None or second is None or X.index.equals(y.index):
        return
    if X.index.is_unique and len(X) == len(y) and X.index.isin(y.index).all():
        pairs = enumerate(zip(X.index.tolist(), y.index.tolist(), strict=True))
        at, (ours, theirs) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        warnings.warn(
            f"{of}X and {of}y have the same index in another order: row {at} is {ours!r} in X and "
            f"{theirs!r} in y. Rows are joined by position; to join them by index, pass "
            "y.loc[X.index].",
            UserNote,
            stacklevel=3,
        )


def _check_rows(
    X: ArrayLike,
    name: str,
    wanted: str,
    convert: Callable[[Any, str], Row],
    columns: int = 1,
) -> list[Row]:
    X = _open_array(X)
    if isinstance(X, (str, bytes)) or not hasattr(X, "__len__") or not hasattr(X, "__iter__"):
        raise UserError(
            f"{name} is {_describe(X)}; it should be a list or array, {wanted} per row."
        )
    shape = getattr(X, "shape", None)
    if shape is not None and columns == 1 and len(shape) != 1:
        frame = (
            f" with the columns {', '.join(map(str, X.columns))}" if hasattr(X, "columns") else ""
        )
        raise UserError(
            f"{name} has the shape {tuple(shape)}{frame}; it should be one-dimensional, {wanted} "
            "per row. Reshape your data: pass one column, such as X['text'] or X[:, 0]."
        )
    if shape is not None and columns > 1 and len(shape) == 2 and shape[1] != columns:
        raise UserError(
            f"{name} has {shape[1]} columns; it should have {columns}, {wanted} per row."
        )
    if not len(X):
        raise UserError(f"{name} has no rows: 0 samples found, at least 1 is required.")
    locate = _locator(X, name)
    if hasattr(X, "iloc"):  # rows by position, whatever the index
        X = X.to_numpy(dtype=object) if columns > 1 and len(X.shape) == 2 else X.array
    return [convert(row, locate(i)) for i, row in enumerate(X)]


def _locator(X: ArrayLike, name: str) -> Callable[[int], str]:
    """Return what names a row: its position, and its label in the index of a Series or frame."""
    index = X.index.tolist() if hasattr(X, "iloc") and hasattr(X, "index") else None
    if index is None or index == list(range(len(index))):
        return lambda i: f"{name}[{i}]"
    return lambda i: f"{name}[{i}] (index {index[i]!r})"


def _as_text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return str(value)
    if _is_missing(value):
        raise UserError(f"{where} is missing ({value}). Fill it in, or leave out the row.")
    fix = "Decode it" if isinstance(value, bytes) else "Convert it"
    raise UserError(f"{where} is {_describe(value)}, not a text. {fix}, or leave out the row.")


def _as_pair(value: Any, where: str) -> tuple[str, str]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") or len(value) != 2:
        if _is_missing(value):
            raise UserError(f"{where} is missing ({value}). Give two texts, or leave out the row.")
        raise UserError(f"{where} is {_describe(value)}, not a pair of texts: (text, other).")
    first, second = (_as_text(one, f"{where}[{i}]") for i, one in enumerate(value))
    return first, second


def _as_words(value: Any, where: str) -> list[str]:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        if _is_missing(value):
            raise UserError(f"{where} is missing ({value}). Fill it in, or leave out the row.")
        raise UserError(f"{where} is {_describe(value)}, not a list. Give one entry per word.")
    if not len(value):
        raise UserError(f"{where} is empty. Leave out the row.")
    words = [_as_text(one, f"{where}[{i}]") for i, one in enumerate(value)]
    blank = next((i for i, word in enumerate(words) if not word.strip()), None)
    if blank is not None:
        raise UserError(f"{where}[{blank}] is empty. Leave it out, or fill it in.")
    return words


def _require_labels(y: ArrayLike, name: str) -> None:
    y = _open_array(y)
    if y is None:
        raise UserError(
            f"requires y to be passed, but the target {name} is None: this estimator learns from "
            "labels."
        )
    if isinstance(y, (str, bytes)) or not hasattr(y, "__len__"):
        raise UserError(f"{name} is {_describe(y)}; it should be a list or array, one per row.")
    if not len(y):
        raise UserError(f"{name} has no rows: 0 samples found, at least 1 is required.")


def _as_array(y: ArrayLike, name: str) -> np.ndarray:
    """Return y as an array that keeps the types of its values."""
    y = _open_array(y)
    if hasattr(y, "iloc"):
        y = y.to_numpy()
    if not isinstance(y, np.ndarray):
        plain = list(y)
        nested = [isinstance(v, (list, tuple, np.ndarray)) for v in plain]
        if any(nested):
            widths = {len(v) if inner else 0 for v, inner in zip(plain, nested, strict=True)}
            if len(widths) > 1:
                raise UserError(
                    f"{name} has rows of different lengths. Give one label per row, or an "
                    "indicator matrix: sklearn.preprocessing.MultiLabelBinarizer makes one."
                )
            return np.array([list(v) for v in plain], dtype=object)
        types = {type(value) for value in plain}
        y = np.array(plain) if len(types) == 1 and not _is_missing(plain[0]) else _objects(plain)
    array: np.ndarray = y
    if array.ndim > 2 or array.ndim == 0:
        raise UserError(f"{name} has the shape {array.shape}; it should have one label per row.")
    return array


def _open_array(X: ArrayLike) -> ArrayLike:
    """Return the array of an object that is only convertible to one."""
    return np.asarray(X) if hasattr(X, "__array__") and not hasattr(X, "__len__") else X


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _flatten(array: np.ndarray, name: str) -> np.ndarray:
    if array.ndim == 2:
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected. Pass {name}.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
    return array.ravel()


def _require_one_type(array: np.ndarray, name: str, locate: Callable[[int], str]) -> None:
    """Raise UserError for a missing label, and for texts among numbers."""
    for i, value in enumerate(array.tolist()):
        if _is_missing(value):
            raise UserError(
                f"{locate(i)} is missing ({value}): Input {name} contains NaN. Fill it in, or "
                "leave out the row."
            )
        if isinstance(value, str) != isinstance(array.flat[0], str):
            first = _describe(array.flat[0])
            raise UserError(
                f"{locate(i)} is {_describe(value)}, but {name}[0] is {first}. Use one type of "
                "label."
            )
        if isinstance(value, float) and not np.isfinite(value):
            raise UserError(f"{locate(i)} is {value}: Input {name} contains infinity.")


def _check_indicators(array: np.ndarray, locate: Callable[[int], str]) -> Labels:
    """Return the label set of each row of zeros and ones."""
    for place, value in np.ndenumerate(array):
        if value not in (0, 1):
            raise UserError(
                f"{locate(place[0])} has {value!r} in column {place[1]}: a matrix of several "
                "labels per text has zeros and ones; sklearn.preprocessing.MultiLabelBinarizer "
                "makes one."
            )
    classes = np.arange(array.shape[1])
    names = label_names(classes)
    rows = [[names[k] for k in np.flatnonzero(row.astype(int))] for row in array]
    return Labels(classes, names, rows, multi_label=True)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def _describe(value: Any) -> str:
    return "None" if value is None else f"{value!r:.30} ({type(value).__name__})"
