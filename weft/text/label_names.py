"""Names for numeric label ids."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from weft.errors import UserError
from weft.text.example import Example, Label, WordAnnotations
from weft.text.line_source import BadRows, LineSource

UNNAMED_LABEL = "labels without a name"
MAX_SHOWN_NAMES = 5  # in a message
NAMES_HELP = "Pass a file with one name or id<TAB>name per line, or write 0=negative,1=positive"


def parse_names(value: str) -> tuple[str, ...]:
    """Parse `--names`, a file or `id=name,id=name`, into 'id=name' strings for [data]."""
    if not value:
        return ()
    if not os.path.exists(value):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise UserError(f"--names {value}: neither a file nor id=name. {NAMES_HELP}.")
        return check_names(parts)
    bad_rows = BadRows(value, "error", None)
    lines = [line for _, line in LineSource(value).lines(bad_rows) if line.strip()]
    if all("\t" in line for line in lines):
        pairs = [line.split("\t", 1) for line in lines]
    else:
        pairs = [[str(number), line] for number, line in enumerate(lines)]
    return check_names([f"{key.strip()}={name.strip()}" for key, name in pairs])


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the same 'id=name' strings; raise a UserError if one is malformed or repeated."""
    seen: dict[str, str] = {}
    for part in names:
        key, equals, name = part.partition("=")
        if not equals or not key or not name:
            raise UserError(f"data.names: '{part}' is not id=name. {NAMES_HELP}.")
        if key in seen:
            raise UserError(f"data.names: id '{key}' is repeated. Give each id one name.")
        seen[key] = name
    return tuple(names)


def rename_labels(
    examples: Iterator[Example], names: Sequence[str], bad_rows: BadRows
) -> Iterator[Example]:
    """Yield the examples with label ids replaced by names.

    A label that already is a name stays; any other is reported as a bad row.
    """
    names_by_id = dict(part.split("=", 1) for part in names)
    for example in examples:
        try:
            label = _rename_label(example.label, names_by_id)
        except UserError as error:
            bad_rows.file = example.file
            bad_rows.report(UNNAMED_LABEL, example.line, str(error))
            continue
        yield example if label is example.label else replace(example, label=label)


def _rename_label(label: Label, names: Mapping[str, str]) -> Label:
    if isinstance(label, str):
        return _name_of(label, names)
    if isinstance(label, tuple):
        return tuple(_name_of(one, names) for one in label)
    if isinstance(label, float) and label.is_integer():
        return _name_of(str(int(label)), names)
    if isinstance(label, WordAnnotations):
        tags = tuple(_name_of(tag, names) for tag in label.columns[label.main])
        return WordAnnotations({**label.columns, label.main: tags}, label.main, label.label)
    return label


def _name_of(label: str, names: Mapping[str, str]) -> str:
    name = names.get(label)
    if name is not None:
        return name
    if label in names.values():
        return label
    listed = ", ".join(f"{key}={name}" for key, name in list(names.items())[:MAX_SHOWN_NAMES])
    more = ", …" if len(names) > MAX_SHOWN_NAMES else ""
    raise UserError(f"label '{label}' has no name among {listed}{more}. Add it to --names.")
