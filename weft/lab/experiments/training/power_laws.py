"""Loss against parameters, data and updates: straight lines in a plot of logarithms."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from weft.decode.decoders.language_models import RecurrentLM
from weft.lab.experiment import Condition, Experiment, Means, Table, at
from weft.lab.power_law import fit_power_law
from weft.lab.training import language_model_loss, minimise

WORDS, BOS, LENGTH = 66, 1, 20  # ids of words are 2 to 65
TIMES = (1, 2, 4, 8, 16)  # as much as the smallest
WIDTHS, SENTENCES, UPDATES = 2, 25, 16  # the smallest of each
UNLIMITED = 300  # updates on fresh sentences
STOPS = (40, 80, 160)  # updates on few sentences, of which the best is taken
WIDE = 48
PARAMETERS, DATA, COMPUTE = "units", "sentences", "updates"
TOLERANCE = 0.5  # of the excess loss that is predicted


class Language:
    """Random sentences in which each word depends on the one before, and their true entropy."""

    def __init__(self, rng: np.random.Generator):
        count = WORDS - 2
        self.rng = rng
        self.follow = rng.dirichlet(np.full(count, 0.15), count)  # (word, next word)
        self.edges = self.follow.cumsum(1)

    def draw(self, count: int) -> np.ndarray:
        """Draw sentences (B, T)."""
        words = [self.rng.integers(WORDS - 2, size=count)]
        while len(words) < LENGTH:
            luck = self.rng.random((count, 1)) * self.edges[words[-1], -1:]
            words.append((self.edges[words[-1]] < luck).sum(1))
        return 2 + np.stack(words, 1)

    def nats(self, rows: np.ndarray) -> float:
        """Return the loss per word of a reader who knows the language."""
        known = -np.log(self.follow[rows[:, :-1] - 2, rows[:, 1:] - 2]).sum(1)
        return float((known + np.log(WORDS - 2)).mean() / LENGTH)


def count_parameters(width: int) -> int:
    """Return how many weights the language model of this width has."""
    model = RecurrentLM(WORDS, width=width, hidden=width, cell="gru")
    return sum(weight.numel() for weight in model.parameters())


def train(
    width: int, draw: Callable[[], np.ndarray], test: np.ndarray, stops: tuple[int, ...]
) -> dict[int, float]:
    """Train a language model; return its loss on the test sentences after so many updates."""
    model = RecurrentLM(WORDS, width=width, hidden=width, cell="gru")
    losses, done = dict[int, float](), 0

    def loss(update: int) -> Tensor:
        return language_model_loss(model, list(draw()), BOS)

    for stop in stops:
        minimise(model, loss, stop - done, learning_rate=1e-2)
        done = stop
        with torch.no_grad():
            losses[stop] = float(language_model_loss(model, list(test), BOS))
    return losses


def measure(seed: int) -> Table:
    """Return the loss above the entropy of the language, in bits, by what grows."""
    language = Language(np.random.default_rng(seed))
    test = language.draw(300)
    floor = language.nats(test)
    curve = train(WIDE, lambda: language.draw(32), test, tuple(UPDATES * n for n in TIMES))
    losses = {PARAMETERS: dict[int, float](), DATA: {}, COMPUTE: {}}
    for n in TIMES:
        losses[COMPUTE][n] = curve[UPDATES * n]
        last = train(WIDTHS * n, lambda: language.draw(32), test, (UNLIMITED,))
        losses[PARAMETERS][n] = last[UNLIMITED]
        few = language.draw(SENTENCES * n)

        def draw(few: np.ndarray = few) -> np.ndarray:
            return language.rng.permutation(few)[:32]

        stops = train(WIDE, draw, test, STOPS)
        losses[DATA][n] = min(stops.values())  # stopped in time
    scores: Table = {}
    for name, values in losses.items():
        bits = {n: max(value - floor, 1e-3) / float(np.log(2)) for n, value in values.items()}
        # Twice the units are more than twice the parameters.
        sizes = [count_parameters(WIDTHS * n) if name == PARAMETERS else n for n in TIMES]
        law = fit_power_law(sizes[:-1], [bits[n] for n in TIMES[:-1]])
        scores[name] = {n: bits[n] for n in TIMES}
        scores[f"{name}, predicted"] = {TIMES[-1]: law.at(sizes[-1])}
    return scores


def _describe(mean: Means) -> str:
    last = TIMES[-1]
    parts = [
        f"{mean(name, 1):.2f} to {mean(name, last):.2f} bits with {last} times the {name} "
        f"(predicted {mean(f'{name}, predicted', last):.2f})"
        for name in (PARAMETERS, DATA, COMPUTE)
    ]
    return "; ".join(parts)


def _holds(mean: Means) -> str:
    return (
        f"What the loss has above its lowest possible value falls from {_describe(mean)}: the line "
        "through the smaller sizes says about what the largest will do."
    )


def _fails(mean: Means) -> str:
    return (
        f"What the loss has above its lowest possible value falls from {_describe(mean)}: it "
        "falls, but not along straight lines."
    )


def _conditions(name: str) -> tuple[Condition, ...]:
    last = TIMES[-1]
    found, predicted = at(name, last), at(f"{name}, predicted", last)
    return (
        (at(name, 1) - found).above(0.2),
        (predicted - (1 - TOLERANCE) * found).above(0.0),
        (predicted - (1 + TOLERANCE) * found).below(0.0),
    )


EXPERIMENT = Experiment(
    claim="The loss falls as a power law of the parameters, of the data and of the updates.",
    decks=("003",),
    why="“The larger the number of parameters in the model, the better it will generalise.” If the "
    "gain follows a power law, small models tell what a large one will reach.",
    data="Recurrent language models of sentences whose words each depend on the one before, so "
    "that the lowest possible loss is known: 2 to 32 units, 25 to 400 sentences, 16 to 256 "
    f"updates. The largest has to lie within {TOLERANCE:.0%} of the line through the four "
    "smaller ones.",
    measure=measure,
    conditions=tuple(c for name in (PARAMETERS, DATA, COMPUTE) for c in _conditions(name)),
    holds=_holds,
    fails=_fails,
    x="times as much as the smallest",
    y="loss above the lowest (bits)",
    limits=(0, 6),
    log_x=True,
    log_y=True,
    seeds=8,
    seconds=10,
)
