"""weft extract"""

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.cli.predict import answer_inputs, read_inputs, typed_texts
from weft.errors import UserError
from weft.progress import counting

if TYPE_CHECKING:
    from weft.predict import Predictor
    from weft.text.annotation.word_tuples import WordTuple
    from weft.text.example import Example, SkipCounter

FORMATS = ("text", "jsonl", "tsv", "html")
SUFFIXES = {".txt": "text", ".jsonl": "jsonl", ".tsv": "tsv", ".html": "html"}
MAX_PAGE_SENTENCES = 500
READ_TOGETHER = 512  # sentences

Sentence = tuple[str, tuple[tuple[int, int], ...], "list[WordTuple]"]  # text, offsets, tuples


def extract(
    model: Annotated[
        Path, typer.Argument(help="Model or run folder of the task 'openie' or 'srl'.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|TEXT…]",
            help="A file (one sentence per line, or any supported format), or texts; - is stdin.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Output file: .txt, .jsonl, .tsv or .html."),
    ] = None,
    format: Annotated[
        str, typer.Option(help="text, jsonl, tsv or html; default: by the name of the output.")
    ] = "",
    min_confidence: Annotated[
        float, typer.Option(help="Leave out tuples of lower confidence, from 0 to 1.")
    ] = 0.0,
    agree: Annotated[
        str,
        typer.Option(
            help="A second model; tuples that it does not extract as well are left out.",
            metavar="MODEL",
        ),
    ] = "",
    agreement: Annotated[
        float, typer.Option(help="With --agree, the least F1 of the words of the two tuples.")
    ] = 0.8,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole-sentences",
            help="For training data: leave out a sentence if one of its tuples is left out, "
            "or the second model finds more or fewer.",
        ),
    ] = False,
    text: options.Text = "",
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Extract who did what, when and where, as tuples with offsets and confidence."""
    from weft.loading import load
    from weft.text.example import SkipCounter

    chosen = _choose_format(format, output)
    if not 0 <= min_confidence <= 1:
        raise UserError(f"--min-confidence is a number from 0 to 1; got {min_confidence}.")
    if not 0 < agreement <= 1:
        raise UserError(f"--agreement is a number above 0, at most 1; got {agreement}.")
    if output is not None and output.is_dir():
        raise UserError(f"{output} is a folder. Name a file, such as {output / 'tuples.jsonl'}.")
    predictor = load(model, device=device)
    _check_task(predictor, model)
    agreeing = load(agree, device=device) if agree else None
    if agreeing is not None:
        _check_task(agreeing, agree)
    tally = SkipCounter()
    named = inputs or ["-"]
    typed = typed_texts(named, pairs=False)
    rows = read_inputs(predictor, named[0], (text, ""), on_bad_row, tally, conllu=False)
    examples = iter(typed) if typed else (example for example, _ in rows)
    sentences = _extract(predictor, examples)
    if agreeing is not None:
        sentences = _keep_agreed(sentences, agreeing, agreement, whole)
    sentences = _keep_confident(sentences, min_confidence, whole)
    if chosen == "html":
        assert output is not None
        _write_page(output, sentences, named[0] if len(named) == 1 else "texts")
    else:
        _write_lines(output, sentences, chosen)
    _report(tally)


def _check_task(predictor: "Predictor", model: str | Path) -> None:
    kind = predictor.config["task"]["kind"]
    if kind not in ("srl", "openie") and not predictor.config["data"].get("tuples"):
        raise UserError(
            f"{model} is of the task '{kind}'; tuples come from models of the task 'openie', or by "
            "rules from semantic roles. Train one with `weft train --recipe openie-grid` or "
            "`--recipe srl-bilstm-crf`."
        )


def _choose_format(format: str, output: Path | None) -> str:
    if format:
        chosen = options.choose(format, FORMATS, "format", "--format")
    elif output is None:
        chosen = "text"
    elif output.suffix.lower() in SUFFIXES:
        chosen = SUFFIXES[output.suffix.lower()]
    else:
        raise UserError(
            f"{output}: an output ends in .txt, .jsonl, .tsv or .html. Rename it, or pass --format."
        )
    if chosen == "html" and output is None:
        raise UserError("--format html writes a page. Name it with -o, such as -o tuples.html.")
    return chosen


def _extract(predictor: "Predictor", examples: "Iterator[Example]") -> Iterator[Sentence]:
    """Yield each sentence with its tuples, in constant memory."""
    if predictor.config["task"]["kind"] == "seq2seq":
        yield from _write_step_by_step(predictor, examples)
        return
    from weft.tasks.semantics.role_tuples import extract_tuples
    from weft.text.annotation.word_tuples import read_tuples

    given = ((example, None) for example in examples)
    with counting("texts") as count:
        for (example, _), answer in answer_inputs(predictor, given):
            count(1)
            found = answer.structure
            if found is None:
                yield example.text, (), []
                continue
            tuples = (
                read_tuples(found.tuples)
                if found.kind == "tuples"
                else extract_tuples(found.words, found.frames, answer.scores)
            )
            yield found.text or example.text, found.places, tuples


def _write_step_by_step(
    predictor: "Predictor", examples: "Iterator[Example]"
) -> Iterator[Sentence]:
    from weft.annotate.tuple_writer import write_tuples

    with counting("texts") as count:
        while chunk := [example.text for example in islice(examples, READ_TOGETHER)]:
            for text, (places, tuples) in zip(chunk, write_tuples(predictor, chunk), strict=True):
                yield text, places, tuples
            count(len(chunk))


def _keep_agreed(
    sentences: Iterator[Sentence], predictor: "Predictor", least: float, whole: bool
) -> Iterator[Sentence]:
    """Yield the sentences with the tuples that a second model extracts as well."""
    from weft.tasks.semantics.tuple_agreement import agree_on_all, keep_agreed
    from weft.text.example import Example

    while chunk := list(islice(sentences, READ_TOGETHER)):
        texts = (Example(text) for text, _, _ in chunk)
        found = _extract(predictor, texts)
        for (text, places, tuples), (_, other_places, others) in zip(chunk, found, strict=True):
            both = (tuples, places), (others, other_places)
            if not whole:
                yield text, places, keep_agreed(*both, least)
            elif agree_on_all(*both, least):
                yield text, places, tuples


def _keep_confident(sentences: Iterator[Sentence], least: float, whole: bool) -> Iterator[Sentence]:
    """Yield the sentences with tuples of such a confidence; `whole`: all of them, and some."""
    for text, places, tuples in sentences:
        kept = [one for one in tuples if one.confidence >= least]
        if not whole or 0 < len(kept) == len(tuples):
            yield text, places, kept


def _lines(sentence: Sentence, chosen: str) -> Iterator[str]:
    text, places, tuples = sentence
    if chosen == "jsonl":
        found = [one.to_json(text, places) for one in tuples]
        yield json.dumps({"text": text, "tuples": found}, ensure_ascii=False)
        return
    flat = " ".join(text.split())
    if chosen == "text":
        yield flat
    for one in tuples:
        made = one.to_extraction(text, places)
        cells = (made.predicate, *made.arguments)
        if chosen == "tsv":
            yield "\t".join((flat, f"{one.confidence:.4f}", *cells))
        else:
            subject, *others = made.arguments
            yield f"  {one.confidence:.2f}  ({'; '.join((subject, made.predicate, *others))})"


def _write_lines(output: Path | None, sentences: Iterator[Sentence], chosen: str) -> None:
    from weft.storage import atomic_write

    if output is None:
        for sentence in sentences:
            for line in _lines(sentence, chosen):
                typer.echo(line)
        return
    with (
        atomic_write(output) as part,
        open(part, "w", encoding="utf-8", errors="replace") as file,
    ):
        for sentence in sentences:
            file.writelines(f"{line}\n" for line in _lines(sentence, chosen))


def _write_page(output: Path, sentences: Iterator[Sentence], name: str) -> None:
    from weft.report.pages import extract as page
    from weft.text.annotation.frames import Extractions

    shown: list[tuple[str, Extractions]] = []
    left_out = 0
    for text, places, tuples in sentences:
        if len(shown) == MAX_PAGE_SENTENCES:
            left_out += 1
        else:
            found = Extractions(tuple(one.to_extraction(text, places) for one in tuples))
            shown.append((text, found))
    page.write(output, shown, name, left_out=left_out, command=["weft", *sys.argv[1:]])


def _report(tally: "SkipCounter") -> None:
    for line in tally.lines():
        typer.echo(f"note: without an answer: {line}", err=True)
