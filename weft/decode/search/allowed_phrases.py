"""A search that may write some words or texts only, in any order and as often as it likes.

N rows   t tokens so far   V vocabulary
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class AllowedPhrases:
    """Which tokens may come next, for `Rules.allowed`: each entry is written to its end.

    `first` are the entries as they are spelled at the beginning, `then` as they are behind another
    one. `forced` tokens of each row come before the first entry and are free.
    """

    def __init__(
        self,
        first: Iterable[Sequence[int]],
        then: Iterable[Sequence[int]],
        *,
        size: int,
        eos: int,
        forced: Sequence[int] = (),
    ) -> None:
        self.size, self.eos, self.forced = size, eos, list(forced)
        self.children: list[dict[int, int]] = [{}, {}]  # a trie with two roots: 0 first, 1 then
        self.whole = {1}  # nodes where an entry ends, and another may begin or the text end
        for root, entries in enumerate((first, then)):
            for ids in entries:
                self._insert(root, ids)
        self.masks: dict[frozenset[int], Tensor] = {}
        self.known: dict[tuple[int, ...], frozenset[int]] = {}  # of the step before

    def __call__(self, past: Tensor, rows: Tensor) -> Tensor:
        """What may follow tokens (N, t), whose rows of the batch are (N,): True in (N, V)."""
        out, now = [], {}
        everything = torch.ones(self.size, dtype=torch.bool)
        for ids, row in zip(past.tolist(), rows.tolist(), strict=True):
            skip = self.forced[row] if self.forced else 0
            if len(ids) < skip:
                out.append(everything)
                continue
            own = tuple(ids[skip:])
            now[own] = nodes = self._reached(own)
            out.append(self._mask(nodes))
        self.known = now
        return torch.stack(out).to(past.device)  # (N, V)

    def _insert(self, root: int, ids: Sequence[int]) -> None:
        node = root
        for id in ids:
            if id not in self.children[node]:
                self.children[node][id] = len(self.children)
                self.children.append({})
            node = self.children[node][id]
        if node != root:
            self.whole.add(node)

    def _reached(self, ids: tuple[int, ...]) -> frozenset[int]:
        """Where in the trie a row may be: several places where one entry begins another."""
        if not ids:
            return frozenset([0])
        before = self.known.get(ids[:-1])
        return self._next(self._reached_slowly(ids[:-1]) if before is None else before, ids[-1])

    def _reached_slowly(self, ids: tuple[int, ...]) -> frozenset[int]:
        nodes = frozenset([0])
        for id in ids:
            nodes = self._next(nodes, id)
        return nodes

    def _next(self, nodes: frozenset[int], id: int) -> frozenset[int]:
        found = {self.children[node][id] for node in nodes if id in self.children[node]}
        return frozenset(found | {1} if found & self.whole else found)

    def _mask(self, nodes: frozenset[int]) -> Tensor:
        if nodes not in self.masks:
            mask = torch.zeros(self.size, dtype=torch.bool)  # (V,)
            mask[[id for node in nodes for id in self.children[node]]] = True
            # Rows that are finished have eos behind them; any answer will do for those.
            mask[self.eos] = not nodes or bool(nodes & self.whole)
            self.masks[nodes] = mask
        return self.masks[nodes]
