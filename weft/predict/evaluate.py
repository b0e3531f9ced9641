"""Evaluate a predictor on labelled examples, in constant memory."""

import dataclasses
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, Any, Literal

import numpy as np

from weft.errors import UserError
from weft.metrics import Metric
from weft.predict.predictor import CHUNK_TEXTS, Predictor, chunk_size
from weft.predict.preprocess import preprocess
from weft.registry import check_types
from weft.tasks.task import Answer
from weft.text.example import UNKNOWN_WORDS, Example, GoldAnswers, SkipCounter, WordAnnotations


@check_types
def evaluate(
    predictor: Predictor,
    examples: Iterable[Example],
    *,
    on_bad_row: Literal["error", "skip"] = "error",
    tally: SkipCounter | None = None,
    predictions: IO[str] | None = None,
    watch: Callable[[int], None] = lambda rows: None,
    on_example: Callable[[Example, Answer], None] | None = None,
) -> Metric:
    """Answer every example and return the metrics; `predictions` gets one JSON line per example.

    `on_example` is called with every example that was measured and its answer.
    """
    tally = SkipCounter() if tally is None else tally
    examples = _check_examples(examples)
    task, space = predictor.task, predictor.space
    if task.read_mode != "labelled":
        return _evaluate_lm(predictor, examples, predictions, watch, on_example)
    measure = task.build_metric(space)
    stream = task.group_references(examples)
    rows = 0
    while chunk := list(islice(stream, chunk_size(space))):
        kept, targets = [], []
        for example in preprocess(chunk, task, tally, on_bad_row, predictor.engine.parser):
            if (target := _target(predictor, example, on_bad_row, tally)) is not None:
                kept.append(example)
                targets.append(target)
        if kept:
            whole = predictor.pairs or predictor.engine.input_kind in ("trees", "vectors")
            given = [e if whole or e.words or e.fields else e.text for e in kept]
            scored = predictor.engine.predict(given)
            gold = targets if isinstance(scored.scores, list) else np.array(targets)
            if task.has_references:
                gold = [task.find_reference(example) for example in kept]
            measure.add(task.predict_targets(scored.scores, space), gold)
            read = np.ones(len(kept)) if scored.read is None else scored.read
            for example, share, held in zip(kept, scored.coverage, read, strict=True):
                if held < 1:
                    tally.add("texts read only in part", f"{example.where} ({held:.0%})")
                if share < held:
                    tally.add(UNKNOWN_WORDS, f"{example.where} ({share:.0%} covered)")
            answers = task.answers(scored.scores, space) if predictions or on_example else []
            if on_example is not None:
                for example, answer in zip(kept, answers, strict=True):
                    on_example(example, answer)
            if predictions is not None:
                for example, answer, share in zip(kept, answers, scored.coverage, strict=True):
                    row = {
                        "text": example.text,
                        "label": label_json(example.label),
                        **answer_json(answer),
                    }
                    row["coverage"] = float(share)
                    if predictor.pairs:
                        row["other"] = example.other
                    if answer.structure is not None:
                        row["structure"] = answer.structure.to_json()
                        row["gold"] = task.gold(example, space, answer).to_json()
                    predictions.write(json.dumps(row, ensure_ascii=False) + "\n")
        rows += len(chunk)
        watch(len(chunk))
    if not rows:
        raise UserError("There are no examples to measure on.")
    return measure


def _evaluate_lm(
    predictor: Predictor,
    examples: Iterable[Example],
    predictions: IO[str] | None,
    watch: Callable[[int], None],
    on_example: Callable[[Example, Answer], None] | None,
) -> Metric:
    """Return the metrics of running text under a language model."""
    task = predictor.task
    measure = task.build_metric(predictor.space)
    waiting: deque[Example] = deque()
    engine: Any = predictor.engine
    both: list[Example] = []  # to be scored backward as well

    def texts() -> Iterator[str]:
        for example in examples:
            waiting.append(example)
            yield example.text

    for scored in task.score_texts(engine, texts(), predictor.space):
        example = waiting.popleft()
        measure.add(task.predict_targets([scored], predictor.space), [task.find_reference(example)])
        if engine.has_backward_lm:
            both.append(example)
            if len(both) == CHUNK_TEXTS:
                _evaluate_backward(predictor, measure, both)
        if on_example is not None or predictions is not None:
            (answer,) = task.answers([scored], predictor.space)
            if on_example is not None:
                on_example(example, answer)
            if predictions is not None:
                row = {
                    "text": example.text,
                    "label": label_json(example.label),
                    **answer_json(answer),
                }
                row["tokens"] = len(answer.scores)  # what a paired test weighs the text by
                predictions.write(json.dumps(row, ensure_ascii=False) + "\n")
        watch(1)
    if not measure.n:
        raise UserError("There are no examples to measure on.")
    if both:
        _evaluate_backward(predictor, measure, both)
    return measure


def _evaluate_backward(predictor: Predictor, measure: Any, examples: list[Example]) -> None:
    """Add the scores of the backward language model, and clear the examples."""
    task, engine = predictor.task, predictor.engine
    measure.backward = measure.backward or task.build_metric(predictor.space)
    found = engine.score_backward([one.text for one in examples])
    gold = [task.find_reference(one) for one in examples]
    measure.backward.add(task.predict_targets(found, predictor.space), gold)
    examples.clear()


def label_json(label: Any) -> Any:
    """Return a label as JSON: the columns of words, the texts of answers."""
    if isinstance(label, GoldAnswers):
        return list(label.texts)
    return label.columns if isinstance(label, WordAnnotations) else label


def answer_json(answer: Any) -> dict[str, Any]:
    """Return an answer as `predict --json` prints it."""
    out = {"value": answer.value, "score": answer.score, "coverage": answer.coverage}
    if answer.blanks:
        out["blanks"] = [[list(word) for word in words] for words in answer.blanks]
    if answer.parts:
        out["parts"] = [list(part) for part in answer.parts]
    return out


def _check_examples(examples: Iterable[Example]) -> Iterator[Example]:
    for i, one in enumerate(examples, 1):
        if not isinstance(one, Example):
            raise UserError(
                f"evaluate: example {i} is {type(one).__name__}; give weft.Example objects, such "
                "as those of weft.read(FILE)."
            )
        yield one


def _target(predictor: Predictor, example: Example, on_bad_row: str, tally: SkipCounter) -> Any:
    try:
        if example.label is None and example.tree is None:
            raise predictor.task.missing_label_error(example)
        return predictor.task.target(example, predictor.space)
    except UserError:
        if on_bad_row == "error":
            raise
        what = "rows without a label skipped" if example.label is None else "unknown labels skipped"
        tally.add(what, example.where)
        return None


def metrics_json(measure: Metric) -> dict[str, Any]:
    """Return the metrics as JSON values."""
    return {name: dataclasses.asdict(figure) for name, figure in measure.compute().items()}
