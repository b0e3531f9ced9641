"""Progress: a bar on a terminal or in a notebook, plain lines on standard error elsewhere."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from weft.notebook import NotebookBar, in_notebook

LINE_INTERVAL_SECONDS = 30.0  # seconds without a line, at most
BAR_ROWS = 1000  # rows between two updates of a bar
Row = TypeVar("Row")


@dataclass
class Stage:
    """A stage of work and its progress."""

    what: str
    unit: str
    started: float
    done: int = 0
    where: str = ""  # in words, instead of the number done
    share: tuple[float, float] | None = None  # of all, done when it started and now
    left: float = float("inf")  # seconds there are, at most

    def describe(self, now: float) -> str:
        """Return how far it is, how fast, and how long it will still take."""
        seconds = now - self.started
        parts = [self.where or f"{self.done:,} {self.unit}"] if self.where or self.done else []
        if self.done and seconds > 0:
            rate = self.done / seconds
            parts.append(
                f"{rate:,.0f} {self.unit}/s" if rate >= 10 else f"{rate:.2g} {self.unit}/s"
            )
        left = min(self.remaining(seconds), self.left)
        if left < float("inf"):
            parts.append(f"{duration(left)} left")
        return f"{self.what}: {', '.join(parts or [duration(seconds)])}"

    def remaining(self, seconds: float) -> float:
        if self.share is None or self.share[1] <= self.share[0]:
            return float("inf")
        before, now = self.share
        return (1 - now) / (now - before) * seconds


class ProgressLines:
    """Reports the start, end and, every LINE_INTERVAL_SECONDS, the progress of stages.

    A thread does the latter, so that an evaluation or a compiler need not know of it. It looks at
    plain numbers only, never at the device.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self._say, self.clock = say, clock
        self.stage: Stage | None = None
        self.last_line_at = clock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, text: str) -> None:
        self.last_line_at = self.clock()
        self._say(text)

    @contextmanager
    def during(self, what: str, unit: str = "", announce: bool = True) -> Iterator[Stage]:
        """Report the start and end of a stage; the caller updates the Stage."""
        outer, stage = self.stage, Stage(what, unit, self.clock())
        self.stage = stage
        self._watch()
        if announce:
            self.say(f"{what} …")
        try:
            yield stage
            if announce:
                amount = f"{stage.done:,} {unit} in " if stage.done else "done in "
                self.say(f"{what}: {amount}{duration(self.clock() - stage.started)}")
        finally:
            self.stage = outer

    def say_if_due(self) -> None:
        """Print the progress if the last line is old."""
        stage, now = self.stage, self.clock()
        if stage is not None and now - self.last_line_at >= LINE_INTERVAL_SECONDS:
            self.say(stage.describe(now))

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(
            max(
                self.last_line_at + LINE_INTERVAL_SECONDS - self.clock(), LINE_INTERVAL_SECONDS / 10
            )
        ):
            with suppress(OSError, ValueError):  # a full disk: what needs it will say so
                self.say_if_due()


class ProgressBar(Protocol):
    """A bar that updates in place: weft.terminal.TerminalBar or weft.notebook.NotebookBar."""

    def update(
        self, *, done: float | None = None, text: str | None = None, total: float | None = None
    ) -> None:
        """Set what is done of `total`, or the text."""

    def advance(self, count: float) -> None:
        """Add to what is done."""

    def say(self, text: str) -> None:
        """Print a line beside the bar."""

    def close(self) -> None:
        """End the bar."""


def open_bar(text: str, total: float | None = None, counted: bool = True) -> ProgressBar | None:
    """Return the bar of a notebook or terminal; None elsewhere, where plain lines are better.

    Without a total it counts, and `text` says what; a total of 0 is set later. `counted` shows
    how many of the total are done.
    """
    if in_notebook():
        return NotebookBar(text, total, counted)
    if not sys.stderr.isatty():
        return None
    from weft.terminal import TerminalBar

    return TerminalBar(text, total, counted)


@contextmanager
def counting(
    what: str, watch: Callable[[int], None] | None = None
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items done since the last call.

    It is `watch`, if there is one.
    """
    if watch is not None:
        yield watch
    elif (bar := open_bar(what)) is not None:
        with closing(bar):
            yield bar.advance
    else:
        with (
            closing(ProgressLines(print_line)) as lines,
            lines.during("so far", what, announce=False) as stage,
        ):

            def add(done: int) -> None:
                stage.done += done

            yield add


@contextmanager
def following(
    what: str, watch: Callable[[str, float], None] | None = None
) -> Iterator[Callable[[str, float], None]]:
    """Yield a function to call with the name of a step and its fraction done.

    It is `watch`, if there is one.
    """
    if watch is not None:
        yield watch
    elif (bar := open_bar(what, total=1.0, counted=False)) is not None:
        with closing(bar):
            yield lambda step, fraction: bar.update(text=step, done=fraction)
    else:
        with (
            closing(ProgressLines(print_line)) as lines,
            lines.during(what, announce=False) as stage,
        ):

            def follow(step: str, fraction: float) -> None:
                stage.where = f"{step}, {fraction:.0%}"

            yield follow


def silent(done: int) -> None:
    """Show nothing."""


def with_progress(rows: Iterable[Row], what: str, quiet: bool = False) -> Iterator[Row]:
    """Yield the same rows; say when reading them begins and ends, and how far it is."""
    if quiet:
        yield from rows
        return
    if (bar := open_bar(f"rows, {what}")) is not None:
        with closing(bar):
            for number, row in enumerate(rows, 1):
                yield row
                if number % BAR_ROWS == 0:
                    bar.update(done=number)
        return
    lines = ProgressLines(print_line)
    try:
        with lines.during(what, "rows") as stage:
            for row in rows:
                yield row
                stage.done += 1
    finally:
        lines.close()


def print_line(text: str) -> None:
    """Print a line to standard error; in a notebook, which would mark it as an error, to output."""
    print(text, file=sys.stdout if in_notebook() else sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return a time in words: 0.4 s, 12 s, 3 min, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
