"""A sum of log-probabilities falls with every word, so search prefers short texts."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.generation.wide_beams import LENGTH, draw, train
from weft.lab.training import write

PENALTIES = (0.0, 0.25, 0.5, 1.0)


def measure(seed: int) -> Table:
    """Return the length of the output relative to the right one, by the exponent of the length."""
    model = train(seed)
    sources, _ = draw(np.random.default_rng([seed, 3]), 60)
    lengths: dict[float | str, float] = {}
    for penalty in PENALTIES:
        found = write(
            model, sources, num_beams=8, max_length=12, length_normalisation="length",
            length_penalty=penalty,
        )  # fmt: skip
        lengths[penalty] = float(np.mean([len(row[0].ids) / LENGTH for row in found]))
    return {"beam of 8": lengths}


def _holds(mean: Means) -> str:
    return (
        f"Without normalisation the outputs have {mean('beam of 8', 0.0):.0%} of the right length; "
        f"divided by their length, {mean('beam of 8', 1.0):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"The outputs have {mean('beam of 8', 0.0):.0%} of the right length without normalisation "
        f"and {mean('beam of 8', 1.0):.0%} with it."
    )


EXPERIMENT = Experiment(
    claim="Beam search writes too little unless scores are divided by the length.",
    decks=("000",),
    why="Every word lowers the log-probability of a text, so a beam that compares sums prefers to "
    "stop. Dividing by the length compares averages.",
    data="The translator of “wide beams”: six words with three synonyms each, and 8 % of training "
    "pairs without a translation; a beam of 8.",
    measure=measure,
    conditions=(at("beam of 8", 0.0).below(0.8), at("beam of 8", 1.0).above(0.9)),
    holds=_holds,
    fails=_fails,
    x="exponent of the length",
    y="length of the output, relative to the right one",
    limits=(0, 2),
    seconds=7,
)
