"""Ctrl-C and other signals that end a command: a line that says how to go on, and the status."""

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from weft.storage import WriteError, append_line


class Stopped(BaseException):
    """A signal ended the program; `hint` says how to resume."""

    def __init__(self, number: int, hint: str = "") -> None:
        super().__init__(number, hint)
        self.number, self.hint = number, hint

    @property
    def message(self) -> str:
        return f"stopped; {self.hint}" if self.hint else "stopped"


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Raise Stopped on Ctrl-C, SIGTERM and SIGHUP, except where they are ignored (nohup)."""

    def stop(number: int, frame: object) -> None:
        raise Stopped(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            usual = (signal.SIG_DFL, signal.default_int_handler)
            if number is not None and signal.getsignal(number) in usual:
                before[number] = signal.signal(number, stop)
    try:
        yield
    except KeyboardInterrupt as error:
        raise Stopped(signal.SIGINT) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def resumable(hint: Callable[[], str], log: Path | None = None) -> Iterator[None]:
    """Add a hint how to resume to a Stopped from the block, and write it to the log."""
    try:
        yield
    except (Stopped, KeyboardInterrupt) as error:
        stopped = error if isinstance(error, Stopped) else Stopped(signal.SIGINT)
        stopped.hint = hint()
        if log is not None and log.is_file():
            with contextlib.suppress(Exception):
                append_line(log, stopped.message)
        raise stopped from None


@contextlib.contextmanager
def repeatable(kept: str) -> Iterator[None]:
    """Add to a stopped command, or one on a full disk, the hint to repeat it."""
    try:
        with resumable(lambda: f"{kept} are kept: `{same_command()}` goes on"):
            yield
    except WriteError as error:
        message = (
            f"{error} Finished {kept.split()[-1]} are kept: make room, then `{same_command()}`."
        )
        raise WriteError(message) from error


def same_command() -> str:
    """Return the running command, to be repeated."""
    return shlex.join(["weft", *(word for word in sys.argv[1:] if word != "--overwrite")])


def end(stopped: Stopped) -> NoReturn:
    """Print how to resume, on the terminal if standard error is closed, and exit."""
    try:
        print(stopped.message, file=sys.stderr, flush=True)
    except OSError:  # of `2>&1 | tee`, Ctrl-C ends tee first
        with contextlib.suppress(OSError), open("/dev/tty", "w") as terminal:
            terminal.write(f"{stopped.message}\n")
    silence()
    sys.exit(128 + stopped.number)


def silence() -> None:
    """Drop output to readers that have closed the pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
