"""Greedy search never begins with a less likely word, even if the best sentence does."""

import numpy as np

from weft.decode.decoders.language_models import RecurrentLM
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import language_model_loss, minimise

WIDTHS = (1, 2, 4, 8)
WORDS, BOS, EOS, LENGTH, BRANCHES = 30, 1, 2, 6, 4


def draw(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Draw sentences: 60 % begin with a word after which anything follows, 40 % are one idiom."""
    rows = []
    for _ in range(count):
        if rng.random() < 0.6:
            rest = 4 + rng.integers(BRANCHES, size=LENGTH - 1)
            rows.append(np.array([3, *rest, EOS]))
        else:
            rows.append(np.array([*range(20, 20 + LENGTH), EOS]))
    return rows


def measure(seed: int) -> Table:
    """Return the log-probability of the best sentence found, by the width of the beam."""
    rng = np.random.default_rng(seed)
    model = RecurrentLM(WORDS, width=16, hidden=32, cell="gru")
    minimise(
        model,
        lambda update: language_model_loss(model, draw(rng, 32), BOS),
        150,
        learning_rate=1e-2,
    )
    scores: dict[float | str, float] = {}
    for width in WIDTHS:
        settings = SearchSettings(
            method="beam", num_beams=width, max_length=LENGTH + 2, length_normalisation="none"
        )
        (found,) = search(model.step, model.start(1), settings, batch=1, bos=BOS, eos=EOS)
        scores[width] = sum(found[0].logps)
    return {"best sentence": scores}


def _holds(mean: Means) -> str:
    greedy, beam = (np.exp(mean("best sentence", width)) for width in (1, 4))
    return (
        f"Greedy search ends with a sentence of probability {greedy:.1%}; a beam of four finds one "
        f"of {beam:.0%}, which begins with a word that greedy search never takes."
    )


def _fails(mean: Means) -> str:
    greedy, beam = (np.exp(mean("best sentence", width)) for width in (1, 4))
    return f"Greedy search finds a sentence of probability {greedy:.1%}, a beam of four {beam:.1%}."


EXPERIMENT = Experiment(
    claim="Beam search finds more probable sentences than greedy search.",
    decks=("000",),
    why="“Greedy search will never begin a sentence with a low-probability word”, and it prefers "
    "many common words to a rare one. A beam keeps several beginnings open.",
    data="A language model of generated sentences: 60 % begin with a word after which four words "
    "are equally likely each time, 40 % are one fixed idiom.",
    measure=measure,
    conditions=((at("best sentence", 4) - at("best sentence", 1)).above(2.0),),
    holds=_holds,
    fails=_fails,
    x="width of the beam",
    y="log-probability of the sentence found",
    limits=(-20, 0),
    seeds=16,
    seconds=0.3,
)
