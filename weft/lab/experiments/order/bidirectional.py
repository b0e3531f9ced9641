"""A tag that depends on a later word is out of reach for a network that reads forward only."""

import numpy as np

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.training import Rows, accuracy, build, fit_rows, tagging

NOUNS, UNITS, FILLERS = 6, 4, 12  # “the length is 6 hours” and “… 6 metres”
AMBIGUOUS, LENGTH = 1, 10  # the word that is a time or a distance
SIDES = ("the word before", "a word after")


def draw(rng: np.random.Generator, count: int, ahead: bool) -> Rows:
    """Draw sentences in which a word just before, or some words after, gives the tag of one."""
    ids = rng.integers(2 + UNITS, 2 + UNITS + FILLERS, (count, LENGTH))
    labels = np.full((count, LENGTH), -1)
    place = rng.integers(3, LENGTH - 3, size=count)
    unit = rng.integers(UNITS, size=count)
    rows = np.arange(count)
    ids[rows, place] = AMBIGUOUS
    cue = place + rng.integers(1, 3, size=count) if ahead else place - rng.integers(1, 3, count)
    ids[rows, cue] = 2 + unit
    labels[rows, place] = unit % 2
    return Rows(list(ids), list(labels))


def measure(seed: int) -> Table:
    """Return the accuracy on the ambiguous word, by the side where the cue stands."""
    scores: Table = {"one direction": {}, "both directions": {}}
    for side in SIDES:
        rng = np.random.default_rng([seed, len(side)])
        ahead = side == "a word after"
        train, test = draw(rng, 1200, ahead), draw(rng, 800, ahead)
        for name in scores:
            both = name == "both directions"
            # As many weights either way: two directions of 16, or one of 32.
            encoder = {
                "kind": "rnn", "cell": "lstm", "hidden": 16 if both else 32, "bidirectional": both
            }  # fmt: skip
            model = build(2 + UNITS + FILLERS, encoder=encoder, **tagging(2))
            fit_rows(model, train, seed, 200, learning_rate=1e-2)
            scores[name][side] = accuracy(model, test)
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Where a later word decides, reading forward is right in "
        f"{mean('one direction', SIDES[1]):.0%} of cases, as good as a coin, and reading both ways "
        f"in {mean('both directions', SIDES[1]):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"Reading both ways is right in {mean('both directions', SIDES[1]):.0%} of the cases where "
        f"a later word decides, reading forward in {mean('one direction', SIDES[1]):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Reading in both directions helps to tag words.",
    decks=("000", "001"),
    why="“The length is 6 hours” and “the length is 6 metres” differ after the word in question; a "
    "state that has read only what came before cannot know.",
    data="Sentences of 10 words with one ambiguous word; the word that decides its tag stands one "
    "or two words before it, or one or two after. 1,200 sentences.",
    measure=measure,
    conditions=(
        (at("both directions", SIDES[1]) - at("one direction", SIDES[1])).above(0.2),
        at("both directions", SIDES[0]).above(0.9),
    ),
    holds=_holds,
    fails=_fails,
    x="the cue is",
    y="accuracy on the ambiguous word",
    limits=(0, 1),
    seconds=6,
)
