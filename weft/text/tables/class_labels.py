"""Class names that a Hugging Face dataset stores beside its class ids."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from weft.text.formats.rows import Row


def hub_class_names(
    metadata: Mapping[bytes, bytes] | None = None, features: Mapping[str, Any] | None = None
) -> dict[str, Sequence[str]]:
    """Return the class names of each column, from the features or an Arrow schema's metadata."""
    if features is None:
        try:
            stored = json.loads((metadata or {}).get(b"huggingface", b"{}"))
            features = stored["info"]["features"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return {}
    found = {name: _names_of(feature) for name, feature in (features or {}).items()}
    return {name: names for name, names in found.items() if names}


def _names_of(feature: Any) -> Sequence[str]:
    """Return the class names of a ClassLabel, or of a list of them."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names_of(feature[0])
    stored = feature if isinstance(feature, Mapping) else vars(feature) if feature else {}
    kind = stored.get("_type") or type(feature).__name__
    if kind in ("Sequence", "List", "LargeList"):
        return _names_of(stored.get("feature"))
    names = stored.get("names")
    usable = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return tuple(names) if kind == "ClassLabel" and usable and names else ()


def decode_columns(rows: Iterable[Any], names: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    """Yield the rows with class names in place of ids; an id without a name is a missing label."""
    if not names:
        yield from rows
        return
    for row in rows:
        if isinstance(row, dict):
            row = row | {c: _decode(row[c], known) for c, known in names.items() if c in row}
        yield row


def _decode(value: object, names: Sequence[str]) -> object:
    if isinstance(value, list):
        return [_decode(one, names) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return names[value] if 0 <= value < len(names) else None
    return value
