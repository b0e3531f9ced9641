"""Semantic roles in NumPy: predicates of a batch, their senses, and tags or spans of arguments.

B rows   T words   n predicates   C tags   S senses   K senses of one word   R roles   m spans
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.decode.heads.semantics.role_spans import (
    FORBIDDEN,
    IS_GIVEN,
    LEMMAS,
    MIN_PROB,
    NO_SPAN,
    VERB_GAIN,
    WIDTH,
    RoleSpan,
    best_disjoint,
    predicate_chunks,
    predicate_status,
    read_tags,
)
from weft.export.runtime.tags import CRFTables, marginals, read_chain, softmax, viterbi

Arrays = Mapping[str, np.ndarray]
# Inputs and names of outputs -> outputs: the second graph of an export.
Run = Callable[[Mapping[str, np.ndarray], list[str]], Arrays]


def decode_roles(
    outputs: Arrays, lengths: np.ndarray, marks: np.ndarray, tables: Arrays,
    gives: Mapping[str, Any], run: Run,
) -> list[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Return per row a table (L, 4) of predicates and roles, and their probabilities (L,)."""
    real = np.arange(outputs["predicates"].shape[1]) < lengths[:, None]
    with np.errstate(over="ignore"):
        probs = np.where(real, 1 / (1 + np.exp(-outputs["predicates"])), 0)
    given = marks[:, :, IS_GIVEN]
    chosen = (probs > 0.5) | (given == 1)  # (B, T)
    tagged = gives["roles"] == "tags"
    names = ["senses", "emissions"] if tagged else ["senses", "spans", "firsts", "lasts"]
    lines: list[list[tuple[int, int, int, int]]] = [[] for _ in lengths]
    scores: list[list[float]] = [[] for _ in lengths]
    for rows, words in predicate_chunks(chosen):
        feeds = {
            "states": outputs["states"], "rows": rows, "words": words, "counts": lengths[rows]
        }  # fmt: skip
        found = run(feeds, names)
        senses, sense_probs = _best_senses(
            found["senses"], tables["candidates"][marks[rows, words, LEMMAS]]
        )
        if tagged:
            chain = read_chain(tables, 0)
            assert chain is not None
            roles = find_tagged_roles(
                found["emissions"], words, lengths[rows], chain, gives["verb"]
            )
        else:
            roles = find_role_spans(found, words, lengths[rows], tables["labels"], gives["verb"])
        for i, (row, word) in enumerate(zip(rows.tolist(), words.tolist(), strict=True)):
            status = predicate_status(given[row, word], probs[row, word] > 0.5)
            lines[row].append((word, int(senses[i]), NO_SPAN, status))
            scores[row].append(float(sense_probs[i] * probs[row, word]))
            lines[row] += [(word, s.role, s.start, s.end) for s in roles[i]]
            scores[row] += [s.prob for s in roles[i]]
    return [
        (np.array(some, np.int64).reshape(-1, WIDTH), np.array(own))
        for some, own in zip(lines, scores, strict=True)
    ]


def _best_senses(scores: np.ndarray, senses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best (n,) of the senses (n, K), and its probability; -1 where there is none."""
    own = np.take_along_axis(scores, np.maximum(senses, 0), 1)
    own = np.where(senses < 0, -np.inf, own)
    none: np.ndarray = senses.max(1) < 0
    probs = softmax(np.where(none[:, None], 0, own))
    place = np.where(none, 0, probs.argmax(1))
    rows = np.arange(len(senses))
    return senses[rows, place], np.where(none, 1.0, probs[rows, place])


def find_tagged_roles(
    emissions: np.ndarray, words: np.ndarray, lengths: np.ndarray, chain: CRFTables, verb: int
) -> list[list[RoleSpan]]:
    """Return the roles of each predicate by Viterbi over BIO tags (n, T, C).

    The predicate must be V, and V can begin nowhere behind it.
    """
    probs = marginals(emissions, chain, lengths)
    steps, tags = np.arange(emissions.shape[1]), np.arange(emissions.shape[2])
    begin = 2 * verb + 1
    here: np.ndarray = (steps == words[:, None])[:, :, None]  # (n, T, 1)
    is_verb = (tags == begin) | (tags == begin + 1)
    before: np.ndarray = steps < words[:, None]  # (n, T)
    allowed = np.where(here, is_verb, (tags != begin) | before[:, :, None])
    best = viterbi(np.where(allowed, emissions, np.float32(FORBIDDEN)), chain, lengths)
    own = np.take_along_axis(probs, best[:, :, None], 2)[:, :, 0]
    return read_tags(best, np.log(np.maximum(own, MIN_PROB)))


def find_role_spans(
    found: Arrays, words: np.ndarray, lengths: np.ndarray, weight: np.ndarray, verb: int
) -> list[list[RoleSpan]]:
    """Return the best roles that do not overlap, from the logits (n, T, T) of spans."""
    logits = found["spans"]
    steps, at = np.arange(logits.shape[1]), words[:, None, None]
    real = (steps < lengths[:, None])[:, None, :] & (steps[:, None] <= steps)
    covers = (steps[:, None] <= at) & (at <= steps)  # (n, T, T)
    alone = covers & (steps[:, None] == steps)
    # A label costs probability, so a span whose logit is below 0 is never worth it.
    owner, start, end = np.nonzero(((logits > 0) & real) | alone)
    one = np.ones((len(owner), 1), np.float32)
    first = np.concatenate([found["firsts"][owner, start], one], 1)  # (m, R + 1)
    last = np.concatenate([found["lasts"][owner, end], one], 1)
    labels, width, _ = weight.shape
    projected = first @ weight.transpose(1, 0, 2).reshape(width, -1)
    scores = np.einsum("mcy,my->mc", projected.reshape(len(owner), labels, -1), last)
    is_verb = np.arange(labels) == verb
    inside = covers[owner, start, end]
    probs = softmax(np.where(is_verb != inside[:, None], -np.inf, scores))
    label = probs.argmax(1)
    prob, logit = probs.max(1), logits[owner, start, end]
    gain = logit + np.log(prob) + VERB_GAIN * inside
    with np.errstate(over="ignore"):
        sure = prob / (1 + np.exp(-logit))
    spans: list[list[tuple[RoleSpan, float]]] = [[] for _ in lengths]
    columns = (owner, label, start, end + 1, gain, sure)
    for n, role, i, j, worth, p in zip(*(one.tolist() for one in columns), strict=True):
        spans[n].append((RoleSpan(role, i, j, p), worth))
    return [best_disjoint(own) for own in spans]
