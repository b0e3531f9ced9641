"""Mentions of a document without a network: marks of words, chains from links, repeats.

Importable without torch. T words
"""

from collections.abc import Mapping, Sequence

import numpy as np

from weft.text.annotation.frames import Coreference
from weft.text.example import Label

WIDTH = 4  # of a table: head word, entity, start, end
NUM_MARKS = 4
SENTENCE, SPEAKER, GENRE, FORM = range(NUM_MARKS)  # columns of marks
UNKNOWN = -1  # speaker or genre
DISTANCES = 9  # buckets
FEATURES = DISTANCES + 3  # and the same word, the same speaker, another speaker
SENTENCE_ENDS = frozenset({".", "!", "?", "…", "..."})
CLOSING = frozenset({'"', "'", "”", "’", "''", ")", "]"})


def mark_words(words: Sequence[str], label: Label, genres: Mapping[str, int]) -> np.ndarray:
    """Return (T, 4): the sentence of each word, its speaker, the genre, and its form."""
    marks = np.full((len(words), NUM_MARKS), UNKNOWN, np.int64)
    numbers: dict[str, int] = {}
    marks[:, FORM] = [numbers.setdefault(word.casefold(), len(numbers)) for word in words]
    marks[:, SENTENCE] = 0
    starts = label.sentences if isinstance(label, Coreference) else _split_sentences(words)
    np.add.at(marks[:, SENTENCE], [one for one in starts if 0 < one < len(words)], 1)
    marks[:, SENTENCE] = marks[:, SENTENCE].cumsum()
    if isinstance(label, Coreference):
        marks[:, GENRE] = genres.get(label.genre, UNKNOWN)
        if len(label.speakers) == len(words):
            known: dict[str, int] = {}
            marks[:, SPEAKER] = [
                known.setdefault(one, len(known)) if one else UNKNOWN for one in label.speakers
            ]
    return marks


def link_words(
    antecedents: Sequence[int],
    probs: Sequence[float],
    mention_probs: Sequence[float],
    singletons: bool,
) -> tuple[dict[int, int], dict[int, float]]:
    """Return the entity of each head word and its probability: that of its link, or of being one.

    A word without a link is a head if a later one is linked to it or, with singletons, if it is
    probably a mention.
    """
    entity: dict[int, int] = {}
    certainty: dict[int, float] = {}
    for word, (other, prob) in enumerate(zip(antecedents, probs, strict=True)):
        if other >= 0:
            if other not in entity:
                entity[other], certainty[other] = len(certainty), mention_probs[other]
            entity[word], certainty[word] = entity[other], prob
        elif singletons and mention_probs[word] > 0.5:
            entity[word], certainty[word] = len(certainty), mention_probs[word]
    return entity, certainty


def drop_repeats(
    lines: Sequence[tuple[int, int, int, int]], probs: Sequence[float], singletons: bool
) -> list[tuple[tuple[int, int, int, int], float]]:
    """Return the mentions in order of their heads, each span once, with the surest head.

    Without singletons, an entity that this leaves with one mention goes, too.
    """
    best: dict[tuple[int, int], tuple[tuple[int, int, int, int], float]] = {}
    for line, prob in zip(lines, probs, strict=True):
        span = line[2:]
        if span not in best or prob > best[span][1]:
            best[span] = line, prob
    kept = sorted(best.values())
    counts: dict[int, int] = {}
    for line, _ in kept:
        counts[line[1]] = counts.get(line[1], 0) + 1
    return [(line, prob) for line, prob in kept if singletons or counts[line[1]] > 1]


def _split_sentences(words: Sequence[str]) -> list[int]:
    """Return where sentences of plain text begin: after a full stop or another end, and quotes."""
    out, ended = [0], False
    for number, word in enumerate(words):
        if ended and word not in CLOSING:
            out.append(number)
        ended = word in SENTENCE_ENDS or (ended and word in CLOSING)
    return out
