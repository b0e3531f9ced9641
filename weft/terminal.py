"""Print untrusted text to a terminal with control characters escaped."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from weft.errors import escape_control


class Terminal(Console):
    """A console that escapes control characters and reads no markup or emoji codes in texts."""

    def __init__(self, **options: Any) -> None:  # those of rich.Console
        stream = sys.stderr if options.get("stderr") else sys.stdout
        # Past the filter, which would escape this console's colours.
        options.setdefault("file", getattr(stream, "rich_proxied_file", stream))
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:  # those of rich.Console
        """Escape a plain string before its width is measured, as in a table."""
        return super().render_str(escape_control(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with the control characters of texts escaped."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_control(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)


class TerminalFilter:
    """A stream to a terminal that escapes control characters and delegates everything else."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # the name rich looks for

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(escape_control(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.rich_proxied_file, name)


def install_filter() -> None:
    """Filter standard output and error where they are terminals; files and pipes stay raw."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, TerminalFilter):
            setattr(sys, name, cast(TextIO, TerminalFilter(stream)))
