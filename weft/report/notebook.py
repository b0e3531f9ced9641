"""Values as HTML in notebooks; every `_repr_html_` comes here through weft.notebook.HtmlRepr."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from markupsafe import Markup

from weft.compare.format import format_metric, is_percent, metric_name
from weft.compare.leaderboard import (
    Leaderboard,
    Row,
    build_notes,
    format_row,
    recommend,
    secondary_metric,
    sort_rows,
    table_headers,
)
from weft.doctor.finding import Diagnosis, Finding, Histogram, excerpt
from weft.explain.explanation import Explanation, Explanations
from weft.metrics import MetricValue
from weft.metrics.value import MetricRepr
from weft.report import html
from weft.report.drawings.draw import draw
from weft.report.drawings.highlight import highlight_words
from weft.run.train import RunResult
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer, Answers
from weft.text.annotation.trees import Tree
from weft.text.example import Example

MAX_ANSWERS = 20  # rows of a table of answers
MAX_DRAWINGS = 5  # structures and explanations of a list
MAX_PLACES = 5  # of a finding
MAX_CANDIDATES = 5  # words for a blank
MAX_TEXT_CHARACTERS = 400  # of a text in a table


@dataclass(frozen=True)
class Table:
    """A table of an output: `choice` is the highlighted row, the first `left` columns are texts."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    choice: int = -1
    left: int = 1


@singledispatch
def render(value: object) -> str:
    """Render a value as a self-contained piece of HTML: styles and drawings inside, no script."""
    import weft.report.notebook_models  # noqa: F401 (registers values whose modules need torch)

    registered = render.dispatch(type(value))
    if registered is render.dispatch(object):
        raise TypeError(f"no rendering for {type(value).__name__}")
    return str(registered(value))


@render.register
def _(value: Annotation) -> str:
    return render_output(draw(value))


@render.register
def _(value: Tree) -> str:
    return render_output(draw(Annotation("constituents", tuple(value.words), tree=value)))


@render.register
def _(value: Answer) -> str:
    return render_output(_draw_answer(value), notes=_coverage_notes([value]))


@render.register
def _(value: Answers) -> str:
    if any(answer.structure is not None for answer in value[:MAX_DRAWINGS]):
        drawings = [_draw_answer(answer) for answer in value[:MAX_DRAWINGS]]
        return render_output(Markup("").join(drawings), notes=_notes(value, MAX_DRAWINGS))
    texts = [_input_text(one) for one in value.inputs[:MAX_ANSWERS]]
    rows: list[list[object]] = []
    for i, answer in enumerate(value[:MAX_ANSWERS]):
        text = [text_cell(texts[i])] if texts else []
        rows.append([*text, text_cell(_format_value(answer.value)), _score_meter(answer)])
    headers = [*(["text"] if texts else []), "answer", "score"]
    return render_output(
        tables=[Table(headers, rows, left=len(headers) - 1)], notes=_notes(value, MAX_ANSWERS)
    )


@render.register
def _(value: Explanation) -> str:
    return render_output(_draw_explanation(value))


@render.register
def _(value: Explanations) -> str:
    more = len(value) - MAX_DRAWINGS
    parts = [_draw_explanation(one) for one in value[:MAX_DRAWINGS]]
    return render_output(
        Markup("").join(parts), notes=[f"… {more:,} more explanations"] if more > 0 else []
    )


@render.register
def _(value: MetricRepr) -> str:
    figures = value.compute() if value.n else {}  # type: ignore[attr-defined]
    return render_output(tables=[_metric_table(figures)])


@render.register
def _(value: RunResult) -> str:
    tables = [_metric_table(figures, split) for split, figures in value.figures.items()]
    return render_output(tables=tables, notes=[repr(value.predictor), *value.record["notes"]])


@render.register
def _(value: Leaderboard) -> str:
    return _render_rows(value, value)


@render.register
def _(value: Row) -> str:
    return _render_rows([value], Leaderboard())


@render.register
def _(value: Diagnosis) -> str:
    from weft.report.pages.check import draw_sketches, summarise

    shown = value.first(MAX_PLACES)
    rows = ", ".join(f"{split} {count:,} rows" for split, count in value.rows.items())
    return render_output(
        lede=summarise(value), diagnosis=shown, drawings=draw_sketches(shown), notes=[rows]
    )


@render.register
def _(value: Finding) -> str:
    from weft.report.pages.check import draw_sketches

    alone = Diagnosis({}, {}, (value,), {}, Histogram(), {}, {}).first(MAX_PLACES)
    return render_output(diagnosis=alone, drawings=draw_sketches(alone))


def render_output(
    body: Markup = Markup(""),  # noqa: B008 (a string)
    *,
    lede: str = "",
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
    diagnosis: Diagnosis | None = None,
    drawings: Mapping[str, Markup] = {},
) -> str:
    return html.render(
        "notebook.html", body=body, lede=lede, tables=tables, notes=notes, diagnosis=diagnosis,
        drawings=drawings,
    )  # fmt: skip


def _render_rows(rows: Sequence[Row], board: Leaderboard) -> str:
    recommendation = recommend(board)
    other, ordered = secondary_metric(rows), sort_rows(rows)
    headers = ["recipe", *table_headers(rows, other)]
    cells: list[Sequence[object]] = []
    for row in ordered:
        if row.status in ("ranked", "baseline"):
            cells.append(format_row(row, other))
        else:
            reason = excerpt(row.error or row.short, MAX_TEXT_CHARACTERS)
            message = Markup('<span class="bad">{}</span> {}').format(row.status, reason)
            cells.append([row.recipe, message])
    choice = ordered.index(recommendation.choice) if recommendation else -1
    notes = build_notes(rows)
    if board.folder is not None:
        notes += [f"model: {board.folder / 'model'}", f"report: {board.folder / 'report.html'}"]
    return render_output(
        lede=recommendation.text if recommendation else "",
        tables=[Table(headers, cells, choice=choice)],
        notes=notes,
    )


def _metric_table(figures: Mapping[str, MetricValue], title: str = "") -> Table:
    rows = [
        [
            metric_name(name) + (" %" if is_percent(name) else ""),
            format_metric(one.value, name),
            f"{format_metric(one.low, name)} to {format_metric(one.high, name)}",
            f"{one.n:,}",
        ]
        for name, one in figures.items()
    ]
    return Table(["metric", "value", "95 % interval", "n"], rows, title)


def _draw_answer(answer: Answer) -> Markup:
    """Draw one answer: its structure, its candidates for blanks, or its value and score."""
    if answer.structure is not None:
        return draw(answer.structure)
    if answer.blanks:
        lines = (
            ", ".join(f"{word} ({100 * prob:.0f} %)" for word, prob in words[:MAX_CANDIDATES])
            for words in answer.blanks
        )
        return Markup("").join(Markup("<p>{}</p>").format(line) for line in lines)
    return Markup("<p><b>{}</b> {}</p>").format(_format_value(answer.value), _score_meter(answer))


def _draw_explanation(one: Explanation) -> Markup:
    from weft.report.pages.explain import describe_answer, name_evidence, name_subject

    strip = highlight_words(one)
    line = f"{name_subject(one)} {describe_answer(one)}{name_evidence(one)}."
    about = f"evidence for {one.target}, by {one.method}"
    return Markup('<p><b>{}</b></p><p>{}</p><p class="quiet">{}</p>').format(line, strip, about)


def _score_meter(answer: Answer) -> Markup:
    """Draw a probability as a bar; a number that is no probability is not drawn."""
    if isinstance(answer.value, float) or not 0 <= answer.score <= 1:
        return Markup("")
    meter = Markup('<span class="meter"><i style="width:{:.0f}%"></i></span>{:.1f} %')
    return meter.format(100 * answer.score, 100 * answer.score)


def text_cell(text: str) -> Markup:
    short = excerpt(text, MAX_TEXT_CHARACTERS)
    return Markup('<div class="text" dir="auto">{}</div>').format(short)


def _format_value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return ", ".join(map(_format_value, value)) or "none"
    return str(value)


def _input_text(one: object) -> str:
    if isinstance(one, Example):
        return one.full_text
    if isinstance(one, tuple):
        return " ⟷ ".join(map(str, one))
    return str(one)


def _notes(answers: Answers, shown: int) -> list[str]:
    more = len(answers) - shown
    return [*([f"… {more:,} more answers"] if more > 0 else []), *_coverage_notes(answers)]


def _coverage_notes(answers: Iterable[Answer]) -> list[str]:
    """Say of how many texts something was not read."""
    partly = sum(answer.coverage < 1 for answer in answers)
    return [f"{partly:,} of the texts were not fully read (coverage below 1)"] if partly else []
