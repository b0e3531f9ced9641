"""Recursive networks: a state at every node of a tree, made of the states of its children.

Each reads `parents` of the batch: without them it gives a UserError. The nodes of one height are
computed together, over all trees of the batch (`levels.py`, `compose.py`), so depth costs time but
no recursion. Dropout of the words is the embedder's, dropout before the labels the head's.

B trees   T nodes of the largest one   E input width   H width of a state   N nodes   A children
"""

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.encode.tree_cells import ChildSumTreeLSTMCell, NaryTreeLSTMCell, TreeRNNCell
from weft.encode.tree_levels import Levels, plan_levels
from weft.protocols import Encoder, WeightMatrices
from weft.registry import register

BINARY = 2  # children of a node


@register("encoder", "tree-rnn")
class TreeRNN(nn.Module, Encoder, WeightMatrices):
    """h = tanh(W [left; right] + b) over binary trees (Socher et al. 2011).

    A leaf's state is tanh of its word's vector, as in the authors' code; with `hidden` other than
    that vector's width, of a projection of it. An only child is a left one beside nothing.
    """

    input_kind = "trees"
    tensor = False

    def __init__(self, input_size: int, hidden: int = 0):
        super().__init__()
        name = "rntn" if self.tensor else "tree-rnn"
        self.where = f"Encoder '{name}'"
        hidden = hidden or input_size
        check_sizes(f"encoder '{name}'", hidden=hidden)
        self.output_size = hidden
        self.project = nn.Linear(input_size, hidden) if hidden != input_size else None
        self.weight = nn.Parameter(torch.empty(hidden, BINARY * hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.slices = (
            nn.Parameter(torch.empty(hidden, BINARY * hidden, BINARY * hidden))
            if self.tensor
            else None
        )
        # A node starts as the mean of its children (Socher et al. 2013, "Parsing with Compositional
        # Vector Grammars"), and the tensor hardly speaks. As their sum, states would saturate in
        # high trees, and learn only at rates too low for the words.
        with torch.no_grad():
            noise = 1 / (4 * hidden**0.5)
            self.weight.uniform_(-noise, noise).add_(torch.eye(hidden).repeat(1, BINARY) / BINARY)
            if self.slices is not None:
                self.slices.uniform_(-1 / (4 * hidden), 1 / (4 * hidden))

    def weight_matrices(self) -> list[Tensor]:
        """Return W and the slices of the tensor."""
        return [self.weight, *(() if self.slices is None else self.slices.unbind())]

    def forward(self, x: Padded) -> Padded:
        levels = plan_levels(x, self.where, BINARY)
        with _full_precision(x.data):
            words = _node_vectors(x, levels.order[: levels.leaves], self.weight)
            words = words if self.project is None else self.project(words)
            leaves = words.tanh()
            states = TreeRNNCell.apply(  # type: ignore[no-untyped-call] # torch has no types for it
                leaves, self.weight, self.bias, self.slices, levels
            )  # (B*T, H)
            return _to_padded(x, states)


@register("encoder", "rntn")
class RNTN(TreeRNN):
    """h = tanh([l; r]ᵀ V [l; r] + W [l; r] + b) over binary trees, V a slice for each feature.

    The recursive neural tensor network of Socher et al. (2013); leaves as in 'tree-rnn'.
    """

    tensor = True

    def __init__(self, input_size: int, hidden: int = 0):
        super().__init__(input_size, hidden)


@register("encoder", "tree-lstm")
class TreeLSTM(nn.Module, Encoder, WeightMatrices):
    """The Tree-LSTM of Tai et al. (2015), with a forget gate for each child.

    `children` "ordered" is their N-ary form: up to `arity` children, each with its own weights;
    "sum" is the child-sum form for any number in any order. `words` says which nodes read their
    input vector: the "leaves", as in a constituency tree, or "all", as in a dependency tree.
    `dropout` falls on the candidates, never on what a cell remembers (Semeniuta et al. 2016).
    """

    input_kind = "trees"

    def __init__(
        self,
        input_size: int,
        hidden: int = 150,
        children: Literal["ordered", "sum"] = "ordered",
        arity: int = 2,
        words: Literal["leaves", "all"] = "leaves",
        dropout: float = 0.0,
        forget_bias: float = 1.0,
    ):
        super().__init__()
        check_sizes("encoder 'tree-lstm'", dropout, hidden=hidden, arity=arity)
        self.output_size = hidden
        self.arity = arity if children == "ordered" else 0
        self.all_words, self.dropout = words == "all", dropout
        reads = 4 if self.all_words else 3  # at leaves alone a word has no gate to forget by
        self.word = nn.Parameter(torch.empty(reads * hidden, input_size))
        # Gates: input, output, candidate, forget; the weights of ordered children have the forget
        # gates, one a child, before the candidate, so that all sigmoids lie together.
        self.bias = nn.Parameter(torch.zeros(4 * hidden))
        gates = 3 + arity if self.arity else 4
        self.weight = nn.Parameter(torch.empty(gates * hidden, max(self.arity, 1) * hidden))
        with torch.no_grad():
            for gate in self.word.split(hidden):
                nn.init.xavier_uniform_(gate)
            for gate in self.weight.split(hidden):
                for block in gate.split(hidden, dim=1):
                    block.copy_(nn.init.orthogonal_(torch.empty(hidden, hidden)))
            self.bias[3 * hidden :] = forget_bias

    def weight_matrices(self) -> list[Tensor]:
        """Return the matrices of words, and those of each gate and child."""
        H = self.output_size
        children = [block for gate in self.weight.split(H) for block in gate.split(H, dim=1)]
        return [*self.word.split(H), *children]

    def forward(self, x: Padded) -> Padded:
        levels = plan_levels(x, "Encoder 'tree-lstm'", self.arity)
        H, first = self.output_size, levels.leaves
        with _full_precision(x.data):
            order = levels.order if self.all_words else levels.order[:first]
            bias = self.bias if self.all_words else self.bias[: 3 * H]
            read = F.linear(
                _node_vectors(x, order, self.word), self.word, bias
            )  # (N or leaves, 3|4 * H)
            enter, leave, candidate = read[:first, : 3 * H].chunk(3, dim=1)
            candidate = F.dropout(candidate.tanh(), self.dropout, self.training)
            memory = enter.sigmoid() * candidate  # (leaves, H)
            leaves = leave.sigmoid() * memory.tanh()  # (leaves, H)
            base = self._inner_base(read[first:] if self.all_words else self.bias)
            keep = self._dropout_mask(levels, memory)
            cells = NaryTreeLSTMCell if self.arity else ChildSumTreeLSTMCell
            states = cells.apply(leaves, memory, base, self.weight, keep, levels)  # type: ignore[no-untyped-call] # (B*T, H)
            return _to_padded(x, states)

    def _inner_base(self, read: Tensor) -> Tensor:
        """Return the gate inputs of inner nodes without children, in the weights' order."""
        if not self.arity:
            return read
        enter, leave, candidate, forget = read.chunk(4, dim=-1)
        return torch.cat([enter, leave, *[forget] * self.arity, candidate], dim=-1)

    def _dropout_mask(self, levels: Levels, like: Tensor) -> Tensor:
        """Return the dropout mask of inner nodes' candidates; empty without dropout."""
        inner = levels.size - levels.leaves if self.dropout and self.training else 0
        return F.dropout(like.new_ones(inner, self.output_size), self.dropout)


def _full_precision(data: Tensor) -> torch.autocast:
    """States pass through many levels, each rounded again: no halves here, nor any in buffers."""
    return torch.autocast(data.device.type, enabled=False)


def _node_vectors(x: Padded, order: Tensor, like: Tensor) -> Tensor:
    """The vectors of the nodes at these places of the batch."""
    return x.data.flatten(0, 1).index_select(0, order).to(like.dtype)


def _to_padded(x: Padded, flat: Tensor) -> Padded:
    """States (B*T, H) as rows of the batch; their padding is zero already."""
    return replace(x, data=flat.unflatten(0, x.data.shape[:2]), subtokens=())
