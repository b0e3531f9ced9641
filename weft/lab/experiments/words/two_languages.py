"""Two vector spaces learnt from different languages differ by a rotation."""

import numpy as np

from weft.lab.corpora import learn_vectors
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.words.analogies import FORMS, THINGS, draw_pairs
from weft.vectors.align import Space, align
from weft.vectors.store import Vectors

DICTIONARY = 24  # words with a known translation; the others are to be translated


def find_translations(source: Vectors, target: Vectors, pairs: list[tuple[str, str]]) -> float:
    """Return the fraction of words whose nearest word in the other language is their own."""
    space = Space(source, target, align(source, target, pairs[:DICTIONARY]))
    held_out = pairs[DICTIONARY:]
    best = space.translate([word for word, _ in held_out], 1, csls=False)
    right = sum(row[0][0] == pair[1] for row, pair in zip(best, held_out, strict=True))
    return right / len(held_out)


def measure(seed: int) -> Table:
    """Return the precision of translation, with a right dictionary and with a shuffled one."""
    rng = np.random.default_rng(seed)
    spaces = [
        learn_vectors(draw_pairs(rng, 6000), "skipgram", seed + side, sample=0.0, epochs=4)
        for side in (0, 100)
    ]
    names = [f"x{thing}{form}" for thing in range(THINGS) for form in "abc"[:FORMS]]
    names = [str(name) for name in rng.permutation(names)]
    shuffled = [str(name) for name in rng.permutation(names[:DICTIONARY])]
    right = list(zip(names, names, strict=True))
    wrong = list(zip(names, shuffled + names[DICTIONARY:], strict=True))
    return {
        "words translated": {
            "right dictionary": find_translations(spaces[0], spaces[1], right),
            "shuffled dictionary": find_translations(spaces[0], spaces[1], wrong),
        }
    }


def _holds(mean: Means) -> str:
    return (
        f"After a rotation fitted on {DICTIONARY} known pairs, "
        f"{mean('words translated', 'right dictionary'):.0%} of the other words lie nearest to "
        f"their translation; with the same pairs shuffled "
        f"{mean('words translated', 'shuffled dictionary'):.0%} do."
    )


def _fails(mean: Means) -> str:
    return (
        f"A rotation translates {mean('words translated', 'right dictionary'):.0%} of the words, "
        f"and one from a shuffled dictionary "
        f"{mean('words translated', 'shuffled dictionary'):.0%}."
    )


EXPERIMENT = Experiment(
    claim="A rotation maps the word vectors of one language onto those of another.",
    decks=("001",),
    why="Words are arranged by the company they keep, and things keep the same company in every "
    "language; only the axes, which training chooses at random, differ.",
    data="Two corpora of 6,000 sentences drawn from the same world of 48 words, trained apart. A "
    f"dictionary of {DICTIONARY} words; the other words are to be translated.",
    measure=measure,
    conditions=(
        at("words translated", "right dictionary").above(0.5),
        at("words translated", "shuffled dictionary").below(0.2),
    ),
    holds=_holds,
    fails=_fails,
    x="dictionary that the rotation was fitted on",
    y="words translated right",
    limits=(0, 1),
    seconds=7,
)
