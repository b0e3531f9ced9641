"""Recurrent cells that the fused kernels do not have, by their formulas.

They are the steps of a lecture from a sum to the LSTM (s + x, tanh(s + x + b), the LSTM with one
state, the LSTM with tied gates), and the GRU as Cho et al. (2014) write it.

B rows   T steps   E input width   H hidden width   G gates
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.protocols import WeightMatrices

# (W x_t + b, the states before, U) -> the states after; the first is the output of the step.
StepFunction = Callable[[Tensor, Sequence[Tensor], Tensor], list[Tensor]]
FORGET = "forget"


@dataclass(frozen=True)
class Cell:
    """One step of a recurrent network, and the matrices it needs."""

    step: StepFunction
    gates: tuple[str, ...]  # rows of W, U and b, H each
    num_states: int = 1
    adds_input: bool = False  # x itself is added: W only fits its width, and there is no U
    has_bias: bool = True


def _sum_step(x: Tensor, state: Sequence[Tensor], U: Tensor) -> list[Tensor]:
    """s_t = s_{t−1} + x_t."""
    return [state[0] + x]


def _tanh_sum_step(x: Tensor, state: Sequence[Tensor], U: Tensor) -> list[Tensor]:
    """s_t = tanh(s_{t−1} + x_t + b); x comes with b."""
    return [(state[0] + x).tanh()]


def _prototype_lstm_step(x: Tensor, state: Sequence[Tensor], U: Tensor) -> list[Tensor]:
    """s_t = s_{t−1} ⊙ f_t + s̃_t ⊙ i_t, where s̃_t, f_t and i_t see s_{t−1} and x_t."""
    keep, enter, fresh = torch.addmm(x, state[0], U.T).chunk(3, dim=1)
    return [state[0] * keep.sigmoid() + fresh.tanh() * enter.sigmoid()]


def _tied_lstm_step(x: Tensor, state: Sequence[Tensor], U: Tensor) -> list[Tensor]:
    """c_t = c_{t−1} ⊙ f_t + c̃_t ⊙ (1 − f_t), h_t = tanh(c_t) ⊙ o_t."""
    keep, fresh, leave = torch.addmm(x, state[0], U.T).chunk(3, dim=1)
    cell = torch.lerp(fresh.tanh(), state[1], keep.sigmoid())
    return [cell.tanh() * leave.sigmoid(), cell]


def _reset_before_gru_step(x: Tensor, state: Sequence[Tensor], U: Tensor) -> list[Tensor]:
    """h̃_t = tanh(W x_t + U (r_t ⊙ h_{t−1})), h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ h̃_t."""
    h, H = state[0], state[0].shape[1]
    gates = torch.addmm(x[:, : 2 * H], h, U[: 2 * H].T).sigmoid()  # (B, 2*H)
    update, reset = gates.chunk(2, dim=1)
    fresh = torch.addmm(x[:, 2 * H :], reset * h, U[2 * H :].T).tanh()  # (B, H)
    return [torch.lerp(h, fresh, update)]


FORMULA_CELLS = {
    "sum": Cell(_sum_step, ("input",), adds_input=True, has_bias=False),
    "tanh-sum": Cell(_tanh_sum_step, ("input",), adds_input=True),
    "prototype-lstm": Cell(_prototype_lstm_step, (FORGET, "input", "candidate")),
    "tied-lstm": Cell(_tied_lstm_step, (FORGET, "candidate", "output"), num_states=2),
    "gru-reset-before": Cell(_reset_before_gru_step, ("update", "reset", "candidate")),
}


class FormulaRNN(nn.Module, WeightMatrices):
    """Layers of one of these cells, with the names and the order of weights of `nn.RNNBase`.

    The products with the inputs of all steps are one; only the recurrent part is a loop.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bidirectional: bool,
        dropout: float,
    ):
        super().__init__()
        self.cell = FORMULA_CELLS[cell]
        self.hidden_size, self.num_layers, self.dropout = hidden_size, num_layers, dropout
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            width = hidden_size * directions if layer else input_size
            for suffix in ("", "_reverse")[:directions]:
                self._add_weights(f"l{layer}{suffix}", width)

    def _add_weights(self, name: str, width: int) -> None:
        """Add W, U and b of a layer in one direction, those that its cell has."""
        rows = len(self.cell.gates) * self.hidden_size
        shapes = {
            "weight_ih": None if self.cell.adds_input and width == rows else (rows, width),
            "weight_hh": None if self.cell.adds_input else (rows, self.hidden_size),
            "bias_ih": (rows,) if self.cell.has_bias else None,
        }
        for kind, shape in shapes.items():
            weight = None if shape is None else nn.Parameter(torch.zeros(shape))
            self.register_parameter(f"{kind}_{name}", weight)

    def weight_matrices(self) -> list[Tensor]:
        """Return the matrix of each gate."""
        weights = [p for name, p in self.named_parameters() if name.startswith("weight")]
        return [gate for weight in weights for gate in weight.split(self.hidden_size)]

    def forward(
        self, data: Tensor, state: Tensor | tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run all layers in one direction, from and to states (L, B, H), as `nn.RNNBase` does."""
        first = (state,) if isinstance(state, Tensor) else state
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                data = F.dropout(data, self.dropout, self.training)
            data, after = self.run_layer(data, f"l{layer}", [part[layer] for part in first])
            last.append(after)
        states = tuple(torch.stack(parts) for parts in zip(*last, strict=True))  # (L, B, H) each
        return data, states[0] if isinstance(state, Tensor) else states

    def run_layer(
        self,
        data: Tensor,
        name: str,
        state: Sequence[Tensor],
        lengths: Tensor | None = None,
        weight_drop: float = 0.0,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs (B, T, H) of a layer in one direction, and its last states (B, H).

        The last states of a row are those of its last real step, if `lengths` says where that is.
        """
        taken = zip(*self.steps(data, name, state, weight_drop), strict=True)
        by_step = [torch.stack(parts, dim=1) for parts in taken]  # (B, T, H) each
        if lengths is None:
            return by_step[0], [states[:, -1] for states in by_step]
        ends = (lengths - 1).clamp(min=0).to(data.device)
        rows = torch.arange(len(data), device=data.device)
        return by_step[0], [states[rows, ends] for states in by_step]

    def steps(
        self, data: Tensor, name: str, state: Sequence[Tensor], weight_drop: float = 0.0
    ) -> Iterator[list[Tensor]]:
        """Yield the states after each step of a layer in one direction."""
        W, U, b = (
            getattr(self, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih")
        )
        inputs = data if W is None else F.linear(data, W)  # (B, T, G*H)
        inputs = inputs if b is None else inputs + b.to(inputs.dtype)
        recurrent = inputs.new_zeros(0) if U is None else U
        if weight_drop:
            recurrent = F.dropout(recurrent, weight_drop)
        current = [part.to(inputs.dtype) for part in state]
        for x in inputs.unbind(1):  # (B, G*H)
            current = self.cell.step(x, current, recurrent)
            yield current
