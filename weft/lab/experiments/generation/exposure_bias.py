"""Trained on right beginnings only, a model meets its own mistakes for the first time at work."""

import numpy as np
import torch

from weft.batch import Padded
from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.losses import shift_right
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import language_model_loss, minimise

WORDS, BOS, LENGTH = 13, 1, 24  # words from 2 on; a series adds the same number each time
POSITIONS = (3, 6, 12, 18, 24)
GOLD, OWN = "after the right words", "after its own words"


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw arithmetic series, modulo the number of words."""
    start, step = rng.integers(11, size=(2, count, 1))
    return 2 + (start + step * np.arange(LENGTH)) % 11


@torch.no_grad()
def predict(model: RecurrentLM, rows: np.ndarray, own: bool) -> np.ndarray:
    """Return the predicted words (B, T); from the third on, they can be read after its own."""
    inputs = shift_right(Padded.from_rows(list(rows)), BOS).data
    state, predicted = model.start(len(rows)), list[torch.Tensor]()
    for t in range(LENGTH):
        ids = predicted[-1] if own and t > 2 else inputs[:, t]
        logits, state = model.step(ids, state)
        predicted.append(logits.argmax(1))
    return torch.stack(predicted, 1).numpy()


def measure(seed: int) -> Table:
    """Return the accuracy by position, after the right words and after its own."""
    rng = np.random.default_rng(seed)
    model = RecurrentLM(WORDS, width=16, hidden=48, cell="gru")
    minimise(
        model, lambda update: language_model_loss(model, list(draw(rng, 32)), BOS), 250,
        learning_rate=5e-3,
    )  # fmt: skip
    rows = draw(rng, 500)
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
    data="Series that add the same number each time (modulo 11); the model sees two words and goes "
    "on alone, or is corrected after every word. 250 updates.",
    measure=measure,
    conditions=(
        (at(GOLD, LENGTH) - at(OWN, LENGTH)).above(0.1),
        ((at(GOLD, LENGTH) - at(OWN, LENGTH)) - (at(GOLD, 6) - at(OWN, 6))).above(0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="position of the word",
    y="words right",
    limits=(0, 1),
    seconds=4,
)
