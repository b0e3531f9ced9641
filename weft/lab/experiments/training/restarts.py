"""Fine-tuning collapses now and then; of several tries the development texts choose a good one."""

import numpy as np
import torch

from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.experiments.pretraining.few_labels import TOPICS, VOCABULARY, draw, draw_labelled
from weft.lab.pretraining import fine_tune, network, pretrain
from weft.lab.training import Rows, accuracy, build, fit_rows

TRIES, LABELS, RATE, UPDATES = 8, 64, 2e-2, 60
CHOSEN, TYPICAL = "chosen on development texts", "average try"
COUNTS = (1, 2, 4, 8)


def measure(seed: int) -> Table:
    """Return the test accuracy of the try that is best on development texts, by their number."""
    base = pretrain("masked", VOCABULARY, draw, seed, 600)
    rng = np.random.default_rng([seed, 1])
    train, dev, test = (
        Rows(list(ids), topics.tolist())
        for ids, topics in (draw_labelled(rng, count) for count in (LABELS, 200, 400))
    )
    found = []  # accuracy on development and test texts of every try
    for restart in range(TRIES):
        torch.manual_seed(TRIES * seed + restart)
        model = build(VOCABULARY, TOPICS, **network("masked"))
        fine_tune(base, model)
        fit_rows(model, train, TRIES * seed + restart, UPDATES, 16, learning_rate=RATE)
        found.append((accuracy(model, dev), accuracy(model, test)))
    scores: Table = {CHOSEN: {}, TYPICAL: {}}
    for count in COUNTS:
        groups = [found[start : start + count] for start in range(0, TRIES, count)]
        scores[CHOSEN][count] = float(np.mean([max(group)[1] for group in groups]))
        scores[TYPICAL][count] = float(np.mean([score for _, score in found]))
    scores["worst try"] = {TRIES: min(score for _, score in found)}
    return scores


def _holds(mean: Means) -> str:
    return (
        f"Of {TRIES} tries that differ only in chance, the worst gets "
        f"{mean('worst try', TRIES):.0%} of new texts right and the average one "
        f"{mean(TYPICAL, TRIES):.0%}; the one that is best on the development texts gets "
        f"{mean(CHOSEN, TRIES):.0%}."
    )


def _fails(mean: Means) -> str:
    return (
        f"The average of {TRIES} tries gets {mean(TYPICAL, TRIES):.0%} of new texts right, the one "
        f"that is best on the development texts {mean(CHOSEN, TRIES):.0%}."
    )


EXPERIMENT = Experiment(
    claim="Fine-tuning at a high rate sometimes collapses, and restarts make up for it.",
    decks=("000",),
    why="“BERT-Large requires random restarts to work”: the new head and the order of the texts "
    "are random, and a few large steps at the start can ruin what pre-training has learnt.",
    data=f"A masked language model of two layers, fine-tuned on {LABELS} sentences about one of "
    f"eight topics, {TRIES} times, {UPDATES} updates at a rate of {RATE:g}; 200 development texts "
    "choose one.",
    measure=measure,
    conditions=(
        (at(CHOSEN, TRIES) - at(TYPICAL, TRIES)).above(0.0),
        (at(CHOSEN, TRIES) - at("worst try", TRIES)).above(0.05),
    ),
    holds=_holds,
    fails=_fails,
    x="tries to choose from",
    y="accuracy on new texts",
    limits=(0, 1),
    log_x=True,
    seeds=12,
    seconds=4,
)
