"""How the speed of pre-trained encoders on a processor becomes tables: reading, and learning."""

import re

from tables import Figures, Row, Section, mark, ranged, verdict
from tables_vectors import Grid, Sheet

# How many times as fast as which peer, of its own kind of numbers.
READING = {
    ("weft", "sentence-transformers"): 1.3,
    ("weft", "ctranslate2"): 0.95,
    ("weft int8", "ctranslate2 int8"): 1.0,
}
NEAR = {"weft": 0.9999, "weft int8": 0.995}  # cosine to the exact vectors
LEARNING = 1.2
SYSTEMS = {
    "weft": "Weft", "weft int8": "Weft, int8", "sentence-transformers": "sentence-transformers",
    "transformers": "transformers, plain loop", "ctranslate2": "CTranslate2",
    "ctranslate2 int8": "CTranslate2, int8",
}  # fmt: skip
TIMES = re.compile(r"(?:encoding|fine-tuning): (.+), times (.+)")


def _split(lines: list[Figures]) -> tuple[dict[str, Figures], dict[tuple[str, str], Figures]]:
    """What is known of each system, and the ratios of two."""
    found, ratios = {}, {}
    for line in lines:
        if match := TIMES.fullmatch(line["question"]):
            ratios[match[1], match[2]] = line["ratio"]
        else:
            found[line["question"].split(": ")[1]] = line
    return found, ratios


def reading(lines: list[Figures]) -> list[Sheet]:
    """A row a system: its speed and its vectors, and how much faster ours are."""
    found, ratios = _split(lines)
    rows = [_reader(name, found[name], ratios) for name in SYSTEMS if name in found]
    columns = (
        "system", "sentences a second", "least cosine", "mean", "bar", "Weft is faster", "bar",
        "Weft in int8 is faster", "bar", "n",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def _reader(name: str, line: Figures, ratios: dict[tuple[str, str], Figures]) -> Row:
    cosine, rate, cells = line["cosine"], line["sentences_per_second"], []
    for ours in ("weft", "weft int8"):
        ratio = ratios.get((ours, name))
        cells.append(ranged(ratio, 2, "×") if ratio else "–")
        cells.append(verdict(ratio["median"], READING.get((ours, name))) if ratio else "–")
    wanted = NEAR.get(name)
    # The least of all sentences has to be near, not only their mean.
    near = f"≥ {wanted:g} {mark(cosine['least'] >= wanted)}" if wanted else "–"
    return (
        SYSTEMS[name], ranged(rate, 1), f"{cosine['least']:.5f}", f"{cosine['mean']:.5f}", near,
        *cells, str(rate["n"]),
    )  # fmt: skip


def learning(lines: list[Figures]) -> list[Sheet]:
    """A row a loop: its speed, and the mean loss along the epoch."""
    found, ratios = _split(lines)
    rows = []
    for name in SYSTEMS:
        if name in found:
            line, ratio = found[name], ratios.get(("weft", name))
            rows.append((
                SYSTEMS[name], ranged(line["sentences_per_second"], 1), f"{line['loss']:.3f}",
                ranged(ratio, 2, "×") if ratio else "–",
                verdict(ratio["median"], LEARNING) if ratio else "–",
                str(line["sentences_per_second"]["n"]),
            ))  # fmt: skip
    columns = ("system", "sentences a second", "mean loss", "Weft is faster", "bar", "n")
    return [Sheet("", columns, rows)] if rows else []


SECTIONS = (
    Section(
        "Sentence vectors on a CPU",
        "MiniLM (6 layers of 384), from texts to normalised vectors: sentences of 5 to "
        "60 words from Wikipedia in random order, taking turns on two threads, tokenizer "
        "included. CTranslate2 gets sorted batches of 32. Cosines are to the vectors of "
        "sentence-transformers. The bars: 1.3 times sentence-transformers and 0.95 times "
        "CTranslate2 in fp32, with a cosine of 0.9999; in int8 as fast as CTranslate2, "
        "with a cosine of 0.995.",
        (Grid(("encoding: *",), reading),),
    ),
    Section(
        "Fine-tuning on a CPU",
        "MiniLM on sentences of SST-2, one epoch in batches of 32, taking turns on two "
        "threads, fused AdamW on both sides. The plain loop shuffles and pads to the "
        "longest of a batch; Weft's batches have similar lengths. The bar is 1.2 times "
        "that loop.",
        (Grid(("fine-tuning: *",), learning),),
    ),
)
