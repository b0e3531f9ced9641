"""Print untrusted text to a terminal with control characters escaped, and show progress bars."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
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


class TerminalBar:
    """A progress bar on standard error, removed at the end; see weft.progress.open_bar."""

    def __init__(self, text: str, total: float | None = None, counted: bool = True):
        columns: tuple[ProgressColumn, ...]
        words = TextColumn("{task.description}")
        if total is None:
            count = TextColumn("{task.completed:,.0f} {task.description}")
            columns = (SpinnerColumn(), count, TimeElapsedColumn())
        elif counted:
            columns = (words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        else:
            columns = (words, BarColumn(), TimeRemainingColumn())
        self.console = Terminal(stderr=True)
        self.bar = Progress(*columns, console=self.console, transient=True)
        self.line = self.bar.add_task(text, total=total or None)
        self.bar.start()

    def update(
        self, *, done: float | None = None, text: str | None = None, total: float | None = None
    ) -> None:
        """Set what is done of `total`, or the text."""
        self.bar.update(self.line, completed=done, description=text, total=total)

    def advance(self, count: float) -> None:
        """Add to what is done."""
        self.bar.advance(self.line, count)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.console.print(text, markup=False)

    def close(self) -> None:
        """Remove the bar."""
        self.bar.stop()


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
