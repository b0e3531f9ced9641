"""The methods of explanation, which of them fit a model, and the one call for all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from weft.errors import UserError, unknown_name
from weft.explain import occlusion
from weft.explain.explanation import Explanation, Explanations, Target, WordWeight, make_target
from weft.explain.words import mark_separator, sum_by_word, token_offsets, word_spans
from weft.predict.classic import ClassicEngine
from weft.predict.predictor import Input, Predictor
from weft.tasks.task import Answer
from weft.text.example import PAIR_SEPARATOR, Example

if TYPE_CHECKING:
    from weft.model import Model
    from weft.predict.neural import NeuralEngine

INTEGRATED, GRADIENT, OCCLUSION = "integrated-gradients", "gradient-input", "occlusion"
ATTENTION, LINEAR, SHAPLEY = "attention", "linear", "shapley"
METHODS = (INTEGRATED, GRADIENT, OCCLUSION, ATTENTION, LINEAR, SHAPLEY)

WordLists = list[tuple[WordWeight, ...]]


def methods(predictor: Predictor) -> tuple[str, ...]:
    """Return the methods that fit a model, the default first."""
    engine = predictor.engine
    if engine.members:
        first, *others = (methods(member) for member in engine.members)
        common = tuple(name for name in first if all(name in other for other in others))
        # The attention of a generated answer belongs to the model that wrote it.
        hidden = (ATTENTION,) if generation_task(predictor) == "seq2seq" else ()
        return tuple(name for name in common if name not in hidden)
    if isinstance(engine, ClassicEngine):
        linear = engine.part.is_linear and not predictor.pairs
        return (LINEAR, OCCLUSION) if linear else (OCCLUSION, SHAPLEY)
    if engine.runtime is None:  # an export, which has answers but no gradients
        _check_export(predictor)
        return OCCLUSION, SHAPLEY
    model = cast("NeuralEngine", engine).model
    if generation_task(predictor) == "seq2seq":
        from weft.explain.generation import has_cross_attention

        looks = has_cross_attention(predictor)
        return (OCCLUSION, INTEGRATED, GRADIENT, *((ATTENTION,) if looks else ()))
    looks = _has_attention(predictor, model)
    return (INTEGRATED, GRADIENT, OCCLUSION, *((ATTENTION,) if looks else ()))


def _check_export(predictor: Predictor) -> None:
    """Raise UserError for an exported model whose answers cannot be explained."""
    whole_text = not (predictor.pairs or predictor.is_structured)
    if not whole_text or generation_task(predictor) or target_task(predictor):
        raise UserError(
            "Of exported models, only those with an answer about one whole text can be explained: "
            "a class, classes, a number. Explain the model that this one was made from."
        )


def _has_attention(predictor: Predictor, model: "Model") -> bool:
    """Return True if attention says how much the explained answer looked at each token."""
    from weft.explain.attention import (
        has_embedder_attention,
        has_state_attention,
        has_token_attention,
    )
    from weft.model import EncoderModel

    if generation_task(predictor) == "language":
        from weft.decode.decoders.transformer import TransformerDecoder

        return isinstance(model.head.decoder, TransformerDecoder)
    assert isinstance(model, EncoderModel)
    if target_task(predictor) in ("masked", "span"):
        return has_state_attention(model)
    if predictor.is_structured:
        return model.encoder.has_attention or has_embedder_attention(model)
    vectors = target_task(predictor) == "embed"  # explained by states, not by the pool
    return not vectors and has_token_attention(model) and not model.traits.is_bi_encoder


def generation_task(predictor: Predictor) -> str:
    """Return the task of a model that generates or scores text, else ""."""
    kind = predictor.config["task"].get("kind", "")
    return kind if kind in ("seq2seq", "language") else ""


def target_task(predictor: Predictor) -> str:
    """Return the task of a model whose explained quantity is a ScoredTarget, else ""."""
    kind = predictor.config["task"].get("kind", "")
    return kind if kind in ("masked", "embed", "span", "language") else ""


def explain(
    predictor: Predictor,
    texts: Sequence[Input],
    *,
    method: str = "",
    target: str | None = None,
    steps: int = 50,
) -> Explanations:
    """Weigh the words of each text: how much they support the answer, or `target`.

    `steps` is the number of points on the path of integrated gradients. Words that the model
    truncates have no weight. A text pair is explained as one text, the first before the second.
    """
    if isinstance(texts, str):
        raise UserError("Explain a list of texts, not a single string.")
    if steps < 1:
        raise UserError(f"steps should be 1 or more, got {steps}.")
    if predictor.is_structured or generation_task(predictor) or target_task(predictor):
        raise UserError(
            "explain() takes models with an answer about a whole text: a class, classes, a number. "
            "For one that labels words, answers questions, or scores or generates text, call "
            "weft.explain.run.run_explain, which also picks the word."
        )
    method = choose_method(predictor, method)
    answers = predictor(texts)
    targets = [make_target(predictor, target, answer) for answer in answers]
    if predictor.engine.members:
        joined = _explain_ensemble(predictor, texts, answers, targets, method, steps)
        return Explanations(joined)
    if predictor.pairs:
        examples = [one for one in predictor.prepare_inputs(texts) if isinstance(one, Example)]
        return Explanations(_explain_pairs(predictor, examples, answers, targets, method, steps))
    plain = [one.text if isinstance(one, Example) else str(one) for one in texts]
    words = _attribute(predictor, plain, targets, method, steps) if plain else []
    return Explanations(
        Explanation(text, answer, aim.name, method, weights)
        for text, answer, aim, weights in zip(plain, answers, targets, words, strict=True)
    )


def _explain_ensemble(
    predictor: Predictor,
    texts: Sequence[Input],
    answers: Sequence[Answer],
    targets: Sequence[Target],
    method: str,
    steps: int,
) -> list[Explanation]:
    """Explain the ensemble's answers by the mean of the members' weights."""
    from weft.explain.ensemble import average_explanations
    from weft.predict.ensemble import EnsembleEngine

    assert isinstance(predictor.engine, EnsembleEngine)
    numbers = not predictor.class_labels
    groups: dict[str, list[int]] = {}
    for i, aim in enumerate(targets):
        groups.setdefault(aim.name, []).append(i)
    by_member: list[list[Explanation]] = []
    for member in predictor.engine.members:
        own: dict[int, Explanation] = {}
        for name, rows in groups.items():
            wanted = None if numbers else name
            some = [texts[i] for i in rows]
            found = explain(member, some, method=method, target=wanted, steps=steps)
            own |= dict(zip(rows, found, strict=True))
        by_member.append([own[i] for i in range(len(texts))])
    whole = [
        Explanation(first.text, answer, aim.name, method, (), second=first.second)
        for first, answer, aim in zip(by_member[0], answers, targets, strict=True)
    ]
    return average_explanations(by_member, whole, predictor.engine.weights)


def _explain_pairs(
    predictor: Predictor,
    examples: Sequence[Example],
    answers: Sequence[Answer],
    targets: list[Target],
    method: str,
    steps: int,
) -> list[Explanation]:
    """Explain pairs as one text each; the separator has weight 0."""
    from weft.explain import attention, gradients

    texts = [one.full_text for one in examples]
    seconds = [len(one.text) + len(PAIR_SEPARATOR) for one in examples]
    if method in (OCCLUSION, SHAPLEY):
        read = _read_pairs(predictor, examples, seconds)
        weigh = occlusion.word_weights if method == OCCLUSION else occlusion.shapley_weights
        words = weigh(predictor.engine, texts, read, targets, seconds)
    else:
        engine, points = (
            cast("NeuralEngine", predictor.engine),
            steps if method == INTEGRATED else 0,
        )
        token_weights = (
            attention.token_weights(engine, examples, seconds)
            if method == ATTENTION
            else gradients.token_weights(engine, examples, targets, points, seconds)
        )
        pairs = zip(texts, token_weights, strict=True)
        words = [sum_by_word(text, tokens) for text, tokens in pairs]
    return [
        Explanation(text, answer, aim.name, method, _add_separator(own, second), second=second)
        for text, answer, aim, own, second in zip(
            texts, answers, targets, words, seconds, strict=True
        )
    ]


def _read_pairs(
    predictor: Predictor, examples: Sequence[Example], seconds: Sequence[int]
) -> list[tuple[WordWeight, ...]]:
    """Return the words of both texts that the model reads, with weight 0."""
    if isinstance(predictor.engine, ClassicEngine):
        return [
            (*_all_words(e.text, ()),
             *(WordWeight(w.start + k, w.end + k, 0.0) for w in _all_words(e.other or "", ())))
            for e, k in zip(examples, seconds, strict=True)
        ]  # fmt: skip
    tokens: list[list[tuple[int, int, float]]] = [[] for _ in examples]
    for rows, _ in cast("NeuralEngine", predictor.engine).batches(examples):
        for row in rows:
            tokens[row.text] += [(*span, 0.0) for span in token_offsets(row, seconds[row.text])]
    return [sum_by_word(e.full_text, own) for e, own in zip(examples, tokens, strict=True)]


def _add_separator(words: tuple[WordWeight, ...], second: int) -> tuple[WordWeight, ...]:
    mark = WordWeight(*mark_separator(second), 0.0)
    return tuple(sorted((*words, mark), key=lambda word: word.start)) if words else words


def choose_method(predictor: Predictor, method: str) -> str:
    """Return the method by its name, "" for the default; raise UserError if it does not fit."""
    known = methods(predictor)
    if not method:
        return known[0]
    if method in known:
        return method
    if method in METHODS:
        raise UserError(
            f"Method '{method}' does not fit this model: {_misfit_reason(method)}. "
            f"Use one of: {', '.join(known)}."
        )
    raise unknown_name("method", method, known)


def _misfit_reason(method: str) -> str:
    return {
        ATTENTION: "it has no attention weights on its tokens",
        LINEAR: "it is not a linear model of n-grams",
        SHAPLEY: "sampling is for models without gradients and without linear weights",
    }.get(method, "it has no gradients")


def _attribute(
    predictor: Predictor, texts: list[str], targets: list[Target], method: str, steps: int
) -> WordLists:
    if method == LINEAR:
        part = cast(ClassicEngine, predictor.engine).part
        return [
            _all_words(text, sum_by_word(text, part.contributions(text, target.direction)))
            for text, target in zip(texts, targets, strict=True)
        ]
    if method in (OCCLUSION, SHAPLEY):
        read = read_words(predictor, texts)
        weigh = occlusion.word_weights if method == OCCLUSION else occlusion.shapley_weights
        return weigh(predictor.engine, texts, read, targets)
    engine = cast("NeuralEngine", predictor.engine)
    if method == ATTENTION:
        from weft.explain import attention

        token_weights = attention.token_weights(engine, texts)
    else:
        from weft.explain import gradients

        token_weights = gradients.token_weights(
            engine, texts, targets, steps if method == INTEGRATED else 0
        )
    return [sum_by_word(text, pieces) for text, pieces in zip(texts, token_weights, strict=True)]


def read_words(predictor: Predictor, texts: Sequence[str]) -> WordLists:
    """Return the words of each text that the model reads, with weight 0; of several, the first."""
    if predictor.engine.members:
        return read_words(predictor.engine.members[0], texts)
    if isinstance(predictor.engine, ClassicEngine):
        return [_all_words(text, ()) for text in texts]
    tokens: list[list[tuple[int, int, float]]] = [[] for _ in texts]
    for row in cast("NeuralEngine", predictor.engine).indexer.rows(texts, spans=True):
        assert row.spans is not None
        tokens[row.text] += [(start, end, 0.0) for start, end in row.spans.tolist()]
    return [sum_by_word(text, own) for text, own in zip(texts, tokens, strict=True)]


def _all_words(text: str, weighed: Sequence[WordWeight]) -> tuple[WordWeight, ...]:
    """Return every word of the text, with weight 0 if it has none."""
    known = {word.start: word.weight for word in weighed}
    return tuple(
        WordWeight(start, end, known.get(start, 0.0)) for start, end in word_spans(text).tolist()
    )
