"""Sharper sampling writes better sentences, and the same ones."""

import numpy as np

from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import language_model_loss, minimise

STATES, CHOICES, BOS, EOS, LENGTH = 8, 4, 1, 2, 8
WORDS = 3 + STATES * CHOICES
SAMPLES = 300
SETTINGS = {
    "temperature 0.5": {"temperature": 0.5},
    "temperature 1": {},
    "temperature 1.5": {"temperature": 1.5},
    "top-k 4": {"top_k": 4},
    "top-p 0.9": {"top_p": 0.9},
}


def draw(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw sentences of a grammar: the word decides the next state, the state four next words."""
    frequency = np.array([0.5, 0.3, 0.15, 0.05])
    choices = rng.choice(CHOICES, (count, LENGTH), p=frequency)
    rows = np.zeros((count, LENGTH + 1), dtype=np.int64)
    state = np.zeros(count, dtype=np.int64)
    for t in range(LENGTH):
        rows[:, t] = 3 + state * CHOICES + choices[:, t]
        state = (2 * state + choices[:, t] + 1) % STATES
    rows[:, LENGTH] = EOS
    return rows


def is_grammatical(ids: list[int]) -> bool:
    """Return True if the grammar can produce a sentence."""
    state = 0
    for word in ids:
        found, choice = divmod(word - 3, CHOICES)
        if found != state:
            return False
        state = (2 * state + choice + 1) % STATES
    return len(ids) == LENGTH


def measure(seed: int) -> Table:
    """Return quality and diversity of samples by the way of sampling."""
    rng = np.random.default_rng(seed)
    model = RecurrentLM(WORDS, width=16, hidden=32, cell="gru")
    minimise(
        model, lambda update: language_model_loss(model, list(draw(rng, 32)), BOS), 250,
        learning_rate=1e-2,
    )  # fmt: skip
    scores: Table = {"grammatical": {}, "different from each other": {}}
    for name, options in SETTINGS.items():
        settings = SearchSettings(
            method="sample", num_samples=SAMPLES, max_length=LENGTH + 4, seed=seed, **options
        )  # type: ignore[arg-type]
        (found,) = search(model.step, model.start(1), settings, batch=1, bos=BOS, eos=EOS)
        texts = [tuple(hypothesis.ids) for hypothesis in found]
        good = [text for text in texts if is_grammatical(list(text))]
        scores["grammatical"][name] = len(good) / SAMPLES
        scores["different from each other"][name] = len(set(texts)) / SAMPLES
    return scores


def _holds(mean: Means) -> str:
    low, high = "temperature 0.5", "temperature 1.5"
    good, other = "grammatical", "different from each other"
    return (
        f"From temperature 1.5 down to 0.5, grammatical sentences rise from {mean(good, high):.0%} "
        f"to {mean(good, low):.0%}, and different ones fall from {mean(other, high):.0%} to "
        f"{mean(other, low):.0%}; top-p 0.9 lies between, with {mean(good, 'top-p 0.9'):.0%} and "
        f"{mean(other, 'top-p 0.9'):.0%}."
    )


def _fails(mean: Means) -> str:
    low, high = "temperature 0.5", "temperature 1.5"
    return (
        f"Grammatical at temperature 0.5 and 1.5: {mean('grammatical', low):.0%} and "
        f"{mean('grammatical', high):.0%}; different sentences: "
        f"{mean('different from each other', low):.0%} and "
        f"{mean('different from each other', high):.0%}."
    )


EXPERIMENT = Experiment(
    claim="A lower temperature, top-k and top-p trade diversity for quality.",
    decks=("000",),
    why="They move probability from the many unlikely words, which are mostly mistakes, to the few "
    "likely ones; the likely ones are also always the same.",
    data="A language model of a generated grammar with 65,536 sentences; 300 samples each. Quality "
    "is the fraction that the grammar allows, diversity the fraction of different sentences.",
    measure=measure,
    conditions=(
        (at("grammatical", "temperature 0.5") - at("grammatical", "temperature 1.5")).above(0.2),
        (
            at("different from each other", "temperature 1.5")
            - at("different from each other", "temperature 0.5")
        ).above(0.2),
        (at("grammatical", "top-p 0.9") - at("grammatical", "temperature 1")).above(0.0),
        (at("grammatical", "top-k 4") - at("grammatical", "temperature 1")).above(0.0),
    ),
    holds=_holds,
    fails=_fails,
    x="way of sampling",
    y="fraction of samples",
    limits=(0, 1),
    seconds=4,
)
