"""Trained on right beginnings only, a model meets its own mistakes for the first time at work."""

import numpy as np
import torch

from weft.batch import Padded
from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.losses import shift_right
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import language_model_loss, minimise

KINDS, BOS, LENGTH = 20, 1, 24  # words are 2 to 21
GIVEN = 6  # words that it is given, and after which it goes on alone
POSITIONS = (3, 6, 9, 12, 18, 24)
GOLD, OWN = "after the right words", "after its own words"


def draw(rng: np.random.Generator, count: int, follower: np.ndarray) -> np.ndarray:
    """Draw sentences whose every word follows from the two before, by a table."""
    words = [*rng.integers(KINDS, size=(2, count))]
    while len(words) < LENGTH:
        words.append(follower[words[-1], words[-2]])
    return 2 + np.stack(words, axis=1)


@torch.no_grad()
def predict(model: RecurrentLM, rows: np.ndarray, own: bool) -> np.ndarray:
    """Return the predicted words (B, T); after GIVEN of them, they can be read after its own."""
    inputs = shift_right(Padded.from_rows(list(rows)), BOS).data
    state, predicted = model.start(len(rows)), list[torch.Tensor]()
    for t in range(LENGTH):
        ids = predicted[-1] if own and t > GIVEN else inputs[:, t]
        logits, state = model.step(ids, state)
        predicted.append(logits.argmax(1))
    return torch.stack(predicted, 1).numpy()


def measure(seed: int) -> Table:
    """Return the accuracy by position, after the right words and after its own."""
    rng = np.random.default_rng(seed)
    # Permutations, so that all pairs of words stay equally frequent however long the sentence.
    follower = np.stack([rng.permutation(KINDS) for _ in range(KINDS)])
    model = RecurrentLM(2 + KINDS, width=16, hidden=20, cell="gru")
    minimise(
        model, lambda update: language_model_loss(model, list(draw(rng, 32, follower)), BOS), 300,
        learning_rate=1e-2, decay=True,
    )  # fmt: skip
    rows = draw(rng, 500, follower)
    scores: Table = {}
    for name, own in ((GOLD, False), (OWN, True)):
        right = (predict(model, rows, own) == rows).mean(0)
        scores[name] = {position: float(right[position - 1]) for position in POSITIONS}
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Given the right words before, word {LENGTH} is right in {mean(GOLD, LENGTH):.0%} of "
        f"cases, as in training; given its own words, in {mean(OWN, LENGTH):.0%}, because one "
        "mistake leads to the next."
    )


def _fails(mean: Means) -> str:
    return (
        f"Word {LENGTH} is right in {mean(GOLD, LENGTH):.0%} of cases after the right words and in "
        f"{mean(OWN, LENGTH):.0%} after the model's own."
    )


EXPERIMENT = Experiment(
    claim="Teacher forcing hides errors that add up when the model reads its own words.",
    decks=("000",),
    why="In training every word is predicted after the right ones. At run time a mistake becomes "
    "part of the input, where none was ever seen.",
    data="Sentences of 24 words, each of which follows from the two before by a table that the "
    "model has to learn; it is given six words and goes on alone, or is corrected after every "
    "word. 300 updates of 32 sentences.",
    measure=measure,
    conditions=(
        (at(GOLD, LENGTH) - at(OWN, LENGTH)).above(0.1),
        ((at(GOLD, LENGTH) - at(OWN, LENGTH)) - (at(GOLD, 9) - at(OWN, 9))).above(0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="position of the word",
    y="words right",
    limits=(0, 1),
    seconds=1.5,
)
