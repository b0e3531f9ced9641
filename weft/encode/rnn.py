"""Recurrent encoders: any cell, from a sum to the LSTM. Packing and reversing are private here.

B rows   T steps   E input width   H hidden width   L layers   D directions
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from weft.batch import Padded
from weft.embed.activations import check_sizes
from weft.embed.characters import reverse_rows
from weft.encode.cells import FORGET, FORMULA_CELLS, FormulaRNN
from weft.errors import UserError
from weft.protocols import Encoder
from weft.registry import register

Cell = Literal[
    "sum", "tanh-sum", "rnn", "prototype-lstm", "lstm", "tied-lstm", "gru", "gru-reset-before"
]
# h, or (h, c) of a cell with two states; each (B, L*D, H), the directions of a layer side by side.
RecurrentState: TypeAlias = Tensor | tuple[Tensor, Tensor]
FUSED_CELLS: dict[str, Callable[..., nn.RNNBase]] = {
    "rnn": nn.RNN,
    "gru": nn.GRU,
    "lstm": nn.LSTM,
}
GATES = {"rnn": 1, "gru": 3, "lstm": 4} | {n: len(c.gates) for n, c in FORMULA_CELLS.items()}
# The forget gate's place among the gates; PyTorch's LSTM has input, forget, cell, output.
FORGET_GATE = {"lstm": 1} | {
    name: cell.gates.index(FORGET) for name, cell in FORMULA_CELLS.items() if FORGET in cell.gates
}
WEIGHT_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
DIRECTION_NAMES = (" forward", " backward")


def num_states(cell: Cell) -> int:
    """Return how many states a cell keeps between steps: an LSTM two, hidden and cell."""
    return FORMULA_CELLS[cell].num_states if cell in FORMULA_CELLS else 1 + (cell == "lstm")


def build_net(
    cell: Cell, input_size: int, hidden: int, layers: int, bidirectional: bool, dropout: float
) -> nn.RNNBase | FormulaRNN:
    """Build the layers of a cell: PyTorch's fused ones, or those of its formulas."""
    dropout = dropout if layers > 1 else 0.0
    if cell in FORMULA_CELLS:
        return FormulaRNN(cell, input_size, hidden, layers, bidirectional, dropout)
    return FUSED_CELLS[cell](
        input_size, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=dropout
    )


@register("encoder", "rnn")
class Recurrent(nn.Module, Encoder):
    """A stack of recurrent layers of any cell, in one direction or both.

    The states of two directions lie side by side: forward in the first half, backward in the
    second. `output_layer` adds Elman's y = tanh(W s + b), to each direction by itself. Forget gates
    start with the bias `forget_bias`. The cells, from simple to deep:

    - `sum`: s = s' + x; where the widths differ, x is first multiplied by a matrix
    - `tanh-sum`: s = tanh(s' + x + b)
    - `rnn`: s = tanh(U s' + W x + b) (Elman 1990)
    - `prototype-lstm`: s = s' ⊙ f + s̃ ⊙ i, gates but one state for output and memory
    - `lstm`: c = c' ⊙ f + c̃ ⊙ i, h = tanh(c) ⊙ o (Hochreiter and Schmidhuber 1997)
    - `tied-lstm`: an LSTM with i = 1 − f
    - `gru`: h̃ = tanh(W x + r ⊙ (U h')), as the fused kernels compute it
    - `gru-reset-before`: h̃ = tanh(W x + U (r ⊙ h')) (Cho et al. 2014)

    The initial state is zero, trained, or the argument `initial_state` of a call.
    """

    def __init__(
        self,
        input_size: int,
        hidden: int = 128,
        layers: int = 1,
        cell: Cell = "lstm",
        bidirectional: bool = True,
        dropout: float = 0.0,
        initial: Literal["zero", "trained"] = "zero",
        forget_bias: float = 1.0,
        output_layer: bool = False,
    ):
        super().__init__()
        check_sizes("encoder 'rnn'", dropout, hidden=hidden, layers=layers)
        self.directions = 2 if bidirectional else 1
        self.output_size = hidden * self.directions
        self.cell = cell
        self.num_states = num_states(cell)
        self.net = build_net(cell, input_size, hidden, layers, bidirectional, dropout)
        _initialise(self.net, cell, forget_bias)
        self.starts = nn.ParameterList(
            nn.Parameter(torch.zeros(layers * self.directions, hidden))
            for _ in range(self.num_states if initial == "trained" else 0)
        )
        self.outputs = nn.ModuleList(
            nn.Linear(hidden, hidden) for _ in range(self.directions if output_layer else 0)
        )

    def forward(self, x: Padded, initial_state: RecurrentState | None = None) -> Padded:
        data = x.data  # (B, T, E)
        first = self._initial_state(data, initial_state)
        if not data.numel():
            return x.with_data(data.new_zeros(*data.shape[:2], self.output_size))
        # Padding on the right can only disturb the backward direction. There, measured with an
        # LSTM of 128 both ways, training on one CPU core: 32 rows of 18-22 steps take 20 ms packed
        # and 12 ms reversed by hand, 50 rows of 200-220 steps 930 and 243 ms, since packing leaves
        # the oneDNN kernels. cuDNN takes packed input as it is and runs both directions at once.
        fused = not isinstance(self.net, FormulaRNN)
        if fused and (x.full or self.directions == 1):
            states, _ = self.net(data, self._torch_state(first))
        elif fused and not data.is_cpu:
            states, _ = self._run_packed(x, first)
        else:
            states, _ = self._run_layers(x, first)
        return x.with_data(self._apply_output(states))

    def encode_with_state(
        self, x: Padded, initial_state: RecurrentState | None = None
    ) -> tuple[Padded, RecurrentState]:
        """Return the states of every step, and the last state of each layer and direction.

        That state is the `initial_state` of a text that continues this one. An empty row keeps its
        initial state.
        """
        first = self._initial_state(x.data, initial_state)
        zero = x.data.new_zeros(self.net.num_layers * self.directions, 1, self.net.hidden_size)
        before = first or [zero.expand(-1, len(x), -1)] * self.num_states  # (L*D, B, H) each
        if not x.data.numel():
            states, last = self(x, initial_state), before
        elif isinstance(self.net, FormulaRNN):
            data, last = self._run_layers(x, first)
            states = x.with_data(self._apply_output(data))
        else:
            data, last = self._run_packed(x, first)
            states = x.with_data(self._apply_output(data))
        empty = (x.lengths == 0).to(x.data.device)[:, None]
        kept = [torch.where(empty, a, b).transpose(0, 1) for a, b in zip(before, last, strict=True)]
        return states, kept[0] if self.num_states == 1 else (kept[0], kept[1])

    def unroll(self, x: Padded) -> tuple[Padded, dict[str, list[Tensor]]]:
        """Run step by step without dropout, and return the states of every step.

        The fused kernels keep what happens between steps to themselves; here each state is a
        tensor (B, H) with its own gradient. States are listed by layer and direction in
        the order they are taken: the backward direction's begin at each row's last real step.
        """
        if not x.data.numel():
            return self(x), {}
        states, first = x.data, self._initial_state(x.data, None)  # (B, T, E)
        taken: dict[str, list[Tensor]] = {}
        for layer in range(self.net.num_layers):
            halves = []
            for side in range(self.directions):
                name = f"layer {layer + 1}{DIRECTION_NAMES[side] if self.directions == 2 else ''}"
                steps = reverse_rows(states, x.lengths) if side else states
                state = self._layer_state(steps, self.directions * layer + side, first)
                taken[name], cells = unroll_layer(self.net, self.cell, steps, state, layer, side)
                if cells:
                    taken[f"{name} cell"] = cells
                half = torch.stack(taken[name], dim=1)  # (B, T, H)
                halves.append(reverse_rows(half, x.lengths) if side else half)
            states = torch.cat(halves, dim=2)  # (B, T, D*H)
        return x.with_data(self._apply_output(states)), taken

    def _apply_output(self, states: Tensor) -> Tensor:
        """Elman's output layer, where there is one."""
        if self.outputs:
            halves = states.chunk(self.directions, dim=2)
            outputs = [layer(half) for layer, half in zip(self.outputs, halves, strict=True)]
            states = torch.cat(outputs, dim=2).tanh()  # (B, T, D*H)
        return states

    def _initial_state(self, like: Tensor, state: RecurrentState | None) -> list[Tensor]:
        """The states before the first step, each (L*D, B, H); none where they are zero."""
        rows = len(like)
        if state is None:
            return [s.to(like.dtype)[:, None].expand(-1, rows, -1) for s in self.starts]
        parts = [state] if isinstance(state, Tensor) else list(state)
        wanted = (rows, self.net.num_layers * self.directions, self.net.hidden_size)
        if len(parts) != self.num_states or any(part.shape != wanted for part in parts):
            shape = " × ".join(map(str, wanted))
            found = ", ".join(" × ".join(map(str, part.shape)) for part in parts)
            two = "two tensors, h and c, of" if self.num_states == 2 else "one tensor of"
            raise UserError(
                f"encoder 'rnn': initial_state of cell '{self.cell}' should be {two} {shape} (rows "
                f"× layers and directions × hidden), got {found}."
            )
        return [part.to(like.dtype).transpose(0, 1) for part in parts]

    def _torch_state(self, first: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...] | None:
        """The state before the first step, in the form PyTorch wants it."""
        if not first:
            return None
        wide = tuple(part.contiguous() for part in first)
        return wide if self.cell == "lstm" else wide[0]

    def _layer_state(self, data: Tensor, which: int, first: Sequence[Tensor]) -> Sequence[Tensor]:
        """The states (B, H) before the first step of a layer in one direction."""
        if first:
            return [part[which] for part in first]
        return [data.new_zeros(len(data), self.net.hidden_size)] * self.num_states

    def _run_packed(self, x: Padded, first: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the states, and the last ones (L*D, B, H) of each row."""
        lengths = x.lengths.clamp(min=1)  # PyTorch refuses empty rows; `with_data` empties them
        packed = pack_padded_sequence(x.data, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.net(packed, self._torch_state(first))
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=x.data.shape[1])
        return padded, [last] if isinstance(last, Tensor) else list(last)

    def _run_layers(self, x: Padded, first: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Layer by layer: once as it is, once with each row's real steps back to front.

        With the states come the last ones (L*D, B, H) of each row, if the cell is a formula: a
        fused one has run on into the padding.
        """
        states, last = x.data, []  # (B, T, E)
        for layer in range(self.net.num_layers):
            if layer and self.net.dropout:
                states = F.dropout(states, self.net.dropout, self.training)
            halves = []
            for side in range(self.directions):
                steps = reverse_rows(states, x.lengths) if side else states
                half, after = self._run_layer(steps, x.lengths, layer, side, first)
                halves.append(reverse_rows(half, x.lengths) if side else half)
                last.append(after)
            states = torch.cat(halves, dim=2)  # (B, T, D*H)
        return states, [torch.stack(parts) for parts in zip(*last, strict=True)]

    def _run_layer(
        self, data: Tensor, lengths: Tensor, layer: int, side: int, first: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """One layer in one direction, with its weights out of the whole stack."""
        name = f"l{layer}{'_reverse' if side else ''}"
        state = self._layer_state(data, self.directions * layer + side, first)
        if isinstance(self.net, FormulaRNN):
            return self.net.run_layer(data, name, state, lengths)
        weights = [getattr(self.net, f"{kind}_{name}") for kind in WEIGHT_NAMES]
        ready = [part[None].contiguous() for part in state]  # (1, B, H) each
        rest = (weights, True, 1, 0.0, self.training, False, True)
        if self.cell == "lstm":
            return torch.lstm(data, (ready[0], ready[1]), *rest)[0], []
        run = torch.gru if self.cell == "gru" else torch.rnn_tanh
        return run(data, ready[0], *rest)[0], []


def unroll_layer(
    net: nn.RNNBase | FormulaRNN,
    cell: Cell,
    data: Tensor,
    state: Sequence[Tensor],
    layer: int,
    side: int = 0,
) -> tuple[list[Tensor], list[Tensor]]:
    """Run one layer step by step from `state`; return its hidden states, and an LSTM's cells."""
    name = f"l{layer}{'_reverse' if side else ''}"
    if isinstance(net, FormulaRNN):
        taken = list(net.steps(data, name, state[: num_states(cell)]))
    else:
        weights = [getattr(net, f"{kind}_{name}") for kind in WEIGHT_NAMES]
        taken = []
        for x in data.unbind(1):  # (B, E)
            if cell == "lstm":
                state = _lstm_step(x, state, *weights)
            else:
                one = torch.gru_cell if cell == "gru" else torch.rnn_tanh_cell
                state = [one(x, state[0], *weights)]
            taken.append(list(state))
    cells = [states[1] for states in taken] if num_states(cell) == 2 else []
    return [states[0] for states in taken], cells


def _lstm_step(
    x: Tensor, state: Sequence[Tensor], W: Tensor, U: Tensor, b: Tensor, d: Tensor
) -> list[Tensor]:
    """One step by the formulas; a fused one would hide how the hidden state hangs on the cell."""
    gates = F.linear(x, W, b) + F.linear(state[0], U, d)  # (B, 4*H)
    enter, keep, fresh, leave = gates.chunk(4, dim=1)
    cell = keep.sigmoid() * state[1] + enter.sigmoid() * fresh.tanh()
    return [leave.sigmoid() * cell.tanh(), cell]


def _initialise(net: nn.RNNBase | FormulaRNN, cell: Cell, forget_bias: float) -> None:
    """Each gate's input matrix by Xavier, its recurrent one orthogonal, biases zero."""
    H = net.hidden_size
    for name, weight in net.named_parameters():
        with torch.no_grad():
            if name.startswith("bias"):
                weight.zero_()
                if cell in FORGET_GATE and name.startswith("bias_ih"):
                    forget = FORGET_GATE[cell]
                    weight[forget * H : (forget + 1) * H] = forget_bias
                continue
            for gate in weight.chunk(GATES[cell]):
                fresh = torch.empty_like(gate)
                if name.startswith("weight_hh"):
                    gate.copy_(nn.init.orthogonal_(fresh))
                else:
                    gate.copy_(nn.init.xavier_uniform_(fresh))
