"""The page of `weft explain`: one text in depth, or many texts with their methods compared.

L layers   N heads   T tokens
"""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from weft.explain import Explanation, Faithfulness
from weft.explain.method import unattributed_task
from weft.explain.run import ExplainRun
from weft.predict.predictor import Predictor
from weft.report import html
from weft.report.charts import layer_weights, plots
from weft.report.drawings.highlight import AGAINST, DEEPEST, FOR, strip
from weft.report.pages import explain_tokens
from weft.tasks.mlm import MASK_PATTERN
from weft.text.example import Example, GoldAnswers

AROUND = 60  # characters beside a blank
BARS = 8  # labels whose probability is shown
LONGEST = 200  # characters of an answer in a headline

HIDDEN = "how far the score falls when the word is hidden"
METHODS = {
    "integrated-gradients": "the slope of the score along the way from unknown words to the text",
    "gradient-input": "the slope of the score at the text, times the word's vector",
    "occlusion": "how far the score falls when the word is removed",
    "attention": "how much the model looks at the word; not whether it speaks for or against",
    "linear": "what the word's n-grams add to the score, exactly",
}


def write(path: Path, study: ExplainRun, predictor: Predictor, *, command: Sequence[str]) -> None:
    """Write the page; a UserError where that is not possible."""
    html.save(path, render(study, predictor, command=command))


def render(study: ExplainRun, predictor: Predictor, *, command: Sequence[str]) -> str:
    """The whole page; everything that came from the user is escaped."""
    one = study.first[0] if len(study.examples) == 1 else None
    weighed = bool(next(iter(study.explanations)))
    told = METHODS | ({"occlusion": HIDDEN} if weighed and study.first[0].at else {})
    return html.render(
        "explained.html",
        one=one,
        title=_title(study, one),
        lede=_lede(study, one),
        bars=_bars(one, predictor) if one else [],
        methods=[
            {"name": name, "what": told[name], "faith": study.faithfulness.get(name)}
            for name in study.explanations
            if name
        ],
        strips=[(e[0].method, told[e[0].method], strip(e[0])) for e in study.explanations.values()]
        if one and weighed
        else [],
        weighed=weighed,
        unweighed=_unweighed(study, predictor),
        hidden="hidden" if weighed and study.first[0].at else "removed",
        drawing=explain_tokens.drawing(one, study, 0) if one else None,
        gold=one is not None and study.right(0) is not None,
        lines=explain_tokens.lines(study, 0) if one else [],
        chain=explain_tokens.transitions(predictor, study, 0) if one and one.at else None,
        texts=[] if one else [_text(study, i) for i in study.order()],
        wrong=sum(study.wrong(i) for i in range(len(study.examples))),
        labelled=any(example.label is not None for example in study.examples),
        curves=_curves(list(study.faithfulness.values())),
        what=_what(study, predictor),
        heads=_heads(predictor, study.examples[0]) if one and not study.written else None,
        blanks=_blanks(one) if one else [],
        mixes=layer_weights.of_model(getattr(predictor.engine, "model", None)),
        writing=_writing(study) if one and study.written else None,
        legend=(_ground(FOR), _ground(AGAINST)),
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def curves(found: Sequence[Faithfulness], kind: Literal["deletion", "insertion"]) -> str:
    """The curves of all methods, the first one in the accent, random order dotted."""
    dashes: list[Any] = ["-", "--", "-.", (0, (9, 2)), (0, (5, 1, 1, 1, 1, 1))]
    shares = [100 * share for share in found[0].shares]
    chance = getattr(found[0], f"random_{kind}")
    with matplotlib.rc_context(plots.STYLE):
        figure = Figure(figsize=(5.2, 3.5), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(shares, chance, color=plots.MUTED, lw=2.2, ls=":", label="random order")
        for i, one in enumerate(found):
            axes.plot(
                shares,
                getattr(one, kind),
                color=plots.INK if i else plots.ACCENT,
                lw=1.2 if i else 1.9,
                ls=dashes[i % len(dashes)],
                label=one.method,
            )
        axes.set_xlabel("words removed (%)" if kind == "deletion" else "words put in (%)")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
        return plots.svg(figure, kind)


def _what(study: ExplainRun, predictor: Predictor) -> str:
    """What falls as words are removed."""
    if study.written:
        return "the mean probability a token"
    return "the number" if not predictor.labels else "the probability"


def _unweighed(study: ExplainRun, predictor: Predictor) -> str:
    """Why words have no weights."""
    if study.written or unattributed_task(predictor):
        return ""
    if hasattr(predictor.engine, "model"):
        return "what is said of the sentence has no single score that words could speak for"
    return "that is done only in neural models"


def _writing(study: ExplainRun) -> dict[str, Any]:
    """How the one answer was written, or the one text heard."""
    from weft.report.drawings import generation

    found = study.written[0]
    return {
        "heard": found.heard,
        "tokens": generation.tokens(found, study.examples[0].text),
        "lines": generation.lines(found),
        "named": any(token.others for token in found.tokens),  # what else was likely
        "right": study.examples[0].label if study.wrong(0) else None,
        "found": found.found,
        "beams": generation.beams(found.nodes),
        "steps": max((node.step for node in found.nodes), default=-1) + 1,
        "drawn": generation.STEPS,
        "attention": generation.attention(found),
    }


def _curves(found: Sequence[Faithfulness]) -> list[tuple[str, Markup]]:
    """Both kinds of curve with what each shows."""
    if not found:
        return []
    return [
        ("Strongest words removed first: lower is better", Markup(curves(found, "deletion"))),
        ("Strongest words put in first: higher is better", Markup(curves(found, "insertion"))),
    ]


def _heads(predictor: Predictor, example: Example) -> Markup | None:
    """The head × layer grids of the networks that have heads."""
    from weft.explain.attention import attention_maps, has_heads
    from weft.report.charts.attention_grid import section

    if not has_heads(getattr(predictor.engine, "model", None)) or not example.text.strip():
        return None
    return section(attention_maps(predictor, example))


def _blanks(one: Explanation) -> list[dict[str, Any]]:
    """Each blank of a text with what stands around it, and the words that fit best."""
    parts = MASK_PATTERN.split(one.text)
    out = []
    for k, words in enumerate(one.answer.blanks):
        before, after = " ".join(parts[k].split()), " ".join(parts[k + 1].split())
        before = f"…{before[-AROUND:]}" if k or len(before) > AROUND else before
        after = f"{after[:AROUND]}…" if len(after) > AROUND else after
        out.append({"before": before, "after": after, "words": words})
    return out


def _title(study: ExplainRun, one: Explanation | None) -> str:
    if one is not None:
        return " ".join(one.text.split())[:60]
    return study.examples[0].file or "texts"


def _lede(study: ExplainRun, one: Explanation | None) -> str:
    method = next(iter(study.explanations))
    if study.written and study.written[0].heard:
        if one is None:
            return f"{len(study.examples):,} texts heard by a language model."
        hard = min(study.written[0].tokens, key=lambda token: token.prob, default=None)
        piece = one.text[slice(*hard.place)].strip() or hard.text.strip() if hard else ""
        least = f" What it expected least is “{piece}”." if piece else ""
        return f"The model hesitates between {one.answer.value:.3g} tokens on average.{least}"
    if one is not None and one.answer.blanks:
        fitting = ", ".join(f"“{words[0][0]}”" for words in one.answer.blanks)
        return f"What fits best: {fitting}."
    if one is not None and one.answer.value is None:
        return "A network that makes vectors, and where its heads look."
    if one is not None and one.answer.structure is not None and isinstance(one.answer.value, str):
        return f"The model says {_says(one)}."
    if not method:
        return "What the model says." if one else f"{len(study.examples):,} texts answered."
    if one is not None:
        words = ", ".join(_reasons(one))
        because = f", most of all because of {words}" if words else ""
        if one.target not in (one.at.said if one.at else _plain(one.answer.value), "number"):
            return (
                f"{_about(one)} {_says(one)}. What speaks for {one.target}: {words or 'nothing'}."
            )
        return f"{_about(one)} {_says(one)}{because}."
    best = max(study.faithfulness.values(), key=lambda found: found.gain.value)
    sure = "beats" if best.gain.low > 0 else "does not surely beat"
    return (
        f"{len(study.examples):,} texts explained. {best.method.capitalize()} is the most faithful "
        f"method here; it {sure} words in random order."
        if len(study.faithfulness) > 1
        else f"{len(study.examples):,} texts explained by {method}; it {sure} random order."
    )


def _reasons(one: Explanation) -> list[str]:
    """Up to three words that speak most for the target, those that stand out."""
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


def _about(one: Explanation) -> str:
    """Of what the model says something."""
    if one.at is None or one.at.step < 0:
        return "The model says"
    return f"Of “{one.at.name}” the model says"


def _says(one: Explanation) -> str:
    value = one.answer.value
    if one.at is not None:
        return f"{one.at.said} ({100 * one.sure:.0f} %)"
    if one.answer.structure is not None and isinstance(value, str):  # a stretch of a passage
        found = f"“{value}”" if value else "that there is no answer"
        return f"{found} ({100 * one.answer.score:.0f} %)"
    if one.answer.structure is not None:
        return f"this ({100 * one.answer.score:.0f} % a word)"
    if isinstance(value, float):
        return f"{value:.4g}"
    if one.answer.tokens or value == "":  # a text that was written
        return f"{f'“{_cut(value)}”' if value else 'nothing'} ({100 * one.answer.score:.0f} %)"
    return f"{_plain(value) or 'no label'} ({100 * one.answer.score:.0f} %)"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()} …"


def _plain(value: Any) -> str:
    if isinstance(value, GoldAnswers):
        return " | ".join(dict.fromkeys(value.texts)) or "as without an answer"
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _bars(one: Explanation, predictor: Predictor) -> list[tuple[str, float, bool]]:
    """(label, probability, whether it is the target), the most probable first."""
    if one.at is None and (one.answer.structure is not None or not predictor.labels):
        return []
    found = zip(predictor.labels, one.answer.scores, strict=True)
    pairs = one.at.probs if one.at else sorted(found, key=lambda p: -p[1])
    shown = [pair for i, pair in enumerate(pairs) if i < BARS or pair[0] == one.target]
    return [(name, chance, name == one.target) for name, chance in shown]


def _text(study: ExplainRun, i: int) -> dict[str, Any]:
    one, label = study.first[i], study.examples[i].label
    return {
        "says": f"{one.at.name}: {_says(one)}" if one.at and one.at.step >= 0 else _says(one),
        "label": one.at.gold if one.at else None if label is None else _plain(label),
        "wrong": study.wrong(i),
        "where": study.examples[i].where,
        "coverage": one.answer.coverage,
        "strip": strip(one) if one.words else "",
        "drawing": explain_tokens.drawing(one, study, i) or _tokens(study, i),
    }


def _tokens(study: ExplainRun, i: int) -> Markup | None:
    if not study.written:
        return None
    from weft.report.drawings.generation import tokens

    return tokens(study.written[i], study.examples[i].text)


def _ground(colour: str) -> Markup:
    return Markup(f"background:color-mix(in srgb, {colour} {DEEPEST}%, transparent)")
