"""A Transformer decoder packed for fast steps on a CPU; inference only.

Weights are packed once for oneDNN, QKV comes from one product, and the KV cache of all rows is one
store: a search reorders only lists of slots in it.

N rows   H hidden width   P cached steps   R rows of a store   B prompts   S source steps   V words
"""

import weakref
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.batch import Padded
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
from weft.decode.decoders.transformer import (
    GPT,
    LayerCaches,
    Seq2SeqTransformerDecoder,
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerState,
)
from weft.decode.search.settings import WeightDtype
from weft.decode.search.state import PerPrompt, Step, unwrap
from weft.kernels.cpu.linear import (
    LINEAR_BY_DTYPE,
    PackedLinear,
    PackedNorm,
    activation_name,
    can_pack,
)
from weft.protocols import Decoder, DecoderState, LanguageModelDecoder, Seq2SeqDecoder

INITIAL_STEPS = 16  # free steps of a new cache
CHUNK_WORDS = 16384  # words of one output product


class KVStore:
    """Keys and values of steps, one array (R, 2*H) per layer, in arbitrary row order.

    Steps only append rows, so states are values: an old one can be stepped again.
    """

    def __init__(self, layers: list[np.ndarray], used: int = 0):
        self.layers, self.used = layers, used

    def take(self, rows: int) -> int:
        """Reserve new rows and return the first."""
        first, self.used = self.used, self.used + rows
        size = len(self.layers[0])
        if self.used > size:
            size = max(self.used, 2 * size)
            self.layers = [_grow_rows(layer, first, size) for layer in self.layers]
        return first


class CrossKV(NamedTuple):
    """Keys and values of the encoder states, and the slots of each prompt."""

    store: KVStore
    slots: Tensor  # (B, S) int32
    lengths: Tensor  # (B,)


@dataclass(frozen=True)
class PackedState(DecoderState):
    """The cache slots of each row; keys and values are never moved."""

    slots: Tensor  # (N, P) int32, with free columns at the end
    lengths: Tensor  # (N,) steps so far
    max_length: int  # no row is longer than this
    store: KVStore
    memory: CrossKV | PerPrompt[CrossKV] | None  # None without a source
    weights: Tensor | None  # (N, S) attention of the last step, on request

    def per_prompt(self) -> "PackedState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        if self.memory is None:
            return self
        return replace(self, memory=PerPrompt(unwrap(self.memory)))

    @property
    def attention_weights(self) -> Tensor | None:
        """Attention (N, S) of the last step, if it was requested."""
        return self.weights


class PackedDecoder(Decoder):
    """A decoder for search alone, with faster steps.

    The logits of a step are overwritten by the next one.
    """

    causal, training = True, False

    def __init__(self, decoder: TransformerDecoder, packed: "PackedWeights"):
        self.decoder, self.packed = decoder, packed
        self.words: OutputLayer = decoder.words
        self.max_positions = decoder.max_positions
        self.scale, self.hidden_size = decoder.scale, decoder.hidden_size

    @property
    def base_decoder(self) -> TransformerDecoder:
        """The decoder whose weights were packed."""
        return self.decoder

    @torch.no_grad()
    def adopt(self, state: TransformerState) -> PackedState:
        """Convert a state of the decoder."""
        assert state.caches is not None
        rows, _, past, _ = state.caches[0][0].shape
        lengths = torch.full((rows,), past) if state.position is None else state.position
        layers = [_concat_kv(*pair) for pair in state.caches]
        store = KVStore(
            [_grow_rows(x, len(x), len(x) + rows * INITIAL_STEPS) for x in layers], rows * past
        )
        memory: CrossKV | PerPrompt[CrossKV] | None = None
        if pairs := unwrap(state.memory):
            cross_kv = _pack_cross_kv(pairs, None if state.mask is None else unwrap(state.mask))
            memory = PerPrompt(cross_kv) if isinstance(state.memory, PerPrompt) else cross_kv
        slots = _sequential_slots(rows, past, past + INITIAL_STEPS)
        max_length = int(lengths.max()) if rows else 0
        return PackedState(slots, lengths, max_length, store, memory, state.weights)

    @torch.no_grad()
    def step(self, ids: Tensor, state: PackedState) -> tuple[Tensor, PackedState]:
        """Return the logits (N, V) of the word after `ids` (N,), and the next state."""
        self.decoder._ensure_positions(state.max_length + 1)
        x = F.embedding(ids, self.decoder.words.table.weight) * self.decoder.scale
        x = x + self.decoder.positions.table[state.lengths]  # (N, H)
        state = _reserve_step(state, len(ids))
        memory = None if state.memory is None else unwrap(state.memory)
        self_attention = _Attention(state.slots, state.lengths, self.decoder.heads)
        cross = None
        if memory is not None:
            cross = _Attention(memory.slots, memory.lengths, self.decoder.heads, state.weights)
        first = state.store.used - len(ids)
        for i, block in enumerate(self.packed.blocks):
            x = block.attend_self(x, self_attention, state.store.layers[i], first)  # (N, H)
            if memory is not None and cross is not None:
                last = i == len(self.packed.blocks) - 1
                x = block.attend_cross(x, cross, memory.store.layers[i], last)  # (N, H)
            x = block.feed_forward(x)  # (N, H)
        if cross is not None and cross.weights is not None:
            state = replace(state, weights=cross.weights)
        return self.packed.logits(self.decoder.norm(x)), state


class PackedLM(PackedDecoder, LanguageModelDecoder):
    """A packed language model."""

    @property
    def input_layer(self) -> nn.Module:
        """The module whose outputs are the vectors of the input steps."""
        return self._lm.input_layer

    @torch.no_grad()
    def start(self, batch: int, device: torch.device | None = None) -> PackedState:
        """Return the initial state."""
        return self.adopt(self._lm.start(batch, device))

    @torch.no_grad()
    def prefill(self, ids: Padded, state: PackedState) -> tuple[DecoderOutput, PackedState]:
        """Run several steps at once, such as prompts of any length, before any other step."""
        assert state.max_length == 0, "prefill comes before any step"
        initial = self._lm.start(len(ids), limit=max(ids.data.shape[1], 1))
        output, after = self.decoder.prefill(ids, initial)
        return output, self.adopt(after)

    @property
    def _lm(self) -> GPT:
        assert isinstance(self.decoder, GPT)
        return self.decoder


class PackedSeq2SeqDecoder(PackedDecoder, Seq2SeqDecoder):
    """A packed decoder with cross-attention."""

    @torch.no_grad()
    def start(self, memory: Padded, weights: bool = False) -> PackedState:
        """Return the initial state; `weights` records the attention of a step."""
        assert isinstance(self.decoder, Seq2SeqTransformerDecoder)
        return self.adopt(self.decoder.start(memory, weights))


@overload
def pack_if_possible(
    decoder: LanguageModelDecoder, weights: WeightDtype = ...
) -> LanguageModelDecoder: ...
@overload
def pack_if_possible(decoder: Seq2SeqDecoder, weights: WeightDtype = ...) -> Seq2SeqDecoder: ...
@overload
def pack_if_possible(decoder: Decoder, weights: WeightDtype = ...) -> Decoder: ...
def pack_if_possible(decoder: Decoder, weights: WeightDtype = "float32") -> Decoder:
    """Return the decoder packed for fast steps if possible, otherwise the decoder itself.

    Possible for fp32 Transformers on a CPU in eval mode whose attention has a kernel. Packed
    weights are cached for as long as the decoder lives and its weights do not change.
    """
    if not isinstance(decoder, TransformerDecoder) or decoder.training or not can_pack(weights):
        return decoder
    if not decoder.has_attention_kernel:
        return decoder
    table = decoder.words.table.weight
    kind = table.device.type
    if kind != "cpu" or table.dtype != torch.float32 or torch.is_autocast_enabled(kind):
        return decoder
    version = (weights, *((part.data_ptr(), part._version) for part in decoder.parameters()))
    cached = _CACHE.get(decoder)
    if cached is None or cached[0] != version:
        cached = _CACHE[decoder] = version, PackedWeights(decoder, weights)
    packed = PackedSeq2SeqDecoder if decoder.reads_source else PackedLM
    return packed(decoder, cached[1])


def pack_step(
    decoder: Decoder, state: DecoderState, weights: WeightDtype = "float32"
) -> tuple[Step, DecoderState]:
    """Return the step function and state, of the packed decoder if possible."""
    packed = pack_if_possible(decoder, weights)
    if isinstance(packed, PackedDecoder) and isinstance(state, TransformerState):
        return packed.step, packed.adopt(state)
    return decoder.step, state


class _Attention:
    """Attention over slots of a store; slots and lengths are the same in every layer."""

    def __init__(self, slots: Tensor, lengths: Tensor, heads: int, weights: Tensor | None = None):
        self.slots, self.lengths, self.heads = slots.numpy(), lengths.numpy(), heads
        self.with_weights = weights is not None
        self.weights: Tensor | None = None

    def __call__(self, query: Tensor, store: np.ndarray, keep_weights: bool = False) -> Tensor:
        """Attend with queries in the first H columns of `query`; returns (N, H)."""
        from weft.kernels.cpu.decode_attention import attend

        rows, H = len(query), store.shape[1] // 2
        context = torch.empty(rows, H)
        keep = keep_weights and self.with_weights
        weights = torch.zeros(rows, self.slots.shape[1] if keep else 0)
        attend(
            query.numpy(), store, self.slots, self.lengths, self.heads, 0, rows, context.numpy(),
            weights.numpy(),
        )  # fmt: skip
        if keep:
            self.weights = weights  # (N, S)
        return context


class PackedWeights:
    """The packed weights of a decoder; holds no reference to it."""

    def __init__(self, decoder: TransformerDecoder, weights: WeightDtype):
        linear = LINEAR_BY_DTYPE[weights]
        self.blocks = [_PackedBlock(block, linear) for block in decoder.layers]
        bias = decoder.words.bias
        matrices = decoder.words.weight.split(CHUNK_WORDS)
        biases = [None] * len(matrices) if bias is None else bias.split(CHUNK_WORDS)
        self.words = [linear(*pair) for pair in zip(matrices, biases, strict=True)]
        self.size = decoder.words.size
        self.buffer = torch.empty(0)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of all words (N, V)."""
        if len(self.words) == 1:
            return self.words[0](x)
        # The system zeroes large allocations, which takes longer than a copy: reuse one buffer.
        if len(self.buffer) < len(x) * self.size:
            self.buffer = torch.empty(len(x) * self.size)
        logits = self.buffer[: len(x) * self.size].view(len(x), self.size)
        for i, part in enumerate(self.words):
            logits[:, i * CHUNK_WORDS : (i + 1) * CHUNK_WORDS] = part(x)
        return logits


class _PackedBlock:
    """One block: self-attention, cross-attention, feed-forward."""

    def __init__(self, block: TransformerDecoderBlock, linear: type[PackedLinear]):
        attention, cross = block.attention, block.cross
        self.first = block.norm_first
        norms = (block.attention_norm, block.cross_norm, block.feed_norm)
        self.norms = [PackedNorm(norm) for norm in norms if norm is not None]
        weights, biases = zip(*attention.projections(), strict=True)
        self.qkv = linear(torch.cat(weights), torch.cat(biases))
        self.output = linear(attention.output.weight, attention.output.bias)
        if cross is not None:
            self.query = linear(*cross.projections()[0])
            self.cross_output = linear(cross.output.weight, cross.output.bias)
        name = activation_name(block.activation)
        self.feed_in = linear(block.feed_in.weight, block.feed_in.bias, name)
        self.feed_out = linear(block.feed_out.weight, block.feed_out.bias)

    def attend_self(
        self, x: Tensor, attention: _Attention, store: np.ndarray, first: int
    ) -> Tensor:
        """Add self-attention to rows (N, H); this step is stored from row `first` on."""
        from weft.kernels.cpu.decode_attention import write_kv

        qkv = self.qkv(self._before(x, 0))  # (N, 3*H)
        write_kv(qkv.numpy(), store, first)
        return self._after(self.output.add_to(attention(qkv, store), x), 0)

    def attend_cross(
        self, x: Tensor, attention: _Attention, store: np.ndarray, keep_weights: bool
    ) -> Tensor:
        """Add cross-attention to rows (N, H)."""
        context = attention(self.query(self._before(x, 1)), store, keep_weights)
        return self._after(self.cross_output.add_to(context, x), 1)

    def feed_forward(self, x: Tensor) -> Tensor:
        """Add the feed-forward output to rows (N, H)."""
        return self._after(self.feed_out.add_to(self.feed_in(self._before(x, -1)), x), -1)

    def _before(self, x: Tensor, part: int) -> Tensor:
        return self.norms[part](x) if self.first else x

    def _after(self, x: Tensor, part: int) -> Tensor:
        return x if self.first else self.norms[part](x)


_CACHE: "weakref.WeakKeyDictionary[Decoder, tuple[tuple[object, ...], PackedWeights]]" = (
    weakref.WeakKeyDictionary()
)


def _grow_rows(layer: np.ndarray, used: int, size: int) -> np.ndarray:
    grown = np.empty((size, layer.shape[1]), np.float32)
    grown[:used] = layer[:used]
    return grown


def _concat_kv(keys: Tensor, values: Tensor) -> np.ndarray:
    """Return keys and values (B, heads, S, K) as rows (B*S, 2*H), one row per step."""
    parts = [part.transpose(1, 2).flatten(2).flatten(0, 1) for part in (keys, values)]
    return torch.cat(parts, 1).detach().numpy()


def _sequential_slots(rows: int, steps: int, capacity: int) -> Tensor:
    """Return slots (N, P) of steps stored row by row, with free columns at the end."""
    slots = torch.zeros(rows, capacity, dtype=torch.int32)
    slots[:, :steps] = torch.arange(rows * steps, dtype=torch.int32).view(rows, steps)
    return slots


def _pack_cross_kv(pairs: LayerCaches, mask: Tensor | None) -> CrossKV:
    rows, _, steps, _ = pairs[0][0].shape
    lengths = torch.full((rows,), steps) if mask is None else mask.sum(1)
    store = KVStore([_concat_kv(*pair) for pair in pairs], rows * steps)
    return CrossKV(store, _sequential_slots(rows, steps, steps), lengths)


def _reserve_step(state: PackedState, rows: int) -> PackedState:
    """Return the state with a slot for the next step; the old state is unchanged."""
    first, slots = state.store.take(rows), state.slots
    if state.max_length == slots.shape[1]:
        slots = F.pad(slots, (0, slots.shape[1]))
    else:
        slots = slots.clone()
    fresh = torch.arange(first, first + rows, dtype=torch.int32)
    slots.scatter_(1, state.lengths[:, None], fresh[:, None])
    return replace(state, slots=slots, lengths=state.lengths + 1, max_length=state.max_length + 1)
