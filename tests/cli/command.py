"""The `weft` command in this process: starting Python with torch costs seconds a time."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from weft.cli.main import main

SMALL = (
    "--set",
    "train.epochs=2",
    "--set",
    "train.batch=5",
    "--set",
    "train.threads=1",
    "--set",
    "train.average=0",
)


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def command(*arguments: object, stdin: str | bytes = b"") -> Done:
    """Run `weft ARGUMENTS…`; nothing is raised but bugs."""
    given = stdin if isinstance(stdin, bytes) else stdin.encode()
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2)]
    source = io.TextIOWrapper(io.BufferedReader(io.BytesIO(given)), "utf-8")
    status: object = 0
    with (
        mock.patch.object(sys, "argv", ["weft", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", source),
        contextlib.redirect_stdout(streams[0]),
        contextlib.redirect_stderr(streams[1]),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code
    for stream in streams:
        stream.seek(0)
    return Done(int(status or 0), streams[0].read(), streams[1].read())  # type: ignore[call-overload]


def ok(*arguments: object, stdin: str | bytes = b"") -> Done:
    """Run a command that must succeed."""
    done = command(*arguments, stdin=stdin)
    assert done.status == 0, done.err
    return done


def fails(*arguments: object, stdin: str | bytes = b"") -> str:
    """Run a command that must fail with one clear line; that line."""
    done = command(*arguments, stdin=stdin)
    assert done.status == 2, (done.status, done.out, done.err)
    last = done.err.splitlines()[-1]
    assert last.startswith("error: "), done.err
    return last


def train(data: object, folder: object, *more: object, recipe: str = "bag") -> tuple[object, ...]:
    """The arguments of a small training."""
    return ("train", "--recipe", recipe, "--train", data, "-o", folder, *SMALL, *more)


def says(message: str, *parts: str) -> None:
    """Check that a message holds some texts, in this order."""
    place = 0
    for part in parts:
        assert part in message[place:], message
        place = message.index(part, place) + len(part)
