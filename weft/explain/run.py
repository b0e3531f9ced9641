"""Some texts explained by several methods, and the methods compared: what the verb shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import UserError
from weft.explain.explanation import Explanation, WordProbs
from weft.explain.faithfulness import Faithfulness, faithfulness
from weft.explain.method import choose_method, explain, generation_task, methods, target_task
from weft.explain.words import Variant
from weft.metrics.squad import score_answer
from weft.predict.predictor import Predictor
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer
from weft.text.example import Example, GoldAnswers

if TYPE_CHECKING:
    from weft.explain.generation import GenerationTrace
    from weft.explain.targets.target import TargetRequest

ALL_METHODS = "all"
MAX_CHOICES = 3  # of each word that are listed


@dataclass(frozen=True)
class ExplainRun:
    """One list of explanations a method, in the order of the texts, and how faithful it is."""

    examples: Sequence[Example]
    explanations: Mapping[
        str, list[Explanation]
    ]  # the method to show first comes first; "" is none
    faithfulness: dict[str, Faithfulness]
    probs: Sequence[WordProbs] = ()  # of every word of each text, where words are answered
    gold: Sequence[Annotation | None] = ()  # and what is right, where that is known
    written: "Sequence[GenerationTrace]" = ()  # how each answer was written, or each text scored

    @property
    def first(self) -> list[Explanation]:
        """The explanations of the method that is shown first."""
        return next(iter(self.explanations.values()))

    def to_json(self) -> list[dict[str, object]]:
        """Return a row for each method and text, as `explain --json` prints them."""
        rows = []
        for number, explanations in enumerate(self.explanations.values()):
            for i, one in enumerate(explanations):
                row = one.to_json()
                if self.written and not number:  # the same for every method
                    row |= self.written[i].to_json()
                if self.probs:
                    row["chances"] = [choices[:MAX_CHOICES] for choices in self.probs[i]]
                rows.append(row)
        return rows

    def right(self, i: int) -> Annotation | None:
        """Return the gold annotation of a text if it is known."""
        return self.gold[i] if self.gold else None

    def wrong(self, i: int) -> bool:
        """Return True if an example has a label and the prediction differs."""
        if at := self.first[i].at:
            return bool(at.gold) and at.gold != at.predicted
        label, value = self.examples[i].label, self.first[i].answer.value
        if label is None or isinstance(value, float):
            return False
        if isinstance(label, GoldAnswers):
            return not score_answer(value, label.texts or [""])[0]
        if self.written and isinstance(label, tuple):
            return value not in label
        if isinstance(value, tuple):
            return set(value) != set(label if isinstance(label, tuple) else (str(label),))
        return value != str(label)

    def order(self) -> list[int]:
        """Return the display order: mistakes first, by falling confidence."""
        return sorted(
            range(len(self.examples)),
            key=lambda i: (0, -self.first[i].sure) if self.wrong(i) else (1, 0.0),
        )


def run_explain(
    predictor: Predictor,
    examples: Sequence[Example],
    *,
    method: str = ALL_METHODS,
    target: str | None = None,
    compare: bool = True,
    word: str = "",
    column: str = "",
    watch: Callable[[int], None] = lambda texts: None,
) -> ExplainRun:
    """Explain the examples by one method or "all"; with `compare`, also measure faithfulness.

    Of a model that answers at every word, one `word` of each is explained, by default the least
    certain one, and of several columns of tags one `column`.
    """
    if not any(example.text.strip() or example.vectors is not None for example in examples):
        where = f"{examples[0].file}: " if examples and examples[0].file else ""
        raise UserError(f"{where}there is no text to explain. Give one with at least a word.")
    names = methods(predictor) if method == ALL_METHODS else (choose_method(predictor, method),)
    _check_options(predictor, word=word, column=column, target=target or "")
    if target_task(predictor):
        return _explain_targets(
            predictor, examples, names, target=target or "", word=word, compare=compare, watch=watch
        )
    if generation_task(predictor):
        return _explain_generation(predictor, examples, names, compare=compare, watch=watch)
    if predictor.is_structured:
        return _explain_words(
            predictor, examples, names, target=target or "", compare=compare, word=word,
            column=column, watch=watch,
        )  # fmt: skip
    texts = [example if predictor.pairs else example.text for example in examples]
    explained, faithful = {}, {}
    known: dict[Variant, Answer] = {}
    for name in names:
        explained[name] = explain(predictor, texts, method=name, target=target)
        if compare:
            faithful[name] = faithfulness(predictor, explained[name], known=known)
        watch(len(texts))
    return ExplainRun(examples, explained, faithful)


def _check_options(predictor: Predictor, *, word: str, column: str, target: str) -> None:
    """Raise UserError for an option that has nothing to choose in this model."""
    task, kind = target_task(predictor), generation_task(predictor)
    used = {
        name for name, value in (("word", word), ("column", column), ("target", target)) if value
    }
    fits: set[str]
    if kind == "seq2seq":
        fits, reason = set(), "its whole generated answer is explained"
    elif task == "embed":
        fits, reason = set(), "its vector of the whole text is explained"
    elif task == "span":
        fits, reason = {"target"}, "its answer span is explained; --target names another"
    elif task:
        fits, reason = {"word", "target"}, "it has no columns"
    elif predictor.is_structured:
        return
    else:
        fits, reason = {"target"}, "it has one answer about the whole text"
    if wrong := [f"--{name}" for name in ("word", "column", "target") if name in used - fits]:
        verb = "does" if len(wrong) == 1 else "do"
        raise UserError(f"{', '.join(wrong)} {verb} not fit this model: {reason}. Omit it.")


def _explain_targets(
    predictor: Predictor,
    examples: Sequence[Example],
    names: Sequence[str],
    *,
    target: str,
    word: str,
    compare: bool,
    watch: Callable[[int], None],
) -> ExplainRun:
    """Explain the log-probability of an answer span, a masked word or a token; or a vector."""
    from weft.explain.targets.target import attribute_target, measure_targets

    examples = [example for example in examples if example.text.strip()]
    requests = _requests(predictor, examples, word, target)
    explained, faithful = {}, {}
    for name in names:
        explained[name] = [attribute_target(one, name) for one in requests]
        if compare:
            faithful[name] = measure_targets(requests, explained[name])
        watch(len(requests))
    gold = [
        _gold_span(predictor, example, one.answer)
        for example, one in zip(examples, requests, strict=True)
    ]
    written: Sequence[GenerationTrace] = ()
    if target_task(predictor) == "language" and not all(one.answer.blanks for one in requests):
        from weft.explain.generation import GenerationTrace as Trace
        from weft.explain.generation import trace_scoring

        written = [
            Trace(()) if one.answer.blanks else trace_scoring(predictor, example.text)
            for example, one in zip(examples, requests, strict=True)
        ]
    return ExplainRun(examples, explained, faithful, gold=gold, written=written)


def _requests(
    predictor: Predictor, examples: Sequence[Example], word: str, target: str
) -> "list[TargetRequest]":
    """Return what is explained of each example."""
    task = target_task(predictor)
    if predictor.engine.members:
        from weft.explain.ensemble import joint_requests

        return joint_requests(predictor, examples, task, word, target)
    if task == "span":
        from weft.explain.targets import answer_span

        return answer_span.requests_of(predictor, examples, target)
    if task == "masked":
        from weft.explain.targets import masked_word

        return masked_word.requests_of(predictor, examples, word, target)
    if task == "embed":
        from weft.explain.targets import sentence_vector

        return sentence_vector.requests_of(predictor, examples)
    from weft.explain.targets import next_token

    return next_token.requests_of(predictor, examples, word, target)


def _gold_span(predictor: Predictor, example: Example, answer: Answer) -> Annotation | None:
    """The right answer to a question, where it is known."""
    if not isinstance(example.label, GoldAnswers):
        return None
    return predictor.task.gold(example, predictor.space, answer)


def _explain_generation(
    predictor: Predictor,
    examples: Sequence[Example],
    names: Sequence[str],
    *,
    compare: bool,
    watch: Callable[[int], None],
) -> ExplainRun:
    """Trace each generated answer, and attribute it to words or vectors of the source."""
    from weft.explain.generation import as_input, trace_generation
    from weft.explain.seq2seq import attribute, measure_faithfulness

    if predictor.engine.input_kind != "vectors":
        # Words are removed from what is read, not from the brackets of a record.
        examples = [as_input(predictor, example) for example in examples]
    shown = [trace_generation(predictor, example) for example in examples]
    explained, faithful = {}, {}
    for name in names:
        explained[name] = attribute(predictor, examples, shown, name)
        if compare:
            faithful[name] = measure_faithfulness(predictor, examples, explained[name])
        watch(len(examples))
    return ExplainRun(examples, explained, faithful, written=shown)


def _explain_words(
    predictor: Predictor,
    examples: Sequence[Example],
    names: Sequence[str],
    *,
    target: str,
    compare: bool,
    word: str,
    column: str,
    watch: Callable[[int], None],
) -> ExplainRun:
    """One word of each sentence that has any."""
    from weft.explain.token_level import (
        answer_sentences,
        attribute,
        gold_annotation,
        make_request,
        measure_faithfulness,
    )

    answered = [pair for pair in answer_sentences(predictor, examples) if pair[0].words]
    if not answered:
        raise UserError("These texts have no words that the model reads.")
    kept = [example for example, _ in answered]
    gold = [gold_annotation(predictor, example) for example in kept]
    requested = [
        make_request(predictor, e, a, word=word, column=column, target=target) for e, a in answered
    ]  # fmt: skip
    explained, faithful = {}, {}
    for name in names:
        explained[name] = [attribute(one, name) for one in requested]
        if compare:
            faithful[name] = measure_faithfulness(requested, explained[name])
        watch(len(requested))
    return ExplainRun(kept, explained, faithful, [one.probs for one in requested], gold)
