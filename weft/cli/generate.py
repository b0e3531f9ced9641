"""weft generate"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.stopping import INTERRUPTS, go_on
from weft.errors import UserError, unknown_name
from weft.progress import counting

if TYPE_CHECKING:
    from rich.text import Text as RichText

    from weft.decode.search.settings import SearchSettings
    from weft.predict.generate import Generation, Generator, Token

CHUNK_PROMPTS = 256  # prompts of a file that are answered together
METHODS = ("greedy", "beam", "sample")
STYLES = ((0.5, "green"), (0.1, "cyan"), (0.01, "yellow"), (0.0, "red"))  # by the probability
OF_BEAMS = {
    "num_beams": "--num-beams", "num_beam_groups": "--num-beam-groups",
    "length_penalty": "--length-penalty", "coverage_penalty": "--coverage-penalty",
}  # fmt: skip
OF_SAMPLES = {"temperature": "--temperature", "top_k": "--top-k", "top_p": "--top-p",
              "seed": "--seed"}  # fmt: skip
FLAGS = {
    **OF_BEAMS, **OF_SAMPLES, "max_length": "--max-length", "min_length": "--min-length",
    "no_repeat_ngram_size": "--no-repeat-ngram-size", "repetition_penalty": "--repetition-penalty",
    "num_return": "--num-return", "num_samples": "--num-return",
}  # fmt: skip
MAX_UNKNOWN_SHOWN = 3  # unknown words of prompts that are named


def generate(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    prompts: Annotated[
        list[str], typer.Argument(help="Prompts or source texts, each in quotes.")
    ] = [],  # noqa: B006 -- never changed
    file: Annotated[
        str, typer.Option("--input", help="File of prompts, one per line; - is stdin.")
    ] = "",
    interactive: Annotated[
        bool,
        typer.Option("--interactive", help="Read prompts from the terminal until end of input."),
    ] = False,
    num_return: Annotated[
        int,
        typer.Option(
            "-n", "--num-return", help="Texts per prompt: samples, or the best hypotheses."
        ),
    ] = 1,
    method: Annotated[str, typer.Option(help="greedy, beam or sample; default: the model's.")] = "",
    num_beams: Annotated[int | None, typer.Option(help="Beams of a beam search.")] = None,
    num_beam_groups: Annotated[
        int | None, typer.Option(help="Groups of diverse beam search.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length normalisation.")
    ] = None,
    coverage_penalty: Annotated[
        float | None, typer.Option(help="Weight of the coverage penalty (Wu et al. 2016).")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Softmax temperature: above 1 more random, below 1 less.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample from the K most probable tokens.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(help="Nucleus sampling: smallest token set with probability ≥ P."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Maximum tokens to generate.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Minimum tokens to generate.")] = None,
    no_repeat_ngram_size: Annotated[
        int | None, typer.Option(help="Never repeat an n-gram of this size.")
    ] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Repetition penalty; 1: off.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Force every text to start with this.")] = "",
    only: Annotated[str, typer.Option(help="File of allowed words or phrases, one per line.")] = "",
    show: Annotated[bool, typer.Option("--show", help="Colour tokens by probability.")] = False,
    as_json: options.Json = False,
    device: options.Device = "auto",
    replay: Annotated[bool, typer.Option(help="Replay the recorded answers first.")] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Generate text: continue a prompt or translate a source; the prompt is optional for an LM."""
    from weft.loading import load
    from weft.predict.generate import Generator

    given = {
        "num_beams": num_beams, "num_beam_groups": num_beam_groups,
        "length_penalty": length_penalty, "coverage_penalty": coverage_penalty,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
        "max_length": max_length, "min_length": min_length,
        "no_repeat_ngram_size": no_repeat_ngram_size, "repetition_penalty": repetition_penalty,
    }  # fmt: skip
    chosen = {name: value for name, value in given.items() if value is not None}
    if [bool(prompts), bool(file), interactive].count(True) > 1:
        raise UserError("PROMPT, --input and --interactive exclude each other. Pass one.")
    words = _words(only) if only else {}
    writer = Generator(load(model, device=device, replay=replay))
    settings = _settings(writer, method, num_return, chosen)
    writer.check_known(list(words), list(words.values()))
    out = _Out(writer, settings, prefix, list(words), show, as_json)
    if interactive:
        out.converse()
    elif file:
        out.lines(_read(file), file)
    else:
        out.lines(prompts or [""])


def _settings(
    writer: "Generator", method: str, num_return: int, chosen: Mapping[str, float]
) -> "SearchSettings":
    """Return the search settings: those of the model, overridden by the options."""
    if method and method not in METHODS:
        raise unknown_name("method", method, METHODS, "--method")
    if num_return < 1:
        raise UserError(f"--num-return should be 1 or more, got {num_return}.")
    usual = writer.search_settings({})
    beams = [flag for name, flag in OF_BEAMS.items() if name in chosen]
    draws = [flag for name, flag in OF_SAMPLES.items() if name in chosen]
    if beams and draws:
        raise UserError(
            f"{beams[0]} is for beam search and {draws[0]} for sampling. Leave one out."
        )
    if not method:
        method = "beam" if beams else "sample" if draws else usual.method
    for found, wanted in ((beams, "beam"), (draws, "sample")):
        if found and method != wanted:
            raise UserError(f"{found[0]} needs --method {wanted}, not '{method}'.")
    if chosen.get("temperature") == 0:
        raise UserError(
            "--temperature 0 would always take the most probable token. Use --method greedy."
        )
    if num_return > 1 and method == "greedy":
        raise UserError(
            f"--num-return {num_return}: a greedy search finds one text. Use "
            "--method beam or sample."
        )
    many = {"num_samples": num_return} if method == "sample" else {}
    if method == "beam":
        num_beams = int(chosen.get("num_beams", max(usual.num_beams, num_return)))
        if "num_beams" not in chosen and chosen.get("num_beam_groups", 0) > 0:
            groups = int(chosen["num_beam_groups"])
            num_beams = -(-num_beams // groups) * groups
        many = {"num_return": num_return, "num_beams": num_beams}
    try:
        return writer.search_settings({**chosen, "method": method, **many})
    except UserError as error:  # said of settings, but options were given
        message = re.sub(r"generate\.(\w+)", lambda m: FLAGS.get(m[1], m[0]), str(error))
        message = re.sub(r"\bmethod = '(\w+)'", r"--method \1", message)
        raise UserError(message) from None


def _words(file: str) -> dict[str, str]:
    """Return the allowed texts, one per line, each with its file and line."""
    found = {line.strip(): f"{file}:{i}" for i, line in enumerate(_read(file), 1) if line.strip()}
    if not found:
        raise UserError(f"{file}: no text in it. Write one per line.")
    return found


def _read(file: str) -> Iterator[str]:
    from contextlib import closing

    from weft.text.formats.recognise import is_matrix_file
    from weft.text.line_source import BadRows, LineSource

    if is_matrix_file(file):
        raise UserError(
            f"{file}: a matrix file, but prompts are lines. Use `weft predict` for all of them, or "
            "pass one as PROMPT, FILE.npz:KEY."
        )
    with closing(LineSource(file)) as source:
        for _, line in source.lines(BadRows(source.name, "error", None)):
            yield line


class _Out:
    """Write generated text to the terminal or a file."""

    def __init__(
        self,
        writer: "Generator",
        settings: "SearchSettings",
        prefix: str,
        only: list[str],
        show: bool,
        as_json: bool,
    ):
        self.writer, self.settings = writer, settings
        self.prefix, self.only, self.file = prefix, only, ""
        self.show, self.as_json = show, as_json
        self.several = max(settings.num_samples, settings.num_return) > 1
        self.live = not self.several and settings.method != "beam"  # tokens as they are found
        self.written = 0  # prompts
        self.named: set[str] = set()  # unknown words already reported

    def lines(self, prompts: Iterable[str], file: str = "") -> None:
        """Generate for prompts: a single one is streamed, many are batched."""
        self.file = "standard input" if file == "-" else file
        stream = iter(prompts)
        first = list(islice(stream, 2))
        if len(first) == 1 and self.live and not self.as_json:
            self._live(first[0])
            return
        chunk = first + list(islice(stream, CHUNK_PROMPTS - len(first)))
        seen = sys.stdout.isatty()  # the texts themselves show the progress
        with nullcontext(lambda prompts: None) if seen else counting("prompts") as count:
            while chunk:
                self._report_unknown(chunk)
                for texts in self._write(chunk):
                    count(1)
                    for one in texts:
                        self._print(one)
                self.written += len(chunk)
                chunk = list(islice(stream, CHUNK_PROMPTS))

    def _write(self, prompts: list[str]) -> "list[list[Generation]]":
        return self.writer.write(
            prompts, self.settings, prefix=self.prefix, only=self.only, first=self.written,
            file=self.file,
        )  # fmt: skip

    def converse(self) -> None:
        """Generate for each prompt typed; Ctrl-C ends the text, or the conversation."""
        while True:
            try:
                sys.stderr.write("> " if sys.stdin.isatty() else "")
                sys.stderr.flush()
                line = sys.stdin.readline()
            except INTERRUPTS:
                go_on()
                line = ""
            if not line:
                typer.echo("", nl=sys.stdin.isatty(), err=True)
                return
            try:
                self._answer(line.rstrip("\r\n"))
            except INTERRUPTS:
                go_on()  # the line has been ended
            except UserError as error:
                typer.echo(f"error: {error}", err=True)
            self.written += 1

    def _report_unknown(self, prompts: list[str]) -> None:
        """Report words that are not in the vocabulary, each once."""
        new = [word for word in self.writer.unknown_words(prompts) if word not in self.named]
        self.named.update(new)
        if new:
            some = ", ".join(f"'{word}'" for word in new[:MAX_UNKNOWN_SHOWN])
            more = (
                f" and {len(new) - MAX_UNKNOWN_SHOWN} more" if len(new) > MAX_UNKNOWN_SHOWN else ""
            )
            typer.echo(f"note: the model does not know {some}{more}", err=True)

    def _answer(self, prompt: str) -> None:
        if self.live and not self.as_json:
            self._live(prompt)
            return
        self._report_unknown([prompt])
        (texts,) = self._write([prompt])
        for one in texts:
            self._print(one)
        sys.stdout.flush()

    def _live(self, prompt: str) -> None:
        """Stream tokens, each as soon as its characters are complete."""
        self._report_unknown([prompt])
        tokens = self.writer.stream(
            prompt, self.settings, prefix=self.prefix, only=self.only, first=self.written,
            file=self.file,
        )  # fmt: skip
        began = False
        try:
            for token in tokens:
                if not began and self.writer.continues:
                    typer.echo(prompt, nl=False)
                began = True
                self._token(token)
        finally:
            if began:
                typer.echo("")
                self._legend()

    def _token(self, token: "Token") -> None:
        if self.show and sys.stdout.isatty():
            from weft.terminal import Terminal

            Terminal(soft_wrap=True).print(_colour(token), end="")
        else:
            typer.echo(_with_probability(token) if self.show else token.text, nl=False)
        sys.stdout.flush()

    def _print(self, one: "Generation") -> None:
        if self.as_json:
            typer.echo(json.dumps(one.to_json(), ensure_ascii=False))
            return
        if self.several:
            typer.echo(f"{one.score:.4f}\t", nl=False)
        if self.writer.continues:
            typer.echo(one.prompt, nl=False)
        if self.show:
            for token in one.tokens:
                self._token(token)
            typer.echo("")
        else:
            typer.echo(one.text)

    def _legend(self) -> None:
        if not (self.show and sys.stderr.isatty()):
            return
        from rich.text import Text

        from weft.terminal import Terminal

        parts = [Text(f"≥ {least:g}" if least else "less", style) for least, style in STYLES]
        Terminal(stderr=True).print(Text("probability ") + Text(" · ").join(parts))


def _colour(token: "Token") -> "RichText":
    from rich.text import Text

    style = next(style for least, style in STYLES if token.probability >= least)
    return Text(token.text, style)


def _with_probability(token: "Token") -> str:
    """Return a token followed by its probability, for output without colours."""
    return f"{token.text}/{token.probability:.3f}" if token.text else ""
