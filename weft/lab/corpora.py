"""Generated corpora whose structure is known, to train word vectors and language models on."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from weft.vectors.corpus import corpus
from weft.vectors.store import Vectors
from weft.vectors.word2vec import Method, train_vectors

GROUPS, GROUP_WORDS, FUNCTION_WORDS = 10, 40, 12
NEIGHBOURS = 5  # of a word, that should be of its group


def group_word(group: int, rank: int) -> str:
    """Return the name of a content word."""
    return f"g{group}w{rank}"


def draw_topics(
    rng: np.random.Generator, sentences: int, content: int = 6, function: int = 6
) -> list[str]:
    """Draw sentences about one group of words each, with function words between them.

    Within a group, the frequency of a word is inverse to its rank (Zipf). The function words are
    the same in all groups.
    """
    frequency = 1 / np.arange(1, GROUP_WORDS + 1)
    ranks = rng.choice(GROUP_WORDS, (sentences, content), p=frequency / frequency.sum())
    fillers = rng.integers(FUNCTION_WORDS, size=(sentences, function))
    groups = rng.integers(GROUPS, size=sentences)
    out = []
    for group, words, others in zip(groups, ranks, fillers, strict=True):
        tokens = [group_word(group, rank) for rank in words] + [f"the{i}" for i in others]
        out.append(" ".join(rng.permutation(tokens)))
    return out


def learn_vectors(sentences: Sequence[str], method: Method, seed: int, **options: float) -> Vectors:
    """Train word vectors on one thread, the same for the same seed."""
    texts = corpus([list(sentences)], min_count=1, tokenizer="whitespace", watch=lambda count: None)
    settings: dict[str, Any] = {"width": 24, "window": 4, "epochs": 3, **options}
    return train_vectors(
        texts, method, seed=seed + 1, threads=1, watch=lambda count: None, **settings
    )


def group_precision(vectors: Vectors, ranks: Iterable[int]) -> float:
    """Return the fraction of the nearest content words that are of the same group.

    Only words of some ranks are looked up; among all content words.
    """
    names = [
        group_word(group, rank)
        for group in range(GROUPS)
        for rank in range(GROUP_WORDS)
        if group_word(group, rank) in vectors.index
    ]
    groups = np.array([name.split("w")[0] for name in names])
    rows = np.stack([vectors[name] for name in names])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chosen = set(ranks)
    queries = [i for i, name in enumerate(names) if int(name.split("w")[1]) in chosen]
    similar = rows[queries] @ rows.T  # (Q, V)
    similar[np.arange(len(queries)), queries] = -np.inf
    nearest = np.argsort(-similar, axis=1)[:, :NEIGHBOURS]
    return float((groups[nearest] == groups[queries][:, None]).mean())
