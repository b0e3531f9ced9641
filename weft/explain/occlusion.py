"""Occlusion: how far the score falls when a word is taken out of the text. For every engine."""

from collections.abc import Sequence

import numpy as np

from weft.explain.explanation import Target, WordWeight
from weft.explain.perturb import HiddenScore, group_words, sample_shapley
from weft.explain.words import Span, Variant, keep_words
from weft.predict.predictor import CHUNK_TEXTS
from weft.protocols import Engine
from weft.text.example import Example


def word_weights(
    engine: Engine,
    texts: Sequence[str],
    words: Sequence[Sequence[WordWeight]],
    targets: Sequence[Target],
    seconds: Sequence[int] = (),
) -> list[tuple[WordWeight, ...]]:
    """The words that were read, each with the fall of scores · direction when it is removed.

    Removed, not replaced by an unknown word: that is what every engine can do, and an unknown
    word may have learned a meaning. Words removed together share the fall. `seconds` says where
    in each text a second one begins, where there are two.
    """
    variants: list[Variant] = []
    for text, own, second in zip(texts, words, seconds or [0] * len(texts), strict=True):
        spans = [(word.start, word.end) for word in own]
        variants.append(keep_words(text, spans, second))
        variants += [
            keep_words(text, spans[:i] + spans[j:], second) for i, j in group_words(len(spans))
        ]
    scores = score_distinct(engine, variants)  # (asked, C)
    out, at = [], 0
    for own, target in zip(words, targets, strict=True):
        parts = group_words(len(own))
        values = scores[at : at + 1 + len(parts)] @ target.direction
        at += 1 + len(parts)
        falls = values[0] - values[1:]
        out.append(
            tuple(
                WordWeight(word.start, word.end, float(fall) / (j - i))
                for (i, j), fall in zip(parts, falls.tolist(), strict=True)
                for word in own[i:j]
            )
        )
    return out


def shapley_weights(
    engine: Engine,
    texts: Sequence[str],
    words: Sequence[Sequence[WordWeight]],
    targets: Sequence[Target],
    seconds: Sequence[int] = (),
) -> list[tuple[WordWeight, ...]]:
    """The words that were read, each with its sampled Shapley value of scores · direction."""
    out = []
    places = seconds or [0] * len(texts)
    for text, own, target, second in zip(texts, words, targets, places, strict=True):
        spans = [(word.start, word.end) for word in own]

        score = _score_variants(engine, text, spans, second, target)
        values = sample_shapley(score, len(own)).tolist()
        out.append(tuple(WordWeight(w.start, w.end, v) for w, v in zip(own, values, strict=True)))
    return out


def _score_variants(
    engine: Engine, text: str, spans: Sequence[Span], second: int, target: Target
) -> HiddenScore:
    """Return a function from removed words to scores · direction."""

    def score(removed: np.ndarray) -> np.ndarray:
        kept = [[s for s, gone in zip(spans, row, strict=True) if not gone] for row in removed]
        logits = score_distinct(engine, [keep_words(text, some, second) for some in kept])
        return np.asarray(logits @ target.direction)

    return score


def score_distinct(engine: Engine, texts: Sequence[Variant]) -> np.ndarray:
    """Return scores (texts, C), in chunks that fit in memory; equal texts are scored once."""
    indices = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    # Two texts come as a tuple, and an engine takes them as an Example.
    distinct = [one if isinstance(one, str) else Example(one[0], other=one[1]) for one in indices]
    chunks = []
    for start in range(0, len(distinct), CHUNK_TEXTS):
        logits = engine.predict(distinct[start : start + CHUNK_TEXTS]).scores
        assert isinstance(logits, np.ndarray)
        chunks.append(logits)
    return np.concatenate(chunks)[[indices[text] for text in texts]]
