"""Manners in notebooks: values draw themselves, and a progress bar updates in place.

Nothing here imports IPython; inside a kernel, it is loaded already.
"""

import html
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

REFRESH_SECONDS = 0.1  # between two updates of a bar
DELAY_SECONDS = 0.5  # work done by then shows no bar


class HtmlRepr:
    """A value that notebooks show as HTML, drawn by weft.report.notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        page: str = importlib.import_module("weft.report.notebook").render(self)
        return page


class DisplayHandle(Protocol):
    """An output of a cell that can be replaced: IPython.display.DisplayHandle."""

    def update(self, data: Any, /, **options: Any) -> None:
        """Replace the output."""


def in_notebook() -> bool:
    """Return True in a kernel of Jupyter, Colab or the like, False in IPython on a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A progress bar as one output of a cell; see weft.progress.open_bar.

    It needs no ipywidgets, and a saved notebook keeps it. At the end a line with the time stays.
    """

    def __init__(
        self,
        text: str,
        total: float | None = None,
        counted: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.title, self.text, self.total, self.counted = text, text, total, counted
        self.clock = clock
        self.done = 0.0
        self.started = self.drawn = clock()
        self.handle: DisplayHandle | None = None

    def update(
        self, *, done: float | None = None, text: str | None = None, total: float | None = None
    ) -> None:
        """Set what is done of `total`, or the text."""
        self.done = self.done if done is None else done
        self.text = self.text if text is None else text
        self.total = self.total if total is None else total
        now = self.clock()
        if now - self.drawn >= (DELAY_SECONDS if self.handle is None else REFRESH_SECONDS):
            self.drawn = now
            self._display(self._render(now))

    def advance(self, count: float) -> None:
        """Add to what is done."""
        self.update(done=self.done + count)

    def say(self, text: str) -> None:
        """Print a line under the bar."""
        if self.handle is None:
            self._display(self._render(self.clock()))
        print(text, flush=True)

    def close(self) -> None:
        """Replace the bar by a line, if it was shown."""
        if self.handle is not None:
            from weft.progress import duration

            words = self._words() if self.total is None or self.counted else self.title
            words += f": {duration(self.clock() - self.started)}"
            self._display(f'<div style="opacity:.7">{html.escape(words)}</div>')

    def _words(self) -> str:
        if self.total is None:
            return f"{self.done:,.0f} {self.text}"
        if self.counted:
            return f"{self.text} {self.done:,.0f}/{f'{self.total:,.0f}' if self.total else '?'}"
        return self.text

    def _render(self, now: float) -> str:
        from weft.progress import duration

        seconds = now - self.started
        times = duration(seconds)
        bar = ""
        if self.total:
            share = min(self.done / self.total, 1.0)
            bar = f'<progress value="{share:.4f}" max="1" style="width:16rem"></progress>'
            if 0 < share < 1:
                times += f", {duration(seconds / share - seconds)} left"
        return (
            '<div style="display:flex;gap:.8em;align-items:center;flex-wrap:wrap">'
            f'<span>{html.escape(self._words())}</span>{bar}<span style="opacity:.7">{times}</span>'
            "</div>"
        )

    def _display(self, page: str) -> None:
        display = sys.modules["IPython.display"]
        if self.handle is None:
            self.handle = display.display(display.HTML(page), display_id=True)
        else:
            self.handle.update(display.HTML(page))
