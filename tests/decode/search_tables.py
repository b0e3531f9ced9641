"""Small models for tests of search: random tables in which every prefix has scores of its own."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.decode.search import Rules, Shared

BOS, EOS, CELLS = 2, 3, 1009


@dataclass(frozen=True)
class Memory:
    """A state of several kinds of parts: per beam, per prompt, for all."""

    cell: tuple[Tensor]  # (N,) which prefix this is
    row: Shared  # (B,) which table is read
    attention: dict[str, Tensor]  # (N, S)
    clock: Tensor  # () the same for all rows
    name: str = "table"


class Tables:
    """One table a row; a prefix is a cell of it."""

    def __init__(self, rows: int = 3, vocabulary: int = 4, sources: int = 5, seed: int = 7):
        make = torch.Generator().manual_seed(seed)
        self.rows, self.vocabulary = rows, vocabulary
        self.scores = torch.randn(rows, CELLS, vocabulary, generator=make) * 1.5
        self.weights = torch.randn(rows, CELLS, sources, generator=make).mul(2).softmax(-1)
        self.source = torch.arange(sources) < torch.tensor([[sources], [3], [4]])[:rows]  # (B, S)
        self.source = torch.cat([self.source] * math.ceil(rows / len(self.source)))[:rows]
        self.weights = self.weights * self.source[:, None]
        self.calls: list[int] = []

    def start(self, rows: list[int] | None = None) -> Memory:
        index = torch.arange(self.rows) if rows is None else torch.tensor(rows)
        empty = torch.zeros(len(index), self.weights.shape[2])
        cell = torch.zeros(len(index), dtype=torch.int64)
        return Memory((cell,), Shared({"row": index}), {"here": empty}, torch.tensor(0))

    def step(self, ids: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        self.calls.append(len(ids))
        row = state.row.value["row"]
        row = row.repeat_interleave(len(ids) // len(row))
        cell = follow(state.cell[0], ids)
        attention = {"here": self.weights[row, cell]}
        return self.scores[row, cell], Memory((cell,), state.row, attention, state.clock + 1)

    def read(self, state: Memory) -> Tensor:
        return state.attention["here"]

    def looking(self) -> Rules:
        return Rules(attention=self.read, source=self.source)

    def logps(self, row: int, prefix: tuple[int, ...]) -> list[float]:
        """Log-probabilities of what follows a prefix, by the definition."""
        return self.scores[row, self.cell(prefix)].log_softmax(-1).tolist()

    def cell(self, prefix: tuple[int, ...]) -> int:
        cell = torch.zeros(1, dtype=torch.int64)
        for token in (BOS, *prefix):
            cell = follow(cell, torch.tensor([token]))
        return int(cell)


def follow(cell: Tensor, ids: Tensor) -> Tensor:
    return (cell * 31 + ids + 1) % CELLS


@dataclass(frozen=True)
class Slow:
    """A sequence as plain numbers."""

    ids: tuple[int, ...]  # with eos
    logps: tuple[float, ...]
    spent: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.logps) - self.spent

    def score(self, tables: Tables, row: int, settings, spent: bool = False) -> float:
        size = len(self.ids)
        divisor = {
            "none": 1.0,
            "wu": ((5 + size) / 6) ** settings.alpha,
            "length": float(size) ** settings.alpha,
        }[settings.normalise]
        score = (self.total if spent else sum(self.logps)) / divisor
        if settings.coverage:
            had = [
                tables.weights[row, tables.cell(self.ids[:i])] for i in range(size)
            ]  # what each step looked at
            for i in range(int(tables.source[row].sum())):
                score += settings.coverage * math.log(min(float(sum(w[i] for w in had)), 1.0))
        return score


def everything(tables: Tables, row: int, limit: int) -> Iterator[Slow]:
    """Every sequence that ends within the limit, and every one that the limit cuts off."""
    heap = [Slow((), ())]
    while heap:
        one = heap.pop()
        for token, logp in enumerate(tables.logps(row, one.ids)):
            new = Slow((*one.ids, token), (*one.logps, logp))
            if token == EOS or len(new.ids) == limit:
                yield new
            else:
                heap.append(new)


def slow_beam(
    tables: Tables, row: int, settings, allowed: Callable[[tuple[int, ...]], bool] | None = None
) -> list[Slow]:
    """Beam search one hypothesis at a time, until the limit: never stops before it has to."""
    share = settings.width // settings.groups
    open_ = [[Slow((), ())] for _ in range(settings.groups)]
    pools: list[list[Slow]] = [[] for _ in range(settings.groups)]

    def rank(one: Slow) -> float:
        return one.score(tables, row, settings, spent=True)

    for length in range(1, settings.limit + 1):
        taken: list[int] = []
        for group in range(settings.groups):
            options = []
            for one in open_[group]:
                for token, logp in enumerate(tables.logps(row, one.ids)):
                    ids = (*one.ids, token)
                    if allowed is None or allowed(ids):
                        spent = one.spent + settings.diversity * taken.count(token)
                        options.append(Slow(ids, (*one.logps, logp), spent))
            options.sort(key=lambda one: -one.total)
            for one in options[:share]:
                if one.ids[-1] == EOS or length == settings.limit:
                    pools[group].append(one)
            pools[group] = sorted(pools[group], key=rank, reverse=True)[:share]
            open_[group] = [one for one in options if one.ids[-1] != EOS][:share]
            taken += [one.ids[-1] for one in open_[group]]
    found = [one for pool in pools for one in pool]
    found.sort(key=lambda one: one.score(tables, row, settings), reverse=True)
    return found[: settings.best]
