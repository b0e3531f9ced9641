"""A file as one running text: its lines with their breaks, and the blank ones too."""

import os
from collections.abc import Iterator

from weft.errors import UserError
from weft.text.example import Example, Tally
from weft.text.line_source import BadRowPolicy, BadRows, LineSource, decode_line


def read_raw_lines(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: Tally | None = None,
) -> Iterator[Example]:
    """Every line of a file, whatever it holds, with the break that ends it as "\\n"."""
    source = LineSource(path)
    if not source.head(1):
        raise UserError(f"{source.name}: the file is empty. Give it at least one text.")
    watch = BadRows(source.name, on_bad_row, skipped)
    for number, raw in enumerate(source.raw(), 1):
        text = decode_line(raw, number, watch)
        if text is not None:
            yield Example(text + "\n" * raw.endswith(b"\n"), None, "", source.name, number)
