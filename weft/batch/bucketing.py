"""Length bucketing: rows sorted by length, batched by token budget, shuffled by seed.

The plan of an epoch depends on nothing but the lengths, the settings, the seed and the epoch's
number, so a position in it is two numbers, and going back to that position reads no data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from weft.text.class_balance import sample_balanced

POOL_BATCHES = (
    50  # batches whose rows are sorted by length together: more saves padding, less mixes better
)


@dataclass(frozen=True)
class Position:
    """A position in the training data: the next batch."""

    epoch: int = 0
    batch: int = 0


def split_batches(lengths: np.ndarray, rows: int, budget: int) -> list[slice]:
    """Cut rows, taken in the given order, so that no batch has more than `rows` rows or, padded,
    more than `budget` steps; one row longer than the budget makes a batch of its own."""
    cuts, start, longest = [], 0, 0
    for i, length in enumerate(lengths.tolist()):
        longest_now = max(longest, length)
        if i > start and (i - start >= rows or longest_now * (i - start + 1) > budget):
            cuts.append(slice(start, i))
            start, longest_now = i, length
        longest = longest_now
    if start < len(lengths):
        cuts.append(slice(start, len(lengths)))
    return cuts


def shuffle_batches(
    lengths: np.ndarray,
    *,
    rows: int,
    budget: int,
    seed: int,
    epoch: int,
    groups: Sequence[np.ndarray] = (),
) -> Iterator[np.ndarray]:
    """Yield batches of row numbers of one epoch, similar lengths together, shuffled.

    With `groups`, the rows of each class, an epoch is a class-balanced sample of as many rows.
    """
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = (
        sample_balanced(groups, len(lengths), random)
        if groups
        else random.permutation(len(lengths))
    )
    for start in range(0, len(order), rows * POOL_BATCHES):
        pool = order[start : start + rows * POOL_BATCHES]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        batches = [pool[part] for part in split_batches(lengths[pool], rows, budget)]
        for i in random.permutation(len(batches)):
            yield batches[i]


def order_batches(
    lengths: np.ndarray, *, rows: int, budget: int, max_padding: float = 1.0, few: int = 1
) -> Iterator[np.ndarray]:
    """Yield batches of row numbers for prediction, shortest rows first.

    With `max_padding` below 1, a batch of `few` rows or more takes no row that would make padding a
    larger fraction of its steps.
    """
    order = np.argsort(lengths, kind="stable")
    for part in split_batches(lengths[order], rows, budget):
        batch = order[part]
        while max_padding < 1 and len(batch) > few:
            own = lengths[batch]
            sizes = np.arange(1, len(own) + 1)
            too_padded = np.cumsum(own) < (1 - max_padding) * own * sizes
            too_padded[:few] = False
            if not too_padded.any():
                break
            cut = int(too_padded.argmax())
            yield batch[:cut]
            batch = batch[cut:]
        yield batch
