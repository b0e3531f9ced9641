"""Outputs of notebooks for the values of models and word vectors, whose modules need torch.

weft.report.notebook imports this file when it meets a value that it does not know.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from weft.compare.format import format_metric, metric_name
from weft.explain.attention import AttentionMaps
from weft.explain.generation import GenerationTrace
from weft.predict.generate import Generation, Generations
from weft.report.charts.heatmap import describe_peak, draw_heatmap
from weft.report.drawings.generation import MAX_TOKENS, draw_beams, draw_tokens
from weft.report.notebook import (
    MAX_ANSWERS,
    Table,
    render,
    render_output,
    text_cell,
)
from weft.report.pages.tune import build_notes, describe_changes, format_value, summarise
from weft.report.pages.vectors import WordMap, draw_map
from weft.tune.search import TuneResult
from weft.vectors.store import ScoredWords

MAX_TRIALS = 10  # rows of a table of trials
LARGE_CELL_PIXELS = 22  # of the map with the tokens


@render.register
def _(value: ScoredWords) -> str:
    rows = [[word, f"{score:.3f}"] for word, score in value]
    return render_output(tables=[Table(["word", "score"], rows)])


@render.register
def _(value: WordMap) -> str:
    kept = f"{value.title}; {100 * value.fraction_kept:.0f} % of the nearest neighbours stay near"
    return render_output(Markup(draw_map(value, standalone=False)), notes=[kept])


@render.register
def _(value: AttentionMaps) -> str:
    shown = value.first(MAX_TOKENS)
    last, tokens = shown.weights[-1].mean(0), shown.tokens
    notes = ["Rows attend to columns; each map is scaled to its largest weight."]
    if len(tokens) < len(value.tokens):
        notes.append(f"the first {len(tokens)} of {len(value.tokens):,} tokens")
    return render_output(
        _draw_heads(shown.weights, tokens)
        + Markup("<p>{}, layer {}, mean over heads: {}</p>").format(
            value.name, len(shown.weights), describe_peak(last, tokens)
        )
        + _draw_large(last, tokens, tokens),
        notes=notes,
    )


@render.register
def _(value: GenerationTrace) -> str:
    parts = [Markup("<p>{}</p>").format(draw_tokens(value))]
    if value.attention is not None and value.image is None:
        weights = value.attention[-1].mean(0)[:MAX_TOKENS, :MAX_TOKENS]
        columns: Sequence[str] = value.source
        rows = [token.text for token in value.tokens]
        if value.scored:  # the preceding token attends
            columns = rows = ["·", *rows[:-1]]
        high, wide = weights.shape
        parts.append(_draw_large(weights, columns[:wide], rows[:high]))
    if value.nodes:
        parts.append(Markup('<div class="wide">{}</div>').format(draw_beams(value.nodes)))
    return render_output(Markup("").join(parts))


@render.register
def _(value: Generation) -> str:
    return _render_generations([value])


@render.register
def _(value: Generations) -> str:
    return _render_generations([one for texts in value for one in texts])


@render.register
def _(value: TuneResult) -> str:
    trials = value.best_first()
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    rows = [
        [
            str(trial.number),
            format_metric(trial.value, value.metric),
            *(format_value(trial.settings[key]) if key in trial.settings else "" for key in keys),
        ]
        for trial in trials[:MAX_TRIALS]
    ]
    table = Table(["trial", metric_name(value.metric), *keys], rows, choice=0)
    return render_output(
        lede=summarise(value), tables=[table], notes=[describe_changes(value), *build_notes(value)]
    )


def _draw_heads(weights: np.ndarray, tokens: Sequence[str]) -> Markup:
    """Draw a small map of each head, one row per layer."""
    rows = []
    for k, layer in enumerate(weights, 1):
        maps = [
            draw_heatmap(head, title=f"layer {k}, head {n}: {describe_peak(head, tokens)}")
            for n, head in enumerate(layer, 1)
        ]
        row = Markup('<div class="heads"><span class="quiet">layer {}</span>{}</div>')
        rows.append(row.format(k, Markup("").join(maps)))
    return Markup("").join(rows)


def _draw_large(weights: np.ndarray, columns: Sequence[str], rows: Sequence[str]) -> Markup:
    """Draw a map with its tokens."""
    title = describe_peak(weights, columns, rows)
    drawn = draw_heatmap(weights, columns, title, rows, LARGE_CELL_PIXELS)
    return Markup('<div class="wide">{}</div>').format(drawn)


def _render_generations(texts: Sequence[Generation]) -> str:
    shown = texts[:MAX_ANSWERS]
    rows = [[text_cell(one.prompt), text_cell(one.text), f"{one.score:.3f}"] for one in shown]
    cut = sum(not one.ended for one in shown)
    notes = [f"{cut:,} of the texts reached max_length"] if cut else []
    if len(texts) > len(shown):
        notes.append(f"… {len(texts) - len(shown):,} more texts")
    return render_output(tables=[Table(["prompt", "text", "score"], rows, left=2)], notes=notes)
