"""Language models: feed-forward (NNLM), recurrent with carried state, and bidirectional.

B rows   T steps   V words   E embedding width   H hidden width   L layers   C window words
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
from weft.decode.decoders.recurrent import RNNState, build_rnn, unroll
from weft.embed.activations import ACTIVATIONS, Activation, check_sizes
from weft.embed.characters import reverse_rows
from weft.encode import rnn
from weft.encode.cells import FormulaRNN
from weft.encode.rnn import Cell
from weft.errors import UserError
from weft.protocols import LanguageModelDecoder, State
from weft.registry import register

# Inputs, initial states and weights -> the states of every step, and the last ones.
KERNELS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "rnn": torch.rnn_tanh,
    "gru": torch.gru,
    "lstm": torch.lstm,
}


class BPTTOutput(NamedTuple):
    """The output of a language model for one window of text, and the state after it."""

    features: Tensor  # (B, T, F) inputs of the output layer
    state: State
    raw: Tensor  # (B, T, H) states of the last layer
    dropped: Tensor  # (B, T, H) the same after dropout


@register("decoder", "nnlm")
class FeedForwardLM(nn.Module, LanguageModelDecoder):
    """The neural probabilistic language model (Bengio et al. 2003).

    The vectors x of the last `context` words give b + W x + U f(d + H x); f is the `activation`,
    and `direct` adds the direct connections W. Zero vectors precede the text.
    """

    causal, is_stateful = True, True

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 100,
        context: int = 4,
        hidden: int = 200,
        direct: bool = False,
        dropout: float = 0.0,
        tied: bool = False,
        activation: Activation = "tanh",
    ):
        super().__init__()
        where = "decoder 'nnlm'"
        check_sizes(where, dropout, width=width, context=context, hidden=hidden)
        if direct and tied:
            raise UserError(f"{where}: 'direct' needs a separate matrix and excludes 'tied'.")
        self.context, self.direct = context, direct
        features = hidden + (context * width if direct else 0)
        self.words = OutputLayer(vocabulary_size, width, features, tied)
        self.hidden = nn.Linear(context * width, hidden)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    @property
    def input_layer(self) -> nn.Module:
        """The table of word vectors."""
        return self.words.table

    def start(self, batch: int, device: torch.device | None = None) -> Tensor:
        """Return the initial state: no words yet, (B, C-1)."""
        return torch.zeros(batch, self.context - 1, dtype=torch.long, device=device)

    def step(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        return self.words.logits(output.features[:, 0]), state

    def step_features(self, ids: Tensor, state: Tensor) -> tuple[DecoderOutput, Tensor]:
        """Run one step without the output layer, (B, 1, F)."""
        joined = torch.cat([state, ids[:, None]], dim=1)  # (B, C)
        features, hidden = self._windows(joined)
        return DecoderOutput(features, hidden, None), joined[:, 1:]

    def carry(self, ids: Padded, state: Tensor | None = None) -> BPTTOutput:
        """Return features of every step, and the last words of each row for the next window."""
        state = self.start(len(ids), ids.data.device) if state is None else state
        joined = torch.cat([state, ids.data], dim=1)  # (B, C-1+T)
        features, hidden = self._windows(joined)
        at = ids.lengths[:, None] + torch.arange(self.context - 1)
        last = joined.gather(1, at.to(joined.device))  # (B, C-1)
        return BPTTOutput(features, last, hidden, self.dropout(hidden))

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, F) of every step."""
        return self.carry(ids).features

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits

    def _windows(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return features and hidden layer of every full window of ids (B, C-1+T)."""
        vectors = self.words.embed(ids)  # (B, C-1+T, E)
        if vectors.shape[1] < self.context:
            x = vectors.new_zeros(len(ids), 0, self.hidden.in_features)
        else:
            x = vectors.unfold(1, self.context, 1).transpose(2, 3).flatten(2)  # (B, T, C*E)
        x = self.dropout(x)
        hidden = self.activation(self.hidden(x))  # (B, T, H)
        features = self.dropout(hidden)  # (B, T, H)
        if self.direct:
            features = torch.cat([features, x.to(features.dtype)], dim=2)
        return self.words.narrow(features), hidden


class RecurrentLMState(NamedTuple):
    """The state of every layer after the last word."""

    hidden: Tensor  # (B, L, H)
    cell: Tensor | None  # (B, L, H) of an LSTM


@register("decoder", "rnn-lm")
class RecurrentLM(nn.Module, LanguageModelDecoder):
    """A recurrent language model whose state is carried from window to window.

    It has any cell of the encoder 'rnn'. `dropout` applies to inputs, between layers and before the
    output layer, unless `input_dropout` or `between_dropout` override it. Options of Merity et al.
    (2018): `variational` uses one mask for all steps of a row (Gal and Ghahramani 2016),
    `word_dropout` drops whole words of the vocabulary, `weight_drop` drops recurrent weights, `ar`
    and `tar` are activation and temporal activation regularisation. `layer_norm` normalises what
    each layer gives to the next and to the output layer (Ba et al. 2016); the carried state is that
    of the cells.
    """

    causal, is_stateful = True, True
    sync_free = True  # training never synchronises with the device, if rows are full

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 256,
        hidden: int = 256,
        layers: int = 1,
        cell: Cell = "lstm",
        dropout: float = 0.0,
        input_dropout: float | None = None,
        between_dropout: float | None = None,
        variational: bool = False,
        word_dropout: float = 0.0,
        weight_drop: float = 0.0,
        ar: float = 0.0,
        tar: float = 0.0,
        tied: bool = False,
        layer_norm: bool = False,
    ):
        super().__init__()
        where = "decoder 'rnn-lm'"
        self.dropout = dropout
        self.input_dropout = dropout if input_dropout is None else input_dropout
        self.between_dropout = dropout if between_dropout is None else between_dropout
        check_sizes(where, dropout, width=width, hidden=hidden, layers=layers)
        rates = {
            "input_dropout": self.input_dropout,
            "between_dropout": self.between_dropout,
            "word_dropout": word_dropout,
            "weight_drop": weight_drop,
        }
        for name, rate in rates.items():
            if not 0 <= rate < 1:
                raise UserError(f"{where}: '{name}' should be from 0 to below 1, got {rate}.")
        self.variational, self.weight_drop = variational, weight_drop
        self.word_dropout = word_dropout
        self.ar, self.tar, self.cell = ar, tar, cell
        deviation = min(0.1, width**-0.5) if tied else 0.1
        self.words = OutputLayer(vocabulary_size, width, hidden, tied, deviation)
        self.net = build_rnn(cell, width, hidden, layers, self.between_dropout)
        self.num_states = rnn.num_states(cell)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers if layer_norm else 0))

    @property
    def input_layer(self) -> nn.Module:
        """The table of word vectors."""
        return self.words.table

    def start(self, batch: int, device: torch.device | None = None) -> RecurrentLMState:
        """Return the initial state: zeros."""
        weight = self.words.table.weight
        shape = (batch, self.net.num_layers, self.net.hidden_size)  # (B, L, H)
        zero = torch.zeros(shape, dtype=weight.dtype, device=device)
        return RecurrentLMState(zero, zero.clone() if self.num_states == 2 else None)

    def step(self, ids: Tensor, state: RecurrentLMState) -> tuple[Tensor, RecurrentLMState]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        return self.words.logits(output.features[:, 0]), state

    def step_features(
        self, ids: Tensor, state: RecurrentLMState
    ) -> tuple[DecoderOutput, RecurrentLMState]:
        """Run one step without the output layer, (B, 1, F)."""
        output = self._forward_steps(ids[:, None], state, None)
        return DecoderOutput(output.features, output.raw, None), output.state

    def carry(self, ids: Padded, state: RecurrentLMState | None = None) -> BPTTOutput:
        """Run one window and return its state, detached (truncated BPTT).

        Pass the state to the next window of the same rows.
        """
        state = self.start(len(ids), ids.data.device) if state is None else state
        output = self._forward_steps(ids.data, state, None if ids.full else ids.lengths)
        hidden, cell = output.state
        detached = RecurrentLMState(hidden.detach(), None if cell is None else cell.detach())
        return output._replace(state=detached)

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, F) of every step."""
        state = self.start(len(ids), ids.data.device)
        return self._forward_steps(ids.data, state, None).features

    def unroll(self, ids: Padded) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Run step by step without dropout: features (B, T, F), and every state by layer.

        Each state is a tensor (B, H) with its own gradient, as in `Recurrent.unroll`.
        """
        data = self.words.embed(ids.data)  # (B, T, E)
        zero = data.new_zeros(len(data), self.net.hidden_size)
        taken: dict[str, list[Tensor]] = {}
        for layer in range(self.net.num_layers):
            hidden, cells = rnn.unroll_layer(self.net, self.cell, data, [zero, zero], layer)
            taken[f"layer {layer + 1}"] = hidden
            if cells:
                taken[f"layer {layer + 1} cell"] = cells
            data = self._normalise(torch.stack(hidden, dim=1), layer)  # (B, T, H)
        return self.words.narrow(data), taken

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits

    def penalty(self, carried: BPTTOutput, ids: Padded) -> Tensor:
        """Return `ar` times the mean square of the dropped-out states plus `tar` times that of
        their change per step, both times the number of words: to add to a summed loss."""
        words = int(ids.lengths.sum())
        total = carried.raw.new_zeros((), dtype=torch.float32)
        if self.ar:
            squares = carried.dropped.float().square().mean(2)  # (B, T)
            total = total + self.ar * (squares if ids.full else squares[ids.mask]).sum()
        if self.tar and ids.data.shape[1] > 1:
            change = (carried.raw[:, 1:] - carried.raw[:, :-1]).float().square().mean(2)
            if ids.full:
                return total + self.tar * words * change.mean()
            both = ids.mask[:, 1:]
            total = total + self.tar * words * change[both].sum() / both.sum().clamp(min=1)
        return total

    def _forward_steps(
        self, ids: Tensor, state: RecurrentLMState, lengths: Tensor | None
    ) -> BPTTOutput:
        vectors = self._apply_dropout(self._vectors(ids), self.input_dropout)  # (B, T, E)
        special = self.training and (self.variational or self.weight_drop > 0)
        layered = special or len(self.norms) > 0 or isinstance(self.net, FormulaRNN)
        if not ids.shape[1]:
            raw = vectors.new_zeros(*ids.shape, self.net.hidden_size)  # (B, 0, H)
            after: RNNState = (state.hidden, state.cell)
        elif lengths is not None:
            assert not special, "rows of unequal length cannot be trained with these options"
            run = self._run_layers if layered else self._run_packed
            raw, after = run(vectors, state, lengths)
        elif layered:
            raw, after = self._run_layers(vectors, state, None)
        else:
            raw, after = unroll(self.net, vectors, (state.hidden, state.cell))
        dropped = self._apply_dropout(raw, self.dropout)  # (B, T, H)
        return BPTTOutput(self.words.narrow(dropped), RecurrentLMState(*after), raw, dropped)

    def _vectors(self, ids: Tensor) -> Tensor:
        """Return the words' vectors; in training, whole words of the vocabulary may be dropped."""
        if not (self.training and self.word_dropout):
            return self.words.embed(ids)
        kept = torch.rand(self.words.size, 1, device=ids.device) >= self.word_dropout
        scale = F.embedding(ids, kept / (1 - self.word_dropout))  # (B, T, 1)
        return self.words.embed(ids) * scale

    def _apply_dropout(self, x: Tensor, rate: float) -> Tensor:
        if not (self.training and rate):
            return x
        if not self.variational:
            return F.dropout(x, rate)
        return x * F.dropout(torch.ones_like(x[:, :1]), rate)

    def _normalise(self, states: Tensor, layer: int) -> Tensor:
        normed: Tensor = self.norms[layer](states) if self.norms else states
        return normed

    def _run_layers(
        self, data: Tensor, state: RecurrentLMState, lengths: Tensor | None
    ) -> tuple[Tensor, RNNState]:
        """Run layer by layer, with recurrent weight dropout, one mask for all steps, and norms."""
        hidden, cells = [], []
        for layer in range(self.net.num_layers):
            if layer:
                data = self._apply_dropout(data, self.between_dropout)
            before = [part[:, layer] for part in state if part is not None]  # (B, H) each
            data, after = self._run_layer(data, before, layer, lengths)
            data = self._normalise(data, layer)
            hidden.append(after[0])
            cells += after[1:]
        return data, (torch.stack(hidden, 1), torch.stack(cells, 1) if cells else None)

    def _run_layer(
        self, data: Tensor, before: list[Tensor], layer: int, lengths: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the states (B, T, H) of one layer, and its state after each row's last word."""
        none = None if lengths is None else (lengths == 0).to(data.device)[:, None]
        if isinstance(self.net, FormulaRNN):
            drop = self.weight_drop if self.training else 0.0
            out, last = self.net.run_layer(data, f"l{layer}", before, lengths, drop)
            return out, last if none is None else _keep_rows(none, before, last)
        weights = [getattr(self.net, f"{name}_l{layer}") for name in rnn.WEIGHT_NAMES]
        if self.training:
            weights[1] = F.dropout(weights[1], self.weight_drop)
        run = KERNELS[self.cell]
        start = [part[None].to(data.dtype).contiguous() for part in before]  # (1, B, H) each
        rest = (weights, True, 1, 0.0, self.training, False)
        if lengths is None:
            hx = start if self.cell == "lstm" else start[0]
            out, *after = run(data, hx, *rest, True)
            return out, [part[0] for part in after]
        packed = pack_padded_sequence(
            data, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )  # PyTorch refuses empty rows
        order, back = packed.sorted_indices, packed.unsorted_indices
        start = [part[:, order] for part in start]
        hx = start if self.cell == "lstm" else start[0]
        steps, *after = run(packed.data, packed.batch_sizes, hx, *rest)
        out, _ = pad_packed_sequence(
            packed._replace(data=steps), batch_first=True, total_length=data.shape[1]
        )
        assert none is not None
        return out, _keep_rows(none, before, [part[0, back] for part in after])

    def _run_packed(
        self, data: Tensor, state: RecurrentLMState, lengths: Tensor
    ) -> tuple[Tensor, RNNState]:
        """Return each row's state after its last word; an empty row keeps its state."""
        sizes = lengths.clamp(min=1)  # PyTorch refuses empty rows
        packed = pack_padded_sequence(data, sizes, batch_first=True, enforce_sorted=False)
        hidden = state.hidden.to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
        none = (lengths == 0).to(data.device)[:, None, None]
        if state.cell is None:
            out, last = self.net(packed, hidden)
            cell = None
        else:
            second = state.cell.to(data.dtype).transpose(0, 1).contiguous()  # (L, B, H)
            out, (last, kept) = self.net(packed, (hidden, second))
            cell = torch.where(none, state.cell, kept.transpose(0, 1))  # (B, L, H)
        raw, _ = pad_packed_sequence(out, batch_first=True, total_length=data.shape[1])
        return raw, (torch.where(none, state.hidden, last.transpose(0, 1)), cell)


def _keep_rows(none: Tensor, before: list[Tensor], after: list[Tensor]) -> list[Tensor]:
    """Return the states after a window, of empty rows those before it."""
    return [torch.where(none, a, b.to(a.dtype)) for a, b in zip(before, after, strict=True)]


@register("decoder", "bidirectional-lm")
class BidirectionalLM(nn.Module, LanguageModelDecoder):
    """A language model that predicts every word from both sides.

    "mask" is bidirectional in all layers, so predicted words must be masked in the input (see
    `mask_tokens`). "skip" keeps the directions separate and predicts the word at t from the forward
    state of t-1 and the backward state of t+1, which have not seen it.
    """

    causal = False

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 256,
        hidden: int = 256,
        layers: int = 1,
        cell: Cell = "lstm",
        by: Literal["mask", "skip"] = "skip",
        dropout: float = 0.0,
        tied: bool = False,
    ):
        super().__init__()
        check_sizes(
            "decoder 'bidirectional-lm'", dropout, width=width, hidden=hidden, layers=layers
        )
        deviation = min(0.1, width**-0.5) if tied else 0.1
        self.words = OutputLayer(vocabulary_size, width, 2 * hidden, tied, deviation)
        self.by, self.num_layers = by, layers
        self.needs_masking = both = by == "mask"
        self.nets = nn.ModuleList(
            rnn.Recurrent(width, hidden, layers, cell, both, dropout)
            for _ in range(1 if both else 2)
        )
        self.dropout = nn.Dropout(dropout)

    @property
    def input_layer(self) -> nn.Module:
        """The table of word vectors."""
        return self.words.table

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, F) of every step."""
        x = ids.with_data(self.dropout(self.words.embed(ids.data)))
        if len(self.nets) == 1:
            states: Tensor = self.nets[0](x).data  # (B, T, 2*H)
        else:
            states = self._skip_states(x)  # (B, T, 2*H)
        features: Tensor = self.words.narrow(self.dropout(states))  # (B, T, F)
        return features

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits

    def unroll(self, ids: Padded) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Run step by step without dropout: features (B, T, F), and every state by layer.

        The backward direction's states begin at each row's last step, as in `Recurrent.unroll`.
        """
        x = ids.with_data(self.words.embed(ids.data))
        first = self.nets[0]
        assert isinstance(first, rnn.Recurrent)
        if len(self.nets) == 1:
            states, taken = first.unroll(x)
            return self.words.narrow(states.data), taken
        second = self.nets[1]
        assert isinstance(second, rnn.Recurrent)
        forward, ahead = first.unroll(x)
        reversed_, back = second.unroll(x.with_data(reverse_rows(x.data, x.lengths)))
        taken = {
            name.replace(" cell", "") + direction + (" cell" if "cell" in name else ""): steps
            for direction, side in zip(rnn.DIRECTION_NAMES, (ahead, back), strict=True)
            for name, steps in side.items()
        }
        joined = self._join_directions(x, forward.data, reversed_.data)  # (B, T, 2*H)
        return self.words.narrow(joined), taken

    def _skip_states(self, x: Padded) -> Tensor:
        """Return the forward state of the step before and the backward one of the step after."""
        forward = self.nets[0](x).data  # (B, T, H)
        reversed_ = self.nets[1](x.with_data(reverse_rows(x.data, x.lengths))).data  # (B, T, H)
        return self._join_directions(x, forward, reversed_)

    def _join_directions(self, x: Padded, forward: Tensor, reversed_: Tensor) -> Tensor:
        """Put the forward state of t-1 beside the backward state of t+1, at each step t."""
        backward = reverse_rows(reversed_, x.lengths)  # (B, T, H)
        before = F.pad(forward, (0, 0, 1, 0))[:, :-1]  # (B, T, H)
        after = F.pad(backward, (0, 0, 0, 1))[:, 1:]  # (B, T, H)
        return torch.cat([before, after], dim=2)


def mask_tokens(
    ids: Padded,
    mask: int,
    words: range,
    fraction: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Padded, Tensor]:
    """Return ids with some masked, and a mask of those (B, T): at least one per non-empty row.

    Of the chosen ones 80 % become `mask`, 10 % a random word and 10 % stay (Devlin et al. 2019).
    Only ids within `words` are chosen, and random words are drawn from there.
    """
    device = ids.data.device
    real = ids.mask & (ids.data >= words.start) & (ids.data < words.stop)  # (B, T)
    draw = torch.rand(ids.data.shape, generator=generator, device=device)
    draw = draw.masked_fill(~real, 2.0)  # (B, T)
    chosen = real & ((draw < fraction) | (draw == draw.amin(1, keepdim=True)))  # (B, T)
    fate = torch.rand(ids.data.shape, generator=generator, device=device)  # (B, T)
    other = torch.randint(
        words.start, words.stop, ids.data.shape, generator=generator, device=device
    )
    hidden = torch.where(fate < 0.8, mask, torch.where(fate < 0.9, other, ids.data))
    return ids.with_data(torch.where(chosen, hidden, ids.data)), chosen
