"""Text for a terminal: what data files hold is shown, and never obeyed."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from weft.errors import escape_control


class Terminal(Console):
    """A console that spells out control characters and takes no text for markup or emoji codes."""

    def __init__(self, **options: Any) -> None:
        stream = sys.stderr if options.get("stderr") else sys.stdout
        # Past the guard: the colours of this console are its own.
        options.setdefault("file", getattr(stream, "rich_proxied_file", stream))
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Spell them out in a plain string before its width is measured, as a table does."""
        return super().render_str(escape_control(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as always, with the control characters of texts spelled out."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_control(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


class TerminalFilter:
    """A stream to a terminal that spells out control characters; all else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # as rich calls what it writes to itself

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_control(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def install_filter() -> None:
    """Put a guard before standard output and error where they are terminals.

    What goes into a file or a pipe stays as it is.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, TerminalFilter):
            setattr(sys, name, cast(TextIO, TerminalFilter(stream)))
