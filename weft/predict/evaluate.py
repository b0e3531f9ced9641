"""Evaluate a predictor on labelled examples, in constant memory."""

import dataclasses
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, Any, Literal

import numpy as np

from weft.errors import UserError
from weft.inference.track_states import carry_states, tracks_states
from weft.metrics import Metric
from weft.metrics.selective import SelectiveMetric
from weft.predict.confidence import ConfidenceRules
from weft.predict.output import EngineOutput
from weft.predict.predictor import CHUNK_TEXTS, Predictor, chunk_size
from weft.predict.preprocess import preprocess
from weft.registry import check_types
from weft.tasks.language import LMMetric
from weft.tasks.task import Answer
from weft.text.annotation.frames import Coreference, Extractions, Frames
from weft.text.example import (
    UNKNOWN_WORDS,
    Example,
    GoldAnswers,
    Label,
    SkipCounter,
    WordAnnotations,
    sentence_label,
)


@dataclasses.dataclass(frozen=True)
class ScoredExamples:
    """A chunk of examples that can be measured, with their gold answers and scores."""

    examples: list[Example]
    gold: np.ndarray | list[Any]
    output: EngineOutput | None  # None without examples
    rows: int  # read, including skipped ones


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
    abstain_at: float | None = None,
) -> Metric:
    """Answer every example and return the metrics; `predictions` gets one JSON line per example.

    `compute()` of the result gives each metric by name, with its value, its 95 % interval and n.
    With `on_bad_row="skip"`, rows that cannot be measured are left out and counted in `tally`.
    `watch` is called with the number of rows done since its last call, `on_example` with every
    example that was measured and its answer. With `abstain_at`, the metrics also say how many texts
    are answered under this promise of accuracy, and how many of those correctly; see `Predictor`.
    The other metrics, and `on_example`, are about the answers to all texts.
    """
    tally = SkipCounter() if tally is None else tally
    examples = _check_examples(examples)
    rules = ConfidenceRules.of(predictor, abstain_at)
    if predictor.task.read_mode != "labelled":
        return _evaluate_lm(predictor, examples, predictions, watch, on_example)
    scored = score_examples(predictor, examples, on_bad_row, tally)
    return evaluate_scored(predictor, scored, tally, predictions, watch, on_example, rules)


def score_examples(
    predictor: Predictor, examples: Iterable[Example], on_bad_row: str, tally: SkipCounter
) -> Iterator[ScoredExamples]:
    """Yield labelled examples in chunks with their scores; rows that are bad are skipped."""
    task = predictor.task
    if tracks_states(predictor.config):
        examples = carry_states(predictor, examples)
    stream = task.group_references(examples)
    while chunk := list(islice(stream, chunk_size(predictor.space))):
        kept, targets = _read_targets(predictor, chunk, on_bad_row, tally)
        if not kept:
            yield ScoredExamples([], [], None, len(chunk))
            continue
        whole = predictor.pairs or predictor.engine.input_kind in ("trees", "vectors")
        inputs = [e if whole or e.words or e.fields else e.text for e in kept]
        output = predictor.engine.predict(inputs)
        gold: np.ndarray | list[Any]
        gold = targets if isinstance(output.scores, list) else np.array(targets)
        if task.has_references:
            gold = [task.find_reference(example) for example in kept]
        yield ScoredExamples(kept, gold, output, len(chunk))


def evaluate_scored(
    predictor: Predictor,
    scored: Iterable[ScoredExamples],
    tally: SkipCounter,
    predictions: IO[str] | None = None,
    watch: Callable[[int], None] = lambda rows: None,
    on_example: Callable[[Example, Answer], None] | None = None,
    rules: ConfidenceRules | None = None,
) -> Metric:
    """Return the metrics of examples that have their scores; see `evaluate`."""
    task, space = predictor.task, predictor.space
    metric = task.build_metric(space)
    if rules is not None:
        metric = SelectiveMetric(metric)
    rows = 0
    for chunk in scored:
        rows += chunk.rows
        if chunk.output is not None:
            kept, output = chunk.examples, chunk.output
            predicted = task.predict_targets(output.scores, space)
            metric.add(predicted, chunk.gold)
            _count_truncated(kept, output, tally)
            wanted = predictions or on_example or rules
            answers = task.answers(output.scores, space) if wanted else []
            if on_example is not None:
                for example, answer, read in zip(kept, answers, output.coverage, strict=True):
                    on_example(example, dataclasses.replace(answer, coverage=float(read)))
            if rules is not None:
                assert isinstance(metric, SelectiveMetric)
                answers = [rules.apply(answer) for answer in answers]
                metric.add_answered(
                    np.array([not answer.abstained for answer in answers]),
                    _are_right(np.asarray(predicted), np.asarray(chunk.gold)),
                )
            if predictions is not None:
                for example, answer, coverage in zip(kept, answers, output.coverage, strict=True):
                    row = _prediction_json(predictor, example, answer)
                    row["coverage"] = float(coverage)
                    predictions.write(json.dumps(row, ensure_ascii=False) + "\n")
        watch(chunk.rows)
    if not rows:
        raise UserError("There are no examples to measure on.")
    return metric


def _are_right(predicted: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Return which answers (n,) are right, labels or whole rows of zeros and ones."""
    same: np.ndarray = predicted == gold if gold.ndim == 1 else (predicted == (gold > 0)).all(1)
    return same


def _read_targets(
    predictor: Predictor, examples: Sequence[Example], on_bad_row: str, tally: SkipCounter
) -> tuple[list[Example], list[Any]]:
    """Return the examples that can be measured, and their targets; count the others."""
    kept, targets = [], []
    parser = predictor.engine.parser
    for example in preprocess(examples, predictor.task, tally, on_bad_row, parser):
        try:
            if example.label is None and example.tree is None:
                raise predictor.task.missing_label_error(example)
            target = predictor.task.target(example, predictor.space)
        except UserError:
            if on_bad_row == "error":
                raise
            missing = example.label is None
            what = "rows without a label skipped" if missing else "unknown labels skipped"
            tally.add(what, example.where)
            continue
        kept.append(example)
        targets.append(target)
    return kept, targets


def _count_truncated(examples: Sequence[Example], output: EngineOutput, tally: SkipCounter) -> None:
    """Count the texts that were truncated, and those with unknown words."""
    fractions = np.ones(len(examples)) if output.read is None else output.read
    for example, coverage, read in zip(examples, output.coverage, fractions, strict=True):
        if read < 1:
            tally.add("texts read only in part", f"{example.where} ({read:.0%})")
        if coverage < read:
            tally.add(UNKNOWN_WORDS, f"{example.where} ({coverage:.0%} covered)")


def _prediction_json(predictor: Predictor, example: Example, answer: Answer) -> dict[str, object]:
    """Return a line of predictions.jsonl."""
    label = example.label if answer.structure is not None else sentence_label(example.label)
    row = {"text": example.text, "label": label_json(label), **answer_json(answer)}
    before = predictor.task.uncalibrated_score(answer, predictor.space)
    if before is not None:
        row["uncalibrated"] = before
    if predictor.pairs:
        row["other"] = example.other
    if answer.structure is not None:
        row["structure"] = answer.structure.to_json()
        row["gold"] = predictor.task.gold(example, predictor.space, answer).to_json()
    return row


def _evaluate_lm(
    predictor: Predictor,
    examples: Iterable[Example],
    predictions: IO[str] | None,
    watch: Callable[[int], None],
    on_example: Callable[[Example, Answer], None] | None,
) -> Metric:
    """Return the metrics of running text under a language model."""
    task, engine = predictor.task, predictor.engine
    metric = task.build_metric(predictor.space)
    waiting: deque[Example] = deque()
    backward: list[Example] = []  # to be scored backward as well

    def texts() -> Iterator[str]:
        for example in examples:
            waiting.append(example)
            yield example.text

    for scored in task.score_texts(engine, texts(), predictor.space):
        example = waiting.popleft()
        metric.add(task.predict_targets([scored], predictor.space), [task.find_reference(example)])
        if engine.has_backward_lm:
            backward.append(example)
            if len(backward) == CHUNK_TEXTS:
                _evaluate_backward(predictor, metric, backward)
        if on_example is not None or predictions is not None:
            (answer,) = task.answers([scored], predictor.space)
            if on_example is not None:
                on_example(example, answer)
            if predictions is not None:
                row = {
                    "text": example.text,
                    "label": label_json(example.label),
                    **answer_json(answer),
                    "tokens": len(answer.scores),  # the weight of the text in a paired test
                }
                predictions.write(json.dumps(row, ensure_ascii=False) + "\n")
        watch(1)
    if not metric.n:
        raise UserError("There are no examples to measure on.")
    if backward:
        _evaluate_backward(predictor, metric, backward)
    return metric


def _evaluate_backward(predictor: Predictor, metric: Metric, examples: list[Example]) -> None:
    """Add the scores of the backward language model, and clear the examples."""
    task = predictor.task
    backward = task.build_metric(predictor.space)
    assert isinstance(metric, LMMetric)
    assert isinstance(backward, LMMetric)
    scored = predictor.engine.score_backward([one.text for one in examples])
    gold = [task.find_reference(one) for one in examples]
    counts: Metric = metric.backward or backward
    counts.add(task.predict_targets(scored, predictor.space), gold)
    metric.backward = metric.backward or backward
    examples.clear()


def label_json(label: Label) -> object:
    """Return a label as JSON: the columns of words, the texts of answers, predicates, mentions."""
    if isinstance(label, Frames):
        return [dataclasses.asdict(one) for one in label.predicates]
    if isinstance(label, Extractions):
        return [[one.predicate, *one.arguments] for one in label.tuples]
    if isinstance(label, Coreference):
        return [{"entity": m.label, "start": m.start, "end": m.end} for m in label.mentions]
    if isinstance(label, GoldAnswers):
        return list(label.texts)
    return label.columns if isinstance(label, WordAnnotations) else label


def answer_json(answer: Answer) -> dict[str, object]:
    """Return the value of an answer and how certain it is, as predictions.jsonl has it."""
    out = {"value": answer.value, "score": answer.score, "coverage": answer.coverage}
    if answer.abstained is not None:
        out["abstained"] = answer.abstained
    if answer.label_set is not None:
        out["label_set"] = list(answer.label_set)
    if answer.path:
        out["path"] = [{"label": node, "probability": prob} for node, prob in answer.path]
    if answer.blanks:
        out["blanks"] = [[list(word) for word in words] for words in answer.blanks]
    if answer.parts:
        out["parts"] = [list(part) for part in answer.parts]
    return out


def prediction_json(answer: Answer, labels: Sequence[str] = ()) -> dict[str, object]:
    """Return an answer as `predict --json` prints it; for words, with offsets and probabilities.

    With `labels`, the probability of each of them, the most probable first.
    """
    out = answer_json(answer)
    if labels:
        probs = zip(labels, answer.scores, strict=True)
        out["probabilities"] = dict(sorted(probs, key=lambda pair: -pair[1]))
    if answer.tokens:
        out["tokens"] = [list(token) for token in answer.tokens]
    if answer.structure is None:
        return out
    if answer.structure.kind == "answer":
        start, end = answer.parts[0][:2] if answer.parts else (None, None)
        bounds = {"starts": answer.starts, "ends": answer.ends} if answer.starts else {}
        return out | {"start": start, "end": end, **bounds}
    drawn = answer.structure.to_json()
    out |= {name: drawn[name] for name in ("words", "tree", "scores") if name in drawn}
    if label := drawn.get("label"):
        out |= {"label": label, "label_score": drawn["label_score"]}
    return out


def _check_examples(examples: Iterable[Example]) -> Iterator[Example]:
    for i, one in enumerate(examples, 1):
        if not isinstance(one, Example):
            raise UserError(
                f"evaluate: example {i} is {type(one).__name__}; give weft.Example objects, such "
                "as those of weft.read(FILE)."
            )
        yield one


def metrics_json(metric: Metric) -> dict[str, object]:
    """Return the metrics as JSON values."""
    return {name: dataclasses.asdict(value) for name, value in metric.compute().items()}
