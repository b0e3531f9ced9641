"""A progress bar on a terminal, a line every half a minute elsewhere."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items done since the last call."""
    if not sys.stderr.isatty():
        from weft.progress import ProgressLines, to_stderr

        with (
            contextlib.closing(ProgressLines(to_stderr)) as lines,
            lines.during("so far", what, announce=False) as stage,
        ):

            def add(done: int) -> None:
                stage.done += done

            yield add
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from weft.terminal import Terminal

    columns = (SpinnerColumn(), TextColumn("{task.completed} " + what), TimeElapsedColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as bar:
        line = bar.add_task(what, total=None)
        yield lambda done: bar.advance(line, done)
