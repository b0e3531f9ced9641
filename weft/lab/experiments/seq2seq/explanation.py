"""Behind a recurrent encoder, the state that gets the attention is not the word."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows

WORDS, LENGTH, LABELS = 40, 15, 4
ENCODERS = {
    "words themselves": {"kind": "none"},
    "LSTM in both directions": {"kind": "rnn", "cell": "lstm", "hidden": 24},
}
WORDS_ALONE, LSTM = ENCODERS


def draw(rng: np.random.Generator, count: int) -> tuple[Rows, np.ndarray]:
    """Draw texts in which one word decides, and return where it stands."""
    ids = rng.integers(1 + LABELS, WORDS, (count, LENGTH))
    labels, places = rng.integers(LABELS, size=count), rng.integers(LENGTH, size=count)
    ids[range(count), places] = 1 + labels
    return Rows(list(ids), labels.tolist()), places


def measure(seed: int) -> Table:
    """Return the accuracy, and how often the decisive word has the greatest weight."""
    rng = np.random.default_rng(seed)
    train, _ = draw(rng, 2000)
    test, places = draw(rng, 500)
    scores: Table = {"answers right": {}, "most attention on the decisive word": {}}
    for name, encoder in ENCODERS.items():
        model = build(WORDS, LABELS, encoder=encoder, pool={"kind": "attention"})
        fit_rows(model, train, seed, 300, learning_rate=5e-3)
        with torch.no_grad():
            weights = model.run(test.batch(range(len(test)))[0]).weights  # (B, T)
        assert weights is not None
        hits = weights.argmax(1).numpy() == places
        scores["answers right"][name] = accuracy(model, test)
        scores["most attention on the decisive word"][name] = float(hits.mean())
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Over word vectors, the word with the most attention decides in "
        f"{mean('most attention on the decisive word', WORDS_ALONE):.0%} of texts. Behind an LSTM "
        f"only in {mean('most attention on the decisive word', LSTM):.0%}, though its answers are "
        "as good: other states know of the word, too."
    )


def _fails(mean: Means) -> str:
    return (
        f"The word with the most attention is the one that decides in "
        f"{mean('most attention on the decisive word', WORDS_ALONE):.0%} of texts over word "
        f"vectors, and in {mean('most attention on the decisive word', LSTM):.0%} behind an LSTM."
    )


EXPERIMENT = Experiment(
    claim="Attention weights do not explain an answer once a recurrent network stands before them.",
    decks=("000",),
    why="The lecture asks of attention pictures: “interpretable?!” The states of an LSTM mix a "
    "word with its neighbours, so attention may read the answer off any state nearby.",
    data="Random texts of 15 words of which one decides the label; the same attention over word "
    "vectors and over the states of an LSTM, 2,000 texts.",
    measure=measure,
    conditions=(
        at("most attention on the decisive word", WORDS_ALONE).above(0.9),
        at("most attention on the decisive word", LSTM).below(0.7),
        at("answers right", LSTM).above(0.9),
    ),
    holds=_holds,
    fails=_fails,
    x="attention reads",
    y="fraction of texts",
    limits=(0, 1),
    seconds=5,
)
