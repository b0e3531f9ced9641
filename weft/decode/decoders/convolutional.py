"""Convolutional decoder with attention in every block (Gehring et al. 2017).

B rows   T steps   S source steps   M width of encoder states   E embedding width   H hidden width
L layers   V words   P cached steps per layer
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft import registry
from weft.attend.scores import masked_softmax
from weft.attend.settings import DOT_ATTENTION, Attention
from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer, fold_beams
from weft.decode.search.state import PerPrompt, SharedTensor, share, unwrap
from weft.embed.activations import check_sizes
from weft.embed.position import LearnedPositions
from weft.errors import UserError
from weft.protocols import DecoderState, Seq2SeqDecoder, WeightMatrices
from weft.registry import register

LayerKeys = tuple[Tensor, ...]  # (B, S, E) attention keys of every layer
SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two terms


@dataclass(frozen=True)
class ConvolutionalState(DecoderState):
    """The last inputs of every layer, and the attention keys and values."""

    past: Tensor  # (B, L, P, H)
    position: Tensor  # (B,) of the next word
    weights: Tensor  # (B, S) attention of the last step
    keys: LayerKeys | PerPrompt[LayerKeys]
    values: SharedTensor  # (B, S, E)
    mask: SharedTensor  # (B, S)

    def per_prompt(self) -> "ConvolutionalState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        keys = PerPrompt(unwrap(self.keys))
        return replace(self, keys=keys, values=share(self.values), mask=share(self.mask))

    @property
    def attention_weights(self) -> Tensor:
        """Attention (B, S) of the last step."""
        return self.weights


class WeightNormConv(nn.Module, WeightMatrices):
    """A weight-normalised convolution over `span` steps (Salimans and Kingma 2016).

    `gain` is the output variance at initialisation for inputs of unit variance.
    """

    def __init__(self, inputs: int, outputs: int, span: int = 1, gain: float = 1.0):
        super().__init__()
        self.direction = nn.Parameter(torch.empty(outputs, inputs, span))
        nn.init.normal_(self.direction, std=math.sqrt(gain / (inputs * span)))
        self.length = nn.Parameter(self.direction.detach().flatten(1).norm(dim=1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def weight_matrices(self) -> list[Tensor]:
        """Return the weights of the convolution."""
        return [self.direction]

    def finish_init(self) -> None:
        """Set the lengths to those of the directions."""
        self.length.copy_(self.direction.flatten(1).norm(dim=1))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve (B, T + span - 1, inputs) to (B, T, outputs)."""
        size = self.direction.flatten(1).norm(dim=1)
        weight = self.direction * (self.length / size)[:, None, None]
        if weight.shape[2] == 1:
            return F.linear(x, weight[:, :, 0], self.bias)
        if x.shape[1] == weight.shape[2]:  # one step: a matrix product is faster
            return F.linear(x.transpose(1, 2).flatten(1), weight.flatten(1), self.bias)[:, None]
        return F.conv1d(x.transpose(1, 2), weight, self.bias).transpose(1, 2)


class ConvolutionalBlock(nn.Module):
    """A gated causal convolution, attention, and a residual connection."""

    def __init__(self, width: int, hidden: int, kernel: int, dropout: float, attention: Attention):
        super().__init__()
        kept = 1 - dropout
        self.past = kernel - 1
        self.dropout = nn.Dropout(dropout)
        self.convolve = WeightNormConv(hidden, 2 * hidden, kernel, 4 * kept)
        self.query = WeightNormConv(hidden, width)
        self.context = WeightNormConv(width, hidden)
        sizes = {"query_size": width, "memory_size": width}
        self.score = registry.build("score", {"kind": attention.score}, **sizes)

    def forward(
        self, x: Tensor, past: Tensor, words: Tensor, keys: Tensor, state: ConvolutionalState
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the next layer's input, the inputs to cache (B, P, H) and weights (B, T, S)."""
        joined = torch.cat([past.to(x.dtype), x], dim=1)  # (B, P+T, H)
        gated = F.glu(self.convolve(self.dropout(joined)), dim=2)  # (B, T, H)
        query = (self.query(gated) + words) * SQRT_HALF  # (B, T, E)
        context, weights = self._attend(query, keys, unwrap(state.values), unwrap(state.mask))
        mixed = (gated + self.context(context)) * SQRT_HALF  # (B, T, H)
        return (mixed + x) * SQRT_HALF, joined[:, joined.shape[1] - self.past :], weights

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the attention context (B, T, E) and weights (B, T, S)."""
        scores = self.score.compare(fold_beams(query, len(keys)), keys.to(query.dtype))
        weights = masked_softmax(scores, mask[:, None])
        # A mean of m steps has 1/m of their variance; √m restores it.
        scale = mask.sum(1).sqrt()[:, None, None].to(values.dtype)
        context = (weights.to(values.dtype) @ values) * scale
        shape = query.shape[:2]
        return context.reshape(*shape, values.shape[2]), weights.reshape(*shape, mask.shape[1])


@register("decoder", "cnn")
class ConvolutionalDecoder(nn.Module, Seq2SeqDecoder):
    """Gated causal convolutions, each with attention, over learned positions.

    If the caller passes the embedded source, attention values are the sum of states and embeddings
    as in the paper; else the states alone. Returned weights are the mean over layers.
    attention.score is dot by default.
    """

    def __init__(
        self,
        vocabulary_size: int,
        memory_size: int,
        width: int = 256,
        hidden: int = 256,
        layers: int = 4,
        kernel: int = 3,
        max_positions: int = 1024,
        dropout: float = 0.1,
        tied: bool = False,
        attention_config: Attention = DOT_ATTENTION,
    ):
        super().__init__()
        sizes = {"width": width, "hidden": hidden, "layers": layers, "kernel": kernel}
        check_sizes("decoder 'cnn'", dropout, max_positions=max_positions, **sizes)
        self.max_positions: int | None = max_positions
        self.hidden_size = width
        self.past = (kernel - 1, hidden)
        self.words = OutputLayer(vocabulary_size, width, width, tied)
        self.positions = LearnedPositions(width, max_positions)
        nn.init.normal_(self.positions.table, std=0.1)
        kept = 1 - dropout
        self.enter = WeightNormConv(width, hidden, gain=kept)
        same = memory_size == width
        self.memory = nn.Identity() if same else WeightNormConv(memory_size, width)
        self.blocks = nn.ModuleList(
            ConvolutionalBlock(width, hidden, kernel, dropout, attention_config)
            for _ in range(layers)
        )
        self.leave = WeightNormConv(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def start(
        self, memory: Padded, weights: bool = True, embedded: Padded | None = None
    ) -> ConvolutionalState:
        """Return the initial state; `embedded` are the source's word vectors.

        Attention weights are always recorded.
        """
        B, S = memory.data.shape[:2]
        keys = memory.with_data(self.memory(memory.with_data(memory.data).data)).data  # (B, S, E)
        values = keys  # (B, S, E)
        if embedded is not None:
            if embedded.data.shape != keys.shape:
                raise UserError(
                    f"decoder 'cnn' adds source words of width {embedded.data.shape[2]} to "
                    f"states of width {keys.shape[2]}. Set decoder.width to the embedder's width."
                )
            values = (keys + embedded.with_data(embedded.data).data) * SQRT_HALF  # (B, S, E)
        past = keys.new_zeros(B, len(self.blocks), *self.past)  # (B, L, P, H)
        position = torch.zeros(B, dtype=torch.long, device=keys.device)  # (B,)
        no_weights = torch.zeros(B, S, device=keys.device)  # (B, S)
        layers = tuple(block.score.prepare(keys) for block in self.blocks)  # type: ignore[union-attr, operator]
        return ConvolutionalState(past, position, no_weights, layers, values, memory.mask)

    def step(self, ids: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        return self.words.logits(output.features[:, 0]), state

    def step_features(
        self, ids: Tensor, state: ConvolutionalState
    ) -> tuple[DecoderOutput, ConvolutionalState]:
        """Run one step without the output layer, (B, 1, E)."""
        return self._forward_steps(ids[:, None], state)

    def read(
        self, targets: Padded, memory: Padded, embedded: Padded | None = None
    ) -> DecoderOutput:
        """Run all steps at once."""
        state = self.start(memory, embedded=embedded)
        if not targets.data.shape[1]:
            none = state.past.new_zeros(len(targets), 0, self.hidden_size)  # (B, 0, E)
            return DecoderOutput(none, none, state.weights[:, None][:, :0])
        return self._forward_steps(targets.data, state)[0]

    def features(self, targets: Padded, memory: Padded, embedded: Padded | None = None) -> Tensor:
        """Return features (B, T, F) of every step."""
        return self.read(targets, memory, embedded).features

    def forward(self, targets: Padded, memory: Padded, embedded: Padded | None = None) -> Tensor:
        logits = self.words.logits(self.features(targets, memory, embedded))  # (B, T, V)
        return logits

    def _forward_steps(
        self, ids: Tensor, state: ConvolutionalState
    ) -> tuple[DecoderOutput, ConvolutionalState]:
        T = ids.shape[1]
        words = self.words.embed(ids) + self._position_vectors(state.position, T)  # (B, T, E)
        words = self.dropout(words)
        x = self.enter(words)  # (B, T, H)
        keys = unwrap(state.keys)
        cached, all_weights = [], []
        for layer, block in enumerate(self.blocks):
            x, past, weights = block(x, state.past[:, layer], words, keys[layer], state)
            cached.append(past)
            all_weights.append(weights)
        mean = torch.stack(all_weights).mean(0)  # (B, T, S)
        past = torch.stack(cached, dim=1)  # (B, L, P, H)
        state = replace(state, past=past, position=state.position + T, weights=mean[:, -1])
        left = self.leave(x)  # (B, T, E)
        return DecoderOutput(self.dropout(left), left, mean), state

    def _position_vectors(self, position: Tensor, steps: int) -> Tensor:
        """Return the vectors of the next positions, (B, T, E)."""
        # Checked on the host only, to avoid synchronising; on a device the caller checks it.
        if (
            position.is_cpu
            and len(position)
            and int(position.max()) + steps > len(self.positions.table)
        ):
            raise UserError(
                f"A sequence has {int(position.max()) + steps} steps, but the positions of decoder "
                f"'cnn' end at {len(self.positions.table)}. Raise decoder.max_positions, or "
                "truncate."
            )
        return self.positions.table[position[:, None] + torch.arange(steps, device=position.device)]
