"""Names for the ids that a file has as labels."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from weft.errors import UserError
from weft.text.example import Example, Label, Layers
from weft.text.line_source import Problems, Source

NAMELESS = "labels without a name"
SHOWN = 5  # names in a message
HOW = "Give a file with a name a line, or with id<TAB>name, or write 0=negative,1=positive"


def parse_names(value: str) -> tuple[str, ...]:
    """Read `--names`, a file or `id=name,id=name`, as the texts 'id=name' that [data] keeps."""
    if not value:
        return ()
    if not os.path.exists(value):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        if not all("=" in part for part in parts):
            raise UserError(f"--names {value}: no such file, and not id=name. {HOW}.")
        return checked_names(parts)
    problems = Problems(value, "error", None)
    lines = [line for _, line in Source(value).lines(problems) if line.strip()]
    if all("\t" in line for line in lines):
        pairs = [line.split("\t", 1) for line in lines]
    else:
        pairs = [[str(number), line] for number, line in enumerate(lines)]
    return checked_names([f"{key.strip()}={name.strip()}" for key, name in pairs])


def checked_names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the same texts 'id=name', or raise a UserError for one that is none or comes twice."""
    seen: dict[str, str] = {}
    for part in given:
        key, equals, name = part.partition("=")
        if not equals or not key or not name:
            raise UserError(f"data.names: '{part}' is not id=name. {HOW}.")
        if key in seen:
            raise UserError(f"data.names: the id '{key}' comes twice. Give each id one name.")
        seen[key] = name
    return tuple(given)


def named(
    examples: Iterator[Example], names: Sequence[str], problems: Problems
) -> Iterator[Example]:
    """Yield the examples with names in place of the ids of their labels.

    A label that is a name already stays; one that is neither is a problem of its row.
    """
    known = dict(part.split("=", 1) for part in names)
    for example in examples:
        try:
            label = _named(example.label, known)
        except UserError as error:
            problems.file = example.file
            problems.found(NAMELESS, example.line, str(error))
            continue
        yield example if label is example.label else replace(example, label=label)


def _named(label: Label, known: Mapping[str, str]) -> Label:
    if isinstance(label, str):
        return _name(label, known)
    if isinstance(label, tuple):
        return tuple(_name(one, known) for one in label)
    if isinstance(label, float) and label.is_integer():
        return _name(str(int(label)), known)
    if isinstance(label, Layers):
        tags = tuple(_name(tag, known) for tag in label.columns[label.main])
        return Layers({**label.columns, label.main: tags}, label.main)
    return label


def _name(label: str, known: Mapping[str, str]) -> str:
    found = known.get(label)
    if found is not None:
        return found
    if label in known.values():
        return label
    listed = ", ".join(f"{key}={name}" for key, name in list(known.items())[:SHOWN])
    more = ", …" if len(known) > SHOWN else ""
    raise UserError(f"the label '{label}' has no name among {listed}{more}. Add it to --names.")
