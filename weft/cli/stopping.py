"""Ctrl-C and other signals that end a command: a line that says how to go on, and the status."""

import contextlib
import os
import shlex
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from weft.machine import report_to_launcher
from weft.storage import WriteError, append_line

REPEAT_SECONDS = 0.5  # after which a Stopped that got lost is raised again


class Stopped(BaseException):
    """A signal ended the program; `hint` says how to resume."""

    def __init__(self, number: int, hint: str = "") -> None:
        super().__init__(number, hint)
        self.number, self.hint = number, hint

    @property
    def message(self) -> str:
        return f"stopped; {self.hint}" if self.hint else "stopped"


class Interrupted(Stopped):
    """Ctrl-C. It is no KeyboardInterrupt, of which click would make another error."""


INTERRUPTS = (Interrupted, KeyboardInterrupt)  # end a text of a conversation, which then `go_on`s


class Delivery:
    """Raises Stopped, and raises it again if it got lost.

    A signal handler runs between two steps of any Python code, also code that a library written in
    C calls and whose exceptions it drops. Then the program would go on as if nothing had happened.
    """

    def __init__(self) -> None:
        self.repeats = False  # the timer is ours
        self._number = 0
        self._raised: weakref.ref[Stopped] | None = None

    def stop(self, number: int, frame: object) -> None:
        """Raise Stopped: the handler of the signals that end a program."""
        raise self._remember(number)

    def check(self, number: int, frame: object) -> None:
        """Raise Stopped again if none is on its way: the handler of the timer."""
        if self._raised is None:
            return
        if self._raised() is None:
            raise self._remember(self._number)
        self._set_timer(REPEAT_SECONDS)

    @property
    def pending(self) -> Stopped | None:
        """A Stopped to raise in place of an error that came after the signal."""
        if self._raised is None:
            return None
        return self._raised() or self._remember(self._number)

    def cancel(self) -> None:
        """Stop watching: Stopped has arrived."""
        self._raised = None
        self._set_timer(0)

    def _remember(self, number: int) -> Stopped:
        """Return a Stopped to raise. No frame of its traceback refers to it, so that it goes away
        with the last code that handles it."""
        stopped = Interrupted(number) if number == signal.SIGINT else Stopped(number)
        self._number, self._raised = number, weakref.ref(stopped)
        self._set_timer(REPEAT_SECONDS)
        return stopped

    def _set_timer(self, seconds: float) -> None:
        if self.repeats:
            signal.setitimer(signal.ITIMER_REAL, seconds)


_DELIVERY = Delivery()
go_on = _DELIVERY.cancel


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Raise Stopped on Ctrl-C, SIGTERM and SIGHUP, except where they are ignored (nohup)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            usual = (signal.SIG_DFL, signal.default_int_handler)
            if number is not None and signal.getsignal(number) in usual:
                before[number] = signal.signal(number, _DELIVERY.stop)
        # Elsewhere than on Unix there is no timer, and tests have one of their own.
        if hasattr(signal, "SIGALRM") and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL:
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _DELIVERY.check)
            _DELIVERY.repeats = True
    try:
        yield
    except KeyboardInterrupt as error:
        raise Stopped(signal.SIGINT) from error
    except (Exception, SystemExit) as error:
        # NumPy makes a TypeError of a Stopped in a comparison, and click exits with 1 when a closed
        # pipe breaks what is written on the way out.
        if (stopped := _DELIVERY.pending) is None:
            raise
        raise stopped from error
    finally:
        _DELIVERY.cancel()
        _DELIVERY.repeats = False
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def resumable(hint: Callable[[], str], log: Path | None = None) -> Iterator[None]:
    """Add a hint how to resume to a Stopped from the block, and write it to the log."""
    try:
        yield
    except (Exception, KeyboardInterrupt, Stopped) as error:
        stopped = error if isinstance(error, Stopped) else _DELIVERY.pending
        if stopped is None and isinstance(error, KeyboardInterrupt):
            stopped = Stopped(signal.SIGINT)
        if stopped is None:
            raise
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
        if not report_to_launcher(stopped.message):
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
