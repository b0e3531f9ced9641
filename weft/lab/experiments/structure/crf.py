"""A CRF knows which tag follows which; that pays as far as tags depend on each other."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, build, minimise, tagging

TAGS, WORDS, LENGTH = 4, 8, 12
DEPENDENCE = (0.0, 0.3, 0.6, 0.9)  # probability that a tag follows from the one before
HEADS = {"softmax": "tags", "CRF": "crf"}


def draw(rng: np.random.Generator, count: int, dependence: float) -> Rows:
    """Draw chains of tags, and words that fit two tags each."""
    tags = rng.integers(TAGS, size=(count, LENGTH))
    for t in range(1, LENGTH):
        follows = rng.random(count) < dependence
        tags[:, t] = np.where(follows, (tags[:, t - 1] + 1) % TAGS, tags[:, t])
    # A word of tag 0 looks like one of tag 1 half of the time, and so on round.
    seen = (tags + (rng.random(tags.shape) < 0.5)) % TAGS
    ids = 1 + 2 * seen + rng.integers(2, size=tags.shape)
    return Rows(list(ids), list(tags))


def measure(seed: int) -> Table:
    """Return the accuracy of tags chosen one by one, and as a chain, by their dependence."""
    scores: Table = {name: {} for name in HEADS}
    for dependence in DEPENDENCE:
        rng = np.random.default_rng([seed, int(10 * dependence)])
        train, test = draw(rng, 800, dependence), draw(rng, 150, dependence)
        for name, head in HEADS.items():
            parts = {**tagging(TAGS), "head": {"kind": head}}
            model = build(1 + 2 * TAGS, embedder={"kind": "lookup", "width": 16}, **parts)

            def loss(update: int, model=model, train=train, rng=rng) -> torch.Tensor:
                source, labels = train.batch(rng.integers(len(train), size=32))
                total, count = model(source).loss(labels[..., None])
                return total / count

            minimise(model, loss, 100, learning_rate=3e-2)
            with torch.no_grad():
                output = model(test.batch(range(len(test)))[0])
            chosen = np.stack([tags[:, 0] for tags, _ in output.decode()])
            scores[name][dependence] = float((chosen == np.stack(test.labels)).mean())
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Where tags are independent both get {mean('CRF', 0.0):.0%} right. Where nine in ten "
        f"follow from the tag before, the CRF gets {mean('CRF', 0.9):.0%} and the softmax "
        f"{mean('softmax', 0.9):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Where nine in ten tags follow from the one before, the CRF gets {mean('CRF', 0.9):.0%} "
        f"right and the softmax {mean('softmax', 0.9):.0%}; where none does, "
        f"{mean('CRF', 0.0):.0%} and {mean('softmax', 0.0):.0%}."
    )


GAP = {d: at("CRF", d) - at("softmax", d) for d in DEPENDENCE}
EXPERIMENT = Experiment(
    claim="A CRF beats a softmax per word as far as the labels depend on each other.",
    decks=("001", "004"),
    why="A softmax decides each word alone. A CRF also has a score for each pair of neighbouring "
    "tags, and Viterbi finds the best chain.",
    data="Chains of 12 tags out of 4; each word fits two tags, and a tag follows from the one "
    "before with a probability of 0 to 0.9. Both see one word at a time; 800 sentences.",
    measure=measure,
    conditions=(GAP[0.9].above(0.15), GAP[0.0].below(0.05), (GAP[0.9] - GAP[0.3]).above(0.05)),
    holds=_holds,
    fails=_fails,
    x="probability that a tag follows from the one before",
    y="tags right",
    limits=(0, 1),
    seconds=7,
)
