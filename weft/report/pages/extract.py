"""The page of `weft extract`: each sentence with its tuples as a graph."""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

from weft.report import html
from weft.report.drawings.tuple_graph import draw_tuples
from weft.text.annotation.frames import Extractions


def write(
    path: Path,
    sentences: Sequence[tuple[str, Extractions]],
    name: str,
    *,
    left_out: int,
    command: Sequence[str],
) -> None:
    """Write the page; raise UserError if that fails."""
    html.save(path, render(sentences, name, left_out=left_out, command=command))


def render(
    sentences: Sequence[tuple[str, Extractions]],
    name: str,
    *,
    left_out: int = 0,
    command: Sequence[str] = (),
) -> str:
    """Render the whole page; `left_out` sentences are counted, not shown."""
    return html.render(
        "extract.html",
        name=name,
        sentences=[(text, one.tuples, draw_tuples(one.tuples)) for text, one in sentences],
        total=sum(len(one.tuples) for _, one in sentences),
        left_out=left_out,
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )
