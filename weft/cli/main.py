"""The `weft` command: its verbs and error output."""

import functools
import sys
import warnings
from typing import Annotated, TextIO, cast

import typer

from weft.cli import (
    check,
    compare,
    config,
    convert,
    demo,
    evaluate,
    export,
    generate,
    list_,
    predict,
    push,
    suite,
    tokens,
    train,
    tune,
)
from weft.cli.advice import fit_advice, options_of, verb_of
from weft.cli.chat import chat
from weft.cli.explain import explain
from weft.cli.lab import lab
from weft.cli.models import annotate, drift, ensemble, extract, serve, threshold
from weft.cli.stopping import Stopped, end, signals, silence
from weft.cli.vectors import vectors
from weft.errors import (
    UserError,
    UserNote,
    escape_control,
    is_out_of_memory,
    out_of_memory_message,
)
from weft.machine import LostRank, report_to_launcher

_SHOW = warnings.showwarning

app = typer.Typer(
    name="weft",
    help="Neural NLP behind one abstraction: text → tokens → ids → embed → encode → answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(show: bool) -> None:
    if show:
        from weft import __version__

        typer.echo(f"weft {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("generate")(generate.generate)
app.command("chat")(chat.chat)
app.command("extract")(extract.extract)
app.command("annotate")(annotate.annotate)
app.command("explain")(explain.explain)
app.command("check")(check.check)
app.command("compare")(compare.compare)
app.command("ensemble")(ensemble.ensemble)
app.command("threshold")(threshold.threshold)
app.command("tune")(tune.tune)
app.command("suite")(suite.suite)
app.command("convert")(convert.convert)
app.command("export")(export.export)
app.command("drift")(drift.drift)
app.command("push")(push.push)
app.command("serve")(serve.serve)
app.command("list")(list_.show)
app.add_typer(config.app, name="config")
app.add_typer(tokens.app, name="tokens")
app.add_typer(vectors.app, name="vectors")
app.add_typer(lab.app, name="lab")


@functools.cache
def root_command() -> typer.core.TyperGroup:
    """Return the command with all verbs; building it takes 30 ms."""
    return cast(typer.core.TyperGroup, typer.main.get_command(app))


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and status 2."""
    warnings.showwarning = _note
    if sys.stdout.isatty() or sys.stderr.isatty():
        from weft.terminal import install_filter

        install_filter()
    try:
        with signals():
            root_command()()
    except LostRank as lost:
        _fail(str(lost), lost.status)
    except UserError as error:
        _fail(_fit_options(str(error)))
    except Stopped as stopped:
        end(stopped)
    except BrokenPipeError:
        silence()  # the reader of our output went away (`| head`)
        sys.exit(0)
    except Exception as error:
        if is_out_of_memory(error):
            message = out_of_memory_message(
                error, f"running `weft {sys.argv[1] if sys.argv[1:] else ''}`"
            )
            _fail(f"{message} Use fewer or shorter texts, a smaller model, or smaller batches.")
        if not isinstance(error, OSError):
            raise
        # A full disk or missing permission where no code expected it.
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}.")


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a note as one line, other warnings as Python does."""
    if issubclass(category, UserNote):
        print(f"note: {message}", file=sys.stderr)
    else:
        _SHOW(message, category, filename, lineno, file, line)


def _fit_options(message: str) -> str:
    """Return the message with the options of the called verb."""
    offered = options_of(root_command())
    return fit_advice(message, verb_of(sys.argv[1:], offered), offered)


def _fail(message: str, status: int = 2) -> None:
    if not report_to_launcher(message):
        _print_error(message)
    sys.exit(status)


def _print_error(message: str) -> None:
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() else ("", "")
    stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)  # past the guard, for the colour
    print(f"{red}error:{plain} {escape_control(message)}", file=stream)


if __name__ == "__main__":
    main()
