"""The run logger: a progress bar or plain lines, metrics.jsonl, and experiment trackers."""

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import UserError
from weft.progress import ProgressBar, ProgressLines, Stage, open_bar
from weft.storage import WriteError, append_line, write_text
from weft.terminal import Terminal
from weft.train.trackers import Tracker, describe, finite_values, open_tracker

if TYPE_CHECKING:
    from weft.train.state import Progress as Update

Row = TypeVar("Row")
PROGRESS_FILE = "progress.json"  # the fraction done, for processes that wait for the run


class ResumeError(UserError):
    """The run cannot be resumed with these settings."""


class RunLogger:
    """Logs a run to its folder and to the terminal."""

    def __init__(
        self,
        folder: Path,
        *,
        quiet: bool = False,
        loggers: Sequence[str] = (),
        config: Mapping[str, Any] = {},
        tags: Mapping[str, str] = {},
    ):
        self.folder, self.quiet = folder, quiet
        for name in ("metrics.jsonl", "log.txt"):
            (folder / name).touch()
        self.console = Terminal(stderr=True)
        self.trackers = {name: open_tracker(name, folder, config, tags) for name in loggers}
        self._first: tuple[float, float] | None = None  # time and fraction at the first update
        self._written = 0.0
        self.bar: ProgressBar | None = None
        if not quiet:
            self.bar = open_bar("training", total=1.0, counted=False)
        self.lines = None if self.bar is not None else ProgressLines(self._print)

    def reading(self, rows: Iterable[Row], what: str) -> Iterator[Row]:
        """Yield the rows and show their count if it takes long."""
        with self.during(what, "rows") as stage:
            for number, row in enumerate(rows, 1):
                yield row
                stage.done = number
                if self.bar is not None and number % 1000 == 0:
                    self.bar.update(text=f"{what}: {number:,} rows")

    @contextlib.contextmanager
    def during(self, what: str, unit: str = "", announce: bool = True) -> Iterator[Stage]:
        """Without a bar, log when a stage begins and ends, and its progress now and then."""
        if self.lines is None:
            yield Stage(what, unit, 0.0)
            return
        with self.lines.during(what, unit, announce) as stage:
            yield stage

    def update(
        self, progress: "Update", stage: Stage, epochs: int, left: float = float("inf")
    ) -> None:
        """Show that an update is done; `left` is the number of seconds remaining."""
        self._write_progress(progress.fraction)
        if stage.share is None:  # not timed: the first update includes set-up
            stage.started, stage.share = time.monotonic(), (progress.fraction, progress.fraction)
        else:
            stage.done += int(progress.count) if stage.unit == "tokens" else len(progress.rows)
            stage.share = stage.share[0], progress.fraction
        stage.where = f"epoch {progress.fraction * epochs:.1f} of {epochs}, update {progress.step}"
        stage.left = left
        if self.bar is not None and progress.step % 10 == 0:
            words = f"epoch {progress.position.epoch + 1}  loss {progress.loss:.4f}"
            self.bar.update(done=progress.fraction, text=words)

    def progress(self, fraction: float, what: str) -> None:
        """Show the fraction done of a training without updates."""
        if self.bar is not None:
            self.bar.update(done=fraction, text=what)
        elif self.lines is not None and self.lines.stage is not None:
            stage = self.lines.stage
            stage.share, stage.where = (0.0, fraction), f"{fraction:.0%}"

    def _write_progress(self, fraction: float) -> None:
        """Once a second, write the fraction done and the time since the first update."""
        now = time.monotonic()
        if self._first is None:
            self._first = now, fraction
        elif now - self._written >= 1:
            self._written = now
            values = {"done": fraction, "since": self._first[1], "seconds": now - self._first[0]}
            with contextlib.suppress(WriteError):  # nothing depends on it
                write_text(self.folder / PROGRESS_FILE, json.dumps(values))

    def event(self, kind: str, **values: Any) -> None:
        """Write one line to metrics.jsonl."""
        line = json.dumps({"event": kind, **values}, ensure_ascii=False)
        append_line(self.folder / "metrics.jsonl", line)
        step = values.pop("step", None)
        metrics = {f"{kind}/{k}": v for k, v in finite_values(values).items() if k != "epoch"}
        for name in list(self.trackers) if metrics else ():
            with self._drop_on_failure(name) as tracker:
                tracker.log(metrics, step)

    @contextlib.contextmanager
    def _drop_on_failure(self, name: str) -> Iterator[Tracker]:
        """Yield a tracker; if it fails, say so and go on without it: no run is lost for its log."""
        try:
            yield self.trackers[name]
        except Exception as error:
            del self.trackers[name]
            self.info(f"note: {name} failed and is not used any more: {describe(error)}")

    def info(self, text: str) -> None:
        """Write one line to the log and, unless quiet, to the terminal."""
        (self._print if self.lines is None else self.lines.say)(text)

    def _print(self, text: str) -> None:
        append_line(self.folder / "log.txt", text)
        if self.bar is not None:
            self.bar.say(text)
        elif not self.quiet:
            self.console.print(text, markup=False, soft_wrap=not self.console.is_terminal)

    def __enter__(self) -> "RunLogger":
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close(failed=kind is not None)

    def close(self, failed: bool = False) -> None:
        for name in list(self.trackers):
            with self._drop_on_failure(name) as tracker:
                tracker.finish(failed)
        if self.lines is not None:
            self.lines.close()
        if self.bar is not None:
            self.bar.close()
        (self.folder / PROGRESS_FILE).unlink(missing_ok=True)


def truncate_metrics(path: Path, step: int) -> None:
    """Drop the lines of metrics.jsonl that a resumed run will write again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text("utf-8").splitlines():
        try:
            if json.loads(line).get("step", 0) <= step:
                kept.append(line + "\n")
        except json.JSONDecodeError:
            break  # the run was killed in the middle of a line
    write_text(path, "".join(kept))


@contextlib.contextmanager
def restore_on_failure(path: Path, resume: bool) -> Iterator[Path]:
    """Restore the old text of a file if the run cannot be resumed."""
    before = path.read_text("utf-8") if resume and path.is_file() else None
    try:
        yield path
    except ResumeError:
        if before is not None:
            write_text(path, before)
        raise
