"""Counted, not timed: operations, memory and chained steps of the lecture's three encoders."""

import torch

from weft.batch import Padded
from weft.lab.cost import (
    SELF_ATTENTION,
    WIDTH,
    build_encoder,
    count_kept_bytes,
    count_operations,
    count_sequential_steps,
)
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.power_law import fit_power_law

ENCODERS = {"recurrent": "lstm", "convolutional": "cnn", "self-attentive": SELF_ATTENTION}
LENGTHS = (512, 1024, 2048)
OPERATIONS, MEMORY, STEPS = "operations", "memory", "steps one after another"


def measure(seed: int) -> Table:
    """Return the exponent of the length for each cost of each encoder."""
    scores: Table = {OPERATIONS: {}, MEMORY: {}, STEPS: {}}
    generator = torch.Generator().manual_seed(seed)
    for name, kind in ENCODERS.items():
        encoder = build_encoder(kind)
        counts: dict[str, list[float]] = {cost: [] for cost in scores}
        for length in LENGTHS:
            data = torch.randn(1, length, WIDTH, generator=generator)
            source = Padded(data, torch.tensor([length]))
            counts[OPERATIONS].append(count_operations(encoder, source))
            counts[MEMORY].append(count_kept_bytes(encoder, source))
            counts[STEPS].append(count_sequential_steps(encoder, length))
        for cost, values in counts.items():
            scores[cost][name] = fit_power_law(LENGTHS, values).exponent
    return scores


def _holds(mean: Means) -> str:
    return (
        f"When the text gets twice as long, an LSTM and a convolution do twice the work (exponents "
        f"{mean(OPERATIONS, 'recurrent'):.2f} and {mean(OPERATIONS, 'convolutional'):.2f}), and "
        f"self-attention goes towards four times the work and memory "
        f"({mean(OPERATIONS, 'self-attentive'):.2f} and {mean(MEMORY, 'self-attentive'):.2f} so "
        "far); but only the LSTM has to take twice as many steps one after another."
    )


def _fails(mean: Means) -> str:
    return (
        f"The operations grow with exponents {mean(OPERATIONS, 'recurrent'):.2f} (LSTM), "
        f"{mean(OPERATIONS, 'convolutional'):.2f} (convolution) and "
        f"{mean(OPERATIONS, 'self-attentive'):.2f} (self-attention) of the length."
    )


EXPERIMENT = Experiment(
    claim="Recurrence costs O(n) in n steps, convolution O(n) in one, attention O(n²) in one.",
    decks=("001", "002", "004"),
    why="Self-attention compares every word with every other; recurrence and convolution visit "
    "each word once. But a recurrent step waits for the one before.",
    data="One layer of width 64 of each kind on random vectors, 512 to 2,048 of them; operations "
    "and kept tensors are counted, so that every run gives the same. At these lengths the part of "
    "self-attention that is linear still counts, so its exponent is below 2.",
    measure=measure,
    conditions=(
        at(OPERATIONS, "recurrent").below(1.1),
        at(OPERATIONS, "convolutional").below(1.1),
        at(OPERATIONS, "self-attentive").above(1.5),
        at(MEMORY, "recurrent").below(1.1),
        at(MEMORY, "convolutional").below(1.1),
        at(MEMORY, "self-attentive").above(1.5),
        at(STEPS, "recurrent").above(0.9),
        at(STEPS, "self-attentive").below(0.1),
    ),
    holds=_holds,
    fails=_fails,
    x="layer",
    y="exponent of the length",
    limits=(0, 2.2),
    seeds=3,
    seconds=3,
)
