"""Deep biaffine scoring of heads and relations (Dozat and Manning 2017).

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
from weft.embed.activations import check_sizes
from weft.errors import UserError
from weft.kernels.cpu.linear import linear, project
from weft.protocols import WeightMatrices

TreeSearch = Literal["tree", "projective", "greedy"]
PAIRS_PER_PART = 64  # pairs whose labels are scored together
IGNORED = -1  # gold head or label without loss


@dataclass(frozen=True)
class ArcOutput:
    """Arc scores; labels are scored later, for one head per word."""

    arcs: Tensor  # (B, T, S) -inf where the head is the word itself or padding
    heads: Tensor  # (B, S, R) each step as a head, for labels
    words: Tensor  # (B, T, R) each word as a dependent
    lengths: Tensor  # (B,) on the host


@dataclass(frozen=True)
class DependencyParse:
    """Heads (0 = root), labels and confidences of a batch; heads and labels of padding are -1."""

    heads: np.ndarray  # (B, T)
    labels: np.ndarray  # (B, T)
    probs: np.ndarray  # (B, T) probability of the head times that of the label, 0 in the padding


class Biaffine(nn.Module, WeightMatrices):
    """The bilinear form x U y with optional linear and constant terms: C scores per pair.

    A bias appends a 1 to a side: `bias_x` adds the terms of y alone, `bias_y` those of x alone,
    both together the constant.
    """

    def __init__(self, x_size: int, y_size: int, outputs: int, bias_x: bool, bias_y: bool):
        super().__init__()
        self.bias_x, self.bias_y = bias_x, bias_y
        self.weight = nn.Parameter(torch.empty(outputs, x_size + bias_x, y_size + bias_y))
        # Small, so that all heads start about equally probable; not zero, so that all sides learn.
        nn.init.normal_(self.weight, std=1 / max(x_size, y_size))

    def weight_matrices(self) -> tuple[Tensor, ...]:
        """Return the matrix of each output."""
        return self.weight.unbind()

    def all_pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return scores (B, T, S) of every x with every y, for a single output."""
        assert len(self.weight) == 1
        x, y = self._sides(x, y)
        projected = x @ self.weight[0]  # (B, T, Y)
        return projected @ y.transpose(1, 2)

    def pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return scores (n, C) of each x with the y in the same row."""
        x, y = self._sides(x, y)
        C, X, Y = self.weight.shape
        weight = self.weight.transpose(1, 2).reshape(C * Y, X)
        # Without gradients, in parts that stay in the cache of a processor.
        size = max(len(x), 1) if torch.is_grad_enabled() or x.is_cuda else PAIRS_PER_PART
        parts = [
            linear(own, weight).view(-1, C, Y) @ other[:, :, None]  # (n, C, 1)
            for own, other in zip(x.split(size), y.split(size), strict=True)
        ]
        return torch.cat(parts).squeeze(2)

    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        x = F.pad(x, (0, 1), value=1.0) if self.bias_x else x
        y = F.pad(y, (0, 1), value=1.0) if self.bias_y else y
        return x, y


class BiaffineScorer(nn.Module):
    """One hidden layer per role of a word, then biaffine scores of arcs and labels.

    sᵢⱼ(arc) = hⱼᵀ U hᵢ + hⱼᵀ u: a term for the prior of head j, none for word i.
    s(label) = rⱼᵀ U⁽¹⁾ rᵢ + (rⱼ ⊕ rᵢ)ᵀ U⁽²⁾ + b, only for one head j per word. The root is a
    learned vector before the first word. Dropout drops the same units at every step of a row.
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
        check_sizes("head 'arcs'", dropout, arc=arc, label=label)
        self.root = nn.Parameter(torch.randn(input_size) / input_size**0.5)
        self.arc_head, self.arc_word = _role_layer(input_size, arc), _role_layer(input_size, arc)
        self.label_head, self.label_word = (
            _role_layer(input_size, label),
            _role_layer(input_size, label),
        )
        self.arc = Biaffine(arc, arc, 1, bias_x=True, bias_y=False)
        self.label = Biaffine(label, label, outputs, bias_x=True, bias_y=True)
        self.dropout = nn.Dropout1d(dropout)  # of (B, H, T): a unit is dropped at all steps or none

    def forward(self, states: Padded) -> ArcOutput:
        words = states.data  # (B, T, H)
        root = self.root.to(words.dtype).expand(len(words), 1, -1)
        heads = torch.cat([root, words], dim=1)  # (B, S, H)
        arcs = self.arc.all_pairs(
            self._role(self.arc_word, words), self._role(self.arc_head, heads)
        )
        return ArcOutput(
            _mask_impossible(arcs, states.mask),
            # In full precision: labels are scored later, outside autocast.
            self._role(self.label_head, heads).to(self.label.weight.dtype),
            self._role(self.label_word, words).to(self.label.weight.dtype),
            states.lengths,
        )

    def labels(self, scores: ArcOutput, heads: Tensor) -> Tensor:
        """Return label scores (n, C) of each word with a head in heads (B, T), row by row."""
        has_head = heads >= 0
        row, _ = has_head.nonzero(as_tuple=True)
        above = scores.heads[row, heads[has_head]]  # (n, R)
        return self.label.pairs(scores.words[has_head], above)

    def loss(self, scores: ArcOutput, heads: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        """Return the summed cross-entropy of heads, and of labels at gold heads; and the words.

        Words whose head or label is -1 (padding; a label unseen in training) add nothing.
        """
        arcs = scores.arcs.float().flatten(0, 1)  # (B*T, S)
        total = F.cross_entropy(arcs, heads.flatten(), ignore_index=IGNORED, reduction="sum")
        label_scores = self.labels(scores, heads).float()  # (n, C)
        gold = labels[heads >= 0]  # (n,)
        total = total + F.cross_entropy(label_scores, gold, ignore_index=IGNORED, reduction="sum")
        return total, len(gold)

    @torch.no_grad()
    def decode(
        self,
        scores: ArcOutput,
        search: TreeSearch = "tree",
        root: int | None = None,
        threads: int = 0,
    ) -> DependencyParse:
        """Return the best tree of each row and the best label of each arc.

        `tree` allows crossing arcs, `projective` does not, `greedy` takes each word's best head
        and need not yield a tree. `root` is the label reserved for the child of the root.
        """
        arcs = scores.arcs.float()
        heads = best_heads(arcs.cpu().numpy(), scores.lengths.numpy(), search, threads)
        chosen = torch.from_numpy(heads).to(arcs.device)  # (B, T)
        has_head = chosen >= 0
        head_probs = arcs.softmax(2).gather(2, chosen.clamp(min=0)[:, :, None]).squeeze(2)
        label_probs, label = self.label_probs(scores, chosen, root).max(1)
        labels, probs = np.full(heads.shape, IGNORED), np.zeros(heads.shape)
        labels[heads >= 0] = label.cpu().numpy()
        probs[heads >= 0] = (head_probs[has_head] * label_probs).cpu().numpy()
        return DependencyParse(heads, labels, probs)

    @torch.no_grad()
    def label_probs(self, scores: ArcOutput, heads: Tensor, root: int | None = None) -> Tensor:
        """Return label probabilities (n, C) of each word with a head in heads (B, T)."""
        label_scores = self.labels(scores, heads).float()  # (n, C)
        return self._mask_root_label(label_scores, heads[heads >= 0] == 0, root).softmax(1)

    def _mask_root_label(self, scores: Tensor, at_root: Tensor, root: int | None) -> Tensor:
        """Set scores (n, C) to -inf unless the root label and the root's child coincide."""
        C = scores.shape[1]
        if root is None or C == 1:
            return scores
        if not 0 <= root < C:
            raise UserError(f"head 'arcs': 'root' is label {root}, but there are only {C} labels.")
        is_root = torch.arange(C, device=scores.device) == root
        return scores.masked_fill(is_root != at_root[:, None], -torch.inf)

    def _role(self, layer: nn.Sequential, states: Tensor) -> Tensor:
        first, activation = layer
        hidden = activation(project(first, states))  # (B, T, A)
        dropped: Tensor = self.dropout(hidden.transpose(1, 2))  # (B, A, T)
        return dropped.transpose(1, 2)


def best_heads(
    arcs: np.ndarray, lengths: np.ndarray, search: TreeSearch, threads: int = 0
) -> np.ndarray:
    """Return the head (B, T) of every word from arc scores (B, T, S); -1 in the padding."""
    if search == "greedy":
        steps = np.arange(arcs.shape[1])
        return np.where(steps < lengths[:, None], arcs.argmax(2), IGNORED)
    # Imported here: Numba takes a moment to import, and training does not need it.
    from weft.decode.heads.mst import best_trees

    return best_trees(arcs, lengths, search == "projective", threads)


def _role_layer(input_size: int, size: int) -> nn.Sequential:
    """Return a linear layer with leaky ReLU; the slope is that of the authors' code."""
    linear = nn.Linear(input_size, size)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return nn.Sequential(linear, nn.LeakyReLU(0.1))


def _mask_impossible(arcs: Tensor, mask: Tensor) -> Tensor:
    """Set arcs to padding and to the word itself to -inf; the root is always possible."""
    itself = torch.eye(arcs.shape[1], dtype=torch.bool, device=arcs.device)
    allowed = F.pad(mask[:, None] & ~itself, (1, 0), value=True)  # (B, T, S)
    return arcs.masked_fill(~allowed, -torch.inf)
