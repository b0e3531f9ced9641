"""Some texts explained by several methods, and the methods compared: what the verb shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.errors import UserError
from weft.explain.explanation import Explanation, WordProbs
from weft.explain.faithfulness import Faithfulness, faithfulness
from weft.explain.method import choose_method, explain, generation_task, methods, unattributed_task
from weft.explain.words import Variant
from weft.metrics.squad import score_answer
from weft.predict.predictor import Predictor
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer
from weft.text.example import Example, GoldAnswers

if TYPE_CHECKING:
    from weft.explain.generation import GenerationTrace

ALL_METHODS = "all"


@dataclass(frozen=True)
class ExplainRun:
    """One list of explanations a method, in the order of the texts, and how faithful it is."""

    examples: Sequence[Example]
    explanations: dict[str, list[Explanation]]  # the method to show first comes first; "" is none
    faithfulness: dict[str, Faithfulness]
    probs: Sequence[WordProbs] = ()  # of every word of each text, where words are answered
    gold: Sequence[Annotation | None] = ()  # and what is right, where that is known
    written: "Sequence[GenerationTrace]" = ()  # how each answer was written, or each text scored

    @property
    def first(self) -> list[Explanation]:
        """The explanations of the method that is shown first."""
        return next(iter(self.explanations.values()))

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
    if not any(example.text.strip() for example in examples):
        where = f"{examples[0].file}: " if examples and examples[0].file else ""
        raise UserError(f"{where}there is no text to explain. Give one with at least a word.")
    names = methods(predictor) if method == ALL_METHODS else (choose_method(predictor, method),)
    if generation_task(predictor):
        if word or column or target:
            raise UserError(
                "--word, --column and --target do not fit a model that generates text: its whole "
                "answer is explained. Omit them."
            )
        return _explain_generation(predictor, examples, names, compare=compare, watch=watch)
    if unattributed_task(predictor):
        if word or column or target:
            raise UserError(
                "--word, --column and --target do not fit this model: its answers have no word "
                "weights. Omit them."
            )
        return _show_answers(predictor, examples)
    if predictor.is_structured:
        some = tuple(filter(None, names))
        return _explain_words(
            predictor, examples, some, target=target or "", compare=compare, word=word,
            column=column, watch=watch,
        )  # fmt: skip
    if word or column:
        what = "--word" if word else "--column"
        raise UserError(f"{what} is for models that label words; this one has one answer.")
    texts = [example if predictor.pairs else example.text for example in examples]
    explained, faithful = {}, {}
    known: dict[Variant, Answer] = {}
    for name in names:
        explained[name] = explain(predictor, texts, method=name, target=target)
        if compare:
            faithful[name] = faithfulness(predictor, explained[name], known=known)
        watch(len(texts))
    return ExplainRun(examples, explained, faithful)


def _show_answers(predictor: Predictor, examples: Sequence[Example]) -> ExplainRun:
    """Show predictions without word weights; a model of vectors has none."""
    silent = unattributed_task(predictor) == "embed"
    if silent and len(examples) > 1:
        raise UserError(
            "This model has vectors, not answers. Give one text to see its attention, or "
            "--contexts WORD to see a word in all texts."
        )
    answers = [Answer(None, 0.0)] if silent else predictor(examples)
    return ExplainRun(
        examples,
        {
            "": [
                Explanation(e.full_text, a, "", "", ())
                for e, a in zip(examples, answers, strict=True)
            ]
        },
        {},
        gold=[_gold_span(predictor, e, a) for e, a in zip(examples, answers, strict=True)],
    )


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
    """Trace each generated answer, and attribute it to words of the source."""
    from weft.explain.generation import as_input, trace_generation, trace_scoring

    if generation_task(predictor) == "language":
        answers = predictor([example.text for example in examples])
        shown = []
        for example in examples:
            shown.append(trace_scoring(predictor, example.text))
            watch(1)
        pairs = zip(examples, answers, strict=True)
        bare = [Explanation(e.text, a, "", "", ()) for e, a in pairs]
        return ExplainRun(examples, {"": bare}, {}, written=shown)
    from weft.explain.seq2seq import attribute, measure_faithfulness

    if any(names):  # words are removed from what is read, not from the brackets of a record
        examples = [as_input(predictor, example) for example in examples]
    shown = [trace_generation(predictor, example) for example in examples]
    if not any(names):  # vectors are no words that could be weighed
        pairs = zip(examples, predictor(examples), strict=True)
        bare = [Explanation(e.text, a, "", "", ()) for e, a in pairs]
        return ExplainRun(examples, {"": bare}, {}, written=shown)
    explained, faithful = {}, {}
    for name in names:
        explained[name] = attribute(predictor, examples, shown, name)
        if compare:
            faithful[name] = measure_faithfulness(predictor, explained[name])
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
        can_attribute,
        gold_annotation,
        make_request,
        measure_faithfulness,
    )

    answered = [pair for pair in answer_sentences(predictor, examples) if pair[0].words]
    if not answered:
        raise UserError("These texts have no words that the model reads.")
    kept = [example for example, _ in answered]
    gold = [gold_annotation(predictor, example) for example in kept]
    if not names or not all(can_attribute(answer) for _, answer in answered):
        if word or target or column:
            reason = (
                "there is no score of a single word here that they could choose"
                if names
                else "words are weighed only in neural models"
            )
            raise UserError(
                f"--word, --column and --target do not fit: {reason}. Omit them to draw the "
                "prediction for the sentence."
            )
        bare = [Explanation(e.text, a, "", "", ()) for e, a in answered]
        return ExplainRun(kept, {"": bare}, {}, gold=gold)
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
