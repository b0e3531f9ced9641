"""A word whose meaning comes later needs a model that reads both sides."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.pretraining.bank import BANK, LENGTH, TOPICS, draw, draw_banks
from weft.lab.pretraining import Objective, fine_tune, network, pretrain
from weft.lab.training import Rows, accuracy, build, fit_rows, tagging

OBJECTIVES: dict[str, Objective] = {"left to right": "left-to-right", "masked": "masked"}
LABELS = 12
PLACES = {"end of the sentence": LENGTH - 1, "beginning": 0}
END, BEGINNING = PLACES


def draw_senses(rng: np.random.Generator, count: int, place: int) -> Rows:
    """Draw sentences with “bank” in one place, which is labelled with its sense."""
    ids = np.concatenate([draw_banks(rng, topic, count // 2) for topic in (0, 1)])
    ids[:, [place, LENGTH // 2]] = ids[:, [LENGTH // 2, place]]
    labels = np.full(ids.shape, -1)
    labels[:, place] = np.repeat([0, 1], count // 2)
    return Rows(list(ids), list(labels))


def measure(seed: int) -> Table:
    """Return the accuracy on the sense of “bank” by where it stands, for each objective."""
    assert TOPICS > 2
    scores: Table = {}
    for name, objective in OBJECTIVES.items():
        base = pretrain(objective, BANK + 1, draw, seed, 300)
        scores[name] = {}
        for kind, place in PLACES.items():
            rng = np.random.default_rng([seed, place])
            train, test = draw_senses(rng, LABELS, place), draw_senses(rng, 300, place)
            torch.manual_seed(seed)
            model = build(BANK + 1, **network(objective), **tagging(2))
            fine_tune(base, model)
            fit_rows(model, train, seed, 40, 12, learning_rate=1e-3)
            scores[name][kind] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"From {LABELS} labels, the sense of a word at the beginning is right in "
        f"{mean('masked', BEGINNING):.0%} of cases after masked pre-training and in "
        f"{mean('left to right', BEGINNING):.0%} after left-to-right; at the end, in "
        f"{mean('masked', END):.0%} and {mean('left to right', END):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"At the beginning of a sentence, masked pre-training is right in "
        f"{mean('masked', BEGINNING):.0%} of cases, left-to-right in "
        f"{mean('left to right', BEGINNING):.0%}."
    )


EXPERIMENT = Experiment(
    claim="With few labels, masked pre-training beats left-to-right pre-training where the context "
    "comes later.",
    decks=("000", "001"),
    why="“We already know all the words”, but a left-to-right model may not look at those after. "
    "At the beginning of a sentence that leaves it with next to nothing.",
    data=f"“Bank” in sentences about money or rivers, {LABELS} of them labelled with the sense; it "
    "stands first or last of 8 words. 300 updates of pre-training without labels.",
    measure=measure,
    conditions=(
        (at("masked", BEGINNING) - at("left to right", BEGINNING)).above(0.1),
        (at("left to right", END) - at("masked", END)).above(-0.1),
    ),
    holds=_holds,
    fails=_fails,
    x="place of the word",
    y="senses right",
    limits=(0, 1),
    seconds=4,
)
