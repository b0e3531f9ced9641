"""Long-range memory probes: the first word is the label, or has to be repeated at the end."""

import random
from pathlib import Path

from weft.errors import UserError
from weft.text.example import Example
from weft.text.write import write

SYMBOLS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heron")
_FILLER = ("and", "so", "then", "on", "it", "went")
MAX_EXTRA_STEPS = 5  # exclusive, per row
CUE = "again"  # the word before the repeated one


def generate_recall(
    seed: int = 0, size: int = 1500, steps: int = 60, symbols: int = 4
) -> dict[str, list[Example]]:
    """Generate `size` rows in train, dev and test (6 : 1 : 2), the label `steps` or more back.

    Hochreiter and Schmidhuber (1997) test long time lags this way; the filler is uninformative.
    """
    _check(steps, symbols, least=0)
    rng = random.Random(seed)
    return {
        split: [_row(rng, f"{split}-{i + 1}", SYMBOLS[i % symbols], steps) for i in range(count)]
        for split, count in _split_sizes(size).items()
    }


def generate_recall_text(
    seed: int = 0, size: int = 1500, steps: int = 20, symbols: int = 4
) -> dict[str, list[Example]]:
    """Generate sentences that end with their first word, `steps` words after it.

    A language model predicts that word from far back or not at all: filler and a cue lie between.
    The order of the symbols is random, so that the sentence before gives nothing away.
    """
    _check(steps, symbols, least=2)
    rng = random.Random(seed)

    def sentence() -> str:
        symbol = SYMBOLS[int(rng.random() * symbols)]
        filler = (_FILLER[int(rng.random() * len(_FILLER))] for _ in range(steps - 2))
        return " ".join([symbol, *filler, CUE, symbol])

    return {
        split: [Example(sentence(), id=f"{split}-{i + 1}") for i in range(count)]
        for split, count in _split_sizes(size).items()
    }


def write_recall(folder: Path, steps: int = 20) -> list[Path]:
    """Write both probes: train.tsv, dev.tsv and test.tsv with labels, and .txt of running text."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, rows in (
        (".tsv", generate_recall(steps=steps)),
        (".txt", generate_recall_text(steps=steps)),
    ):
        for split, examples in rows.items():
            path = folder / f"{split}{suffix}"
            write(examples, path)
            paths.append(path)
    return paths


def _check(steps: int, symbols: int, least: int) -> None:
    if not 2 <= symbols <= len(SYMBOLS):
        raise UserError(f"recall: 'symbols' must be from 2 to {len(SYMBOLS)}, got {symbols}.")
    if steps < least:
        raise UserError(f"recall: 'steps' must be {least} or more, got {steps}.")


def _split_sizes(size: int) -> dict[str, int]:
    train, dev = size * 6 // 9, size // 9
    return {"train": train, "dev": dev, "test": size - train - dev}


def _row(rng: random.Random, name: str, symbol: str, steps: int) -> Example:
    # Only `random()` is promised to be the same in every version of Python.
    count = steps + int(rng.random() * MAX_EXTRA_STEPS)
    filler = (_FILLER[int(rng.random() * len(_FILLER))] for _ in range(count))
    return Example(" ".join([symbol, *filler]), symbol, id=name)
