"""A Transformer decoder made ready to step fast on a processor; never for training.

Weights are laid out once for oneDNN, queries, keys and values come from one product, and the past
of all rows lies in one store: what a search reorders is only lists of places in it.

N rows   H hidden width   P steps of the past   R rows of a store   B prompts
S steps of the memory   V words
"""

import weakref
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from weft.batch import Padded
from weft.decode.decoders.output_layer import unwrap
from weft.decode.decoders.transformer import (
    TransformerDecoder,
    TransformerDecoderBlock,
    TransformerState,
)
from weft.decode.search.settings import WeightDtype
from weft.decode.search.state import PerPrompt
from weft.kernels.cpu.linear import (
    LINEAR_BY_DTYPE,
    PackedLinear,
    PackedNorm,
    activation_name,
    can_pack,
)

INITIAL_STEPS = 16  # steps that there is room for at first
CHUNK_WORDS = 16384  # words that are scored at once


class KVStore:
    """Keys beside values of steps, one array (R, 2*H) for each layer, in no order of rows.

    Steps only ever add rows, so that states are values: an old one can be stepped again.
    """

    def __init__(self, layers: list[np.ndarray], used: int = 0):
        self.layers, self.used = layers, used

    def take(self, rows: int) -> int:
        """Make room for new rows; the first of them."""
        first, self.used = self.used, self.used + rows
        size = len(self.layers[0])
        if self.used > size:
            size = max(self.used, 2 * size)
            self.layers = [_grow_rows(layer, first, size) for layer in self.layers]
        return first


class CrossKV(NamedTuple):
    """The memory's keys and values, and which of them each prompt sees."""

    store: KVStore
    places: Tensor  # (B, S) int32
    lengths: Tensor  # (B,)


class PackedState(NamedTuple):
    """Where the past of each row lies; keys and values themselves are never moved."""

    places: Tensor  # (N, P) int32, with room at the end
    lengths: Tensor  # (N,) steps so far
    max_length: int  # no row is longer than this
    store: KVStore
    memory: Any  # Memory or None; may be shared
    weights: Tensor | None  # (N, S) where the last step looked, if that was asked for

    def per_prompt(self) -> "PackedState":
        """The same for a search that keeps one memory for all beams of a prompt."""
        return self._replace(memory=PerPrompt(unwrap(self.memory)))


class PackedDecoder:
    """The faces of a decoder for search, with the same scores from faster steps.

    The scores of a step are overwritten by the next one.
    """

    def __init__(self, decoder: TransformerDecoder, packed: "PackedWeights"):
        self.decoder, self.packed = decoder, packed

    @torch.no_grad()
    def start(self, *given: Any, **options: Any) -> PackedState:
        """The state before the first word, from what the decoder starts with."""
        return self.adopt(self.decoder.start(*given, **options))  # type: ignore[operator]

    @torch.no_grad()
    def prefill(self, ids: Padded, state: PackedState) -> tuple[Any, PackedState]:
        """Several steps at once, such as a prompt of any lengths, before any other step."""
        assert state.max_length == 0, "only a beginning is read at once"
        assert state.memory is None, "what has a memory has no prompt"
        begun = self.decoder.start(len(ids), limit=max(ids.data.shape[1], 1))  # type: ignore[operator]
        read, after = self.decoder.prefill(ids, begun)
        return read, self.adopt(after)

    @torch.no_grad()
    def adopt(self, state: TransformerState) -> PackedState:
        """A state of the decoder itself, to be stepped from here."""
        pairs = [pair for pair in state.past if pair is not None]
        rows, _, past, _ = pairs[0][0].shape
        lengths = torch.full((rows,), past) if state.position is None else state.position
        layers = [_concat_kv(*pair) for pair in pairs]
        store = KVStore(
            [_grow_rows(x, len(x), len(x) + rows * INITIAL_STEPS) for x in layers], rows * past
        )
        memory: Any = None
        if unwrap(state.memory):
            memory = _pack_cross_kv(unwrap(state.memory), unwrap(state.mask))
            memory = PerPrompt(memory) if isinstance(state.memory, PerPrompt) else memory
        places = _sequential_slots(rows, past, past + INITIAL_STEPS)
        max_length = int(lengths.max()) if rows else 0
        return PackedState(places, lengths, max_length, store, memory, state.weights)

    @torch.no_grad()
    def step(self, ids: Tensor, state: PackedState) -> tuple[Tensor, PackedState]:
        """The scores (N, V) of the word after `ids` (N,), and the state that follows."""
        self.decoder._ensure_positions(state.max_length + 1)
        x = F.embedding(ids, self.decoder.words.table.weight) * self.decoder.scale
        x = x + self.decoder.positions.table[state.lengths]  # (N, H)
        state = _reserve_step(state, len(ids))
        memory: CrossKV | None = unwrap(state.memory)
        own = _Attention(state.places, state.lengths, self.decoder.heads)
        other = None
        if memory is not None:
            other = _Attention(memory.places, memory.lengths, self.decoder.heads, state.weights)
        first = state.store.used - len(ids)
        for i, block in enumerate(self.packed.blocks):
            x = block.itself(x, own, state.store.layers[i], first)  # (N, H)
            if memory is not None and other is not None:
                last = i == len(self.packed.blocks) - 1
                x = block.across(x, other, memory.store.layers[i], last)  # (N, H)
            x = block.feed(x)  # (N, H)
        if other is not None and other.shares is not None:
            state = state._replace(weights=other.shares)
        return self.packed.logits(self.decoder.norm(x)), state


def pack_if_possible(decoder: Any, weights: WeightDtype = "float32") -> Any:
    """The decoder ready for fast steps where that is possible, otherwise the decoder itself.

    It is possible for Transformers in fp32 on a processor that are not being trained. What was
    laid out is kept for as long as the decoder lives and its weights do not change.
    """
    if not isinstance(decoder, TransformerDecoder) or decoder.training or not can_pack(weights):
        return decoder
    table = decoder.words.table.weight
    kind = table.device.type
    if kind != "cpu" or table.dtype != torch.float32 or torch.is_autocast_enabled(kind):
        return decoder
    now = (weights, *((part.data_ptr(), part._version) for part in decoder.parameters()))
    kept = _CACHE.get(decoder)
    if kept is None or kept[0] != now:
        kept = _CACHE[decoder] = now, PackedWeights(decoder, weights)
    return PackedDecoder(decoder, kept[1])


def pack_step(decoder: Any, state: Any, weights: WeightDtype = "float32") -> tuple[Any, Any]:
    """A decoder's step and the state for it: of the prepared decoder where that is possible."""
    ready = pack_if_possible(decoder, weights)
    return ready.step, state if ready is decoder else ready.adopt(state)


class _Attention:
    """Where rows look: places of a store and how many of them, the same in every layer."""

    def __init__(self, places: Tensor, lengths: Tensor, heads: int, weights: Tensor | None = None):
        self.places, self.lengths, self.heads = places.numpy(), lengths.numpy(), heads
        self.wanted = weights is not None
        self.shares: Tensor | None = None

    def __call__(self, asked: Tensor, store: np.ndarray, shares: bool = False) -> Tensor:
        """What rows find for their queries, the first H columns of `asked`: (N, H)."""
        from weft.kernels.cpu.decode_attention import attend

        rows, H = len(asked), store.shape[1] // 2
        mixed = torch.empty(rows, H)
        weights = torch.zeros(rows, self.places.shape[1] if shares and self.wanted else 0)
        out, seen = mixed.numpy(), weights.numpy()
        attend(asked.numpy(), store, self.places, self.lengths, self.heads, 0, rows, out, seen)
        if shares and self.wanted:
            self.shares = weights  # (N, S)
        return mixed


class PackedWeights:
    """The weights of a decoder, laid out; keeps nothing of the decoder itself."""

    def __init__(self, decoder: TransformerDecoder, weights: WeightDtype):
        linear = LINEAR_BY_DTYPE[weights]
        self.blocks = [_PackedBlock(block, linear) for block in decoder.blocks]  # type: ignore[arg-type]
        bias = decoder.words.bias
        matrices = decoder.words.weight.split(CHUNK_WORDS)
        biases = [None] * len(matrices) if bias is None else bias.split(CHUNK_WORDS)
        self.words = [linear(*pair) for pair in zip(matrices, biases, strict=True)]
        self.size = decoder.words.size
        self.room = torch.empty(0)

    def logits(self, x: Tensor) -> Tensor:
        """The score of every word (N, V)."""
        if len(self.words) == 1:
            return self.words[0](x)
        # The system clears large memory whenever it is asked for, which takes longer than a copy.
        if len(self.room) < len(x) * self.size:
            self.room = torch.empty(len(x) * self.size)
        scores = self.room[: len(x) * self.size].view(len(x), self.size)
        for i, part in enumerate(self.words):
            scores[:, i * CHUNK_WORDS : (i + 1) * CHUNK_WORDS] = part(x)
        return scores


class _PackedBlock:
    """One block: attention to the past, attention to the memory, a perceptron."""

    def __init__(self, block: TransformerDecoderBlock, linear: type[PackedLinear]):
        own, cross = block.attention, block.cross
        self.first = block.norm_first
        norms = (block.attention_norm, block.cross_norm, block.feed_norm)
        self.norms = [PackedNorm(norm) for norm in norms if norm is not None]
        three = (own.query, own.key, own.value)
        self.three = linear(
            torch.cat([part.weight for part in three]), torch.cat([part.bias for part in three])
        )
        self.output = linear(own.output.weight, own.output.bias)
        if cross is not None:
            self.query = linear(cross.query.weight, cross.query.bias)
            self.crossed = linear(cross.output.weight, cross.output.bias)
        name = activation_name(block.activation)
        self.feed_in = linear(block.feed_in.weight, block.feed_in.bias, name)
        self.feed_out = linear(block.feed_out.weight, block.feed_out.bias)

    def itself(self, x: Tensor, look: _Attention, store: np.ndarray, first: int) -> Tensor:
        """Rows (N, H) with what they found in the past; this step is kept from row `first` on."""
        from weft.kernels.cpu.decode_attention import write_kv

        made = self.three(self._before(x, 0))  # (N, 3*H)
        write_kv(made.numpy(), store, first)
        return self._after(self.output.add_to(look(made, store), x), 0)

    def across(self, x: Tensor, look: _Attention, store: np.ndarray, shares: bool) -> Tensor:
        """Rows (N, H) with what they found in the memory."""
        mixed = look(self.query(self._before(x, 1)), store, shares)
        return self._after(self.crossed.add_to(mixed, x), 1)

    def feed(self, x: Tensor) -> Tensor:
        """Rows (N, H) through the perceptron."""
        return self._after(self.feed_out.add_to(self.feed_in(self._before(x, -1)), x), -1)

    def _before(self, x: Tensor, part: int) -> Tensor:
        return self.norms[part](x) if self.first else x

    def _after(self, x: Tensor, part: int) -> Tensor:
        return x if self.first else self.norms[part](x)


_CACHE: "weakref.WeakKeyDictionary[Any, tuple[tuple, PackedWeights]]" = weakref.WeakKeyDictionary()


def _grow_rows(layer: np.ndarray, used: int, size: int) -> np.ndarray:
    grown = np.empty((size, layer.shape[1]), np.float32)
    grown[:used] = layer[:used]
    return grown


def _concat_kv(keys: Tensor, values: Tensor) -> np.ndarray:
    """Keys and values (B, heads, S, K) as rows (B*S, 2*H), those of a step beside each other."""
    parts = [part.transpose(1, 2).flatten(2).flatten(0, 1) for part in (keys, values)]
    return torch.cat(parts, 1).detach().numpy()


def _sequential_slots(rows: int, steps: int, room: int) -> Tensor:
    """Places of steps that lie row by row (N, P), the end unused."""
    places = torch.zeros(rows, room, dtype=torch.int32)
    places[:, :steps] = torch.arange(rows * steps, dtype=torch.int32).view(rows, steps)
    return places


def _pack_cross_kv(pairs: Any, mask: Tensor | None) -> CrossKV:
    rows, _, steps, _ = pairs[0][0].shape
    lengths = torch.full((rows,), steps) if mask is None else mask.sum(1)
    store = KVStore([_concat_kv(*pair) for pair in pairs], rows * steps)
    return CrossKV(store, _sequential_slots(rows, steps, steps), lengths)


def _reserve_step(state: PackedState, rows: int) -> PackedState:
    """The state with a place for the step that is to be taken; the old one stays as it is."""
    first, places = state.store.take(rows), state.places
    if state.max_length == places.shape[1]:
        places = F.pad(places, (0, places.shape[1]))
    else:
        places = places.clone()
    fresh = torch.arange(first, first + rows, dtype=torch.int32)
    places.scatter_(1, state.lengths[:, None], fresh[:, None])
    return state._replace(places=places, lengths=state.lengths + 1, max_length=state.max_length + 1)
