"""Attribute a generated answer to words of its source, and measure faithfulness.

n texts   F shares of the words   T tokens of the answer   S tokens of the source
"""

from collections.abc import Sequence

import numpy as np

from weft.errors import UserError
from weft.explain.explanation import Explanation, WordWeight
from weft.explain.faithfulness import Faithfulness, curve_texts, summarise_curves, word_orders
from weft.explain.generation import GenerationTrace, answer_ids, score_answer
from weft.explain.method import ATTENTION, read_words
from weft.explain.words import join_spans, sum_by_word
from weft.predict.predictor import Predictor
from weft.text.example import Example

RANDOM_ORDERS = 5  # random orders that a method is measured against


def attribute(
    predictor: Predictor, examples: Sequence[Example], shown: Sequence[GenerationTrace], method: str
) -> list[Explanation]:
    """The words of each source: by occlusion how far the mean log-probability a token of the
    answer falls when a word is removed; by attention how much the answer looked at it."""
    texts = [example.text for example in examples]
    answers = predictor(examples)
    out = []
    for text, answer, one in zip(texts, answers, shown, strict=True):
        words = (
            _attended_words(predictor, text, one)
            if method == ATTENTION
            else _occlude(predictor, text)
        )
        out.append(Explanation(text, answer, str(answer.value), method, words))
    return out


def measure_faithfulness(predictor: Predictor, explained: Sequence[Explanation]) -> Faithfulness:
    """Measure how the mean token probability of each answer falls as source words are removed."""
    explanations = [one for one in explained if one.words]
    if not explanations:
        raise UserError("There is no text with words to measure faithfulness on.")
    curves = []
    for one in explanations:
        plans = [curve_texts(one, order) for order in word_orders(one.words, RANDOM_ORDERS, 0)]
        variants = [text for both in plans for curve in both for text in curve]
        distinct = [text for text in dict.fromkeys(variants) if isinstance(text, str)]
        probs = np.exp(score_answer(predictor, distinct, answer_ids(predictor, one.text)))
        known = dict(zip(distinct, probs.tolist(), strict=True))
        curves.append([[[known[str(text)] for text in curve] for curve in both] for both in plans])
    return summarise_curves(explanations[0].method, np.array(curves))  # (n, 1 + draws, 2, F)


def _occlude(predictor: Predictor, text: str) -> tuple[WordWeight, ...]:
    (words,) = read_words(predictor, [text])
    if not words:
        return ()
    spans = [(word.start, word.end) for word in words]
    variants = [join_spans(text, spans)]
    variants += [join_spans(text, spans[:i] + spans[i + 1 :]) for i in range(len(spans))]
    log_probs = score_answer(predictor, variants, answer_ids(predictor, text))
    falls = (log_probs[0] - log_probs[1:]).tolist()
    return tuple(WordWeight(w.start, w.end, fall) for w, fall in zip(words, falls, strict=True))


def _attended_words(
    predictor: Predictor, text: str, one: GenerationTrace
) -> tuple[WordWeight, ...]:
    """The attention of the whole answer, the mean of layers and heads, on each word."""
    if one.attention is None:
        return ()
    weights = one.attention.mean((0, 1)).sum(0)  # (S,)
    (row, *_) = predictor.engine.indexer.rows([text], spans=True)  # type: ignore[attr-defined]
    spans = [] if row.spans is None else row.spans.tolist()
    kept = weights[len(weights) - len(spans) :] / max(float(weights.sum()), 1e-9)
    pieces = [(a, b, float(share)) for (a, b), share in zip(spans, kept, strict=True)]
    return sum_by_word(text, pieces)
