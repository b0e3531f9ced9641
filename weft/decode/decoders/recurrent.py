"""Recurrent decoder: the source as initial state, at every step, or through attention.

B rows   T steps   S source steps   M width of encoder states   E embedding width
H hidden width   L layers   V words   F feature width
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import masked_softmax
from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer, fold_beams
from weft.decode.search.state import SharedTensor, share, unwrap
from weft.embed.activations import check_sizes
from weft.encode import rnn
from weft.errors import UserError
from weft.protocols import DecoderState, Seq2SeqDecoder
from weft.registry import register

Cell = Literal["rnn", "gru", "lstm"]
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


def build_rnn(cell: Cell, input_size: int, hidden: int, layers: int, dropout: float) -> nn.RNNBase:
    """Build unidirectional layers, initialised like the encoders."""
    return rnn.Recurrent(input_size, hidden, layers, cell, False, dropout).net


def unroll(net: nn.RNNBase, data: Tensor, state: RNNState) -> tuple[Tensor, RNNState]:
    """Return the states of every step (B, T, H), and the last state of every layer."""
    first = state[0].to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
    if state[1] is None:
        out, hidden = net(data, first)
        return out, (hidden.transpose(0, 1), None)
    second = state[1].to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
    out, (hidden, cell) = net(data, (first, second))
    return out, (hidden.transpose(0, 1), cell.transpose(0, 1))


@register("decoder", "rnn")
class RecurrentDecoder(nn.Module, Seq2SeqDecoder):
    """An Elman, GRU or LSTM decoder.

    The `summary` of the encoder states gives the initial state, s₀ = tanh(W c + b). `source` adds
    nothing (Sutskever et al. 2014), the summary to every input (Cho et al. 2014), or attention
    (Luong et al. 2015): state s attends, c is the context, and tanh(W [c; s]) are the features.
    With `input_feeding` that vector is also part of the next input. With `coverage` the attention
    score depends on the accumulated attention of each step (See et al. 2017).
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
        score: str = "additive",
        input_feeding: bool = False,
        coverage: bool = False,
        summary: Literal["last", "mean", "max"] = "last",
        dropout: float = 0.0,
        tied: bool = False,
    ):
        super().__init__()
        where = "decoder 'rnn'"
        check_sizes(where, dropout, width=width, hidden=hidden, layers=layers)
        self.attends = source == "attention"
        if (input_feeding or coverage) and not self.attends:
            option = "input_feeding" if input_feeding else "coverage"
            raise UserError(f"{where}: '{option}' needs source = \"attention\", got {source!r}.")
        if coverage and score != "additive":
            raise UserError(f"{where}: 'coverage' needs score = \"additive\", got {score!r}.")
        self.every, self.feeds, self.covers = source == "every", input_feeding, coverage
        deviation = min(0.1, width**-0.5) if tied else 0.1
        self.words = OutputLayer(vocabulary_size, width, hidden, tied, deviation)
        entering = width + (memory_size if self.every else 0) + (hidden if input_feeding else 0)
        self.net = build_rnn(cell, entering, hidden, layers, dropout)
        self.hidden_size, self.layers, self.kept = hidden, layers, 2 if cell == "lstm" else 1
        sizes = {"input_size": memory_size, "directions": directions}
        self.summary = registry.build("pool", {"kind": summary}, **sizes)
        self.first = nn.Linear(memory_size, self.kept * layers * hidden)
        self.dropout = nn.Dropout(dropout)
        if self.attends:
            spec = {"kind": score, **({"coverage": True} if coverage else {})}
            sizes = {"query_size": hidden, "memory_size": memory_size}
            self.score = registry.build("score", spec, **sizes)
            self.mix = nn.Linear(memory_size + hidden, hidden)

    def start(self, memory: Padded, weights: bool = True) -> RecurrentState:
        """Return the initial state; with attention, `weights` are always recorded."""
        memory = memory.with_data(memory.data)
        vector = self.summary(memory)[0]  # (B, M)
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
        if not (self.feeds or self.covers):
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
        """Run one step per vector; with input feeding or coverage only one is allowed."""
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
        joined, weights = self._attend(out, state)
        state = replace(state, weights=weights[:, -1])
        if state.fed is not None:
            state = replace(state, fed=joined[:, -1])
        if state.covered is not None:
            state = replace(state, covered=state.covered + weights[:, -1])
        return DecoderOutput(self.words.narrow(self.dropout(joined)), out, weights), state

    def _attend(self, queries: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return the attentional vectors (B, T, H) and the weights (B, T, S)."""
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
        joined = self.mix(torch.cat([context, queries.to(context.dtype)], dim=2)).tanh()
        return joined, weights.reshape(*queries.shape[:2], weights.shape[2])

    def _empty_output(self, vectors: Tensor, state: RecurrentState) -> DecoderOutput:
        none = vectors.new_zeros(*vectors.shape[:2], self.hidden_size)  # (B, 0, H)
        weights = None if state.weights is None else state.weights[:, None][:, :0]
        return DecoderOutput(self.words.narrow(none), none, weights)
