"""weft explain"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.cli import options
from weft.errors import UserError
from weft.progress import counting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from weft.explain import Explanation, Faithfulness
    from weft.explain.explanation import ExplainedWord
    from weft.explain.run import ExplainRun
    from weft.text.example import Example

FOR, AGAINST = (232, 119, 70), (92, 151, 214)  # under black letters, on any terminal
STRONGEST = 5  # words listed under a text
FEATURES = 8  # symbolic features of a word that are listed


def explain(
    model: Annotated[Path, typer.Argument(help="A model folder, or the run folder around it.")],
    source: Annotated[
        str | None,
        typer.Argument(help="A text, or a file in any format; - is stdin; A,B are two files."),
    ] = None,
    output: Annotated[str, typer.Option("-o", "--output", help="Write a page, PAGE.html.")] = "",
    method: Annotated[
        str, typer.Option(help="One method, or all; default: those of the page.")
    ] = "",
    target: Annotated[
        str, typer.Option(help="The label to explain; default: the predicted one.")
    ] = "",
    word: Annotated[
        str,
        typer.Option(
            help="The word, token, bracket (2-4) or blank to explain, by number or by itself; "
            "default: the least certain one."
        ),
    ] = "",
    column: Annotated[
        str, typer.Option(help="The column to explain if there are several: upos, head.")
    ] = "",
    contexts: Annotated[
        str, typer.Option(help="Compare this word's vectors wherever it stands in the texts.")
    ] = "",
    layer: Annotated[
        int | None,
        typer.Option(help="With --contexts, the layer of the network; default: the last."),
    ] = None,
    projection: Annotated[
        str,
        typer.Option(help="With --contexts and -o, how it is drawn: pca, t-sne or umap."),
    ] = "",
    limit: Annotated[int, typer.Option(help="Maximum number of texts of a file.")] = 50,
    as_json: options.Json = False,
    text: Annotated[
        str, typer.Option(help="Column of the text; without SOURCE the text itself.")
    ] = "",
    text_pair: Annotated[
        str, typer.Option(help="Column of the second text; of a text, the second text itself.")
    ] = "",
    label: options.Label = "",
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    replay: Annotated[bool, typer.Option(help="Check recorded answers first.")] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Show which words a prediction rests on, and how faithful that explanation is."""
    from weft.cli.explain.inputs import of_files, of_texts, resolve_source
    from weft.explain.run import ALL_METHODS, run_explain
    from weft.loading import load
    from weft.text.example import SkipCounter

    if limit < 1:
        raise UserError(f"--limit should be 1 or more, got {limit}.")
    if layer is not None and not contexts:
        raise UserError("--layer needs --contexts WORD.")
    if projection and not (contexts and output):
        raise UserError("--projection needs --contexts WORD and -o PAGE.html.")
    if contexts and (method or target or word or column):
        raise UserError(
            "--contexts shows vectors, not attributions: remove --method, --target, --word and "
            "--column."
        )
    if output and not output.endswith((".html", ".htm")):
        raise UserError(f"-o {output}: the page should be called something.html.")
    source, is_file = resolve_source(source, text, text_pair)
    if contexts and not is_file:
        raise UserError("--contexts needs a file with several texts that contain the word.")
    predictor = load(model, device=device, replay=replay)
    tally = SkipCounter()
    examples = [] if is_file else of_texts(predictor, source, text_pair)
    if is_file:
        data = options.data_for_model(
            predictor,
            source,
            text=options.column(text),
            text_pair=options.column(text_pair),
            label=options.column(label),
            on_bad_row=options.bad_row_policy(on_bad_row),
        )
        if contexts:
            from weft.cli.explain.contexts import compare

            compare(predictor, data, source, contexts, layer, limit, output, as_json, projection)
            return
        examples = of_files(predictor, data, source, limit, tally)
    wanted = method or (ALL_METHODS if output or (is_file and not as_json) else "")
    with counting("texts") as count:
        found = run_explain(
            predictor,
            examples,
            method=wanted,
            target=target or None,
            compare=bool(output) or is_file,
            word=word,
            column=column,
            watch=count,
        )
    for line in tally.lines():
        typer.echo(f"note: {line}", err=True)
    if output:
        from weft.report.pages.explain import write

        write(Path(output), found, predictor, command=["weft", *sys.argv[1:]])
    if as_json:
        _print_json(found)
    else:
        _show(found, is_file)
    if output:
        typer.echo(f"page: {output}", err=as_json)


def _print_json(found: "ExplainRun") -> None:
    for row in found.to_json():
        typer.echo(json.dumps(row, ensure_ascii=False))
    for faithful in found.faithfulness.values():
        typer.echo(json.dumps(faithful.to_json()))


def _show(found: "ExplainRun", is_file: bool) -> None:
    from weft.terminal import Terminal

    console = Terminal(soft_wrap=not sys.stdout.isatty())
    listed = list(found.explanations.items())[: 1 if is_file else None]
    for i in found.order() if is_file else [0]:
        _show_annotation(console, found, i, close=not is_file)
        for name, explanations in listed:
            if len(listed) > 1:
                console.print(f"  {name}", style="dim")
            if name:
                _show_words(console, explanations[i])
        console.print()
    if is_file and found.faithfulness:
        console.print(f"Words weighed by {listed[0][0]}.", style="dim")
        _show_methods(console, list(found.faithfulness.values()))


def _show_annotation(console: "Console", found: "ExplainRun", i: int, close: bool) -> None:
    """Print the prediction in the form of its annotation."""
    from weft.cli.explain.contexts import show_blanks, show_silent
    from weft.cli.explain.generation import show_text

    one = found.first[i]
    wrong = found.examples[i] if found.wrong(i) else None
    annotation = one.answer.structure
    if one.answer.blanks:
        show_blanks(console, one)
    elif one.answer.value is None:
        show_silent(console)
    elif annotation is not None:
        _show_drawing(console, found, i, listed=close)
    elif found.written:
        label = None if wrong is None else wrong.label
        show_text(console, found.written[i], one, label, close=close)
    if one.at is not None:
        _show_word(console, one)
    elif not found.written and one.answer.value is not None:
        _show_answer(console, one, wrong)


def _show_drawing(console: "Console", found: "ExplainRun", i: int, listed: bool) -> None:
    """Draw the annotated sentence and, for a single one, list every word."""
    from rich.table import Table
    from rich.text import Text

    from weft.explain.run import MAX_CHOICES
    from weft.report.drawings.draw import draw_terminal

    one = found.first[i]
    assert one.answer.structure is not None
    console.print(draw_terminal(one.answer.structure, found.right(i)), soft_wrap=True)
    if not listed or one.at is None or one.at.step < 0:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "word", one.at.column, "or else", " "):
        table.add_column(name, justify="right" if not name else "left")
    pairs = zip(found.examples[i].words, found.probs[i], strict=True)
    for k, (word, choices) in enumerate(pairs):
        cells = [
            Text(name).append(f" {chance:.3f}", style="dim")
            for name, chance in choices[:MAX_CHOICES]
        ]
        style = "bold" if k == one.at.step else ""
        table.add_row(str(k + 1), Text(word), *cells, style=style)
    console.print()
    console.print(table)
    console.print()


def _show_word(console: "Console", one: "Explanation") -> None:
    """Print the prediction for the explained word."""
    from rich.text import Text

    assert one.at is not None
    line = Text(f"{_number_word(one.at)}{one.at.name}  " if one.at.column != "label" else "")
    line.append(one.at.predicted, style="bold").append(f"  {one.sure:.3f}")
    if one.at.gold and one.at.gold != one.at.predicted:
        line.append(f"  labelled {one.at.gold}", style="red")
    if one.target != one.at.predicted:
        line.append(f"  weighed for {one.target}", style="dim")
    console.print(line)
    if one.at.features:
        shown = ", ".join(f"{name} {weight:+.3g}" for name, weight in one.at.features[:FEATURES])
        console.print(Text(f"  features: {shown}", style="dim"))


def _number_word(at: "ExplainedWord") -> str:
    """Return the number of a word, or the numbers of the words in a bracket."""
    if at.span:
        return f"{at.span[0] + 1}-{at.span[1]} "
    return f"{at.step + 1} " if at.step >= 0 else ""


def _show_answer(console: "Console", one: "Explanation", wrong: "Example | None") -> None:
    from rich.text import Text

    value = one.answer.value
    line = Text(_plain(value) if value != "" else "no answer", style="bold")
    is_vector = isinstance(value, tuple) and bool(value) and isinstance(value[0], float)
    if not isinstance(value, float) and not is_vector:
        line.append(f"  {one.answer.score:.3f}", style="not bold")
    if wrong is not None:
        line.append(f"  labelled {_plain(wrong.label)}", style="not bold red")
    if one.target not in ("", _plain(value)) and not isinstance(value, float):
        line.append(f"  weighed for {one.target}", style="not bold dim")
    if one.answer.coverage < 1:
        line.append(f"  only {one.answer.coverage:.0%} of it was read", style="not bold dim")
    console.print(line)


def _plain(label: object) -> str:
    from weft.text.example import GoldAnswers

    if isinstance(label, GoldAnswers):
        return " | ".join(dict.fromkeys(label.texts)) or "no answer"
    return ", ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def _show_words(console: "Console", one: "Explanation") -> None:
    from rich.text import Text

    console.print(Text("  ").append_text(_colour(one)))
    strongest = ", ".join(
        f"“{one.text[word.start : word.end]}” {word.weight:+.3g}"
        for word in one.strongest(STRONGEST)
        if word.weight
    )
    if strongest:
        console.print(Text(f"  {strongest}", style="dim"))


def _colour(one: "Explanation") -> "Text":
    """Return the text or its important passages, words coloured by weight."""
    from rich.text import Text

    from weft.report.drawings.highlight import colour_depth, describe_gap, select_passages

    strongest = max((abs(word.weight) for word in one.words), default=0.0)
    out = Text()
    for passage in select_passages(one):
        if gap := describe_gap(passage):
            out.append(f" {gap} ", style="dim")
        before = None
        for word in passage.words:
            if before is not None:
                out.append(" " if one.text[before : word.start] else "")
            shade = colour_depth(word, strongest)
            ground = [round(255 - (255 - c) * abs(shade)) for c in (FOR if shade > 0 else AGAINST)]
            style = f"black on rgb({','.join(map(str, ground))})" if shade else ""
            out.append(one.text[word.start : word.end], style=style)
            before = word.end
    return out


def _show_methods(console: "Console", found: "list[Faithfulness]") -> None:
    """Print each method's faithfulness: score drop against random word removal."""
    from rich.table import Table
    from rich.text import Text

    from weft.explain.faithfulness import choose_format

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("method")
    for name in ("AOPC", "random order", "better by", "texts"):
        table.add_column(name, justify="right")
    digits = choose_format(found)
    for one in found:
        gain, low, high = (
            format(number, digits) for number in (one.gain.value, one.gain.low, one.gain.high)
        )
        table.add_row(
            one.method,
            format(one.aopc.value, digits),
            format(one.random.value, digits),
            Text(f"{gain} [{low}, {high}]"),
            str(one.gain.n),
        )
    console.print(table)
