"""The page of `weft explain --contexts`: one word where it stands, by its vectors, in the plane."""

import datetime
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from weft.explain.contexts import Contexts
from weft.report import html
from weft.report.analysis.predictions import Said
from weft.report.analysis.projection import EXCERPT, Method, projection, section

ROOM = 160  # characters on each side of the word in the list
SAMPLED = 13  # occurrences from which on neighbours say more than directions


def write(path: Path, found: Contexts, name: str, *, command: Sequence[str]) -> None:
    """Write the page; a UserError where that is not possible."""
    html.save(path, render(found, name, command=command))


def render(found: Contexts, name: str, *, command: Sequence[str]) -> str:
    """The whole page; everything that came from the user is escaped."""
    return html.render(
        "contexts.html",
        found=found,
        name=name,
        lede=_lede(found),
        layer=_layer(found),
        picture=_picture(found),
        lines=[
            (i, one.excerpt(ROOM), one, [(j + 1, cosine) for j, cosine in near])
            for i, (one, near) in enumerate(zip(found.found, found.nearest, strict=True), 1)
        ],
        command=shlex.join(command),
        made=datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y, %H:%M UTC"),
    )


def _picture(found: Contexts) -> Markup:
    """The occurrences as points, coloured by label; nothing of a single one."""
    if len(found.found) < 2:
        return Markup("")
    methods: tuple[Method, ...] = ("pca", "t-sne") if len(found.found) >= SAMPLED else ("pca",)
    lengths = np.linalg.norm(found.vectors, axis=1, keepdims=True)
    unit = found.vectors / np.maximum(lengths, 1e-12)  # by their cosines, as the neighbours are
    said = []
    for i, one in enumerate(found.found, 1):
        label = one.label or ("no label" if found.labels else found.word)
        said.append(Said(f"{i}. {''.join(one.excerpt(EXCERPT // 2 - 8))}", label, label, 1.0))
    return section(projection(said, unit, methods), things="occurrences", answered=False)


def _lede(found: Contexts) -> str:
    many = len(found.found)
    told = (
        f"“{found.word}” stands in {many:,} places" if many > 1 else f"“{found.word}” stands once"
    )
    same, of = found.label_agreement
    if len(found.labels) < 2 or not of:
        return f"{told}."
    return f"{told}. For {same:,} of {of:,} the nearest other one has the same label."


def _layer(found: Contexts) -> str:
    if found.layer is None:
        return "the model's last states"
    return f"layer {found.layer}" if found.layer else "layer 0, the words before any context"
