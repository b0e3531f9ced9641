"""Transformer decoders: with cross-attention for seq2seq, without it as a language model.

B rows   T steps   P cached steps   S source steps   M width of encoder states   H hidden width
N heads   K width per head   V words
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from weft.attend import transformer_block as attend
from weft.attend.multihead import MultiHeadAttention
from weft.attend.settings import CAUSAL_ATTENTION, Attention, MaskPattern
from weft.batch import Padded
from weft.decode.decoders import kv_cache, small_batch
from weft.decode.decoders.kv_cache import CacheSlot, CacheWrite, KVPair
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer, fold_beams
from weft.decode.search.state import PerPrompt, Pinned, SharedTensor, share, unwrap
from weft.embed.activations import check_sizes
from weft.embed.position import LearnedPositions, SinusoidalPositions, sinusoidal_table
from weft.errors import UserError
from weft.protocols import Decoder, DecoderState, LanguageModelDecoder, Seq2SeqDecoder
from weft.registry import register

Activation = Literal["relu", "gelu", "gelu-tanh"]
LayerCaches = tuple[KVPair, ...]  # keys and values of every layer
STEP_MULTIPLE = 32  # a static cache has a multiple of this many slots, so that shapes recur


@dataclass(frozen=True)
class TransformerState(DecoderState):
    """The KV cache of every layer, and the keys and values of the encoder states.

    Without `position` the cache grows by concatenation. With it the cache is static and written in
    place, each row at its position: shapes never change, and a state that has been stepped must not
    be stepped again (`reorder` copies, so search is safe). With `beams` a kernel reads only filled
    slots, and reordered beams leave their keys and values where they were written.
    """

    past: LayerCaches | Pinned[LayerCaches] | None  # None: no cache
    memory: LayerCaches | PerPrompt[LayerCaches]  # empty without a source
    # (B, S) real source steps, with `beams` their number (B,); None if all are real
    mask: SharedTensor | None
    position: Tensor | None  # (B,) of the next word
    weights: Tensor | None  # (B, S) attention of the last step, on request
    rows: Tensor | None = None  # (B, P) int32 beam of the prompt that wrote each slot
    beams: int = 0  # adjacent rows per prompt; 0: the cache moves with its row

    def per_prompt(self) -> "TransformerState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        return replace(self, memory=PerPrompt(unwrap(self.memory)), mask=share(self.mask))

    @property
    def attention_weights(self) -> Tensor | None:
        """Attention (B, S) of the last step, if it was requested."""
        return self.weights

    @property
    def pinned_beams(self) -> int:
        """Adjacent rows per prompt whose cache stays in place; 0: the cache moves with its row."""
        return self.beams

    @property
    def caches(self) -> LayerCaches | None:
        """The caches, wherever their rows belong."""
        return self.past.value if isinstance(self.past, Pinned) else self.past

    @property
    def cache_steps(self) -> int:
        """The slots of the cache that `view_steps` can cut; 0: none."""
        return 0 if self.beams or self.caches is None else self.caches[0][0].shape[2]

    def max_position(self) -> int:
        """Return the number of used slots over all rows; synchronises with the device."""
        return 0 if self.position is None or not len(self.position) else int(self.position.max())

    def view_steps(self, steps: int) -> "TransformerState":
        """Return the state with a view of the first `steps` slots of its cache."""
        assert self.caches is not None
        assert not self.beams
        return replace(self, past=tuple((k[:, :, :steps], v[:, :, :steps]) for k, v in self.caches))

    def pin_beams(self, beams: int) -> "TransformerState":
        """Return the state for a search with `beams` beams, before its rows are expanded."""
        if beams < 2:
            return replace(self, beams=beams)
        assert self.caches is not None
        keys = self.caches[0][0]  # (B, N, P, K)
        rows = torch.zeros(
            (keys.shape[0], keys.shape[2]), dtype=torch.int32, device=keys.device
        )  # (B, P)
        return replace(self, past=Pinned(self.caches), rows=rows, beams=beams)


class TransformerDecoderBlock(attend.TransformerBlock):
    """A causal Transformer block with optional cross-attention."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        feed_forward: int,
        memory_size: int = 0,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        activation: Activation = "gelu",
        inner_dropout: bool = True,
        attention: Attention = CAUSAL_ATTENTION,
    ):
        super().__init__(
            hidden, heads, feed_forward, norm, dropout, activation, inner_dropout,
            attention=attention,
        )  # fmt: skip
        inner = dropout if inner_dropout else 0.0
        self.cross: MultiHeadAttention | None = None
        if memory_size:
            to_source = Attention(attention.score)
            self.cross = MultiHeadAttention(hidden, heads, inner, memory_size, to_source)
        self.cross_norm = nn.LayerNorm(hidden) if memory_size else None

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        past: KVPair | None = None,
        memory: KVPair | None = None,
        cache_write: CacheWrite | CacheSlot | None = None,
        mask: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, KVPair | None, Tensor | None]:
        """Return the steps (B, T, H), a growing cache with them, and weights (B, N, T, S).

        Takes and returns only what it needs, so that one compiled function serves all blocks.
        """
        y = self.attention_norm(x) if self.norm_first else x
        context, past = self._self_attention(y, past, cache_write)
        x = self._add_residual(x, context, self.attention_norm)  # (B, T, H)
        attention_weights = None
        if self.cross is not None and self.cross_norm is not None and memory is not None:
            y = self.cross_norm(x) if self.norm_first else x
            context, attention_weights = self._cross_attention(y, self.cross, memory, mask, weights)
            x = self._add_residual(x, context.view_as(x), self.cross_norm)  # (B, T, H)
        y = self.feed_norm(x) if self.norm_first else x
        return self._add_residual(x, self._feed_forward(y), self.feed_norm), past, attention_weights

    def _self_attention(
        self, y: Tensor, past: KVPair | None, cache_write: CacheWrite | CacheSlot | None
    ) -> tuple[Tensor, KVPair | None]:
        """Return self-attention over past and steps (B, T, H), and the grown cache."""
        q, k, v = self.attention.project_qkv(y)  # each (B, N, T, K)
        if past is None:
            return self.attention.attend(q, k, v, causal=True)[0], None
        if isinstance(cache_write, CacheSlot):
            return self.attention.output(cache_write.attend(q, k, v, past)), None
        if cache_write is not None and self.attention.has_kernel:
            return self.attention.merge_heads(cache_write.attend(q, k, v, past)), None
        if cache_write is not None:
            k, v = cache_write.write(k, v, past)
            allowed = cache_write.bias == 0  # (B, 1, T, P)
            return self.attention.attend_allowed(q.to(k.dtype), k, v, allowed), None
        if past[0].shape[2]:
            pairs = zip(past, (k, v), strict=True)
            k, v = (torch.cat([a, b.to(a.dtype)], dim=2) for a, b in pairs)
        return self.attention.attend(q, k, v, causal=True)[0], (k, v)

    def _cross_attention(
        self,
        y: Tensor,
        cross: MultiHeadAttention,
        memory: KVPair,
        mask: Tensor | None,
        weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Return cross-attention, and its weights (B, N, T, S) on request."""
        if mask is not None and mask.dim() == 1:
            if y.shape[1] == 1 and cross.has_kernel:
                q = cross.project_query(y)  # (B, N, 1, K)
                return cross.output(kv_cache.cross_attend(q, *memory, mask)), None
            mask = torch.arange(memory[0].shape[2], device=mask.device) < mask[:, None]  # (B, S)
        q = cross.project_query(fold_beams(y, len(memory[0])))  # (B, N, T, K)
        return cross.attend(q, *memory, mask, return_weights=weights)

    def _add_residual(self, x: Tensor, update: Tensor, norm: nn.LayerNorm) -> Tensor:
        added: Tensor = x + self.dropout(update)
        return added if self.norm_first else norm(added).to(x.dtype)


class TransformerDecoder(nn.Module, Decoder):
    """Base of decoders with and without cross-attention: words, positions, blocks."""

    causal = True
    name = ""
    half_residual = False  # under autocast, keep the residual stream in half precision
    small_batch_rows = 0  # largest batch that steps with fused kernels; 0: none

    def __init__(
        self,
        vocabulary_size: int,
        memory_size: int,
        hidden: int,
        layers: int,
        heads: int,
        feed_forward: int,
        norm: Literal["pre", "post"],
        positions: Literal["sinusoidal", "learned"],
        max_positions: int,
        dropout: float,
        activation: Activation,
        tied: bool,
        bias: bool,
        inner_dropout: bool = True,
        attention: Attention = CAUSAL_ATTENTION,
    ):
        super().__init__()
        where = f"decoder '{self.name}'"
        check_sizes(
            where, dropout, hidden=hidden, layers=layers, heads=heads, max_positions=max_positions
        )
        if feed_forward < 0:
            raise UserError(
                f"{where}: 'feed_forward' should be 0 (4 times hidden) or more, got {feed_forward}."
            )
        self.learned = positions == "learned"
        self.max_positions = max_positions if self.learned else None
        # Sinusoids have size one, and so should the words they are added to; but tied output
        # weights must be smaller, so Vaswani et al. (2017) multiply embeddings by √H.
        self.scale = 1.0 if self.learned else hidden**0.5
        deviation = 0.02 if self.learned else hidden**-0.5
        self.words = OutputLayer(vocabulary_size, hidden, hidden, tied, deviation, bias)
        self.positions = (LearnedPositions if self.learned else SinusoidalPositions)(
            hidden, max_positions
        )
        self.dropout, self.entrance = nn.Dropout(dropout), attend.EmbeddingSum()
        self.heads, self.hidden_size = heads, hidden
        shape = (hidden, heads, feed_forward or 4 * hidden, memory_size, norm, dropout, activation)
        self.blocks = nn.ModuleList(
            TransformerDecoderBlock(*shape, inner_dropout, attention) for _ in range(layers)
        )
        # Pre-norm blocks leave their sum unnormalised.
        self.norm = attend.FinalNorm(hidden) if norm == "pre" else nn.Identity()

    @property
    def layers(self) -> list[TransformerDecoderBlock]:
        """The blocks, with their type."""
        return [block for block in self.blocks if isinstance(block, TransformerDecoderBlock)]

    @property
    def has_attention_kernel(self) -> bool:
        """True if kernels for scaled, causal attention compute that of the blocks."""
        return all(block.attention.has_kernel for block in self.layers)

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        output, state = self.step_features(ids, state)
        features = output.features[:, 0]
        if len(ids) <= self.small_batch_rows:
            return small_batch.fused_linear(features, self.words.weight, self.words.bias), state
        return self.words.logits(features), state

    def step_features(
        self, ids: Tensor, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        """Run one step without the output layer, (B, 1, H)."""
        return self._forward_steps(ids[:, None], state)

    def prefill(
        self, ids: Padded, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        """Run several steps at once, such as a prompt; unequal lengths need a static cache."""
        if state.position is None and not ids.full:
            raise UserError(
                "Prompts of different lengths cannot share a growing cache. "
                "Start with a limit, or group them by length."
            )
        output, after = self._forward_steps(ids.data, state)
        if state.position is None:
            return output, after
        # Padding was written behind each row's position and is overwritten before it is read.
        ends = state.position + ids.lengths.to(state.position.device)
        return output, replace(after, position=ends)

    def with_static_cache(
        self, state: TransformerState, steps: int, beams: int = 0
    ) -> TransformerState | None:
        """Return the state with a static cache for `steps` more steps; None if positions end first.

        `beams` is for a search with that many beams (1 if rows are never reordered) on a device
        with a kernel for it (`kv_cache.has_kernel`).
        """
        caches = state.caches
        if state.position is None and caches is not None:
            used = caches[0][0].shape[2]
            if self.learned and used + steps > len(self.positions.table):
                return None
            self._ensure_positions(used + steps)
            size = -(-(used + steps) // STEP_MULTIPLE) * STEP_MULTIPLE
            pairs, first = list(caches), caches[0][0]
            past = (
                kv_cache.from_prefill(pairs, size)
                if used
                else kv_cache.allocate(first, size, len(pairs))
            )
            position = torch.full((len(first),), used, device=first.device)
            state = replace(state, past=past, position=position)
        if not (beams and self.has_attention_kernel) or state.beams or state.position is None:
            return state
        return _with_lengths(state).pin_beams(beams)

    def _forward_steps(
        self, ids: Tensor, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        caches = state.caches
        used = 0 if caches is None else caches[0][0].shape[2]
        first = used if state.position is None else state.position
        vectors = self.words.embed(ids)  # (B, T, H)
        vectors = vectors if self.learned else vectors * self.scale
        dtype = attend.compute_dtype(vectors) if self.half_residual else vectors.dtype
        parts = [vectors, self._position_vectors(first, ids.shape[1], vectors)]
        x = self.entrance(parts, self.dropout, None, dtype)  # (B, T, H)
        memory, mask = unwrap(state.memory), None if state.mask is None else unwrap(state.mask)
        with_weights = state.weights is not None
        cache_write = _plan_cache_write(state, ids.shape[1], self.layers[0].attention.pattern)
        grown_caches: list[KVPair] = []
        attention_weights: Tensor | None = None
        counted = len(memory) == 0 or (mask is not None and mask.dim() == 1)
        few = counted and len(ids) <= self.small_batch_rows
        if few and caches is not None and isinstance(cache_write, CacheSlot):
            x = small_batch.run_blocks(self.layers, x, caches, memory, cache_write, mask)
        else:
            for i, block in enumerate(self.blocks):
                past = None if caches is None else caches[i]
                encoder_kv = memory[i] if memory else None
                x, grown, attention_weights = block(
                    x, past, encoder_kv, cache_write, mask, with_weights
                )
                if grown is not None:
                    grown_caches.append(grown)
        x = self.norm(x)  # (B, T, H)
        weights = (
            None
            if attention_weights is None
            else attention_weights.mean(1).reshape(*ids.shape, attention_weights.shape[3])
        )
        if state.position is None:
            state = replace(state, past=tuple(grown_caches) or None)
        else:  # the static cache was written in place
            state = _advance_position(state, state.position, ids.shape[1])
        if weights is not None:
            state = replace(state, weights=weights[:, -1])
        return DecoderOutput(self.words.narrow(x), x, weights), state

    def _position_vectors(self, first: int | Tensor, steps: int, like: Tensor) -> Tensor:
        """Return position vectors (T, H), or (B, T, H) if rows are at different positions."""
        if isinstance(first, int):
            self._ensure_positions(first + steps)
            return self.positions.table[first : first + steps].to(like.dtype)
        at = first[:, None] + torch.arange(steps, device=first.device)  # (B, T)
        return self.positions.table[at].to(like.dtype)

    def _ensure_positions(self, steps: int) -> None:
        """Extend sinusoidal positions on demand; raise a UserError beyond learned ones."""
        table = self.positions.table
        if steps <= len(table):
            return
        if self.learned:
            raise UserError(
                f"A sequence has {steps} steps, but the positions of decoder '{self.name}' end at "
                f"{len(table)}. Raise decoder.max_positions, or truncate."
            )
        grown = sinusoidal_table(max(steps, 2 * len(table)), table.shape[1])
        self.positions.table = grown.to(table.device, table.dtype)

    def _initial_state(
        self,
        batch: int,
        device: torch.device | None,
        memory: LayerCaches,
        mask: Tensor | None,
        limit: int,
    ) -> TransformerState:
        """Return an empty cache, growing or static with `limit` slots."""
        self._ensure_positions(limit)
        shape = (batch, self.heads, 0, self.hidden_size // self.heads)  # (B, N, 0, K)
        dtype = _attention_dtype(self.words.table.weight)
        empty = torch.zeros(shape, dtype=dtype, device=device)
        past = kv_cache.allocate(empty, limit, len(self.blocks))
        position = torch.zeros(batch, dtype=torch.long, device=device) if limit else None
        return TransformerState(past, memory, mask, position, None)


@register("decoder", "transformer")
class Seq2SeqTransformerDecoder(TransformerDecoder, Seq2SeqDecoder):
    """Self-attention and cross-attention blocks (Vaswani et al. 2017).

    `feed_forward` is the inner width of the feed-forward layers, by default 4·hidden. Learned
    positions end at `max_positions`. Returned attention weights are the mean over the last
    layer's heads. `inner_dropout` also drops attention weights and inner feed-forward activations.
    """

    name = "transformer"

    def __init__(
        self,
        vocabulary_size: int,
        memory_size: int,
        hidden: int = 256,
        layers: int = 3,
        heads: int = 4,
        feed_forward: int = 0,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["sinusoidal", "learned"] = "sinusoidal",
        max_positions: int = 512,
        dropout: float = 0.1,
        activation: Activation = "relu",
        tied: bool = True,
        inner_dropout: bool = True,
        attention_config: Attention = CAUSAL_ATTENTION,
    ):
        shape = (
            hidden, layers, heads, feed_forward, norm, positions, max_positions, dropout, activation
        )  # fmt: skip
        super().__init__(
            vocabulary_size, memory_size, *shape, tied, True, inner_dropout, attention_config
        )

    def start(self, memory: Padded, weights: bool = False, limit: int = 0) -> TransformerState:
        """Return the initial state; projects the encoder states to keys and values once.

        With a `limit` the cache is static, with that many slots.
        """
        memory = memory.with_data(memory.data)
        crosses = (block.cross for block in self.layers)
        encoder_kv = tuple(cross.project_kv(memory.data) for cross in crosses if cross is not None)
        mask = None if memory.full else memory.mask
        state = self._initial_state(len(memory), memory.data.device, encoder_kv, mask, limit)
        if weights:
            empty = torch.zeros(memory.data.shape[:2], device=memory.data.device)  # (B, S)
            state = replace(state, weights=empty)
        return state

    def read(self, targets: Padded, memory: Padded, weights: bool = True) -> DecoderOutput:
        """Run all steps at once."""
        state = self.start(memory, weights=weights)
        return self._forward_steps(targets.data, replace(state, past=None))[0]

    def features(self, targets: Padded, memory: Padded) -> Tensor:
        """Return features (B, T, F) of every step; attention is faster without weights."""
        return self.read(targets, memory, False).features

    def forward(self, targets: Padded, memory: Padded) -> Tensor:
        logits = self.words.logits(self.features(targets, memory))  # (B, T, V)
        return logits


@register("decoder", "gpt")
class GPT(TransformerDecoder, LanguageModelDecoder):
    """A decoder-only language model in GPT-2's layout.

    Pre-norm blocks, learned positions, tied embeddings, small initial weights that are smaller
    still where they add to the residual (Radford et al. 2019). `model` names a checkpoint to start
    from; the constructor never opens it.

    With train.precision = "bf16" the residual stream is in half precision too, so that norms and
    sums move half the bytes; norms, softmax and the loss compute in single precision, and weights
    and their gradients stay in it.
    """

    name, half_residual = "gpt", True
    sync_free = True  # training never synchronises with the device

    def __init__(
        self,
        vocabulary_size: int,
        hidden: int = 384,
        layers: int = 6,
        heads: int = 6,
        feed_forward: int = 0,
        max_positions: int = 256,
        dropout: float = 0.1,
        activation: Activation = "gelu-tanh",
        tied: bool = True,
        model: str = "",
        attention_config: Attention = CAUSAL_ATTENTION,
    ):
        shape = (
            hidden, layers, heads, feed_forward, "pre", "learned", max_positions, dropout,
            activation,
        )  # fmt: skip
        super().__init__(vocabulary_size, 0, *shape, tied, False, False, attention_config)  # type: ignore[arg-type]
        self.model = model
        for block in self.layers:  # GPT-2 drops attention weights, but nothing inside the MLP
            block.attention.dropout = dropout
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("output.weight", "feed_out.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)

    @property
    def input_layer(self) -> nn.Module:
        """The table of word vectors."""
        return self.words.table

    def start(
        self, batch: int, device: torch.device | None = None, limit: int = 0
    ) -> TransformerState:
        """Return the initial state; with a `limit` the cache is static."""
        return self._initial_state(batch, device, (), None, limit)

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, H) of every step."""
        state = TransformerState(None, (), None, None, None)
        return self._forward_steps(ids.data, state)[0].features

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits


def _plan_cache_write(
    state: TransformerState, steps: int, pattern: MaskPattern
) -> CacheWrite | CacheSlot | None:
    """Plan the write of `steps` steps into a static cache; None for a growing one."""
    if state.position is None or state.caches is None:
        return None
    if state.beams and steps == 1:
        return CacheSlot(state.position, state.rows, state.beams)
    return kv_cache.plan_write(
        state.position, steps, state.caches[0][0], state.rows, state.beams, pattern
    )


def _advance_position(state: TransformerState, position: Tensor, steps: int) -> TransformerState:
    """Advance a state with a static cache by `steps` steps."""
    rows = state.rows
    if rows is not None:
        rows = kv_cache.mark_written(rows, position, steps, state.beams)
    return replace(state, position=position + steps, rows=rows)


def _with_lengths(state: TransformerState) -> TransformerState:
    """Replace the source mask by lengths, unless attention weights are requested."""
    if state.mask is None or state.weights is not None:
        return state
    lengths = unwrap(state.mask).sum(1)  # (B,)
    return replace(state, mask=share(lengths) if isinstance(state.mask, PerPrompt) else lengths)


def _attention_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype attention will compute in."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
