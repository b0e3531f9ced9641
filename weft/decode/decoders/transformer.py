"""Transformer decoders: with cross-attention for seq2seq, without it as a language model.

B rows   T steps   P cached steps   S source steps   M width of encoder states   H hidden width
N heads   K width per head   V words
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from weft.attend import transformer_block as attend
from weft.attend.multihead import MultiHeadAttention
from weft.batch import Padded
from weft.decode.decoders import kv_cache, small_batch
from weft.decode.decoders.kv_cache import CacheSlot, CacheWrite, KVPair
from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer, fold_beams, unwrap
from weft.decode.search.state import PerPrompt, Pinned
from weft.embed.activations import check_sizes
from weft.embed.position import LearnedPositions, SinusoidalPositions, sinusoidal_table
from weft.errors import UserError
from weft.registry import register

Activation = Literal["relu", "gelu", "gelu-tanh"]
STEP_MULTIPLE = 32  # a static cache has a multiple of this many slots, so that shapes recur


class TransformerState(NamedTuple):
    """The KV cache of every layer, and the keys and values of the encoder states.

    Without `position` the cache grows by concatenation. With it the cache is static and written in
    place, each row at its position: shapes never change, and a state that has been stepped must not
    be stepped again (`reorder` copies, so search is safe). With `beams` a kernel reads only filled
    slots, and reordered beams leave their keys and values where they were written.
    """

    past: Any  # tuple[KVPair | None, ...], may be Pinned; None: no cache
    memory: Any  # tuple[KVPair, ...]; this and the mask may be PerPrompt
    mask: Any  # (B, S) real source steps, with `beams` their number (B,); None if all are real
    position: Tensor | None  # (B,) of the next word
    weights: Tensor | None  # (B, S) attention of the last step, on request
    rows: Tensor | None = None  # (B, P) int32 beam of the prompt that wrote each slot
    beams: int = 0  # adjacent rows per prompt; 0: the cache moves with its row

    def per_prompt(self) -> "TransformerState":
        """Return the state with one set of encoder states for all beams of a prompt."""
        return self._replace(
            memory=PerPrompt(unwrap(self.memory)), mask=PerPrompt(unwrap(self.mask))
        )

    def max_position(self) -> int:
        """Return the number of used slots over all rows; synchronises with the device."""
        return 0 if self.position is None or not len(self.position) else int(self.position.max())

    def view_steps(self, steps: int) -> "TransformerState":
        """Return the state with a view of the first `steps` slots of its cache."""
        return self._replace(past=tuple((k[:, :, :steps], v[:, :, :steps]) for k, v in self.past))

    def pin_beams(self, beams: int) -> "TransformerState":
        """Return the state for a search with `beams` beams, before its rows are expanded."""
        if beams < 2:
            return self._replace(beams=beams)
        B, _, P, _ = self.past[0][0].shape
        rows = torch.zeros((B, P), dtype=torch.int32, device=self.past[0][0].device)
        return self._replace(past=Pinned(self.past), rows=rows, beams=beams)


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
    ):
        super().__init__(hidden, heads, feed_forward, norm, dropout, activation, inner_dropout)
        inner = dropout if inner_dropout else 0.0
        self.cross = MultiHeadAttention(hidden, heads, inner, memory_size) if memory_size else None
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
        if cache_write is not None:
            return self.attention.merge_heads(cache_write.attend(q, k, v, past)), None
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
            if y.shape[1] == 1:
                q = cross.query(y).unflatten(2, (cross.heads, -1)).transpose(1, 2)  # (B, N, 1, K)
                return cross.output(kv_cache.cross_attend(q, *memory, mask)), None
            mask = torch.arange(memory[0].shape[2], device=mask.device) < mask[:, None]  # (B, S)
        q = cross.split_heads(cross.query(fold_beams(y, len(memory[0]))))  # (B, N, T, K)
        return cross.attend(q, *memory, mask, return_weights=weights)

    def _add_residual(self, x: Tensor, update: Tensor, norm: nn.LayerNorm) -> Tensor:
        added = x + self.dropout(update)
        return added if self.norm_first else norm(added).to(x.dtype)


class TransformerDecoder(nn.Module):
    """Base of decoders with and without cross-attention: words, positions, blocks."""

    causal, reads_source = True, False
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
            TransformerDecoderBlock(*shape, inner_dropout) for _ in range(layers)
        )
        # Pre-norm blocks leave their sum unnormalised.
        self.norm = attend.FinalNorm(hidden) if norm == "pre" else nn.Identity()

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
        return output, after._replace(position=ends)

    def with_static_cache(
        self, state: TransformerState, steps: int, beams: int = 0
    ) -> TransformerState | None:
        """Return the state with a static cache for `steps` more steps; None if positions end first.

        `beams` is for a search with that many beams (1 if rows are never reordered) on a device
        with a kernel for it (`kv_cache.has_kernel`).
        """
        if state.position is None and state.past[0] is not None:
            used = state.past[0][0].shape[2]
            if self.learned and used + steps > len(self.positions.table):
                return None
            self._ensure_positions(used + steps)
            size = -(-(used + steps) // STEP_MULTIPLE) * STEP_MULTIPLE
            pairs, first = list(state.past), state.past[0][0]
            past = (
                kv_cache.from_prefill(pairs, size)
                if used
                else kv_cache.allocate(first, size, len(pairs))
            )
            position = torch.full((len(first),), used, device=first.device)
            state = state._replace(past=past, position=position)
        if not beams or state.beams or state.position is None:
            return state
        return _with_lengths(state).pin_beams(beams)

    def _forward_steps(
        self, ids: Tensor, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        pasts = state.past.value if isinstance(state.past, Pinned) else state.past
        used = 0 if pasts[0] is None else pasts[0][0].shape[2]
        first = used if state.position is None else state.position
        vectors = self.words.embed(ids)  # (B, T, H)
        vectors = vectors if self.learned else vectors * self.scale
        dtype = attend.compute_dtype(vectors) if self.half_residual else vectors.dtype
        parts = [vectors, self._position_vectors(first, ids.shape[1], vectors)]
        x = self.entrance(parts, self.dropout, None, dtype)  # (B, T, H)
        memory, mask, with_weights = (
            unwrap(state.memory),
            unwrap(state.mask),
            state.weights is not None,
        )
        cache_write = _plan_cache_write(state, ids.shape[1], pasts[0])
        past, attention_weights = [], None
        counted = len(memory) == 0 or (mask is not None and mask.dim() == 1)
        if isinstance(cache_write, CacheSlot) and len(ids) <= self.small_batch_rows and counted:
            x = small_batch.run_blocks(self.blocks, x, pasts, memory, cache_write, mask)
        else:
            for i, block in enumerate(self.blocks):
                encoder_kv = memory[i] if memory else None
                x, grown, attention_weights = block(
                    x, pasts[i], encoder_kv, cache_write, mask, with_weights
                )
                past.append(grown)
        x = self.norm(x)  # (B, T, H)
        weights = (
            None
            if attention_weights is None
            else attention_weights.mean(1).reshape(*ids.shape, attention_weights.shape[3])
        )
        if state.position is None:
            state = state._replace(past=tuple(past))
        else:  # the static cache was written in place
            state = _advance_position(state, state.position, ids.shape[1])
        if weights is not None:
            state = state._replace(weights=weights[:, -1])
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

    def _no_cache(self) -> tuple[None, ...]:
        return (None,) * len(self.blocks)

    def _initial_state(
        self, batch: int, device: Any, memory: tuple[KVPair, ...], mask: Tensor | None, limit: int
    ) -> TransformerState:
        """Return an empty cache, growing or static with `limit` slots."""
        self._ensure_positions(limit)
        shape = (batch, self.heads, limit, self.hidden_size // self.heads)  # (B, N, P, K)
        empty = {"dtype": _attention_dtype(self.words.table.weight), "device": device}
        past = kv_cache.allocate(
            torch.zeros((batch, self.heads, 0, shape[3]), **empty), limit, len(self.blocks)
        )
        position = torch.zeros(batch, dtype=torch.long, device=device) if limit else None
        return TransformerState(past, memory, mask, position, None)


@register("decoder", "transformer")
class Seq2SeqTransformerDecoder(TransformerDecoder):
    """Self-attention and cross-attention blocks (Vaswani et al. 2017).

    `feed_forward` is the inner width of the feed-forward layers, by default 4·hidden. Learned
    positions end at `max_positions`. Returned attention weights are the mean over the last
    layer's heads. `inner_dropout` also drops attention weights and inner feed-forward activations.
    """

    reads_source, name = True, "transformer"

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
    ):
        shape = (
            hidden, layers, heads, feed_forward, norm, positions, max_positions, dropout, activation
        )  # fmt: skip
        super().__init__(vocabulary_size, memory_size, *shape, tied, True, inner_dropout)

    def start(self, memory: Padded, weights: bool = False, limit: int = 0) -> TransformerState:
        """Return the initial state; projects the encoder states to keys and values once.

        With a `limit` the cache is static, with that many slots.
        """
        memory = memory.with_data(memory.data)
        encoder_kv = tuple(block.cross.project_kv(memory.data) for block in self.blocks)  # type: ignore[union-attr, operator]
        mask = None if memory.full else memory.mask
        state = self._initial_state(len(memory), memory.data.device, encoder_kv, mask, limit)
        if weights:
            empty = torch.zeros(memory.data.shape[:2], device=memory.data.device)  # (B, S)
            state = state._replace(weights=empty)
        return state

    def read(self, targets: Padded, memory: Padded, weights: bool = True) -> DecoderOutput:
        """Run all steps at once."""
        state = self.start(memory, weights=weights)
        return self._forward_steps(targets.data, state._replace(past=self._no_cache()))[0]

    def features(self, targets: Padded, memory: Padded) -> Tensor:  # type: ignore[override]
        """Return features (B, T, F) of every step; attention is faster without weights."""
        return self.read(targets, memory, False).features

    def forward(self, targets: Padded, memory: Padded) -> Tensor:
        logits = self.words.logits(self.features(targets, memory))  # (B, T, V)
        return logits


@register("decoder", "gpt")
class GPT(TransformerDecoder):
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
    ):
        shape = (
            hidden, layers, heads, feed_forward, "pre", "learned", max_positions, dropout,
            activation,
        )  # fmt: skip
        super().__init__(vocabulary_size, 0, *shape, tied, False, False)  # type: ignore[arg-type]
        self.model = model
        for block in self.blocks:  # GPT-2 drops attention weights, but nothing inside the MLP
            block.attention.dropout = dropout  # type: ignore[union-attr, assignment]
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("output.weight", "feed_out.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)

    def start(self, batch: int, device: Any = None, limit: int = 0) -> TransformerState:
        """Return the initial state; with a `limit` the cache is static."""
        return self._initial_state(batch, device, (), None, limit)

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, H) of every step."""
        state = TransformerState(self._no_cache(), (), None, None, None)
        return self._forward_steps(ids.data, state)[0].features

    def forward(self, ids: Padded) -> Tensor:
        logits = self.words.logits(self.features(ids))  # (B, T, V)
        return logits


def _plan_cache_write(
    state: TransformerState, steps: int, cache: KVPair | None
) -> CacheWrite | CacheSlot | None:
    """Plan the write of `steps` steps into a static cache; None for a growing one."""
    if state.position is None or cache is None:
        return None
    if state.beams and steps == 1:
        return CacheSlot(state.position, state.rows, state.beams)
    return kv_cache.plan_write(state.position, steps, cache[0], state.rows, state.beams)


def _advance_position(state: TransformerState, position: Tensor, steps: int) -> TransformerState:
    """Advance a state with a static cache by `steps` steps."""
    rows = state.rows
    if rows is not None:
        rows = kv_cache.mark_written(rows, position, steps, state.beams)
    return state._replace(position=position + steps, rows=rows)


def _with_lengths(state: TransformerState) -> TransformerState:
    """Replace the source mask by lengths, unless attention weights are requested."""
    mask = unwrap(state.mask)
    if mask is None or state.weights is not None:
        return state
    lengths = mask.sum(1)  # (B,)
    return state._replace(mask=PerPrompt(lengths) if isinstance(state.mask, PerPrompt) else lengths)


def _attention_dtype(weight: Tensor) -> torch.dtype:
    """Return the dtype attention will compute in."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
