"""Inputs of requests: JSON values to what a Predictor reads. No text names a file here."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.predict.predictor import Predictor
from weft.serve.http_error import HttpError, InvalidRequest
from weft.serve.settings import ServeSettings
from weft.text.example import Example

CHARACTERS_PER_TOKEN = 4  # of ASCII text, about
MATRIX_TOKEN_NUMBERS = 64  # numbers of a matrix that count as a token


def read_inputs(predictor: Predictor, given: Sequence[Any], limits: ServeSettings) -> list[Any]:
    """Return what the predictor reads, or raise an InvalidRequest that names the text."""
    if len(given) > limits.max_texts:
        raise HttpError(
            422, f"{len(given):,} texts; a request may have {limits.max_texts:,} (--max-texts)."
        )
    return [_read_input(predictor, one, f"text {i}") for i, one in enumerate(given, 1)]


def _read_input(predictor: Predictor, one: Any, where: str) -> Any:
    if predictor.engine.input_kind == "vectors":
        return _read_matrix(one, where)  # a text would name a file of the server
    if predictor.task.record and isinstance(one, Mapping):
        return dict(one)
    if predictor.pairs:
        return _read_pair(one, where)
    if isinstance(one, str):
        return one
    if predictor.is_structured and isinstance(one, Mapping) and set(one) == {"words"}:
        return _read_words(one["words"], where)
    wanted = "a text or {words}" if predictor.is_structured else "a text"
    raise InvalidRequest(f"{where}: expected {wanted}, found {_describe(one)}.")


def _read_pair(one: Any, where: str) -> tuple[str, str]:
    if isinstance(one, Mapping) and set(one) == {"text", "other"}:
        one = [one["text"], one["other"]]
    if isinstance(one, list) and [type(text) for text in one] == [str, str]:
        return one[0], one[1]
    raise InvalidRequest(
        f"{where}: this model reads pairs, [text, other] or {{text, other}}; found "
        f"{_describe(one)}."
    )


def _read_words(words: Any, where: str) -> Example:
    if not isinstance(words, list) or not all(isinstance(w, str) and w.strip() for w in words):
        raise InvalidRequest(f"{where}: 'words' should be a list of words without empty ones.")
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    offsets = tuple((end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True))
    return Example(" ".join(words), words=tuple(words), places=offsets)


def _read_matrix(one: Any, where: str) -> np.ndarray:
    rows = one if isinstance(one, list) else []
    width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    numbers = width and all(
        isinstance(row, list)
        and len(row) == width
        and all(type(number) in (int, float) for number in row)
        for row in rows
    )
    if not numbers:
        raise InvalidRequest(
            f"{where}: this model reads vectors: send a matrix, a list of rows of numbers of one "
            f"length; found {_describe(one)}."
        )
    try:
        return np.array(rows, np.float32)
    except OverflowError:
        raise InvalidRequest(f"{where}: a number of the matrix is too large.") from None


def _describe(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    names |= {list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def input_json(one: Any) -> Any:
    """Return an input as JSON."""
    if isinstance(one, Example):
        return {"words": list(one.words)}
    if isinstance(one, np.ndarray):
        return one.tolist()
    return list(one) if isinstance(one, tuple) else one


def estimate_tokens(one: Any) -> int:
    """Return about how many tokens an input has, without tokenising it."""
    if isinstance(one, str):
        per_token = CHARACTERS_PER_TOKEN if one.isascii() else CHARACTERS_PER_TOKEN // 2
        return len(one) // per_token + 1
    if isinstance(one, Example):
        return len(one.words) + 1
    if isinstance(one, np.ndarray):
        return one.size // MATRIX_TOKEN_NUMBERS + 1
    parts = one.values() if isinstance(one, Mapping) else one
    return sum(estimate_tokens(str(part)) for part in parts) + 1


def estimate_request(inputs: Sequence[Any], limits: ServeSettings) -> list[int]:
    """Return the tokens of each input, or raise 413 if they are too many together."""
    tokens = [estimate_tokens(one) for one in inputs]
    if sum(tokens) > limits.max_tokens:
        raise HttpError(
            413,
            f"About {sum(tokens):,} tokens; a request may have {limits.max_tokens:,} "
            "(--max-tokens). Send fewer or shorter texts.",
        )
    return tokens
