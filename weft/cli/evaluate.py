"""weft evaluate"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from weft.cli import options
from weft.errors import UserError, escape_control
from weft.progress import counting
from weft.storage import atomic_jsonl, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from weft.metrics import MetricValue
    from weft.metrics.classify import ClassScores
    from weft.predict import Predictor
    from weft.report.analysis.best_and_worst import BestAndWorst
    from weft.report.analysis.classification import ClassificationErrors
    from weft.report.analysis.mistakes import LabelCounts, LabelErrors
    from weft.tasks.task import Answer
    from weft.text.example import Example

    Mistakes: TypeAlias = LabelErrors | ClassificationErrors | BestAndWorst

MAX_LABEL_ROWS, MAX_CONFUSION_ROWS = 20, 10  # of the tables
MAX_WORST_SENTENCES = 20  # sentences that a page draws
MAX_PAGE_ERRORS = 100  # of a classifier that a page shows
N_SAMPLES = 3  # of the worst answers that are texts, and of the best


def evaluate(
    model: Annotated[Path, typer.Argument(help="Model or run folder.")],
    file: Annotated[
        str, typer.Argument(help="Labelled file, or SOURCE,TARGET; - is standard input.")
    ],
    text: options.Text = "",
    text_pair: options.TextPair = "",
    label: options.Label = "",
    target: options.Target = "",
    names: options.Names = "",
    as_json: options.Json = False,
    predictions: Annotated[
        str, typer.Option(help="Write every prediction to this .jsonl file.")
    ] = "",
    errors: Annotated[
        int,
        typer.Option(
            help="Show the N worst predictions; for classifiers, the most confident errors."
        ),
    ] = 0,
    report: Annotated[
        str, typer.Option(help="Write per-label scores, confusion matrix and errors to PAGE.html.")
    ] = "",
    abstain_at: options.AbstainAt = None,
    on_bad_row: options.OnBadRow = "error",
    device: options.Device = "auto",
    rounded: options.Int8 = False,
    replay: Annotated[bool, typer.Option(help="Replay the recorded answers first.")] = True,
    trust: options.Trust = [],  # noqa: B006
) -> None:
    """Evaluate a model on a labelled file, with 95 % bootstrap intervals."""
    from weft.loading import load
    from weft.predict.evaluate import evaluate as measured
    from weft.predict.evaluate import metrics_json
    from weft.run.data import example_source, read_mode
    from weft.tasks.text_metrics import TextMetrics
    from weft.text.example import SkipCounter

    chosen = options.bad_row_policy(on_bad_row)
    if errors < 0:
        raise UserError(f"--errors should be 0 or more, got {errors}.")
    if report and not report.endswith((".html", ".htm")):
        raise UserError(f"--report {report}: the page should be called something.html.")
    predictor = load(model, device=device, replay=replay, weights=options.weight_dtype(rounded))
    mistakes = _mistakes(predictor, errors, report, as_json)
    # The columns of the training file serve again unless others are named or the file has none.
    data = options.data_for_model(
        predictor,
        file,
        text=options.column(text),
        text_pair=options.column(text_pair),
        label=options.column(label),
        names=options.label_names(names),
        target=target,
        on_bad_row=chosen,
    )
    tally = SkipCounter()
    with atomic_jsonl(predictions) as out, counting("texts") as count:
        measure = measured(
            predictor,
            example_source(
                data,
                file,
                tally,
                mode=read_mode(predictor.config["task"]),
                database=predictor.space.database,
            )(),
            on_bad_row=data.on_bad_row,
            tally=tally,
            predictions=out,
            watch=count,
            on_example=None if mistakes is None else _error_callback(predictor, mistakes),
            abstain_at=abstain_at,
        )
    for line in (*filter(None, [predictor.note]), *tally.lines()):
        typer.echo(f"note: {line}", err=True)
    found = measure.compute()
    if not any(figure.n for figure in found.values()):
        raise UserError(f"{file}: no rows left to evaluate: all were skipped.")
    signatures = measure.signatures if isinstance(measure, TextMetrics) else []
    if as_json:
        typer.echo(json.dumps(metrics_json(measure)))
    else:
        wide = max(12, *map(len, found))
        for name, figure in found.items():
            interval = f"[{figure.low:.4f}, {figure.high:.4f}]"
            typer.echo(f"{name:<{wide}} {figure.value:.4f}  {interval}  n={figure.n}")
        for line in signatures:
            typer.echo(line)
    if mistakes is None or not mistakes.kind:
        return
    if not as_json:
        _show(mistakes, errors)
    if report:
        _write(report, mistakes, found, signatures, str(model), file)
        typer.echo(f"page: {report}", err=as_json)


def _mistakes(predictor: "Predictor", errors: int, report: str, as_json: bool) -> "Mistakes | None":
    """Return the error collector for a tagger, parser or generator."""
    from weft.explain.method import generation_task

    if kind := generation_task(predictor):
        from weft.report.analysis.best_and_worst import BestAndWorst

        usual = 0 if as_json and not report else N_SAMPLES
        return BestAndWorst(kind, keep=max(errors, MAX_WORST_SENTENCES if report else usual))
    if predictor.is_structured:
        from weft.report.analysis.mistakes import LabelErrors

        return LabelErrors(keep=max(errors, MAX_WORST_SENTENCES if report else 0))
    if not (errors or report):
        return None
    if predictor.labels:
        from weft.report.analysis.classification import ClassificationErrors

        return ClassificationErrors(
            keep=max(errors, MAX_PAGE_ERRORS if report else 0),
            tree=predictor.space.tree,
            uncalibrated_score=lambda one: predictor.task.uncalibrated_score(one, predictor.space),
        )
    what = "--errors" if errors else "--report"
    raise UserError(
        f"{what} lists wrong labels, tags, trees and texts, but this model predicts numbers. "
        "`weft compare` plots their errors."
    )


def _error_callback(
    predictor: "Predictor", mistakes: "Mistakes"
) -> "Callable[[Example, Answer], None]":
    from weft.report.analysis.mistakes import LabelErrors

    if not isinstance(mistakes, LabelErrors):
        return mistakes.add

    def add(example: "Example", answer: "Answer") -> None:
        gold = predictor.task.gold(example, predictor.space, answer)
        assert answer.structure is not None
        mistakes.add(example, answer.structure, gold)

    return add


def _show(mistakes: "Mistakes", errors: int) -> None:
    """Print the errors of word-level or text-level predictions."""
    from weft.report.analysis.classification import ClassificationErrors
    from weft.report.analysis.mistakes import LabelErrors

    if isinstance(mistakes, ClassificationErrors):
        _show_labels(mistakes, errors or N_SAMPLES)
    elif isinstance(mistakes, LabelErrors):
        _show_words(mistakes, errors)
    else:
        _show_texts(mistakes, errors or N_SAMPLES)


def _show_texts(found: "BestAndWorst", count: int) -> None:
    """Print the worst and the best outputs with their references."""
    from rich.text import Text

    from weft.terminal import Terminal

    console = Terminal(soft_wrap=not sys.stdout.isatty())
    written = found.kind == "seq2seq"
    heads = ("worst", "best") if written else ("hardest", "easiest")
    for head, samples in zip(heads, (found.worst, found.best), strict=True):
        for one in samples[:count]:
            score = f"chrF {one.outputs[0].score_text}" if written else one.outputs[0].score_text
            console.print()
            console.print(Text(f"{head}  {score}  {one.where}", "dim"))
            console.print(Text(one.text, "dim" if written else ""))
            if written:
                console.print(Text("right  ", "green").append(one.reference, "not green"))
                console.print(Text("said   ", "cyan").append(one.output or "nothing", "not cyan"))


def _show_labels(found: "ClassificationErrors", errors: int) -> None:
    """Print label scores, confusions and the most confident errors."""
    from rich.text import Text

    console = _show_counts(found, found.averages())
    if found.tree is not None:
        from weft.report.drawings.label_tree import draw_terminal_tree, recall_rows

        console.print(Text("\nrecall at each node of the label tree, and its texts", "dim"))
        rows = recall_rows(found.tree, found.confusions)
        console.print(draw_terminal_tree(rows[:MAX_LABEL_ROWS]))
    for one in found.errors[:errors]:
        console.print()
        console.print(Text(escape_control(f"{one.score:.1%} sure  {one.where}"), "dim"))
        console.print(Text(escape_control(one.text)), soft_wrap=True)
        console.print(Text("right  ", "green").append(escape_control(one.label), "not green"))
        console.print(Text("said   ", "cyan").append(escape_control(one.predicted), "not cyan"))


def _show_words(mistakes: "LabelErrors", errors: int) -> None:
    """Print label scores, confusions and the worst sentences with gold."""
    from rich.text import Text

    from weft.report.drawings.draw import draw_terminal

    console, unit = _show_counts(mistakes, {}), mistakes.units[0]
    for bad in mistakes.worst[:errors]:
        console.print()
        summary = f"{bad.wrong} wrong, {bad.total} {unit}  {bad.where}"
        console.print(Text(bad.where if bad.question else summary, "dim"))
        if bad.question:
            console.print(Text(bad.question, "bold"))
        console.print(draw_terminal(bad.predicted, bad.gold), soft_wrap=True)


def _show_counts(mistakes: "LabelCounts", averages: "dict[str, ClassScores]") -> "Console":
    """Print the table of labels and that of confusions."""
    from rich.table import Table
    from rich.text import Text

    from weft.terminal import Terminal

    console = Terminal(soft_wrap=not sys.stdout.isatty())
    unit, labels = mistakes.units
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(labels)
    for name in ("precision", "recall", "F1", unit):
        table.add_column(name, justify="right")
    found = mistakes.by_label()
    for name, one in list(found.items())[:MAX_LABEL_ROWS]:
        numbers = (f"{x:.3f}" for x in (one.precision, one.recall, one.f1))
        table.add_row(Text(escape_control(name)), *numbers, f"{one.support:,}")
    for name, one in averages.items():
        numbers = (f"{x:.3f}" for x in (one.precision, one.recall, one.f1))
        table.add_row(Text(name, "dim"), *numbers, f"{one.support:,}")
    console.print()
    console.print(table)
    if len(found) > MAX_LABEL_ROWS:
        console.print(
            f"… and {len(found) - MAX_LABEL_ROWS} rarer ones (--report lists all)", style="dim"
        )
    if confused := mistakes.most_confused(MAX_CONFUSION_ROWS):
        rows = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("right", "said", unit):
            rows.add_column(name, justify="right" if name == unit else "left")
        for right, predicted, count in confused:
            rows.add_row(Text(escape_control(right)), Text(escape_control(predicted)), f"{count:,}")
        console.print()
        console.print(rows)
    return console


def _write(
    path: str,
    mistakes: "Mistakes",
    found: "Mapping[str, MetricValue]",
    signatures: list[str],
    model: str,
    file: str,
) -> None:
    from weft.report.analysis import best_and_worst as texts
    from weft.report.analysis import classification as labels
    from weft.report.analysis import mistakes as words

    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(mistakes, texts.BestAndWorst):
            text = texts.render_page(mistakes, found, signatures, model=model, file=file)
        elif isinstance(mistakes, labels.ClassificationErrors):
            text = labels.render_page(mistakes, found, model=model, file=file)
        else:
            text = words.render_page(mistakes, found, model=model, file=file)
        write_text(path, text, errors="replace")
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror or error}.") from None
