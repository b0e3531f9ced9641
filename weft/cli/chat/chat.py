"""weft chat"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import options
from weft.cli.stopping import INTERRUPTS, go_on
from weft.errors import UserError

MAX_CHARACTERS = 10_000  # of a line that is typed


def chat(
    model: Annotated[Path, typer.Argument(help="Model or run folder that generates text.")],
    tracker: Annotated[
        Path | None,
        typer.Option(help="Model that tracks your wishes, for answers from a database."),
    ] = None,
    speakers: Annotated[
        str, typer.Option(help="Names of you and of the model, as in the training dialogues.")
    ] = "user,system",
    temperature: Annotated[
        float | None, typer.Option(help="Sample at this temperature; default: as the model does.")
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum tokens of an answer.")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    device: options.Device = "auto",
    replay: Annotated[bool, typer.Option(help="Replay the recorded answers first.")] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Talk to a model: every line is a turn, and answers appear token by token."""
    from weft.cli.chat.conversation import COMMANDS, Conversation
    from weft.loading import load
    from weft.predict.generate import Generator

    names = tuple(name.strip() for name in speakers.split(","))
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise UserError(f"--speakers {speakers}: give two names, such as user,system or A,B.")
    follows = None if tracker is None else load(tracker, device=device, replay=replay)
    talk = Conversation(Generator(load(model, device=device, replay=replay)), names, follows)
    given = {"temperature": temperature, "max_length": max_length, "seed": seed}
    for name, value in given.items():
        if value is not None:
            talk.change(name, str(value))
    if _at_terminal():
        typer.echo(COMMANDS, err=True)
    while (line := _read_line()) is not None:
        try:
            if line.startswith("/"):
                if line.split()[0] == "/quit":
                    return
                typer.echo(talk.command(line), err=True)
            elif line.strip():
                for piece in talk.answer(line):
                    typer.echo(piece, nl=False)
                    sys.stdout.flush()
                typer.echo("")
        except INTERRUPTS:
            go_on()
            typer.echo("")  # what was said so far stands
        except UserError as error:
            typer.echo(f"error: {error}", err=True)


def _at_terminal() -> bool:
    return sys.stdin.isatty()


def _type_line() -> str:
    """Return a line typed at a terminal, with arrow keys and earlier lines; "" at its end."""
    with suppress(ImportError):
        import readline  # noqa: F401 -- `input` uses it
    try:
        return input("> ") + "\n"
    except EOFError:
        typer.echo("", err=True)
        return ""


def _read_line() -> str | None:
    """Return the next line; None at the end of input."""
    from weft.untrusted import has_surrogate

    while True:
        try:
            line = _type_line() if _at_terminal() else sys.stdin.readline(MAX_CHARACTERS + 1)
        except INTERRUPTS:
            go_on()
            typer.echo("", err=True)  # a shell's prompt begins a line
            return None
        except UnicodeDecodeError:
            raise UserError("standard input is not UTF-8 text.") from None
        if not line:
            return None
        if len(line) > MAX_CHARACTERS:
            while line and not line.endswith("\n"):
                line = sys.stdin.readline(MAX_CHARACTERS)
            fault = f"more than {MAX_CHARACTERS:,} characters in a line"
        elif has_surrogate(line):
            fault = "a lone surrogate, which is not valid text,"
        else:
            return line.rstrip("\r\n")
        typer.echo(f"error: {fault}; it is left out.", err=True)
