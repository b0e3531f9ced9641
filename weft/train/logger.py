"""Seeing a training: a bar on a terminal, plain lines elsewhere, metrics.jsonl always."""

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from weft.errors import UserError
from weft.progress import ProgressLines, Stage
from weft.storage import WriteError, append_line, write_text
from weft.terminal import Terminal

Row = TypeVar("Row")
PROGRESS_FILE = "progress.json"  # how far a training is, for processes that wait for it


class ResumeError(UserError):
    """A run that cannot be taken up again in the way that was asked for."""


class RunLogger:
    """Writes what happens in a run to its folder and to the person who waits for it."""

    def __init__(self, folder: Path, *, quiet: bool = False, tensorboard: bool = False):
        self.folder, self.quiet = folder, quiet
        for name in ("metrics.jsonl", "log.txt"):
            (folder / name).touch()
        self.console = Terminal(stderr=True)
        self.board = _tensorboard_writer(folder) if tensorboard else None
        self.bar: Progress | None = None
        self._first: tuple[float, float] | None = None  # time and fraction at the first update
        self._written = 0.0
        if not quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
            self.line = self.bar.add_task("training", total=1.0)
        self.lines = None if self.bar is not None else ProgressLines(self._print)

    def reading(self, rows: Iterable[Row], what: str) -> Iterator[Row]:
        """The same rows; how many have gone by is shown where that takes long."""
        with self.during(what, "rows") as stage:
            for number, row in enumerate(rows, 1):
                yield row
                stage.done = number
                if self.bar is not None and number % 1000 == 0:
                    self.bar.update(self.line, description=f"{what}: {number:,} rows")

    @contextlib.contextmanager
    def during(self, what: str, unit: str = "", announce: bool = True) -> Iterator[Stage]:
        """Say when something begins and ends, where there is no bar, and now and then how far it
        is."""
        if self.lines is None:
            yield Stage(what, unit, 0.0)
            return
        with self.lines.during(what, unit, announce) as stage:
            yield stage

    def update(self, progress: Any, stage: Stage, epochs: int, left: float = float("inf")) -> None:
        """One update of the weights is done; `left` are the seconds that there are."""
        self._write_progress(progress.share)
        if stage.share is None:  # after the first, which sets up what it needs
            stage.started, stage.share = time.monotonic(), (progress.share, progress.share)
        else:
            stage.done += progress.count if stage.unit == "tokens" else len(progress.rows)
            stage.share = stage.share[0], progress.share
        stage.where = f"epoch {progress.share * epochs:.1f} of {epochs}, update {progress.step}"
        stage.left = left
        if self.bar is not None and progress.step % 10 == 0:
            words = f"epoch {progress.position.epoch + 1}  loss {progress.loss:.4f}"
            self.bar.update(self.line, completed=progress.share, description=words)

    def share(self, share: float, what: str) -> None:
        """So much of a training that has no updates to show is done."""
        if self.bar is not None:
            self.bar.update(self.line, completed=share, description=what)
        elif self.lines is not None and self.lines.stage is not None:
            stage = self.lines.stage
            stage.share, stage.where = (0.0, share), f"{share:.0%}"

    def _write_progress(self, fraction: float) -> None:
        """Once a second, write the fraction done, and how long the updates after the first took."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, fraction
        elif now - self._written >= 1:
            self._written = now
            seen = {"done": fraction, "since": self._first[1], "seconds": now - self._first[0]}
            with contextlib.suppress(WriteError):  # nothing depends on it
                write_text(self.folder / PROGRESS_FILE, json.dumps(seen))

    def event(self, kind: str, **values: Any) -> None:
        """One line of metrics.jsonl."""
        line = json.dumps({"event": kind, **values}, ensure_ascii=False)
        append_line(self.folder / "metrics.jsonl", line)
        if self.board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)) and name not in ("step", "epoch"):
                    self.board.add_scalar(f"{kind}/{name}", value, values.get("step", 0))

    def say(self, text: str) -> None:
        """One line for the log and, unless quiet, for the person."""
        (self._print if self.lines is None else self.lines.say)(text)

    def _print(self, text: str) -> None:
        append_line(self.folder / "log.txt", text)
        if not self.quiet:
            self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)

    def close(self) -> None:
        if self.lines is not None:
            self.lines.close()
        if self.bar is not None:
            self.bar.stop()
        if self.board is not None:
            self.board.close()
        (self.folder / PROGRESS_FILE).unlink(missing_ok=True)


def truncate_metrics(path: Path, step: int) -> None:
    """Drop the lines of metrics.jsonl that a resumed training will write again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text("utf-8").splitlines():
        try:
            if json.loads(line).get("step", 0) <= step:
                kept.append(line + "\n")
        except json.JSONDecodeError:
            break  # the kill came in the middle of a line
    write_text(path, "".join(kept))


def _tensorboard_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        from weft.errors import UserError

        raise UserError(
            "train.tensorboard needs the tensorboard package: pip install 'weft[tensorboard]'."
        ) from None
    return SummaryWriter(str(folder / "tensorboard"))


@contextlib.contextmanager
def restore_on_failure(path: Path, resume: bool) -> Iterator[Path]:
    """A file that has its old text again where a run that is taken up is refused."""
    before = path.read_text("utf-8") if resume and path.is_file() else None
    try:
        yield path
    except ResumeError:
        if before is not None:
            write_text(path, before)
        raise
