"""Parsing heads: dependency arcs or constituency spans, with tags from the same states.

B rows   T words   H width of a state   K columns of tags   S labelled spans of a row
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.averaging import ArcProbs, SpanScores
from weft.decode.heads.biaffine import IGNORED, ArcOutput, BiaffineScorer, TreeSearch
from weft.decode.heads.greedy_merge import GreedyMerger, LeafStates, Update
from weft.decode.heads.span_constituency import (
    UNSEEN_LABEL,
    BestTree,
    SpanBoundaries,
    SpanScorer,
)
from weft.decode.heads.tag import TagColumn, TagHead, TagOutput
from weft.errors import UserError, unknown_name
from weft.protocols import Head
from weft.registry import register

ROOT = "root"  # the relation of the root's child in Universal Dependencies
DecodedRows = list[tuple[np.ndarray, np.ndarray]]  # per row a table, and its probabilities


@dataclass(frozen=True)
class DependencyOutput:
    """Arc and relation scores, and tag logits if the head has tags."""

    head: "DependencyHead"
    arcs: ArcOutput
    tags: TagOutput | None

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed loss of heads, relations and tags (B, T, 2 + K), and the words."""
        steps = self.arcs.arcs.shape[1]
        heads, relations = target[:, :steps, 0], target[:, :steps, 1]
        relations = relations.masked_fill(relations >= self.head.relations, IGNORED)
        total, words = self.head.arcs.loss(self.arcs, heads, relations)
        if self.tags is not None:
            total = total + self.tags.loss(target[:, :, 2:])[0]
        return total, words

    def decode(self) -> DecodedRows:
        """Return per row heads, relations and tags (T, 2 + K), and probabilities (T, 1 + K)."""
        parse = self.head.arcs.decode(self.arcs, self.head.search, self.head.root)
        rows: DecodedRows = []
        tags = None if self.tags is None else self.tags.decode()
        for i, length in enumerate(self.arcs.lengths.tolist()):
            table = np.stack([parse.heads[i, :length], parse.labels[i, :length]], axis=1)
            probs = parse.probs[i, :length, None]
            if tags is not None:
                table = np.concatenate([table, tags[i][0]], axis=1)
                probs = np.concatenate([probs, tags[i][1]], axis=1)
            rows.append((table, probs))
        return rows

    def distributions(self) -> list[ArcProbs]:
        """Return per row the log-probabilities of heads, and the probabilities of relations."""
        tags = None if self.tags is None else self.tags.distributions()
        log_probs = self.arcs.arcs.double().log_softmax(2).cpu().numpy()  # (B, T, S)
        return [
            ArcProbs(
                log_probs[i, :length, : length + 1],
                partial(self._relation_probs, i),
                None if tags is None else tags[i],
                self.head.search,
            )
            for i, length in enumerate(self.arcs.lengths.tolist())
        ]

    def _relation_probs(self, row: int, heads: np.ndarray) -> np.ndarray:
        """Return the probabilities (T, C) of the relations of a row to heads (T,)."""
        part, arcs = slice(row, row + 1), self.arcs
        own = ArcOutput(arcs.arcs[part], arcs.heads[part], arcs.words[part], arcs.lengths[part])
        chosen = torch.full(own.arcs.shape[:2], IGNORED, device=own.arcs.device)  # (1, T)
        chosen[0, : len(heads)] = torch.from_numpy(heads).to(chosen)
        return self.head.arcs.label_probs(own, chosen, self.head.root).cpu().numpy()


@register("head", "arcs")
class DependencyHead(nn.Module, Head):
    """Deep biaffine dependency parsing (Dozat and Manning 2017), with tags from the same states.

    `search` is "tree" for the best tree, "projective" for the best without crossing arcs, or
    "greedy" for each word's best head, which need not form a tree.
    """

    task = "parse"
    needs_full_sentence = True
    max_positions = 4000  # words: every pair has a score

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        arc: int = 500,
        label: int = 100,
        dropout: float = 0.33,
        search: TreeSearch = "tree",
    ):
        super().__init__()
        _check_task(outputs, "arcs", "parse")
        if search not in ("tree", "projective", "greedy"):
            raise unknown_name("search", search, ("tree", "projective", "greedy"), "head 'arcs'")
        names = list(outputs[0][0])
        self.relations, self.search = len(names), search
        self.root = names.index(ROOT) if ROOT in names else None
        self.arcs = BiaffineScorer(input_size, len(names), arc, label, dropout)
        self.tags = TagHead(input_size, outputs[1:], dropout) if outputs[1:] else None

    def forward(self, states: Padded) -> DependencyOutput:
        _check_unpooled(states, "arcs")
        tags = None if self.tags is None else self.tags(states)
        return DependencyOutput(self, self.arcs(states), tags)


class TreeOutput:
    """Trees of each row, scored in one way or another, and tag logits of its words."""

    labels: int  # of constituents
    tags: TagOutput

    def tree_loss(self, spans: Tensor) -> Tensor:
        """Return the summed loss of gold trees, labelled spans (B, S, 3)."""
        raise NotImplementedError

    def best_trees(self) -> list[BestTree]:
        """Return the predicted tree of each row."""
        raise NotImplementedError

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """Return the summed losses of trees and tags (B, ·, 4), and the words."""
        spans = target[:, :, 1:]  # (B, S, 3)
        label = spans[:, :, :1]
        unseen = (label >= self.labels) & (spans[:, :, 1:2] >= 0)
        spans = torch.cat([label.masked_fill(unseen, UNSEEN_LABEL), spans[:, :, 1:]], dim=2)
        tag_loss, words = self.tags.loss(target[:, :, :1])
        return self.tree_loss(spans) + tag_loss, words

    def decode(self) -> DecodedRows:
        """Return per row tags and labelled spans (·, 4), and probabilities of the tags (T, 1)."""
        rows: DecodedRows = []
        for tree, (tags, probs) in zip(self.best_trees(), self.tags.decode(), strict=True):
            table = np.full((max(len(tags), len(tree.spans)), 4), -1, np.int64)
            table[: len(tags), 0] = tags[:, 0]
            if tree.spans:
                table[: len(tree.spans), 1:] = tree.spans
            rows.append((table, probs))
        return rows


@dataclass(frozen=True)
class ConstituencyOutput(TreeOutput):
    """Span boundaries of each row, and tag logits of its words."""

    head: "ConstituencyHead"
    boundaries: SpanBoundaries
    tags: TagOutput

    @property
    def labels(self) -> int:  # type: ignore[override]  # read only
        return self.head.labels

    def tree_loss(self, spans: Tensor) -> Tensor:
        return self.head.brackets.loss(self.boundaries, spans)[0]

    def best_trees(self) -> list[BestTree]:
        return self.head.brackets.decode(self.boundaries)

    def distributions(self) -> list[SpanScores]:
        """Return per row the label scores of all spans, and the probabilities of the tags."""
        pairs = zip(
            self.head.brackets.all_scores(self.boundaries), self.tags.distributions(), strict=True
        )
        return [SpanScores(scores, tags) for scores, tags in pairs]


@dataclass(frozen=True)
class RecursiveOutput(TreeOutput):
    """Leaf states of each row, and tag logits of its words."""

    head: "RecursiveHead"
    leaves: LeafStates
    tags: TagOutput

    @property
    def labels(self) -> int:  # type: ignore[override]  # read only
        return self.head.labels

    def tree_loss(self, spans: Tensor) -> Tensor:
        return self.head.merger.loss(self.leaves, spans)[0]

    def best_trees(self) -> list[BestTree]:
        return self.head.merger.decode(self.leaves)


@register("head", "brackets")
class ConstituencyHead(nn.Module, Head):
    """Span-based constituency parsing by CKY (Stern et al. 2017), with part-of-speech tags."""

    task = "constituency"
    needs_full_sentence = True
    max_positions = 2500  # words: search time is cubic

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        hidden: int = 250,
        dropout: float = 0.0,
    ):
        super().__init__()
        _check_task(outputs, "brackets", "constituency")
        self.labels = len(outputs[0][0])
        self.brackets = SpanScorer(input_size, self.labels, hidden, dropout)
        self.tags = TagHead(input_size, outputs[1:], dropout)

    def forward(self, states: Padded) -> ConstituencyOutput:
        _check_unpooled(states, "brackets")
        return ConstituencyOutput(self, self.brackets(states), self.tags(states))


@register("head", "recursive")
class RecursiveHead(nn.Module, Head):
    """Constituency parsing by greedy merging of neighbours (Socher et al. 2011), with tags.

    A recursive network scores and labels each pair that could be merged; the best is, until one
    node is left. `margin` is what a wrong node costs in training, `hidden` the width of a node, 0
    for that of a state. `update` "tree" compares whole trees, as in the paper; "max-violation" only
    up to the merge where the margin is violated most (Huang et al. 2012).
    """

    task = "constituency"
    needs_full_sentence = True
    max_positions = 2500  # words: one step of the search for each
    can_average = False  # the score of a span depends on what was merged before

    def __init__(
        self,
        input_size: int,
        outputs: Sequence[TagColumn],
        hidden: int = 0,
        margin: float = 0.1,
        dropout: float = 0.0,
        update: Update = "max-violation",
    ):
        super().__init__()
        _check_task(outputs, "recursive", "constituency")
        self.labels = len(outputs[0][0])
        self.merger = GreedyMerger(input_size, self.labels, hidden, margin, dropout, update)
        self.tags = TagHead(input_size, outputs[1:], dropout)

    def forward(self, states: Padded) -> RecursiveOutput:
        _check_unpooled(states, "recursive")
        return RecursiveOutput(self, self.merger(states), self.tags(states))


def _check_task(outputs: Sequence[TagColumn], head: str, task: str) -> None:
    if not isinstance(outputs, (list, tuple)):
        raise UserError(f"The head '{head}' needs the task '{task}'. Set task.kind to '{task}'.")


def _check_unpooled(states: Padded, head: str) -> None:
    if not isinstance(states, Padded):
        raise UserError(f"The head '{head}' needs a state per word. Set pool.kind to 'none'.")
