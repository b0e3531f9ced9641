"""Decisions and confidences tuned on held-out examples, after training or for a saved model."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.metrics.thresholds import parse_goal
from weft.predict.evaluate import ScoredExamples, score_examples
from weft.predict.predictor import Predictor
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.task import build_task
from weft.text.example import Example, SkipCounter

MAX_DEV_SCORES = 20_000_000  # of dev texts that are kept in memory: 80 MB


def tune_on_dev(
    predictor: Predictor, source: Callable[[], Iterator[Example]], on_bad_row: str, tune: bool
) -> list[ScoredExamples] | None:
    """Tune decisions and calibrate confidences on dev; return its scores if they are few enough.

    A classifier with very many labels is calibrated on evenly spaced texts.
    """
    task, space = predictor.task, predictor.space
    kept: list[ScoredExamples] = []
    scores: list[Any] = []
    gold: list[Any] = []
    count, every, whole = 0, 1, True
    for chunk in score_examples(predictor, source(), on_bad_row, SkipCounter()):
        if chunk.output is None:
            continue
        for one, right in zip(chunk.output.scores, chunk.gold, strict=True):
            if count % every == 0:
                # A copy, because a view would keep the scores of the whole chunk.
                scores.append(one.copy() if isinstance(one, np.ndarray) else one)
                gold.append(right)
            count += 1
        if not task.has_threshold and len(scores) * len(space.entries) > MAX_DEV_SCORES:
            scores, gold, every = scores[::2], gold[::2], 2 * every
        whole = whole and count * max(len(space.entries), 1) <= MAX_DEV_SCORES
        kept = [*kept, chunk] if whole else []
    if not scores:
        return None
    is_table = isinstance(scores[0], np.ndarray)
    table, targets = (np.stack(scores), np.array(gold)) if is_table else (scores, gold)
    if tune:
        predictor.space = task.tune(table, targets, predictor.space)
    predictor.space = task.calibrate(table, targets, predictor.space)
    return kept or None


def tune_threshold(
    predictor: Predictor,
    source: Callable[[], Iterator[Example]],
    threshold_for: str,
    positive: str = "",
    on_bad_row: str = "error",
) -> Predictor:
    """Return a trained classifier with the threshold that serves a goal on held-out examples.

    The goal is "f1", "recall=0.9" or "precision=0.9". `positive` is the class that the threshold
    decides on; by default that of the model, or the rarer of the two in the examples. Raises a
    UserError if the goal cannot be reached.
    """
    goal = parse_goal(threshold_for, "threshold_for")
    task, space = predictor.task, predictor.space
    if not isinstance(task, Classify) or not isinstance(space, ClassSpace):
        raise UserError(
            f"A threshold decides between labels of texts; this is a model of the task "
            f"'{predictor.config['task']['kind']}'."
        )
    if not task.multi_label:
        counts = Counter(str(example.label) for example in source())
        positive = positive or space.positive
        space = task.with_positive(space, positive, tuple(counts[name] for name in space.entries))
    settings = {"threshold_for": str(goal), "positive": space.positive}
    config = {**predictor.config, "task": {**predictor.config["task"], **settings}}
    tuned = Predictor(predictor.engine, build_task(config), space, config)
    tune_on_dev(tuned, source, on_bad_row, tune=True)
    found = tuned.space
    assert isinstance(found, ClassSpace)
    if found.reached is None:
        raise UserError("No example has the label that the threshold decides on. Give others.")
    if not found.reached.reaches(goal):
        raise UserError(
            f"{goal} cannot be reached on these examples: at most {goal.metric} "
            f"{getattr(found.reached, goal.metric):.3f}. Ask for less, or train a better model."
        )
    return tuned
