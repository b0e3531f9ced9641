"""A long-range memory probe: the first word is the label, and filler follows it."""

import random

from weft.errors import UserError
from weft.text.example import Example

SYMBOLS = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heron")
_FILLER = ("and", "so", "then", "on", "it", "went")
MAX_EXTRA_STEPS = 5  # exclusive, per row


def generate_recall(
    seed: int = 0, size: int = 1500, steps: int = 60, symbols: int = 4
) -> dict[str, list[Example]]:
    """Generate `size` rows in train, dev and test (6 : 1 : 2), the label `steps` or more back.

    Hochreiter and Schmidhuber (1997) test long time lags this way; the filler is uninformative.
    """
    if not 2 <= symbols <= len(SYMBOLS):
        raise UserError(f"recall: 'symbols' must be from 2 to {len(SYMBOLS)}, got {symbols}.")
    if steps < 0:
        raise UserError(f"recall: 'steps' must be 0 or more, got {steps}.")
    rng = random.Random(seed)
    sizes = {"train": size * 6 // 9, "dev": size // 9, "test": size - size * 6 // 9 - size // 9}
    return {
        split: [_row(rng, f"{split}-{i + 1}", SYMBOLS[i % symbols], steps) for i in range(count)]
        for split, count in sizes.items()
    }


def _row(rng: random.Random, name: str, symbol: str, steps: int) -> Example:
    # Only `random()` is promised to be the same in every version of Python.
    count = steps + int(rng.random() * MAX_EXTRA_STEPS)
    filler = (_FILLER[int(rng.random() * len(_FILLER))] for _ in range(count))
    return Example(" ".join([symbol, *filler]), symbol, id=name)
