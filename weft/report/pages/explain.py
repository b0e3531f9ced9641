"""The page of `weft explain`: one text in depth, or a comparison of methods on many texts.

L layers   N heads   T tokens
"""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from weft.explain import Explanation, Faithfulness
from weft.explain.explanation import NUMBER_TARGET
from weft.explain.faithfulness import choose_format
from weft.explain.method import target_task
from weft.explain.run import ExplainRun
from weft.predict.predictor import Predictor
from weft.report import html
from weft.report.charts import layer_weights, plots
from weft.report.drawings.highlight import (
    AGAINST_COLOUR,
    FOR_COLOUR,
    MAX_COLOUR_PERCENT,
    highlight_words,
)
from weft.report.drawings.image import draw_weighted_image
from weft.report.pages import explain_tokens
from weft.tasks.mlm import MASK_PATTERN
from weft.text.example import Example, GoldAnswers

BLANK_CONTEXT_CHARACTERS = 60  # on each side of a blank
LineStyle = str | tuple[int, tuple[int, ...]]  # of matplotlib: a name, or a dash pattern
MAX_BARS = 8  # label probabilities shown
MAX_ANSWER_CHARACTERS = 200  # of a prediction in the headline

HIDDEN_OCCLUSION = "drop in the score when the word is masked"
METHOD_DESCRIPTIONS = {
    "integrated-gradients": "gradient of the score along the path from unknown words to the text",
    "gradient-input": "gradient of the score at the text, times the word's vector",
    "occlusion": "drop in the score when the word is removed",
    "attention": "attention to the word, without a sign for or against",
    "linear": "exact contribution of the word's n-grams to the score",
    "shapley": "mean rise of the score when the word appears, over random orders",
}


def write(path: Path, study: ExplainRun, predictor: Predictor, *, command: Sequence[str]) -> None:
    """Write the page; raise UserError if that fails."""
    html.save(path, render(study, predictor, command=command))


def render(study: ExplainRun, predictor: Predictor, *, command: Sequence[str]) -> str:
    """Render the whole page."""
    one = study.first[0] if len(study.examples) == 1 else None
    hides = bool(study.first[0].at or target_task(predictor))
    descriptions = METHOD_DESCRIPTIONS | ({"occlusion": HIDDEN_OCCLUSION} if hides else {})
    return html.render(
        "explain.html",
        one=one,
        title=_title(study, one),
        lede=_headline(study, one),
        bars=_probability_bars(one, predictor) if one else [],
        methods=[
            {
                "name": name,
                "description": descriptions[name],
                "faithfulness": study.faithfulness.get(name),
            }
            for name in study.explanations
        ],
        strips=[
            (e[0].method, descriptions[e[0].method], _draw_weights(study, e, 0))
            for e in study.explanations.values()
        ]
        if one
        else [],
        digits=choose_format(list(study.faithfulness.values())) if study.faithfulness else "",
        hidden="masked" if hides else "removed",
        drawing=explain_tokens.draw_answer(one, study, 0) if one else None,
        gold=one is not None and study.right(0) is not None,
        lines=explain_tokens.word_choices(study, 0) if one else [],
        transitions=explain_tokens.transition_table(predictor, study, 0)
        if one and one.at
        else None,
        texts=[] if one else [_explained_text(study, i) for i in study.order()],
        wrong=sum(study.wrong(i) for i in range(len(study.examples))),
        labelled=any(example.label is not None for example in study.examples),
        curves=_faithfulness_charts(list(study.faithfulness.values())),
        quantity=_explained_quantity(study, predictor),
        heads=_attention_maps(predictor, study.examples[0]) if one and not study.written else None,
        blanks=_blank_predictions(one) if one else [],
        mixes=layer_weights.read_model(predictor.engine.model),
        generation=_generation_details(study) if one and study.written else None,
        legend=(_background(FOR_COLOUR), _background(AGAINST_COLOUR)),
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def plot_curves(results: Sequence[Faithfulness], kind: Literal["deletion", "insertion"]) -> str:
    """Plot the curves of all methods, the first in the accent colour, random order dotted."""
    dashes: list[LineStyle] = ["-", "--", "-.", (0, (9, 2)), (0, (5, 1, 1, 1, 1, 1))]
    percentages = [100 * share for share in results[0].shares]
    random_curve = getattr(results[0], f"random_{kind}")
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(5.2, 3.5), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(
            percentages, random_curve, color=plots.MUTED, lw=2.2, ls=":", label="random order"
        )
        for i, one in enumerate(results):
            axes.plot(
                percentages,
                getattr(one, kind),
                color=plots.INK if i else plots.ACCENT,
                lw=1.2 if i else 1.9,
                ls=dashes[i % len(dashes)],
                label=one.method,
            )
        axes.set_xlabel("words removed (%)" if kind == "deletion" else "words inserted (%)")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        return plots.to_svg(figure, kind)


def _explained_quantity(study: ExplainRun, predictor: Predictor) -> str:
    """Return the name of the quantity that falls as words are removed."""
    if target_task(predictor):
        vector = target_task(predictor) == "embed"
        return "the projection on the whole text's vector" if vector else "the probability"
    if study.written:
        return "the mean token probability"
    return "the predicted number" if not predictor.labels else "the probability"


def _generation_details(study: ExplainRun) -> dict[str, object]:
    """Return the details of one generated output, or of one scored text."""
    from weft.report.drawings import generation

    generated = study.written[0]
    return {
        "scored": generated.scored,
        "tokens": generation.draw_tokens(generated, study.examples[0].text),
        "lines": generation.token_rows(generated),
        "has_alternatives": any(token.others for token in generated.tokens),
        "reference": study.examples[0].label if study.wrong(0) else None,
        "hypotheses": generated.found,
        "beams": generation.draw_beams(generated.nodes),
        "steps": max((node.step for node in generated.nodes), default=-1) + 1,
        "drawn": generation.MAX_STEPS,
        "attention": generation.draw_attention(generated),
        "image": generation.draw_looks(generated),
    }


def _draw_weights(study: ExplainRun, explanations: Sequence[Explanation], i: int) -> Markup:
    """Highlight the words of a text, or draw the weights of patches over their image."""
    trace = study.written[i] if study.written else None
    if trace is None or trace.image is None or trace.patches is None or not explanations[i].words:
        return highlight_words(explanations[i])
    weights = np.array([word.weight for word in explanations[i].words])
    return draw_weighted_image(trace.image, trace.patches, weights, explanations[i].method)


def _faithfulness_charts(results: Sequence[Faithfulness]) -> list[tuple[str, Markup]]:
    """Return both kinds of curve with their titles."""
    if not results:
        return []
    return [
        (
            "Deletion: strongest words removed first; lower is better",
            Markup(plot_curves(results, "deletion")),
        ),
        (
            "Insertion: strongest words inserted first; higher is better",
            Markup(plot_curves(results, "insertion")),
        ),
    ]


def _attention_maps(predictor: Predictor, example: Example) -> Markup | None:
    """Render the head × layer grids of the networks with attention heads."""
    from weft.explain.attention import attention_maps, has_heads
    from weft.report.charts.attention_grid import render_section

    if not has_heads(predictor.engine.model) or not example.text.strip():
        return None
    return render_section(attention_maps(predictor, example))


def _blank_predictions(one: Explanation) -> list[dict[str, object]]:
    """Return each blank with its context and the most probable words."""
    parts = MASK_PATTERN.split(one.text)
    out: list[dict[str, object]] = []
    for k, words in enumerate(one.answer.blanks):
        before, after = " ".join(parts[k].split()), " ".join(parts[k + 1].split())
        before = (
            f"…{before[-BLANK_CONTEXT_CHARACTERS:]}"
            if k or len(before) > BLANK_CONTEXT_CHARACTERS
            else before
        )
        after = (
            f"{after[:BLANK_CONTEXT_CHARACTERS]}…"
            if len(after) > BLANK_CONTEXT_CHARACTERS
            else after
        )
        out.append({"before": before, "after": after, "words": words})
    return out


def _title(study: ExplainRun, one: Explanation | None) -> str:
    if one is not None:
        return " ".join(one.text.split())[:60]
    return study.examples[0].file or "texts"


def _headline(study: ExplainRun, one: Explanation | None) -> str:
    method = next(iter(study.explanations))
    if study.written and study.written[0].scored:
        if one is None:
            return f"{len(study.examples):,} texts scored by a language model."
        least_likely = min(study.written[0].tokens, key=lambda token: token.prob, default=None)
        token = (
            one.text[slice(*least_likely.place)].strip() or least_likely.text.strip()
            if least_likely
            else ""
        )
        least = f" The least expected token is “{token}”." if token else ""
        return f"Perplexity {one.answer.value:.3g} per token.{least}{_evidence(one)}"
    if one is not None and one.answer.blanks:
        fitting = ", ".join(f"“{words[0][0]}”" for words in one.answer.blanks)
        return f"Most probable: {fitting}.{_evidence(one)}"
    if one is not None and one.answer.value is None:
        words = ", ".join(_strongest_words(one))
        rests = f" Its vector rests mainly on {words}." if words else ""
        return f"An encoder without a task.{rests}"
    if one is not None and one.answer.structure is not None and one.at is None:
        return f"The model predicts {describe_answer(one)}{name_evidence(one)}."
    if one is not None:
        words = ", ".join(_strongest_words(one))
        if one.target not in (
            one.at.predicted if one.at else _format_label(one.answer.value),
            "number",
        ):
            evidence = f"Evidence for {one.target}: {words or 'none'}."
            return f"{name_subject(one)} {describe_answer(one)}. {evidence}"
        return f"{name_subject(one)} {describe_answer(one)}{name_evidence(one)}."
    best = max(study.faithfulness.values(), key=lambda result: result.gain.value)
    verb = "beats" if best.gain.low > 0 else "does not significantly beat"
    return (
        f"{len(study.examples):,} texts explained. {best.method.capitalize()} is the most faithful "
        f"method here; it {verb} words in random order."
        if len(study.faithfulness) > 1
        else f"{len(study.examples):,} texts explained by {method}; it {verb} random order."
    )


def name_evidence(one: Explanation) -> str:
    """Return the clause that names the strongest words, or ""."""
    words = ", ".join(_strongest_words(one))
    return f", mainly because of {words}" if words else ""


def _evidence(one: Explanation) -> str:
    """Return the sentence that names the strongest words for the explained token, or ""."""
    words = ", ".join(_strongest_words(one))
    if one.at is None or not words:
        return ""
    where = f"token {one.at.step + 1}" if one.at.step >= 0 else one.at.name
    return f" Evidence for “{one.target}” as {where}: {words}."


def _strongest_words(one: Explanation) -> list[str]:
    """Return up to three words with the strongest evidence for the target."""
    named = [w for w in one.words if any(c.isalnum() for c in one.text[w.start : w.end])]
    best = sorted(named, key=lambda word: -word.weight)[:3]
    least = best[0].weight / 3 if best else 0.0
    itself = one.at.start if one.at else -1
    kept = [
        "the word itself" if w.start == itself else f"“{one.text[w.start : w.end]}”"
        for w in best
        if w.weight > max(least, 0)
    ]
    return list(dict.fromkeys(kept))


def name_subject(one: Explanation) -> str:
    """Return the subject of the headline."""
    if one.at is None or (one.at.step < 0 and not one.at.span):
        return "The model predicts"
    return f"For {one.at.title} the model predicts"


def describe_answer(one: Explanation) -> str:
    value = one.answer.value
    if one.at is not None:
        is_number = one.at.column == NUMBER_TARGET
        return f"{one.sure:.4g}" if is_number else f"{one.at.predicted} ({100 * one.sure:.0f} %)"
    if one.answer.structure is not None and isinstance(value, str):  # a span of a passage
        answer = f"“{value}”" if value else "no answer"
        return f"{answer} ({100 * one.answer.score:.0f} %)"
    if one.answer.structure is not None:
        return f"this ({100 * one.answer.score:.0f} % per word)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple) and value and isinstance(value[0], float):
        return ", ".join(f"{number:.4g}" for number in value)
    if one.answer.tokens or value == "":  # generated text
        text = f"“{_truncate(value)}”" if value else "an empty text"
        return f"{text} ({100 * one.answer.score:.0f} %)"
    return f"{_format_label(value) or 'no label'} ({100 * one.answer.score:.0f} %)"


def _truncate(text: str) -> str:
    return (
        text if len(text) <= MAX_ANSWER_CHARACTERS else f"{text[:MAX_ANSWER_CHARACTERS].rstrip()} …"
    )


def _format_label(value: object) -> str:
    if isinstance(value, GoldAnswers):
        return " | ".join(dict.fromkeys(value.texts)) or "no answer"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _probability_bars(one: Explanation, predictor: Predictor) -> list[tuple[str, float, bool]]:
    """Return (label, probability, is target), most probable first."""
    if one.at is not None and one.at.column == NUMBER_TARGET:
        return []
    if one.at is None and (one.answer.structure is not None or not predictor.labels):
        return []
    if one.answer.blanks and any(one.target in dict(words) for words in one.answer.blanks):
        return []  # they are drawn with the blanks
    probs = zip(predictor.class_labels, one.answer.scores, strict=True)
    pairs = one.at.probs if one.at else sorted(probs, key=lambda p: -p[1])
    shown = [pair for i, pair in enumerate(pairs) if i < MAX_BARS or pair[0] == one.target]
    return [(name, prob, name == one.target) for name, prob in shown]


def _explained_text(study: ExplainRun, i: int) -> dict[str, object]:
    one, label = study.first[i], study.examples[i].label
    return {
        "says": f"{one.at.name}: {describe_answer(one)}"
        if one.at and (one.at.step >= 0 or one.at.span)
        else describe_answer(one),
        "label": one.at.gold if one.at else None if label is None else _format_label(label),
        "wrong": study.wrong(i),
        "where": study.examples[i].where,
        "coverage": one.answer.coverage,
        "strip": _draw_weights(study, study.first, i) if one.words else "",
        "drawing": explain_tokens.draw_answer(one, study, i) or _draw_tokens(study, i),
    }


def _draw_tokens(study: ExplainRun, i: int) -> Markup | None:
    if not study.written or not study.written[i].tokens:
        return None
    from weft.report.drawings.generation import draw_tokens

    return draw_tokens(study.written[i], study.examples[i].text)


def _background(colour: str) -> Markup:
    return Markup(f"background:color-mix(in srgb, {colour} {MAX_COLOUR_PERCENT}%, transparent)")
