"""Heads for trees over a sentence: arcs between words, or brackets around them, with tags beside.

B rows   T words   H width of a state   K columns of tags   S labelled spans of a row
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.heads.biaffine import IGNORED, ArcOutput, BiaffineScorer, TreeSearch
from weft.decode.heads.span_constituency import UNSEEN_LABEL, SpanBoundaries, SpanScorer
from weft.decode.heads.tag import TagColumn, TagHead, TagOutput
from weft.errors import UserError, unknown_name
from weft.registry import register

ROOT = "root"  # the relation of the root's child in Universal Dependencies
DecodedRows = list[
    tuple[np.ndarray, np.ndarray]
]  # of each row a table, and how probable its parts are


@dataclass(frozen=True)
class DependencyOutput:
    """What a model says of heads and relations, and of tags where it has any."""

    head: "DependencyHead"
    arcs: ArcOutput
    tags: TagOutput | None

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """The summed loss of heads, relations and tags (B, T, 2 + K), and the number of words."""
        steps = self.arcs.arcs.shape[1]
        heads, relations = target[:, :steps, 0], target[:, :steps, 1]
        relations = relations.masked_fill(relations >= self.head.relations, IGNORED)
        total, words = self.head.arcs.loss(self.arcs, heads, relations)
        if self.tags is not None:
            total = total + self.tags.loss(target[:, :, 2:])[0]
        return total, words

    def decode(self) -> DecodedRows:
        """Of each row (T, 2 + K) heads, relations and tags, and (T, 1 + K) probabilities."""
        parse = self.head.arcs.decode(self.arcs, self.head.search, self.head.root)
        rows: DecodedRows = []
        tags = None if self.tags is None else self.tags.decode()
        for i, length in enumerate(self.arcs.lengths.tolist()):
            table = np.stack([parse.heads[i, :length], parse.labels[i, :length]], axis=1)
            chances = parse.chances[i, :length, None]
            if tags is not None:
                table = np.concatenate([table, tags[i][0]], axis=1)
                chances = np.concatenate([chances, tags[i][1]], axis=1)
            rows.append((table, chances))
        return rows


@register("head", "arcs")
class DependencyHead(nn.Module):
    """Deep biaffine arcs and relations (Dozat and Manning 2017), with tags from the same states.

    `search` is "tree" for the best tree, "projective" for the best without crossing arcs, or
    "greedy" for each word's best head, which need not be a tree.
    """

    task = "parse"
    whole = True
    limit = 4000  # words: every pair of them has a score

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


@dataclass(frozen=True)
class ConstituencyOutput:
    """What a model says of the spans of each row, and of the tags of its words."""

    head: "ConstituencyHead"
    fences: SpanBoundaries
    tags: TagOutput

    def loss(self, target: Tensor) -> tuple[Tensor, int]:
        """The summed margins of trees and losses of tags (B, ·, 4), and the number of words."""
        spans = target[:, :, 1:]  # (B, S, 3)
        label = spans[:, :, :1]
        unseen = (label >= self.head.labels) & (spans[:, :, 1:2] >= 0)
        spans = torch.cat([label.masked_fill(unseen, UNSEEN_LABEL), spans[:, :, 1:]], dim=2)
        total, _ = self.head.brackets.loss(self.fences, spans)
        more, words = self.tags.loss(target[:, :, :1])
        return total + more, words

    def decode(self) -> DecodedRows:
        """Of each row (·, 4) tags beside labelled spans, and (T, 1) probabilities of the tags."""
        rows: DecodedRows = []
        found = self.head.brackets.decode(self.fences)
        for bracketing, (tags, chances) in zip(found, self.tags.decode(), strict=True):
            table = np.full((max(len(tags), len(bracketing.spans)), 4), -1, np.int64)
            table[: len(tags), 0] = tags[:, 0]
            if bracketing.spans:
                table[: len(bracketing.spans), 1:] = bracketing.spans
            rows.append((table, chances))
        return rows


@register("head", "brackets")
class ConstituencyHead(nn.Module):
    """Scored spans and the best tree of them by CKY (Stern et al. 2017), with tags of the words."""

    task = "constituency"
    whole = True
    limit = 2500  # words: the search takes time that grows with their cube

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


def _check_task(outputs: Sequence[TagColumn], head: str, task: str) -> None:
    if not isinstance(outputs, (list, tuple)):
        raise UserError(f"The head '{head}' needs the task '{task}'. Set task.kind to '{task}'.")


def _check_unpooled(states: Padded, head: str) -> None:
    if not isinstance(states, Padded):
        raise UserError(f"The head '{head}' reads every word. Set pool.kind to 'none'.")
