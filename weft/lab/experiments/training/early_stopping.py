"""On noisy labels, the validation loss says when learning turns into learning by heart."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, build, label_loss, logits_of, minimise

WORDS, LENGTH, TEXTS, NOISE = 200, 8, 300, 0.25
UPDATES = (5, 10, 20, 40, 80, 160, 320)


def draw(rng: np.random.Generator, count: int, noise: float) -> Rows:
    """Draw texts labelled by the majority of two kinds of words, some labels wrong."""
    kinds = rng.integers(2, size=(count, LENGTH - 1))
    ids = 1 + kinds * (WORDS // 2) + rng.integers(WORDS // 2 - 1, size=kinds.shape)
    labels = (kinds.sum(1) > (LENGTH - 1) / 2).astype(int)
    labels = np.where(rng.random(count) < noise, 1 - labels, labels)
    return Rows(list(ids), labels.tolist())


def measure(seed: int) -> Table:
    """Return the loss on training texts and on new ones after more and more updates."""
    rng = np.random.default_rng(seed)
    train, test = draw(rng, TEXTS, NOISE), draw(rng, 1000, NOISE)
    model = build(WORDS, 2, embedder={"kind": "lookup", "width": 24}, head={"kind": "mlp"})
    scores: Table = {"training texts": {}, "new texts": {}}
    done = 0

    def loss(update: int) -> torch.Tensor:
        source, labels = train.batch(rng.integers(len(train), size=32))
        return label_loss(model(source), labels)

    for updates in UPDATES:
        minimise(model, loss, updates - done, learning_rate=5e-3)
        done = updates
        for name, rows in (("training texts", train), ("new texts", test)):
            source, labels = rows.batch(range(len(rows)))
            with torch.no_grad():
                value = float(label_loss(logits_of(model(source)), labels))
            scores[name][updates] = min(value, 9.0)
    return scores


def _holds(mean: Means) -> str:
    best = min(UPDATES, key=lambda n: mean("new texts", n))
    return (
        f"The loss on new texts is lowest after {best} updates ({mean('new texts', best):.2f}); "
        f"after 320 it is {mean('new texts', 320):.2f}, while that on the training texts has "
        f"fallen to {mean('training texts', 320):.2f}."
    )


def _fails(mean: Means) -> str:
    return (
        f"The loss on new texts is {mean('new texts', 20):.2f} after 20 updates and "
        f"{mean('new texts', 320):.2f} after 320: training on does no harm."
    )


EXPERIMENT = Experiment(
    claim="Stop when the validation loss stops falling: training on makes new texts worse.",
    decks=("003",),
    why="A quarter of the labels is wrong. The rule is learnt first; what is left to lower the "
    "training loss is to learn the wrong labels by heart.",
    data=f"{TEXTS} texts of 7 words, labelled by the majority of two kinds of words, one label in "
    "four wrong, also in the new texts; a network with one hidden layer.",
    measure=measure,
    conditions=(
        (at("new texts", 320) - at("new texts", 20)).above(0.2),
        at("training texts", 320).below(0.3),
    ),
    holds=_holds,
    fails=_fails,
    x="updates",
    y="cross-entropy",
    limits=(0, 9),
    log_x=True,
    seconds=1,
)
