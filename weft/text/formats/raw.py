"""Read a file as running text: all lines with their breaks, including blank ones."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from weft.errors import UserError
from weft.text.example import Example, SkipCounter
from weft.text.line_source import BadRowPolicy, BadRows, LineSource, decode_line


def read_raw_lines(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Example]:
    """Yield every line of a file, with its line break as "\\n"."""
    source = LineSource(path)
    if not source.head(1):
        raise UserError(f"{source.name}: the file is empty. Add at least one text.")
    bad_rows = BadRows(source.name, on_bad_row, skipped)
    for number, raw in enumerate(source.raw(), 1):
        text = decode_line(raw, number, bad_rows)
        if text is not None:
            yield Example(text + "\n" * raw.endswith(b"\n"), None, "", source.name, number)


def split_lines(examples: Iterable[Example]) -> Iterator[Example]:
    """Yield the lines of texts, as those of a file that holds one after the other."""
    for example in examples:
        for line in example.text.removesuffix("\n").split("\n"):
            yield replace(example, text=line.removesuffix("\r") + "\n", label=None)
