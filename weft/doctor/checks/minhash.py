"""Propose similar texts: MinHash signatures (Broder, 1997) in sorted bands.

The signatures come from rensa. On the 5,452 questions of TREC it signs and indexes 25 to 60 times
as fast as datasketch, at the same recall (bench/doctor.py --signatures). Its index returns whole
buckets, which grow with the square of a template's copies; so the bands are sorted here, and each
text is compared with a few neighbours per band: the work is linear in the number of texts.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from weft.doctor.checks.word_arrays import WordIndex
from weft.errors import optional_import

PURPOSE = "Finding near duplicates"
# Texts of Jaccard similarity 0.5 share a bucket with 98.6 %, those of 0.2 with 23 %.
BANDS = 32
ROWS_PER_BAND = 3
MAX_NEIGHBOURS = 5  # compared per bucket
MAX_PARTNERS = 4  # kept per text
MIN_SIMILARITY = 0.32  # estimated
CHUNK_TEXTS = 20_000
AGREEMENT_BASE = 128  # exceeds the number of agreements


def candidate_pairs(corpus: WordIndex, texts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return candidate pairs (P, 2) of similar texts, the earlier first, a few per text."""
    keys, marks = _signatures(corpus, texts, weights)
    count = len(texts)
    packed = np.zeros(0, np.int64)  # a pair and its agreements packed in one number: fast to sort
    fresh: list[np.ndarray] = []
    for band in range(BANDS):
        order = np.argsort(keys[:, band], kind="stable")
        sorted_keys = keys[order, band]
        for away in range(1, MAX_NEIGHBOURS + 1):
            same = np.flatnonzero(sorted_keys[away:] == sorted_keys[:-away])
            fresh.extend(_similar_pairs(order[same + away], order[same], marks))
        if sum(map(len, fresh)) > 4 * count or band == BANDS - 1:
            packed, fresh = _sort_unique(np.concatenate([packed, *fresh])), []
            if len(packed) > 2 * MAX_PARTNERS * count:
                packed = _best_partners(packed, count)
    pairs, _ = _unpack_pairs(_best_partners(packed, count), max(1, count))
    return np.sort(texts[pairs], axis=1)  # (P, 2)


def _sort_unique(packed: np.ndarray) -> np.ndarray:
    # np.unique hashes such numbers, several times slower than sorting.
    packed.sort()
    return packed[np.r_[True, packed[1:] != packed[:-1]]] if len(packed) else packed


def _similar_pairs(
    later: np.ndarray, earlier: np.ndarray, marks: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield packed pairs whose signatures agree often enough."""
    for start in range(0, len(later), CHUNK_TEXTS):
        i, j = later[start : start + CHUNK_TEXTS], earlier[start : start + CHUNK_TEXTS]
        agree = (marks[i] == marks[j]).sum(1)
        likely = agree >= MIN_SIMILARITY * marks.shape[1]
        yield ((i * len(marks) + j) * AGREEMENT_BASE + agree)[likely]


def _unpack_pairs(packed: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the texts of each pair (P, 2) and their number of agreements (P,)."""
    pairs, agree = np.divmod(packed, AGREEMENT_BASE)
    return np.stack(np.divmod(pairs, count), 1), agree


def _best_partners(packed: np.ndarray, count: int) -> np.ndarray:
    """Return only the likeliest pairs of each text."""
    pairs, agree = _unpack_pairs(packed, max(1, count))
    kept = np.zeros(len(packed), bool)
    for side in (0, 1):
        order = np.lexsort((-agree, pairs[:, side]))
        owner = pairs[order, side]
        starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]]) if len(owner) else owner
        rank = np.arange(len(owner)) - np.repeat(starts, np.diff(np.r_[starts, len(owner)]))
        kept[order[rank < MAX_PARTNERS]] = True
    return packed[kept]


def _signatures(
    corpus: WordIndex, texts: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return bucket keys (N, BANDS) and a byte of each minimum (N, BANDS x ROWS_PER_BAND)."""
    minhash = optional_import("rensa", PURPOSE).RMinHash
    flat, ends = corpus.arrays()
    # A word of weight 3 counts as three shingles: weighted Jaccard.
    copies = np.where(weights > 0, np.maximum(1, np.rint(weights)), 0).astype(np.int64)
    keys = np.zeros((len(texts), BANDS), np.uint32)
    marks = np.zeros((len(texts), BANDS * ROWS_PER_BAND), np.uint8)
    for start in range(0, len(texts), CHUNK_TEXTS):
        some = texts[start : start + CHUNK_TEXTS]
        lengths = ends[some + 1] - ends[some]
        owner = np.repeat(np.arange(len(some)), lengths)
        inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        words = flat[ends[some][owner] + inside].astype(np.int64)
        count = copies[words]
        nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        shingles = _mix((np.repeat(words, count) << 8) + nth)
        stops = np.r_[0, np.cumsum(np.bincount(owner, count, len(some)))].astype(np.uint64)
        # Texts without words get distinct keys, or they would all look alike.
        empty = np.flatnonzero(stops[1:] == stops[:-1])
        matrix = minhash.digest_matrix_from_flat_token_hashes(
            shingles, stops, BANDS * ROWS_PER_BAND, 7
        )
        digest = np.fromiter(
            chain.from_iterable(matrix.to_rows()), np.uint32, len(some) * BANDS * ROWS_PER_BAND
        ).reshape(len(some), BANDS, ROWS_PER_BAND)
        mixed = np.zeros((len(some), BANDS), np.uint64)
        for row in range(ROWS_PER_BAND):
            mixed = _mix(mixed + digest[:, :, row])
        mixed[empty] = _mix(start + empty + 1)[:, None]
        keys[start : start + CHUNK_TEXTS] = mixed >> np.uint64(32)
        marks[start : start + CHUNK_TEXTS] = digest.reshape(len(some), -1) & 0xFF
    return keys, marks


def _mix(values: np.ndarray) -> np.ndarray:
    """Mix integers with SplitMix64."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed
