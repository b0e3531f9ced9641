"""Negation: a parse says what “not” applies to; a sequence of words leaves it open."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import build, label_loss, minimise, tagging

NODE, NOT, OPEN, CLOSE, FIRST = 1, 2, 3, 4, 5  # ids; from FIRST on, good words and then bad ones
KIND_WORDS, LEAVES = 8, 5
VOCABULARY = FIRST + 2 * KIND_WORDS
NEGATIONS = (0, 1, 2, 3)
TRAINED, TESTED, UPDATES = 2500, 250, 400
TREE, SEQUENCE, BRACKETS, BAG = "Tree-LSTM", "LSTM", "LSTM, brackets", "average"


@dataclass
class Phrase:
    """A phrase as words, as words with brackets, and as a tree with children before parents."""

    words: list[int]
    bracketed: list[int]
    nodes: list[int]
    parents: list[int]  # -1 at the top, which comes last
    value: int  # good words less bad ones; “not” turns its sign


def leaf(word: int) -> Phrase:
    """Return a phrase of one word."""
    good = FIRST <= word < FIRST + KIND_WORDS
    return Phrase([word], [word], [word], [-1], 0 if word == NOT else 1 if good else -1)


def join(left: Phrase, right: Phrase) -> Phrase:
    """Return the phrase of two parts; if the left one is “not”, it turns the right one around."""
    first, size = len(left.nodes), len(left.nodes) + len(right.nodes)
    below = [
        *(size if parent < 0 else parent for parent in left.parents),
        *(size if parent < 0 else parent + first for parent in right.parents),
    ]
    return Phrase(
        left.words + right.words,
        [OPEN, *left.bracketed, *right.bracketed, CLOSE],
        [*left.nodes, *right.nodes, NODE],
        [*below, -1],
        -right.value if left.words == [NOT] else left.value + right.value,
    )


def draw_phrase(rng: np.random.Generator, negations: int) -> Phrase:
    """Draw a binary tree over an odd number of words, with “not” before some of its parts."""
    parts = [leaf(int(word)) for word in rng.integers(FIRST, VOCABULARY, LEAVES)]
    turned = rng.permutation(2 * LEAVES - 1)[:negations]  # which parts, in the order they are made
    made = 0

    def finish(phrase: Phrase) -> Phrase:
        nonlocal made
        made += 1
        return join(leaf(NOT), phrase) if made - 1 in turned else phrase

    parts = [finish(part) for part in parts]
    while len(parts) > 1:
        i = int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [finish(join(*parts[i : i + 2]))]
    return parts[0]


def as_trees(phrases: list[Phrase]) -> Padded:
    """Return phrases as a batch of trees."""
    ids = Padded.from_rows([phrase.nodes for phrase in phrases])
    parents = Padded.from_rows([phrase.parents for phrase in phrases], fill=-1).data
    return Padded(ids.data, ids.lengths, parents=parents)


def as_words(phrases: list[Phrase]) -> Padded:
    """Return phrases as rows of words."""
    return Padded.from_rows([phrase.words for phrase in phrases])


def as_bracketed(phrases: list[Phrase]) -> Padded:
    """Return phrases as rows of words and brackets."""
    return Padded.from_rows([phrase.bracketed for phrase in phrases])


LSTM = {"kind": "rnn", "cell": "lstm", "hidden": 24}
READERS: dict[str, tuple[dict[str, Any], Any]] = {
    TREE: ({"kind": "tree-lstm", "hidden": 32}, as_trees),
    BRACKETS: (LSTM, as_bracketed),
    SEQUENCE: (LSTM, as_words),
    BAG: ({"kind": "none"}, as_words),
}


def measure(seed: int) -> Table:
    """Return by the number of “not” how often a phrase is rightly called good or bad."""
    rng = np.random.default_rng(seed)
    train = [draw_phrase(rng, int(n)) for n in rng.integers(max(NEGATIONS) + 1, size=TRAINED)]
    tests = {n: [draw_phrase(rng, n) for _ in range(TESTED)] for n in NEGATIONS}
    scores: Table = {}
    for name, (encoder, as_batch) in READERS.items():
        torch.manual_seed(seed)
        extra = {**tagging(2), "head": {"kind": "nodes"}} if name == TREE else {"outputs": 2}
        model = build(VOCABULARY, encoder=encoder, **extra)
        order = np.random.default_rng([seed, 1])

        def scores_of(phrases: list[Phrase], model=model, as_batch=as_batch) -> Tensor:
            source = as_batch(phrases)
            out = model(source)
            if isinstance(out, Tensor):
                return out
            return out.labels.data[range(len(phrases)), source.lengths - 1]  # at the top

        def loss(update: int, scores_of=scores_of, order=order) -> Tensor:
            chosen = [train[i] for i in order.integers(len(train), size=32)]
            return label_loss(scores_of(chosen), goodness(chosen))

        minimise(model, loss, UPDATES, learning_rate=5e-3, decay=True)
        with torch.no_grad():
            scores[name] = {
                n: float((scores_of(test).argmax(1) == goodness(test)).float().mean())
                for n, test in tests.items()
            }
    return scores


def goodness(phrases: list[Phrase]) -> Tensor:
    """Return 1 for phrases that are good on the whole, 0 for the others."""
    return torch.tensor([int(phrase.value > 0) for phrase in phrases])


def _holds(mean: Means) -> str:
    return (
        f"Without “not”, both call nearly every phrase rightly good or bad "
        f"({mean(TREE, 0):.0%} and {mean(SEQUENCE, 0):.0%}). With three of them, the Tree-LSTM, "
        f"which is given the parse, is right in {mean(TREE, 3):.0%} of phrases and the LSTM, which "
        f"is not, in {mean(SEQUENCE, 3):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"With three “not” in a phrase, the Tree-LSTM is right in {mean(TREE, 3):.0%} of cases "
        f"and the LSTM over the words in {mean(SEQUENCE, 3):.0%}."
    )


EXPERIMENT = Experiment(
    claim="A recursive net knows what “not” applies to; a sequence of words does not say it.",
    decks=("002",),
    why="“Not good and cheap” can mean (not good) and cheap, or not (good and cheap). A recursive "
    "net is given the tree and turns the state of exactly that part; averages lose it entirely.",
    data=f"Random phrases of {LEAVES} good or bad words as binary trees, with up to three “not” "
    f"before any part of the tree; good are those with more good words, each “not” counted. "
    f"{TRAINED:,} phrases, {UPDATES} updates.",
    measure=measure,
    conditions=(
        (at(TREE, 3) - at(SEQUENCE, 3)).above(0.1),
        (at(TREE, 3) - at(BAG, 3)).above(0.1),
        at(SEQUENCE, 0).above(0.8),
    ),
    holds=_holds,
    fails=_fails,
    x="“not” in the phrase",
    y="phrases judged rightly",
    limits=(0, 1),
    seeds=8,
    seconds=4,
    explanation="The parse alone is not enough: an LSTM that also reads the brackets of the tree "
    "as words gets no further after as much training. A recursive net need not learn to match "
    "brackets; its layers follow them.",
)
