"""Sentences on which the models disagree the most: one is nearly right where another is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from weft.compare.sentence_scores import UNITS, share
from weft.compare.trial import Result, Trial
from weft.report.analysis import predictions
from weft.report.drawings.draw import drawn
from weft.tasks.annotation import Annotation

MOST = 5
LONG = {"tags": 60, "spans": 60}  # words; a longer sentence says little at a glance


@dataclass(frozen=True)
class Dispute:
    """One sentence as the best and the worst of the models read it, best first."""

    sides: tuple[tuple[str, float, Markup], ...]  # recipe, share that is right, drawing


def disputes(
    finished: Sequence[tuple[Trial, Result]], names: Sequence[str] = (), most: int = MOST
) -> list[Dispute]:
    """Where the first trainings of two recipes differ the most; nothing of whole texts.

    `names` are the labels on the whole page, so that each has one colour there.
    """
    trials: dict[str, Trial] = {}
    for trial, _ in finished:
        trials.setdefault(trial.recipe, trial)
    rows = {name: _shares(trial) for name, trial in trials.items()}
    sizes = {len(found) for found in rows.values()}
    if len(rows) < 2 or len(sizes) != 1 or sizes == {0}:
        return []
    recipes = list(rows)
    table = np.stack([rows[name] for name in recipes])  # (recipes, sentences, 2)
    right = np.where(table[..., 1] > 0, table[..., 0] / np.maximum(table[..., 1], 1e-9), 1.0)
    gaps = right.max(0) - right.min(0)
    weight = gaps * np.sqrt(table[..., 1].max(0))
    order = [int(i) for i in np.argsort(-weight, kind="stable") if gaps[i] > 0][:most]
    lines = {name: _lines(trials[name], set(order)) for name in recipes}
    out = []
    for i in order:
        both = int(right[:, i].argmax()), int(right[:, i].argmin())
        pictures = [drawn(*_sides(lines[recipes[k]][i]), names) for k in both]
        sides = [(recipes[k], float(right[k, i])) for k in both]
        out.append(Dispute(tuple((*side, one) for side, one in zip(sides, pictures, strict=True))))
    return out


def _shares(trial: Trial) -> np.ndarray:
    """(sentences, 2) of each what is right and what there is; nothing of a long sentence."""
    out = []
    for answer in trial.answers():
        if answer.get("structure", {}).get("kind") not in UNITS:
            return np.zeros((0, 2))
        limit = LONG.get(answer["structure"]["kind"], predictions.LONG)
        short = len(answer["structure"].get("words", ())) <= limit
        out.append(share(*_sides(answer)) if short else (0.0, 0.0))
    return np.array(out, float).reshape(-1, 2)


def _lines(trial: Trial, wanted: set[int]) -> dict[int, dict[str, Any]]:
    return {i: answer for i, answer in enumerate(trial.answers()) if i in wanted}


def _sides(answer: dict[str, Any]) -> tuple[Annotation, Annotation]:
    text = answer.get("other") or answer["text"]
    return (
        Annotation.from_json(answer["structure"], text),
        Annotation.from_json(answer["gold"], text),
    )
