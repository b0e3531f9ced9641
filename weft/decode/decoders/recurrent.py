"""Recurrent decoder: the source as initial state, at every step, or through attention.

B rows   T steps   S source steps   M width of encoder states   E embedding width
H hidden width   L layers   V words   F feature width   G rows of an output MLP
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import masked_softmax
from weft.attend.settings import ADDITIVE_ATTENTION, Attention
from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer, fold_beams
from weft.decode.search.state import SharedTensor, share, unwrap
from weft.embed.activations import check_sizes
from weft.encode import rnn
from weft.encode.cells import FormulaRNN
from weft.encode.rnn import Cell
from weft.errors import UserError
from weft.protocols import DecoderState, Section, Seq2SeqDecoder
from weft.registry import register

Readout = Literal["maxout", "tanh", "state"]
RNNState = tuple[Tensor, Tensor | None]  # hidden state and LSTM cell, each (B, L, H)


@dataclass(frozen=True)
class RecurrentState(DecoderState):
    """The state of a recurrent decoder; None for what its options do not need."""

    hidden: Tensor  # (B, L, H)
    cell: Tensor | None  # (B, L, H) of an LSTM
    vector: Tensor | None  # (B, M) source summary, an input of every step
    fed: Tensor | None  # (B, H) attentional vector of the previous step
    covered: Tensor | None  # (B, S) accumulated attention of each source step
    weights: Tensor | None  # (B, S) attention of the last step
    keys: SharedTensor | None  # (B, S, K) attention keys
    memory: SharedTensor | None  # (B, S, M)
    mask: SharedTensor | None  # (B, S)

    def per_prompt(self) -> "RecurrentState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        keys, memory, mask = share(self.keys), share(self.memory), share(self.mask)
        return replace(self, keys=keys, memory=memory, mask=mask)

    @property
    def attention_weights(self) -> Tensor | None:
        """Attention (B, S) of the last step."""
        return self.weights


def build_rnn(
    cell: Cell, input_size: int, hidden: int, layers: int, dropout: float
) -> nn.RNNBase | FormulaRNN:
    """Build unidirectional layers, initialised like the encoders."""
    return rnn.Recurrent(input_size, hidden, layers, cell, False, dropout).net


def unroll(net: nn.RNNBase | FormulaRNN, data: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
    """Return the states of every step (B, T, H), and the last state of every layer."""
    first = state[0].to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
    if state[1] is None:
        out, hidden = net(data, first)
        return out, (hidden.transpose(0, 1), None)
    second = state[1].to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
    out, (hidden, cell) = net(data, (first, second))
    return out, (hidden.transpose(0, 1), cell.transpose(0, 1))


def advance(
    net: nn.RNNBase | FormulaRNN, data: Tensor, hidden: Sequence[Tensor], cells: Sequence[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return hidden states and LSTM cells (B, H) of every layer after one input (B, E)."""
    after: list[Tensor] = []
    kept: list[Tensor] = []
    for layer in range(net.num_layers):
        if layer and net.dropout:
            data = F.dropout(data, net.dropout, net.training)
        before = [states[layer].to(data.dtype) for states in (hidden, cells) if states]
        data, *cell = _advance_layer(net, data, before, layer)
        after.append(data)
        kept += cell
    return after, kept


def _advance_layer(
    net: nn.RNNBase | FormulaRNN, data: Tensor, before: list[Tensor], layer: int
) -> Sequence[Tensor]:
    """Return the states (B, H) of one layer after one input (B, E)."""
    if isinstance(net, FormulaRNN):
        return next(net.steps(data[:, None], f"l{layer}", before))
    weights = net.all_weights[layer]
    if len(before) == 2:
        return torch.lstm_cell(data, before, *weights)
    step = torch.gru_cell if isinstance(net, nn.GRU) else torch.rnn_tanh_cell
    return [step(data, before[0], *weights)]


class DeepOutput(nn.Module):
    """The output MLP of Bahdanau et al. (2015): features from state, word and context.

    t̃ = U s_{j-1} + V E y_{j-1} + C c_j + b: "maxout" is the larger of each two rows of t̃, "tanh"
    is tanh(t̃). "state" is tanh(U s_j + b), of the new state alone.
    """

    def __init__(self, readout: Readout, width: int, hidden: int, memory_size: int):
        super().__init__()
        self.readout = readout
        rows = 2 * hidden if readout == "maxout" else hidden
        inputs = hidden if readout == "state" else hidden + width + memory_size
        self.project = nn.Linear(inputs, rows)

    def forward(self, before: Tensor, after: Tensor, words: Tensor, context: Tensor) -> Tensor:
        """Return features (B, T, H) of states before and after each step, words and contexts."""
        if self.readout == "state":
            features: Tensor = self.project(after).tanh()  # (B, T, H)
            return features
        joined = torch.cat([x.to(words.dtype) for x in (before, words, context)], dim=2)
        rows: Tensor = self.project(joined)  # (B, T, G)
        return rows.unflatten(2, (-1, 2)).amax(3) if self.readout == "maxout" else rows.tanh()


@register("decoder", "rnn")
class RecurrentDecoder(nn.Module, Seq2SeqDecoder):
    """A recurrent decoder with any cell of the encoder 'rnn'.

    The `summary` of the encoder states gives the initial state, s₀ = tanh(W c + b); "backward" is
    the backward direction at the first step. `source` adds nothing (Sutskever et al. 2014), the
    summary to every input (Cho et al. 2014), or `attention` in one of two orders.

    "luong" (Luong et al. 2015): the new state s_j attends, and tanh(W [c_j; s_j]) are the features.
    With `input_feeding` that vector is also part of the next input. "bahdanau" (Bahdanau et al.
    2015): s_{j-1} attends, s_j = cell([E y_{j-1}; c_j], s_{j-1}), and an MLP of state, word and
    context gives the features; `readout` chooses it. With `coverage` the attention score depends on
    the accumulated attention of each step (See et al. 2017). attention.score is additive by
    default.
    """

    def __init__(
        self,
        vocabulary_size: int,
        memory_size: int,
        directions: int = 1,
        width: int = 256,
        hidden: int = 256,
        layers: int = 1,
        cell: Cell = "lstm",
        source: Literal["start", "every", "attention"] = "attention",
        attention: Literal["luong", "bahdanau"] = "luong",
        readout: Readout = "maxout",
        input_feeding: bool = False,
        coverage: bool = False,
        summary: Literal["last", "mean", "max", "backward"] = "last",
        dropout: float = 0.0,
        tied: bool = False,
        attention_config: Attention = ADDITIVE_ATTENTION,
    ):
        super().__init__()
        where = "decoder 'rnn'"
        check_sizes(where, dropout, width=width, hidden=hidden, layers=layers)
        self.attends = source == "attention"
        self.context_first = attention == "bahdanau"
        needed = {
            "input_feeding": input_feeding,
            "coverage": coverage,
            "attention": self.context_first,
        }
        for option in [name for name, wanted in needed.items() if wanted and not self.attends]:
            raise UserError(f"{where}: '{option}' needs source = \"attention\", got {source!r}.")
        if coverage and attention_config.score != "additive":
            raise UserError(
                f"{where}: 'coverage' is a term of the additive score; it needs attention.score = "
                f'"additive", got {attention_config.score!r}.'
            )
        if self.context_first and input_feeding:
            raise UserError(f"{where}: 'input_feeding' needs attention = \"luong\".")
        if not self.context_first and readout != "maxout":
            raise UserError(f"{where}: 'readout' needs attention = \"bahdanau\".")
        if summary == "backward" and directions != 2:
            raise UserError(f'{where}: summary = "backward" needs encoder.bidirectional = true.')
        self.every, self.feeds, self.covers = source == "every", input_feeding, coverage
        deviation = min(0.1, width**-0.5) if tied else 0.1
        self.words = OutputLayer(vocabulary_size, width, hidden, tied, deviation)
        self.backward_only = summary == "backward"
        if self.backward_only and directions != 2:
            raise UserError(f'{where}: summary = "backward" needs encoder.bidirectional = true.')
        vector_size = memory_size // 2 if self.backward_only else memory_size
        added = memory_size if self.context_first else vector_size if self.every else 0
        entering = width + added + (hidden if input_feeding else 0)
        self.net = build_rnn(cell, entering, hidden, layers, dropout)
        self.hidden_size, self.layers, self.kept = hidden, layers, rnn.num_states(cell)
        sizes = {"input_size": memory_size, "directions": directions}
        pool = {"kind": "last" if self.backward_only else summary}
        self.summary = registry.build("pool", pool, **sizes)
        self.first = nn.Linear(vector_size, self.kept * layers * hidden)
        self.dropout = nn.Dropout(dropout)
        if self.attends:
            spec = {"kind": attention_config.score, **({"coverage": True} if coverage else {})}
            sizes = {"query_size": hidden, "memory_size": memory_size}
            self.score = registry.build("score", spec, **sizes)
        if self.context_first:
            self.mix: nn.Module = DeepOutput(readout, width, hidden, memory_size)
        elif self.attends:
            self.mix = nn.Linear(memory_size + hidden, hidden)

    @classmethod
    def uses_attention(cls, options: Section) -> bool:
        """Return True if the source is read through attention."""
        return bool(options["source"] == "attention")

    def start(self, memory: Padded, weights: bool = True) -> RecurrentState:
        """Return the initial state; with attention, `weights` are always recorded."""
        memory = memory.with_data(memory.data)
        vector = self._summarise(memory)  # (B, M)
        first = self.first(vector).tanh().view(len(memory), self.kept, self.layers, -1)
        hidden = first[:, 0]  # (B, L, H)
        cell = first[:, 1] if self.kept == 2 else None  # (B, L, H)
        if not self.attends:
            summary = vector if self.every else None
            return RecurrentState(hidden, cell, summary, None, None, None, None, None, None)
        empty = memory.data.new_zeros(memory.data.shape[:2], dtype=torch.float32)  # (B, S)
        return RecurrentState(
            hidden,
            cell,
            None,
            torch.zeros_like(hidden[:, 0]) if self.feeds else None,
            empty if self.covers else None,
            empty,
            self.score.prepare(memory.data),
            memory.data,
            memory.mask,
        )

    def source_vector(self, memory: Padded) -> Tensor | None:
        """Return the summary (B, M) of the source; None with attention, which reads all states."""
        return None if self.attends else self._summarise(memory)

    def _summarise(self, memory: Padded) -> Tensor:
        memory = memory.with_data(memory.data)
        vector: Tensor = self.summary(memory)[0]  # (B, M)
        if self.backward_only:
            vector = vector.chunk(2, dim=1)[1]  # (B, M/2)
        return vector

    def step(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        return self.words.logits(output.features[:, 0]), state

    def step_features(
        self, ids: Tensor, state: RecurrentState
    ) -> tuple[DecoderOutput, RecurrentState]:
        """Run one step without the output layer, (B, 1, F)."""
        return self._forward_steps(self.dropout(self.words.embed(ids[:, None])), state)

    def read(self, targets: Padded, memory: Padded) -> DecoderOutput:
        """Run all steps, at once unless a step needs the attention of the previous one."""
        state = self.start(memory)
        vectors = self.dropout(self.words.embed(targets.data))  # (B, T, E)
        if not vectors.shape[1]:
            return self._empty_output(vectors, state)
        if self.context_first or not (self.feeds or self.covers):
            return self._forward_steps(vectors, state)[0]
        outputs = []
        for vector in vectors.split(1, dim=1):  # (B, 1, E)
            output, state = self._forward_steps(vector, state)
            outputs.append(output)
        features, hidden, weights = zip(*outputs, strict=True)
        return DecoderOutput(torch.cat(features, 1), torch.cat(hidden, 1), torch.cat(weights, 1))

    def features(self, targets: Padded, memory: Padded) -> Tensor:
        """Return features (B, T, F) of every step."""
        return self.read(targets, memory).features

    def forward(self, targets: Padded, memory: Padded) -> Tensor:
        logits = self.words.logits(self.features(targets, memory))  # (B, T, V)
        return logits

    def _forward_steps(
        self, vectors: Tensor, state: RecurrentState
    ) -> tuple[DecoderOutput, RecurrentState]:
        """Run one step per vector; if Luong's steps feed on each other, only one is allowed."""
        if self.context_first:
            return self._forward_bahdanau(vectors, state)
        entering = [vectors]
        if state.vector is not None:
            entering.append(state.vector[:, None].expand(-1, vectors.shape[1], -1))
        if state.fed is not None:
            entering.append(state.fed[:, None])
        data = torch.cat([part.to(vectors.dtype) for part in entering], dim=2)
        out, (hidden, cell) = unroll(self.net, data, (state.hidden, state.cell))
        state = replace(state, hidden=hidden, cell=cell)
        if not self.attends:
            return DecoderOutput(self.words.narrow(self.dropout(out)), out, None), state
        context, weights = self._attend(out, state)
        joined = self.mix(torch.cat([context, out.to(context.dtype)], dim=2)).tanh()  # (B, T, H)
        state = _record(state, weights)
        if state.fed is not None:
            state = replace(state, fed=joined[:, -1])
        return DecoderOutput(self.words.narrow(self.dropout(joined)), out, weights), state

    def _forward_bahdanau(
        self, vectors: Tensor, state: RecurrentState
    ) -> tuple[DecoderOutput, RecurrentState]:
        """Run one step per vector: the previous state attends, and the context enters the cell."""
        hidden = list(state.hidden.unbind(1))
        cells = [] if state.cell is None else list(state.cell.unbind(1))
        states, contexts, weights = [hidden[-1].to(vectors.dtype)], [], []
        for vector in vectors.unbind(1):  # (B, E)
            context, attended = self._attend(hidden[-1][:, None], state)
            data = torch.cat([vector, context[:, 0].to(vector.dtype)], dim=1)
            hidden, cells = advance(self.net, data, hidden, cells)
            state = _record(state, attended)
            states.append(hidden[-1])
            contexts.append(context)
            weights.append(attended)
        after = torch.stack(states[1:], 1)  # (B, T, H)
        before = torch.stack(states[:-1], 1)  # (B, T, H)
        features = self.mix(before, after, vectors, torch.cat(contexts, 1))  # (B, T, H)
        cell = torch.stack(cells, 1) if cells else None
        state = replace(state, hidden=torch.stack(hidden, 1), cell=cell)
        output = self.words.narrow(self.dropout(features))
        return DecoderOutput(output, after, torch.cat(weights, 1)), state

    def _attend(self, queries: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return the contexts (B, T, M) and the weights (B, T, S)."""
        assert state.keys is not None
        assert state.memory is not None
        assert state.mask is not None
        keys, memory, mask = unwrap(state.keys), unwrap(state.memory), unwrap(state.mask)
        if state.covered is None:
            scores = self.score.compare(fold_beams(queries, len(keys)), keys)
        else:
            times = len(queries) // max(len(keys), 1)
            keys, memory, mask = (x.repeat_interleave(times, 0) for x in (keys, memory, mask))
            scores = self.score.compare(queries, keys, state.covered)
        weights = masked_softmax(scores, mask[:, None])
        context = weights.to(memory.dtype) @ memory
        context = context.reshape(*queries.shape[:2], context.shape[2])  # (B, T, M)
        return context, weights.reshape(*queries.shape[:2], weights.shape[2])

    def _empty_output(self, vectors: Tensor, state: RecurrentState) -> DecoderOutput:
        none = vectors.new_zeros(*vectors.shape[:2], self.hidden_size)  # (B, 0, H)
        weights = None if state.weights is None else state.weights[:, None][:, :0]
        return DecoderOutput(self.words.narrow(none), none, weights)


def _record(state: RecurrentState, weights: Tensor) -> RecurrentState:
    """Return the state with the attention (B, 1, S) of its last step, added to the coverage."""
    last = weights[:, -1]  # (B, S)
    covered = None if state.covered is None else state.covered + last
    return replace(state, weights=last, covered=covered)
