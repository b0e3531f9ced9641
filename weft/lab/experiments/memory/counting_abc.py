"""Counting twice: the cells of an LSTM hold more than one counter."""

from weft.lab.experiment import Experiment, Means, Table
from weft.lab.experiments.memory.counting_ab import RIGHT, TRAINED, mean_unseen, measure_letters


def measure(seed: int) -> Table:
    """Return by length how many changes of aⁿbⁿcⁿ come at the right step."""
    return measure_letters(3, seed)


def _holds(mean: Means) -> str:
    return (
        f"In words longer than in training, the LSTM goes from b to c and from c to the end at the "
        f"right step in {mean_unseen(mean, 'LSTM'):.0%} of cases, the GRU in "
        f"{mean_unseen(mean, 'GRU'):.0%} and the Elman network in "
        f"{mean_unseen(mean, 'Elman'):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"In words longer than in training, changes come at the right step in "
        f"{mean_unseen(mean, 'LSTM'):.0%} of cases with the LSTM, {mean_unseen(mean, 'GRU'):.0%} "
        f"with the GRU and {mean_unseen(mean, 'Elman'):.0%} with the Elman network."
    )


EXPERIMENT = Experiment(
    claim="An LSTM counts even aⁿbⁿcⁿ, which no stack can; GRU and Elman networks drift.",
    decks=("001",),
    why="aⁿbⁿcⁿ takes two counters, one for the b and one for the c; an LSTM has a cell for each.",
    data=f"Words aⁿbⁿcⁿ with n up to {TRAINED}, read letter by letter; tested is whether both "
    "changes after the b's began are predicted at the right step, for n up to 24.",
    measure=measure,
    conditions=(
        (RIGHT["LSTM"] - RIGHT["GRU"]).above(0.2),
        (RIGHT["LSTM"] - RIGHT["Elman"]).above(0.2),
    ),
    holds=_holds,
    fails=_fails,
    x="n in aⁿbⁿcⁿ (trained up to 12)",
    y="changes at the right step",
    limits=(0, 1),
    seeds=12,
    seconds=3,
)
