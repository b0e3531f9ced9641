"""Batches of padded rows, with targets for training."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from weft.batch.bucketing import Position, order_batches, shuffle_batches
from weft.batch.label_levels import LabelLevels
from weft.batch.loss_balance import LossBalance
from weft.batch.padded import Padded
from weft.batch.token_store import RaggedTables, TokenStore


class RowSource(Protocol):
    """Rows that can be padded into batches: a token store, or the rows of one prediction."""

    @property
    def lengths(self) -> np.ndarray:
        """The number of steps (R,) of each row."""

    def padded(self, rows: np.ndarray) -> Padded:
        """Return some rows as one padded batch."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Batch:
    """Rows for a model to read."""

    source: Padded
    rows: np.ndarray  # their numbers in the store: for messages, and to put answers back in order

    def to(self, device: torch.device | str) -> "Batch":
        return replace(self, source=self.source.to(device))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class LabelledBatch(Batch):
    """A batch with targets. Losses take this type, so they need no None checks."""

    target: Tensor
    count: float  # what the loss is a sum over: rows or steps, each times the weight of its row
    carried: Any = None  # the state in which the rows begin, where each goes on from another
    balance: LossBalance | None = None  # of uneven classes, in the loss
    row_weights: Tensor | None = None  # (B,) of the losses; None: all are 1
    levels: LabelLevels | None = None  # of labels in a tree, in the loss

    def to(self, device: torch.device | str) -> "LabelledBatch":
        target = self.target.to(device, non_blocking=True)
        weights = self.row_weights
        if weights is not None:
            weights = weights.to(device, non_blocking=True)
        return replace(self, source=self.source.to(device), target=target, row_weights=weights)

    def split(self, parts: int) -> list["LabelledBatch"]:
        """The same rows as up to `parts` smaller batches."""
        size = -(-len(self) // parts)
        return [self._rows(slice(i, i + size)) for i in range(0, len(self), size)]

    def _rows(self, rows: slice) -> "LabelledBatch":
        lengths = self.source.lengths[rows]
        longest = int(lengths.max())
        source = Padded(
            self.source.data[rows, :longest],
            lengths,
            tuple(ids[rows, :longest] for ids in self.source.subtokens),
            None if self.source.parents is None else self.source.parents[rows, :longest],
            None if self.source.second is None else self.source.second[rows],
            tuple(states[rows, :longest] for states in self.source.cached),
            None if self.source.marks is None else self.source.marks[rows, :longest],
        )
        target = self.target[rows]
        return LabelledBatch(
            source,
            self.rows[rows],
            target,
            self.count * len(target) / len(self),
            balance=self.balance,
            row_weights=None if self.row_weights is None else self.row_weights[rows],
            levels=self.levels,
        )


class BatchLoader:
    """An endless, seeded stream of labelled batches whose position can be saved and restored."""

    def __init__(self, store: TokenStore, *, rows: int, budget: int, seed: int, epochs: int):
        self.store, self.rows, self.budget, self.seed, self.epochs = (
            store,
            rows,
            budget,
            seed,
            epochs,
        )
        self.position = Position()

    def __iter__(self) -> Iterator[tuple[LabelledBatch, Position]]:
        """Batches from the present position on, each with the position that follows it."""
        for epoch in range(self.position.epoch, self.epochs):
            skip = self.position.batch if epoch == self.position.epoch else 0
            plan = self._plan(epoch)
            now = next(plan, None)
            number = 0
            while now is not None:
                following = next(plan, None)
                number += 1
                if number > skip:
                    end = following is None
                    after = Position(epoch + 1, 0) if end else Position(epoch, number)
                    yield self._batch(now), after
                now = following

    def fraction_done(self, position: Position) -> float:
        """Return the fraction of training done at a position, from 0 to 1."""
        within = min(position.batch / self.per_epoch, 1.0)
        return min((position.epoch + within) / max(self.epochs, 1), 1.0)

    @cached_property
    def per_epoch(self) -> int:
        """Batches in the first epoch; others may differ by a few, as lengths fall differently."""
        return max(sum(1 for _ in self._plan(0)), 1)

    def _plan(self, epoch: int) -> Iterator[Any]:
        return shuffle_batches(
            self.store.lengths,
            rows=self.rows,
            budget=self.budget,
            seed=self.seed,
            epoch=epoch,
            groups=self.store.groups,
        )

    def _batch(self, rows: Any) -> LabelledBatch:
        return labelled_batch(self.store, rows)


def labelled_batch(store: TokenStore, rows: np.ndarray) -> LabelledBatch:
    """Rows of a store with their targets."""
    if isinstance(store.targets, RaggedTables):
        target = torch.from_numpy(store.targets.padded(rows))  # (B, T, columns)
        steps = store.targets.counts(rows)  # (B,)
    else:
        target, steps = torch.from_numpy(store.targets[rows]), np.ones(len(rows), np.int64)
    if store.row_weights is None:
        count: float = int(steps.sum())
        weights = None
    else:
        count = float(steps @ store.row_weights[rows])
        weights = torch.from_numpy(store.row_weights[rows]).float()
    return LabelledBatch(
        store.padded(rows),
        rows,
        target,
        count,
        balance=store.balance,
        row_weights=weights,
        levels=store.levels,
    )


def inference_batches(source: RowSource, *, rows: int, budget: int) -> Iterator[Batch]:
    """Yield every row once, similar lengths together."""
    for chosen in order_batches(source.lengths, rows=rows, budget=budget):
        yield Batch(source.padded(chosen), chosen)
