"""Coreference in NumPy: the antecedents of words, the chains that they make, and their spans.

T words   H width of a state   K candidates of a word   n words at once   F features of a pair
D width of hidden layers   M mentions   W words of a window   C channels
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.decode.heads.semantics.mentions import (
    DISTANCES,
    FORM,
    GENRE,
    SENTENCE,
    SPEAKER,
    UNKNOWN,
    WIDTH,
    drop_repeats,
    link_words,
)
from weft.export.runtime.tags import softmax

Arrays = Mapping[str, np.ndarray]
MAX_NUMBERS = 1 << 24  # of an array of pairs


def resolve(
    document: Arrays, marks: np.ndarray, tables: Arrays, gives: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mentions (M, 4) of a document as heads, entities and spans; and probabilities."""
    size = len(marks)
    if not size:
        return np.zeros((0, WIDTH), np.int64), np.zeros(0)
    words = _find_candidates(document, gives["antecedents"])  # (T, K)
    scores = _score_pairs(document, marks, words, tables, gives["genres"])
    scores = np.where(words < np.arange(size)[:, None], scores, -np.inf)
    none = np.full((size, 1), gives["link_margin"], np.float32)
    probs = softmax(np.concatenate([none, scores], 1))  # (T, K + 1)
    place = probs.argmax(1)
    rows = np.arange(size)
    antecedent = np.where(place > 0, words[rows, np.maximum(place - 1, 0)], UNKNOWN)
    with np.errstate(over="ignore"):
        mention_probs = 1 / (1 + np.exp(-document["mentions"]))
    entity, sure = link_words(
        antecedent.tolist(), probs[rows, place].tolist(), mention_probs.tolist(),
        gives["singletons"],
    )  # fmt: skip
    heads = np.array(sorted(entity), np.int64)
    spans = _best_spans(document, marks[:, SENTENCE], heads, tables)
    lines = [
        (head, entity[head], start, end)
        for head, (start, end) in zip(heads.tolist(), spans, strict=True)
    ]
    kept = drop_repeats(lines, [sure[line[0]] for line in lines], gives["singletons"])
    table = np.array([line for line, _ in kept], np.int64).reshape(-1, WIDTH)
    return table, np.array([one for _, one in kept])


def _find_candidates(document: Arrays, most: int) -> np.ndarray:
    """Return the K earlier words (T, K) with the best bilinear scores; later ones fill up."""
    states, queries = document["words"], document["queries"]
    size = len(states)
    keys = min(most, max(size - 1, 1))
    chunk, chosen = max(1, MAX_NUMBERS // size), []
    for at in range(0, size, chunk):
        own = np.arange(at, min(at + chunk, size))
        scores = queries[own] @ states.T + document["mentions"]  # (n, T)
        scores[np.arange(size) >= own[:, None]] = -np.inf
        chosen.append(np.argpartition(-scores, keys - 1, axis=1)[:, :keys])
    return np.concatenate(chosen)


def _score_pairs(
    document: Arrays, marks: np.ndarray, words: np.ndarray, tables: Arrays, genres: int
) -> np.ndarray:
    """Return the scores (T, K) of words with their candidates."""
    states, mentions = document["words"], document["mentions"]
    widest = max(states.shape[1], tables["pair.product"].shape[0])
    chunk, scores = max(1, MAX_NUMBERS // (words.shape[1] * widest)), []
    for at in range(0, len(words), chunk):
        pairs = words[at : at + chunk]  # (n, K)
        steps = np.arange(at, at + len(pairs))
        others = states[pairs]  # (n, K, H)
        rough = (others @ document["queries"][steps][:, :, None])[:, :, 0]
        rough = rough + mentions[steps][:, None] + mentions[pairs]
        hidden = (others * states[steps][:, None]) @ tables["pair.product"].T  # (n, K, D)
        hidden += _pair_features(marks, steps, pairs, genres) @ tables["pair.features"].T
        hidden += document["pair_antecedents"][pairs]
        hidden += document["pair_words"][steps][:, None]
        fine = np.maximum(hidden, 0) @ tables["pair.score"] + tables["pair.bias"]
        scores.append(rough + fine)
    return np.concatenate(scores)


def _pair_features(
    marks: np.ndarray, steps: np.ndarray, pairs: np.ndarray, genres: int
) -> np.ndarray:
    """Return (n, K, F): bucket of the distance, same word, speakers, genre."""
    distance = np.maximum(steps[:, None] - pairs, 1)
    powers = np.floor(np.log2(np.minimum(distance, 64))).astype(np.int64) + 2
    bucket = np.where(distance < 5, distance - 1, powers)
    first, second = marks[steps][:, None], marks[pairs]
    known = (first[..., SPEAKER] >= 0) & (second[..., SPEAKER] >= 0)
    same = first[..., SPEAKER] == second[..., SPEAKER]
    flags = [first[..., FORM] == second[..., FORM], known & same, known & ~same]
    columns = [bucket[..., None] == np.arange(DISTANCES), *(flag[..., None] for flag in flags)]
    columns.append(second[..., GENRE, None] == np.arange(genres))
    return np.concatenate(columns, 2).astype(np.float32)


def _best_spans(
    document: Arrays, sentences: np.ndarray, heads: np.ndarray, tables: Arrays
) -> Sequence[tuple[int, int]]:
    """Return the first word of each mention (M,), and the word after its last one."""
    window, size = len(tables["span.distance"]) // 2, len(sentences)
    near = np.arange(-window, window + 1)
    chunk = max(1, MAX_NUMBERS // (len(near) * tables["span.distance"].shape[1]))
    spans: list[tuple[int, int]] = []
    for at in range(0, len(heads), chunk):
        own = heads[at : at + chunk]
        words = own[:, None] + near  # (M, W)
        inside = (words >= 0) & (words < size)
        words = np.clip(words, 0, size - 1)
        inside &= sentences[words] == sentences[own][:, None]
        hidden = document["span_heads"][own][:, None] + document["span_words"][words]
        hidden = np.maximum(hidden + tables["span.distance"], 0)
        hidden = np.maximum(hidden @ tables["span.weight"].T + tables["span.bias"], 0)
        hidden = np.where(inside[:, :, None], hidden, 0)
        hidden = np.maximum(_convolve(hidden, tables["span.first"], tables["span.first_bias"]), 0)
        logits = _convolve(hidden, tables["span.second"], tables["span.second_bias"])
        sides = np.stack([near <= 0, near >= 0], 1)  # a head is between first and last word
        logits = np.where(inside[:, :, None] & sides, logits, -np.inf)
        best = logits.argmax(1) - window + own[:, None]  # (M, 2)
        spans += zip(best[:, 0].tolist(), (best[:, 1] + 1).tolist(), strict=True)
    return spans


def _convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Convolve (M, W, inputs) with (C, inputs, kernel), zeros around, to (M, W, C)."""
    kernel = weight.shape[2]
    padded = np.pad(x, ((0, 0), (kernel // 2, kernel // 2), (0, 0)))
    total: np.ndarray = sum(
        padded[:, i : i + x.shape[1]] @ weight[:, :, i].T for i in range(kernel)
    ) + bias  # fmt: skip
    return total
