"""Phrases: pairs of words that stand together more often than chance become one, "new_york".

The score is that of Mikolov et al. (2013): (count(ab) − δ) · total / (count(a) · count(b)). A
second pass joins what the first one made, "new_york_times".
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.vectors.corpus import Corpus, rank_by_frequency, renumber

_PIECE = 1 << 22  # ids at a time


def phrases(
    corpus: Corpus,
    *,
    min_count: int = 5,
    threshold: float = 100.0,
    discount: float | None = None,
    passes: int = 1,
    vocab_size: int = 0,
    joint: str = "_",
    folder: Path | None = None,
) -> Corpus:
    """Join the phrases of a corpus, then drop words below `min_count`.

    Give it a corpus read with `min_count=1`: where rare words are left out, words that were not
    neighbours look as if they were. `discount`, δ, keeps rare pairs apart; it is `min_count` unless
    given, as in Mikolov's word2phrase.
    """
    if passes < 1 or threshold < 0 or min_count < 1:
        raise UserError(
            "Phrases need 'passes' and 'min_count' of 1 or more and a 'threshold' of 0 or more; "
            f"got {passes}, {min_count} and {threshold}."
        )
    less = float(min_count) if discount is None else discount
    now = corpus
    for _ in range(passes):
        keys, scores = score_pairs(now, min_count, less)
        found = keys[scores > threshold]
        now = _join(now, found, joint, 1, 0, None)
    return _join(now, np.empty(0, np.int64), joint, min_count, vocab_size, folder)


def score_pairs(corpus: Corpus, min_count: int, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring pairs of words, each seen `min_count` times, as a · V + b, and their scores."""
    size = len(corpus.words)
    keys, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for ids, breaks in _chunks(corpus):
        both = (corpus.counts[ids[:-1]] >= min_count) & (corpus.counts[ids[1:]] >= min_count)
        both[breaks] = False  # the last word of a sentence and the first of the next
        pairs = ids[:-1].astype(np.int64)[both] * size + ids[1:][both]
        new, often = np.unique(pairs, return_counts=True)
        keys, places = np.unique(np.concatenate([keys, new]), return_inverse=True)
        counts = np.bincount(
            places.ravel(), np.concatenate([counts, often]), minlength=len(keys)
        ).astype(np.int64)
    kept = counts >= min_count
    keys, counts = keys[kept], counts[kept]
    apart = corpus.counts[keys // size].astype(float) * corpus.counts[keys % size]
    return keys, (counts - discount) * corpus.counts.sum() / apart


def _chunks(corpus: Corpus) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Runs of ids that overlap by one, and where a sentence ends in each."""
    for begin in range(0, len(corpus.ids), _PIECE):
        ids = np.asarray(corpus.ids[begin : begin + _PIECE + 1])
        first, last = np.searchsorted(corpus.ends, [begin + 1, begin + len(ids)])
        yield ids, corpus.ends[first:last] - begin - 1


def _join(
    corpus: Corpus, keys: np.ndarray, joint: str, min_count: int, size: int, folder: Path | None
) -> Corpus:
    """The corpus with these pairs as words; from the left, a word is in one pair only."""
    from weft.vectors.kernels.scan import join

    old = len(corpus.words)
    names = list(corpus.words)
    names += [f"{corpus.words[key // old]}{joint}{corpus.words[key % old]}" for key in keys]
    # "new_york" may stand in the text as it is: the two are one word.
    numbers: dict[str, int] = {}
    same = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32)
    starts = np.zeros(old, np.uint8)
    starts[keys // old] = 1
    counts = np.zeros(len(numbers), np.int64)
    ends = np.empty_like(corpus.ends)
    with tempfile.TemporaryFile(dir=folder) as raw:
        sentence = written = 0
        while sentence < len(ends):
            begin = int(corpus.ends[sentence - 1]) if sentence else 0
            last = int(np.searchsorted(corpus.ends, begin + _PIECE)) + 1
            limits = corpus.ends[sentence:last] - begin
            ids = np.array(corpus.ids[begin : begin + int(limits[-1])])
            size_now, cuts = join(ids, limits, keys, starts, same, counts, old)
            ends[sentence:last] = cuts + written
            raw.write(ids[:size_now].data)
            written, sentence = written + size_now, last
        raw.flush()
        kept, counts, places = rank_by_frequency(list(numbers), counts, min_count, size)
        if not kept:
            raise UserError(f"No word occurs {min_count} times. Lower --min-count.")
        new_ids, new_ends = renumber(raw, ends, places, folder)
    return Corpus(tuple(kept), counts, new_ids, new_ends, corpus.total)
