"""An LSTM can add one to a cell at every step, so it can count; the others have no such cell."""

import numpy as np
import torch

from weft.decode.decoders.language_models import RecurrentLM
from weft.encode.rnn import Cell
from weft.lab.experiment import Experiment, Means, Table, at, mean_of
from weft.lab.training import language_model_loss, minimise

CELLS: dict[str, Cell] = {"Elman": "rnn", "GRU": "gru", "LSTM": "lstm"}
BOS, EOS, FIRST = 1, 2, 3  # the letters follow
TRAINED, UPDATES = 12, 500  # the longest run of a letter in training
LENGTHS = (6, 12, 14, 16, 18, 20, 24)
UNSEEN = (14, 16, 18, 20)


def write_word(n: int, letters: int) -> np.ndarray:
    """Return aⁿbⁿ or aⁿbⁿcⁿ and the end mark."""
    return np.append(np.repeat(np.arange(FIRST, FIRST + letters), n), EOS)


def train(cell: Cell, letters: int, seed: int) -> RecurrentLM:
    """Train a small language model on all lengths up to TRAINED."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    model = RecurrentLM(FIRST + letters, width=8, hidden=10, cell=cell)

    def loss(update: int) -> torch.Tensor:
        lengths = rng.integers(1, TRAINED + 1, 16)
        return language_model_loss(model, [write_word(n, letters) for n in lengths], BOS)

    minimise(model, loss, UPDATES, learning_rate=2e-2, decay=True)
    return model


@torch.no_grad()
def count_changes(model: RecurrentLM, n: int, letters: int) -> float:
    """Return the fraction of changes, of letter or to the end, predicted at the right step.

    Reading begins with the first b: how many letters a follow is anybody's guess. A change is right
    if it is predicted where it stands, and not one step before.
    """
    gold = torch.from_numpy(write_word(n, letters))
    state, chosen = model.start(1), []
    for ids in torch.cat([torch.tensor([BOS]), gold[:-1]]):
        logits, state = model.step(ids[None], state)
        chosen.append(int(logits.argmax()))
    ends = [n * k for k in range(2, letters + 1)]
    return float(np.mean([chosen[t] == gold[t] and chosen[t - 1] == gold[t - 1] for t in ends]))


def measure_letters(letters: int, seed: int) -> Table:
    """Return by length how many changes come at the right step."""
    scores: Table = {}
    for name, cell in CELLS.items():
        model = train(cell, letters, seed)
        scores[name] = {n: count_changes(model, n, letters) for n in LENGTHS}
    return scores


def measure(seed: int) -> Table:
    """Return by length whether the end of aⁿbⁿ comes at the right step."""
    return measure_letters(2, seed)


def mean_unseen(mean: Means, name: str) -> float:
    """Return the average over lengths that training has not shown."""
    return sum(mean(name, n) for n in UNSEEN) / len(UNSEEN)


def _holds(mean: Means) -> str:
    return (
        f"After words of up to {TRAINED} a and {TRAINED} b, the LSTM ends words of 14 to 20 at the "
        f"right step in {mean_unseen(mean, 'LSTM'):.0%} of cases, the GRU in "
        f"{mean_unseen(mean, 'GRU'):.0%} and the Elman network in "
        f"{mean_unseen(mean, 'Elman'):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Words of 14 to 20, longer than in training, end at the right step in "
        f"{mean_unseen(mean, 'LSTM'):.0%} of cases with the LSTM, {mean_unseen(mean, 'GRU'):.0%} "
        f"with the GRU and {mean_unseen(mean, 'Elman'):.0%} with the Elman network."
    )


RIGHT = {name: mean_of(*(at(name, n) for n in UNSEEN)) for name in CELLS}
EXPERIMENT = Experiment(
    claim="An LSTM counts aⁿbⁿ beyond what it was trained on; GRU and Elman networks drift.",
    decks=("001",),
    why="“A GRU accepts regular languages, an LSTM can simulate a counter machine”: only the cell "
    "of an LSTM can grow by one at every step; all other states stay between −1 and 1.",
    data=f"Words aⁿbⁿ with n up to {TRAINED}, read letter by letter; tested is whether the end is "
    f"predicted at the right step of words up to n = 24. 10 units, {UPDATES} updates.",
    measure=measure,
    conditions=(
        (RIGHT["LSTM"] - RIGHT["GRU"]).above(0.2),
        (RIGHT["LSTM"] - RIGHT["Elman"]).above(0.2),
    ),
    holds=_holds,
    fails=_fails,
    x="n in aⁿbⁿ (trained up to 12)",
    y="end at the right step",
    limits=(0, 1),
    seeds=12,
    seconds=3,
)
