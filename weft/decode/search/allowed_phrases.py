"""A decoding constraint: output only allowed phrases, in any order and any number.

N rows   t tokens so far   V vocabulary
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class AllowedPhrases:
    """An automaton for `Constraints.allowed`: every phrase is completed before another begins.

    `first` are the phrases as tokenised at the beginning, `then` as tokenised after another one.
    `forced` is the number of tokens of each row before the first phrase; those are free.
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
        self.accepting = {1}  # nodes where a phrase ends: another may begin, or the text end
        for root, phrases in enumerate((first, then)):
            for ids in phrases:
                self._insert(root, ids)
        self.masks: dict[frozenset[int], np.ndarray] = {}
        self.nodes_of: dict[tuple[int, ...], frozenset[int]] = {}  # cached from the last step

    def __call__(self, past: "Tensor", rows: "Tensor") -> "Tensor":
        """Return the allowed next tokens (N, V) after tokens (N, t) of batch rows (N,)."""
        import torch

        return torch.from_numpy(self.allow(past.tolist(), rows.tolist())).to(past.device)

    def allow(self, past: Sequence[Sequence[int]], rows: Sequence[int]) -> np.ndarray:
        """Return the same for lists, as an array."""
        masks, nodes_of = [], {}
        all_tokens = np.ones(self.size, bool)
        for ids, row in zip(past, rows, strict=True):
            skip = self.forced[row] if self.forced else 0
            if len(ids) < skip:
                masks.append(all_tokens)
                continue
            chosen = tuple(ids[skip:])
            nodes_of[chosen] = nodes = self._active_nodes(chosen)
            masks.append(self._mask(nodes))
        self.nodes_of = nodes_of
        return np.stack(masks)  # (N, V)

    def _insert(self, root: int, ids: Sequence[int]) -> None:
        node = root
        for id in ids:
            if id not in self.children[node]:
                self.children[node][id] = len(self.children)
                self.children.append({})
            node = self.children[node][id]
        if node != root:
            self.accepting.add(node)

    def _active_nodes(self, ids: tuple[int, ...]) -> frozenset[int]:
        """Return the trie nodes a row may be at; several if one phrase is a prefix of another."""
        if not ids:
            return frozenset([0])
        before = self.nodes_of.get(ids[:-1])
        return self._next(self._walk_from_root(ids[:-1]) if before is None else before, ids[-1])

    def _walk_from_root(self, ids: tuple[int, ...]) -> frozenset[int]:
        nodes = frozenset([0])
        for id in ids:
            nodes = self._next(nodes, id)
        return nodes

    def _next(self, nodes: frozenset[int], id: int) -> frozenset[int]:
        reached = {self.children[node][id] for node in nodes if id in self.children[node]}
        return frozenset(reached | {1} if reached & self.accepting else reached)

    def _mask(self, nodes: frozenset[int]) -> np.ndarray:
        if nodes not in self.masks:
            mask = np.zeros(self.size, bool)  # (V,)
            mask[[id for node in nodes for id in self.children[node]]] = True
            # Finished rows continue after eos; their mask does not matter.
            mask[self.eos] = not nodes or bool(nodes & self.accepting)
            self.masks[nodes] = mask
        return self.masks[nodes]
