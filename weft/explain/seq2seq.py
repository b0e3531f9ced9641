"""Attribute a generated answer to words or vectors of its source, and measure faithfulness.

The explained quantity is the mean log-probability of a token of the answer.

n texts   F shares of the words   T tokens of the answer   S steps of the source
"""

from collections.abc import Sequence
from typing import cast

import numpy as np
from torch import Tensor

from weft.batch import Padded
from weft.decode.heads.ctc.head import CTCHead, answer_log_prob
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.errors import UserError
from weft.explain.ensemble import EnsembleTarget
from weft.explain.explanation import Explanation, WordWeight
from weft.explain.faithfulness import Faithfulness, curve_texts, summarise_curves, word_orders
from weft.explain.generation import (
    NOT_SOURCE,
    GenerationTrace,
    answer_ids,
    name_vectors,
    score_answer,
    sequence_log_prob,
)
from weft.explain.gradients import repeat_rows
from weft.explain.method import ATTENTION, INTEGRATED, OCCLUSION, read_words
from weft.explain.perturb import hidden_curves, occlude
from weft.explain.targets.target import RowTarget, ScoredTarget
from weft.explain.words import Span, join_spans, own_words, sum_by_word
from weft.model import EncoderDecoderModel, EncoderModel
from weft.predict.ensemble import EnsembleEngine
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words

RANDOM_ORDERS = 5  # random orders that a method is measured against
IG_STEPS = 50  # points on the path of integrated gradients


def attribute(
    predictor: Predictor, examples: Sequence[Example], shown: Sequence[GenerationTrace], method: str
) -> list[Explanation]:
    """Weigh the words of each source, or its vectors, which go by their numbers or patches.

    By occlusion, how far the explained quantity falls when a word is removed or a vector is 0; by
    gradients, its share of the way from unknown words or zero vectors; by attention, how much the
    answer looked at it.
    """
    answers = predictor(examples)
    out = []
    for example, answer, one in zip(examples, answers, shown, strict=True):
        text, words = _weigh_source(predictor, example, one, method)
        out.append(Explanation(text, answer, str(answer.value), method, words))
    return out


def _weigh_source(
    predictor: Predictor, example: Example, one: GenerationTrace, method: str
) -> tuple[str, tuple[WordWeight, ...]]:
    """Return the source as it is shown, and its words with their weights."""
    vectors = predictor.engine.input_kind == "vectors"
    if not vectors and not example.text.strip():
        return example.text, ()
    if not vectors and method == OCCLUSION:
        return example.text, _occlude_words(predictor, example.text)
    if method == ATTENTION:
        text, spans = _number_vectors(one) if vectors else (example.text, None)
        return text, _attended_words(predictor, text, one, spans)
    target = source_target(predictor, example)
    steps = IG_STEPS if method == INTEGRATED else 0
    weights = (
        occlude(target.log_probs, len(target.spans))
        if method == OCCLUSION
        else target.gradients(steps)
    )
    pairs = zip(target.spans, weights.tolist(), strict=True)
    return target.text, tuple(WordWeight(a, b, weight) for (a, b), weight in pairs)


def source_target(
    predictor: Predictor, example: Example, answer: Sequence[int] | None = None
) -> ScoredTarget:
    """The mean log-probability of a token of the answer, from the embedded source on.

    The answer is the model's own unless its ids are given, as by an ensemble.
    """
    if isinstance(predictor.engine, EnsembleEngine):
        given = example if predictor.engine.input_kind == "vectors" else example.text
        ids = answer_ids(predictor, given)
        members = [source_target(one, example, ids) for one in predictor.engine.members]
        return EnsembleTarget(members, predictor.engine.weights)
    engine = cast(NeuralEngine, predictor.engine)
    vectors = engine.input_kind == "vectors"
    rows, batch = next(engine.batches([example if vectors else example.text]))
    size = int(batch.lengths[0])
    pieces = tuple(piece[:1, :size] for piece in batch.subtokens)
    source = Padded(batch.data[:1, :size], batch.lengths[:1], pieces)
    if answer is None:
        answer = answer_ids(predictor, example if vectors else example.text)
    ids_of_answer = list(answer)
    spans: Sequence[Span]
    if vectors:
        names = name_vectors(engine, size)
        text, spans, owners = " ".join(names), locate_spaced_words(names), np.arange(size)
    else:
        assert rows[0].spans is not None
        inside = rows[0].spans[:, 1] > rows[0].spans[:, 0]
        read, owned = own_words(example.text, rows[0].spans[inside])
        text, spans = example.text, [(int(a), int(b)) for a, b in read.tolist()]
        owners = np.full(size, -1)
        owners[: len(inside)][inside] = owned

    def score(model: EncoderModel, embedded: Padded) -> Tensor:
        if isinstance(model.head, CTCHead):
            output = model.head(model.encode(embedded))
            return answer_log_prob(output, ids_of_answer)[:, None] / max(len(ids_of_answer), 1)
        assert isinstance(model, EncoderDecoderModel)
        ids = repeat_rows(source, len(embedded)) if not vectors else source
        output = model.apply_head(model.encode(embedded), ids)
        head: Seq2SeqHead = model.head
        sums = sequence_log_prob(head.decoder.step, output.start(), head.bos, ids_of_answer,
                                 len(embedded))  # fmt: skip
        return sums[:, None] / max(len(ids_of_answer), 1)

    return RowTarget(
        engine.encoder_model, source, owners, spans, score, text, "answer",
        unknown=engine.indexer.tokenizer.unknown,
    )  # fmt: skip


def measure_faithfulness(
    predictor: Predictor, examples: Sequence[Example], explained: Sequence[Explanation]
) -> Faithfulness:
    """Measure how the mean token probability of each answer falls as source words are removed.

    Vectors are set to 0 instead.
    """
    pairs = [(e, one) for e, one in zip(examples, explained, strict=True) if one.words]
    if not pairs:
        raise UserError("There is no text with words to measure faithfulness on.")
    if predictor.engine.input_kind == "vectors":
        targets = [source_target(predictor, example) for example, _ in pairs]
        curves = [
            hidden_curves(target.probs, one.words, RANDOM_ORDERS, 0)
            for target, (_, one) in zip(targets, pairs, strict=True)
        ]
        return summarise_curves(explained[0].method, np.stack(curves))
    curves = [_removal_curves(predictor, one) for _, one in pairs]
    return summarise_curves(explained[0].method, np.stack(curves))  # (n, 1 + draws, 2, F)


def _removal_curves(predictor: Predictor, one: Explanation) -> np.ndarray:
    """(1 + draws, 2, F) the mean token probability as words are removed, and as they come."""
    plans = [curve_texts(one, order) for order in word_orders(one.words, RANDOM_ORDERS, 0)]
    variants = [text for both in plans for curve in both for text in curve]
    distinct = [text for text in dict.fromkeys(variants) if isinstance(text, str)]
    probs = np.exp(score_answer(predictor, distinct, answer_ids(predictor, one.text)))
    known = dict(zip(distinct, probs.tolist(), strict=True))
    return np.array([[[known[str(text)] for text in curve] for curve in both] for both in plans])


def _occlude_words(predictor: Predictor, text: str) -> tuple[WordWeight, ...]:
    (words,) = read_words(predictor, [text])
    if not words:
        return ()
    spans = [(word.start, word.end) for word in words]
    variants = [join_spans(text, spans)]
    variants += [join_spans(text, spans[:i] + spans[i + 1 :]) for i in range(len(spans))]
    log_probs = score_answer(predictor, variants, answer_ids(predictor, text))
    falls = (log_probs[0] - log_probs[1:]).tolist()
    return tuple(WordWeight(w.start, w.end, fall) for w, fall in zip(words, falls, strict=True))


def _number_vectors(one: GenerationTrace) -> tuple[str, list[Span]]:
    """Return the names of the vectors as a text, with their places."""
    names = [name for name in one.source if name != NOT_SOURCE]
    return " ".join(names), list(locate_spaced_words(names))


def _attended_words(
    predictor: Predictor, text: str, one: GenerationTrace, spans: Sequence[Span] | None
) -> tuple[WordWeight, ...]:
    """The attention of the whole answer, the mean of layers and heads, on each word."""
    if one.attention is None:
        return ()
    weights = one.attention.mean((0, 1)).sum(0)  # (S,)
    if spans is None:
        (row, *_) = predictor.engine.indexer.rows([text], spans=True)  # type: ignore[attr-defined]
        spans = [] if row.spans is None else row.spans.tolist()
    kept = weights[len(weights) - len(spans) :] / max(float(weights.sum()), 1e-9)
    pieces = [(a, b, float(share)) for (a, b), share in zip(spans, kept, strict=True)]
    return sum_by_word(text, pieces)
