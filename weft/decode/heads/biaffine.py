"""Deep biaffine attention: a head and a relation for every word (Dozat and Manning 2017).

B rows   T words   S = T + 1 heads, the root first   H width of a state   A width for arcs
R width for labels   C labels   n words of all rows
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.embed.activations import sensible
from weft.errors import UserError

TreeSearch = Literal["tree", "projective", "greedy"]
IGNORED = -1  # gold head or label that is not known: no loss


@dataclass(frozen=True)
class ArcOutput:
    """How well each word fits each head; labels are scored later, for one head a word."""

    arcs: Tensor  # (B, T, S) -inf where the head is the word itself or padding
    heads: Tensor  # (B, S, R) each step as a head, to be labelled
    words: Tensor  # (B, T, R) each word as a dependent
    lengths: Tensor  # (B,) on the host


@dataclass(frozen=True)
class DependencyParse:
    """Heads (0 the root) and labels of a batch, -1 in the padding, and how sure each word is."""

    heads: np.ndarray  # (B, T)
    labels: np.ndarray  # (B, T)
    chances: np.ndarray  # (B, T) probability of the head times that of the label, 0 in the padding


class Biaffine(nn.Module):
    """x U y, with a term for x alone, for y alone and for neither, as chosen: C scores a pair.

    A bias is a 1 appended to a side: `bias_x` gives the terms of y alone, `bias_y` those of x
    alone, both together the constant too.
    """

    def __init__(self, x_size: int, y_size: int, outputs: int, bias_x: bool, bias_y: bool):
        super().__init__()
        self.bias_x, self.bias_y = bias_x, bias_y
        self.weight = nn.Parameter(torch.empty(outputs, x_size + bias_x, y_size + bias_y))
        # Small, so that every head is about as likely at first; not zero, so that all sides learn.
        nn.init.normal_(self.weight, std=1 / max(x_size, y_size))

    def all_pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores (B, T, S) of every x with every y, of a single output."""
        assert len(self.weight) == 1
        x, y = self._sides(x, y)
        turned = x @ self.weight[0]  # (B, T, Y)
        return turned @ y.transpose(1, 2)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Scores (n, C) of each x with the y beside it."""
        x, y = self._sides(x, y)
        C, X, Y = self.weight.shape
        turned = x @ self.weight.transpose(0, 1).reshape(X, C * Y)  # (n, C*Y)
        scores = turned.view(-1, C, Y) @ y[:, :, None]  # (n, C, 1)
        return scores.squeeze(2)

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x = F.pad(x, (0, 1), value=1.0) if self.bias_x else x
        y = F.pad(y, (0, 1), value=1.0) if self.bias_y else y
        return x, y


class BiaffineScorer(nn.Module):
    """One hidden layer for each role a word plays, then a biaffine score for arcs and for labels.

    sᵢⱼ(arc) = hⱼᵀ U hᵢ + hⱼᵀ u: a term for how likely j is to take anything, none for word i.
    s(label) = rⱼᵀ U⁽¹⁾ rᵢ + (rⱼ ⊕ rᵢ)ᵀ U⁽²⁾ + b, only for the head j that is given. The root is a
    vector of its own before the first word. Dropout takes the same units at every step of a row.
    """

    def __init__(
        self,
        input_size: int,
        outputs: int,
        arc: int = 500,
        label: int = 100,
        dropout: float = 0.33,
    ):
        super().__init__()
        sensible("head 'arcs'", dropout, arc=arc, label=label)
        self.root = nn.Parameter(torch.randn(input_size) / input_size**0.5)
        self.arc_head, self.arc_word = _role_layer(input_size, arc), _role_layer(input_size, arc)
        self.label_head, self.label_word = (
            _role_layer(input_size, label),
            _role_layer(input_size, label),
        )
        self.arc = Biaffine(arc, arc, 1, bias_x=True, bias_y=False)
        self.label = Biaffine(label, label, outputs, bias_x=True, bias_y=True)
        self.dropout = nn.Dropout1d(dropout)  # of (B, H, T): a unit goes at all steps or none

    def forward(self, states: Padded) -> ArcOutput:
        words = states.data  # (B, T, H)
        root = self.root.to(words.dtype).expand(len(words), 1, -1)
        heads = torch.cat([root, words], dim=1)  # (B, S, H)
        arcs = self.arc.all_pairs(
            self._role(self.arc_word, words), self._role(self.arc_head, heads)
        )
        return ArcOutput(
            _mask_impossible(arcs, states.mask),
            # In full precision: labels are scored later, where nothing is cast by itself.
            self._role(self.label_head, heads).to(self.label.weight.dtype),
            self._role(self.label_word, words).to(self.label.weight.dtype),
            states.lengths,
        )

    def labels(self, scores: ArcOutput, heads: Tensor) -> Tensor:
        """Label scores (n, C) of each word that has one of the heads (B, T), row by row."""
        known = heads >= 0
        row, _ = known.nonzero(as_tuple=True)
        above = scores.heads[row, heads[known]]  # (n, R)
        return self.label.pairs(scores.words[known], above)

    def loss(self, scores: ArcOutput, heads: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        """Cross-entropy of heads and of labels at the right heads, as a sum, and how many words.

        Words whose head or label is -1 (padding; a label never seen in training) add nothing.
        """
        arcs = scores.arcs.float().flatten(0, 1)  # (B*T, S)
        total = F.cross_entropy(arcs, heads.flatten(), ignore_index=IGNORED, reduction="sum")
        named = self.labels(scores, heads).float()  # (n, C)
        wanted = labels[heads >= 0]  # (n,)
        total = total + F.cross_entropy(named, wanted, ignore_index=IGNORED, reduction="sum")
        return total, len(wanted)

    @torch.no_grad()
    def decode(
        self,
        scores: ArcOutput,
        search: TreeSearch = "tree",
        root: int | None = None,
        threads: int = 0,
    ) -> DependencyParse:
        """The best tree of each row and the best label of each arc.

        `tree` allows crossing arcs, `projective` does not, `greedy` takes each word's best head
        and need not give a tree. `root` is the label kept for the child of the root, and for it
        alone.
        """
        arcs = scores.arcs.float()
        lengths = scores.lengths.numpy()
        if search == "greedy":
            steps = np.arange(arcs.shape[1])
            best = arcs.argmax(2).cpu().numpy()
            heads = np.where(steps < lengths[:, None], best, IGNORED)
        else:
            # Here and not above: the compiler it imports takes a moment, and training needs none.
            from weft.decode.heads.mst import best_trees

            heads = best_trees(arcs.cpu().numpy(), lengths, search == "projective", threads)
        given = torch.from_numpy(heads).to(arcs.device)  # (B, T)
        known = given >= 0
        chances = arcs.softmax(2).gather(2, given.clamp(min=0)[:, :, None]).squeeze(2)[known]
        named = self._allowed(self.labels(scores, given).float(), given[known] == 0, root)
        likely, label = named.softmax(1).max(1)
        labels, sure = np.full(heads.shape, IGNORED), np.zeros(heads.shape)
        labels[heads >= 0] = label.cpu().numpy()
        sure[heads >= 0] = (chances * likely).cpu().numpy()
        return DependencyParse(heads, labels, sure)

    def _allowed(self, named: Tensor, at_root: Tensor, root: int | None) -> Tensor:
        """Scores (n, C) with -inf where the root's label and the root's child do not meet."""
        C = named.shape[1]
        if root is None or C == 1:
            return named
        if not 0 <= root < C:
            raise UserError(f"head 'arcs': 'root' is label {root}, but there are only {C} labels.")
        is_root = torch.arange(C, device=named.device) == root
        return named.masked_fill(is_root != at_root[:, None], -torch.inf)

    def _role(self, layer: nn.Module, states: Tensor) -> Tensor:
        hidden = layer(states)  # (B, T, A)
        return self.dropout(hidden.transpose(1, 2)).transpose(1, 2)


def _role_layer(input_size: int, size: int) -> nn.Sequential:
    """The slope below zero is that of the authors' own program."""
    linear = nn.Linear(input_size, size)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.LeakyReLU(0.1))


def _mask_impossible(arcs: Tensor, mask: Tensor) -> Tensor:
    """-inf at heads that are padding or the word itself; the root is always possible."""
    itself = torch.eye(arcs.shape[1], dtype=torch.bool, device=arcs.device)
    allowed = F.pad(mask[:, None] & ~itself, (1, 0), value=True)  # (B, T, S)
    return arcs.masked_fill(~allowed, -torch.inf)
