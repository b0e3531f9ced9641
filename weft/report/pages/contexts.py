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
    default_methods,
    render_section,
)

CONTEXT_CHARACTERS = 160  # on each side of the word in the list
MIN_TSNE_OCCURRENCES = 13  # with fewer, PCA is shown first


def write(
    path: Path,
    contexts: Contexts,
    name: str,
    *,
    command: Sequence[str],
    method: Method | None = None,
) -> None:
    """Write the page; raise UserError if that fails."""
    html.save(path, render(contexts, name, command=command, method=method))


def render(
    contexts: Contexts, name: str, *, command: Sequence[str], method: Method | None = None
) -> str:
    """Render the whole page; `method` is the projection that is shown first."""
    return html.render(
        "contexts.html",
        contexts=contexts,
        name=name,
        lede=_headline(contexts),
        layer=_layer_name(contexts),
        picture=_draw_map(contexts, method),
        lines=[
            (i, one.excerpt(CONTEXT_CHARACTERS), one, [(j + 1, cosine) for j, cosine in near])
            for i, (one, near) in enumerate(zip(contexts.found, contexts.nearest, strict=True), 1)
        ],
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _draw_map(contexts: Contexts, method: Method | None) -> Markup:
    """Draw the occurrences as points coloured by label; empty for a single one.

    Two and three are drawn by PCA, which keeps all their distances; t-SNE and UMAP take four.
    """
    if len(contexts.found) < 2:
        return Markup("")
    count = len(contexts.found)
    # PCA is always there: a note says why another method could not be used.
    chosen = dict.fromkeys(("pca", method)) if method else default_methods(count)
    first = method or ("t-sne" if count >= MIN_TSNE_OCCURRENCES else "pca")
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
    projection = build_projection(points, unit, tuple(chosen))
    return render_section(projection, things="occurrences", answered=False, first=first)


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
