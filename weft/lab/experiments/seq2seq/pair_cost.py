"""Counted, not timed: what it costs to read two texts, and to look from one into the other."""

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from weft.batch import Padded
from weft.batch.padded import concat_pair
from weft.lab.cost import count_operations
from weft.lab.experiment import Experiment, Means, Table, at
from weft.lab.power_law import fit_power_law
from weft.lab.training import build

WORDS, BOS, EOS = 50, 1, 2
LENGTHS = (256, 512, 1024)  # words in each of the two texts
HIDDEN = 16
VECTORS, ALIGNED = "two texts as vectors", "two texts word by word"
PLAIN, ATTENTION = "encoder–decoder", "with attention"
OPERATIONS = "operations"
PAIRS: dict[str, dict[str, Any]] = {
    VECTORS: {
        "pair": {"kind": "towers"}, "encoder": {"kind": "cnn", "hidden": HIDDEN, "widths": [3]}
    },
    ALIGNED: {
        "pair": {"kind": "decomposable", "hidden": HIDDEN, "layers": 1, "dropout": 0.0},
        "encoder": {"kind": "none"}, "pool": {"kind": "sum"},
    },
}  # fmt: skip
SOURCES = {PLAIN: "start", ATTENTION: "attention"}


def draw(generator: torch.Generator, length: int) -> Padded:
    """Draw one text."""
    ids = torch.randint(3, WORDS, (1, length), generator=generator)
    return Padded(ids, torch.tensor([length]))


@torch.no_grad()
def count_pair(parts: dict[str, Any], first: Padded, second: Padded) -> float:
    """Count the operations of a model that compares two texts."""
    model = build(WORDS, 2, **parts)
    with FlopCounterMode(display=False) as counter:
        model(concat_pair(first, second))
    return float(counter.get_total_flops())


@torch.no_grad()
def count_translation(source: str, first: Padded, second: Padded) -> float:
    """Count the operations of reading the first text and writing the second, word by word."""
    model: Any = build(
        WORDS,
        (WORDS, BOS, EOS),
        encoder={"kind": "rnn", "cell": "gru", "hidden": HIDDEN},
        decoder={"kind": "rnn", "cell": "gru", "width": 32, "hidden": HIDDEN, "source": source},
    ).eval()
    vectors = model.embed(first)
    reading = count_operations(model.encoder, vectors)
    decoder, memory = model.head.decoder, model.encode(vectors)
    with FlopCounterMode(display=False) as counter:
        state = decoder.start(memory)
        for ids in second.data[0]:
            _, state = decoder.step(ids[None], state)
    return float(reading + counter.get_total_flops())


def measure(seed: int) -> Table:
    """Return the exponent of the operations when both texts get longer."""
    generator = torch.Generator().manual_seed(seed)
    counts: dict[str, list[float]] = {name: [] for name in (*SOURCES, *PAIRS)}
    for length in LENGTHS:
        texts = draw(generator, length), draw(generator, length)
        for name, source in SOURCES.items():
            counts[name].append(count_translation(source, *texts))
        for name, parts in PAIRS.items():
            counts[name].append(count_pair(parts, *texts))
    return {
        OPERATIONS: {
            name: fit_power_law(LENGTHS, values).exponent for name, values in counts.items()
        }
    }


def _holds(mean: Means) -> str:
    return (
        f"When both texts get twice as long, a model that passes on one vector works about twice "
        f"as hard (exponents {mean(OPERATIONS, PLAIN):.2f} for translating and "
        f"{mean(OPERATIONS, VECTORS):.2f} for comparing), and one that looks from every word at "
        f"every word of the other text three to four times as hard "
        f"({mean(OPERATIONS, ATTENTION):.2f} and {mean(OPERATIONS, ALIGNED):.2f})."
    )


def _fails(mean: Means) -> str:
    return (
        f"Without attention the operations grow with exponents of {mean(OPERATIONS, PLAIN):.2f} "
        f"and {mean(OPERATIONS, VECTORS):.2f} of the length, with attention with "
        f"{mean(OPERATIONS, ATTENTION):.2f} and {mean(OPERATIONS, ALIGNED):.2f}."
    )


EXPERIMENT = Experiment(
    claim="Two texts of n and m words cost O(n + m), and O(nm) once one looks into the other.",
    decks=("000",),
    why="Each text is read once. Attention also compares every word of one text with every word of "
    "the other: n times m scores, and as many summands.",
    data="Two random texts of 256 to 1,024 words each. Operations are counted, so that every run "
    "gives the same: of a recurrent encoder and decoder, and of two texts that are compared as "
    "vectors (towers) or word by word (decomposable attention).",
    measure=measure,
    conditions=(
        at(OPERATIONS, PLAIN).below(1.1),
        at(OPERATIONS, VECTORS).below(1.1),
        at(OPERATIONS, ATTENTION).above(1.6),
        at(OPERATIONS, ALIGNED).above(1.6),
    ),
    holds=_holds,
    fails=_fails,
    x="how the two texts meet",
    y="exponent of the length",
    limits=(0, 2.2),
    seeds=3,
    seconds=6,
)
