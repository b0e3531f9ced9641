"""The page of `weft explain --contexts`: the occurrences of a word by contextual vector."""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from weft.explain.contexts import Contexts
from weft.report import html
from weft.report.analysis.predictions import Prediction
from weft.report.analysis.projection import (
    EXCERPT_CHARACTERS,
    Method,
    build_projection,
    render_section,
)

CONTEXT_CHARACTERS = 160  # on each side of the word in the list
MIN_TSNE_OCCURRENCES = 13  # before t-SNE is useful


def write(path: Path, contexts: Contexts, name: str, *, command: Sequence[str]) -> None:
    """Write the page; raise UserError if that fails."""
    html.save(path, render(contexts, name, command=command))


def render(contexts: Contexts, name: str, *, command: Sequence[str]) -> str:
    """Render the whole page."""
    return html.render(
        "contexts.html",
        contexts=contexts,
        name=name,
        lede=_headline(contexts),
        layer=_layer_name(contexts),
        picture=_draw_map(contexts),
        lines=[
            (i, one.excerpt(CONTEXT_CHARACTERS), one, [(j + 1, cosine) for j, cosine in near])
            for i, (one, near) in enumerate(zip(contexts.found, contexts.nearest, strict=True), 1)
        ],
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _draw_map(contexts: Contexts) -> Markup:
    """Draw the occurrences as points coloured by label; empty for a single one."""
    if len(contexts.found) < 2:
        return Markup("")
    methods: tuple[Method, ...] = (
        ("pca", "t-sne") if len(contexts.found) >= MIN_TSNE_OCCURRENCES else ("pca",)
    )
    lengths = np.linalg.norm(contexts.vectors, axis=1, keepdims=True)
    unit = contexts.vectors / np.maximum(lengths, 1e-12)  # by cosine, like the neighbours
    points = []
    for i, occurrence in enumerate(contexts.found, 1):
        label = occurrence.label or ("no label" if contexts.labels else contexts.word)
        points.append(
            Prediction(
                f"{i}. {''.join(occurrence.excerpt(EXCERPT_CHARACTERS // 2 - 8))}",
                label,
                label,
                1.0,
            )
        )
    return render_section(
        build_projection(points, unit, methods), things="occurrences", answered=False
    )


def _headline(contexts: Contexts) -> str:
    n = len(contexts.found)
    summary = f"“{contexts.word}” occurs {n:,} times" if n > 1 else f"“{contexts.word}” occurs once"
    same, total = contexts.label_agreement
    if len(contexts.labels) < 2 or not total:
        return f"{summary}."
    return f"{summary}. For {same:,} of {total:,} the nearest neighbour has the same label."


def _layer_name(contexts: Contexts) -> str:
    if contexts.layer is None:
        return "the last layer"
    return f"layer {contexts.layer}" if contexts.layer else "layer 0, before any context"
