"""Sentences on which models disagree most: one is nearly correct where another is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from weft.compare.sentence_scores import UNITS, ratio_terms
from weft.compare.trial import Result, Trial
from weft.report.analysis import predictions
from weft.report.drawings.draw import draw
from weft.tasks.annotation import Annotation

MAX_SENTENCES = 5
MAX_WORDS = {"tags": 60, "spans": 60}  # of a sentence that is readable at a glance


@dataclass(frozen=True)
class Disagreement:
    """The predictions of the best and the worst model for one sentence, best first."""

    sides: tuple[tuple[str, float, Markup], ...]  # recipe, fraction correct, drawing


def find_disagreements(
    finished: Sequence[tuple[Trial, Result]], names: Sequence[str] = (), most: int = MAX_SENTENCES
) -> list[Disagreement]:
    """Find sentences on which the first runs of two recipes differ most; none for whole texts.

    `names` are all labels on the page, so that each keeps its colour.
    """
    trials: dict[str, Trial] = {}
    for trial, _ in finished:
        trials.setdefault(trial.recipe, trial)
    rows = {name: _sentence_terms(trial) for name, trial in trials.items()}
    sizes = {len(terms) for terms in rows.values()}
    if len(rows) < 2 or len(sizes) != 1 or sizes == {0}:
        return []
    recipes = list(rows)
    table = np.stack([rows[name] for name in recipes])  # (recipes, sentences, 2)
    correct = np.where(table[..., 1] > 0, table[..., 0] / np.maximum(table[..., 1], 1e-9), 1.0)
    gaps = correct.max(0) - correct.min(0)
    weight = gaps * np.sqrt(table[..., 1].max(0))
    order = [int(i) for i in np.argsort(-weight, kind="stable") if gaps[i] > 0][:most]
    lines = {name: _read_lines(trials[name], set(order)) for name in recipes}
    out = []
    for i in order:
        best_and_worst = int(correct[:, i].argmax()), int(correct[:, i].argmin())
        pictures = [draw(*_read_structures(lines[recipes[k]][i]), names) for k in best_and_worst]
        sides = [(recipes[k], float(correct[k, i])) for k in best_and_worst]
        out.append(
            Disagreement(tuple((*side, one) for side, one in zip(sides, pictures, strict=True)))
        )
    return out


def _sentence_terms(trial: Trial) -> np.ndarray:
    """Return (sentences, 2) numerators and denominators of the metric; zero for long sentences."""
    out = []
    for answer in trial.read_predictions():
        if answer.get("structure", {}).get("kind") not in UNITS:
            return np.zeros((0, 2))
        limit = MAX_WORDS.get(answer["structure"]["kind"], predictions.MAX_DRAWN_WORDS)
        short = len(answer["structure"].get("words", ())) <= limit
        out.append(ratio_terms(*_read_structures(answer)) if short else (0.0, 0.0))
    return np.array(out, float).reshape(-1, 2)


def _read_lines(trial: Trial, wanted: set[int]) -> dict[int, dict[str, Any]]:
    return {i: answer for i, answer in enumerate(trial.read_predictions()) if i in wanted}


def _read_structures(answer: dict[str, Any]) -> tuple[Annotation, Annotation]:
    text = answer.get("other") or answer["text"]
    return (
        Annotation.from_json(answer["structure"], text),
        Annotation.from_json(answer["gold"], text),
    )
