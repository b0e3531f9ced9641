"""Transformer decoders: with a memory for translation, without one as a language model.

B rows   T steps   P steps of the past   S steps of the memory   M its width   H hidden width
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
STEP_MULTIPLE = (
    32  # steps that the room of a fixed cache is a multiple of, so that shapes come again
)


class TransformerState(NamedTuple):
    """Keys and values of every layer, of the words so far and of the memory.

    Without `position` they grow by concatenation. With it they have room for a fixed number of
    steps and are written in place, each row at its own position: shapes never change, and a state
    that has been stepped may not be stepped again (`reorder` copies, so search is safe). With
    `beams` a kernel looks at what is filled and no more, and beams that change places leave their
    keys and values where they were written.
    """

    past: Any  # tuple[Pair | None, ...], maybe unmoved; None: nothing was read nor is to be kept
    memory: Any  # tuple[Pair, ...]; this and the mask may be shared
    mask: Any  # (B, S) real steps of the memory, with `beams` (B,) how many; None where all are
    position: Tensor | None  # (B,) of the next word
    weights: Tensor | None  # (B, S) where the last step looked, if that was asked for
    rows: Tensor | None = None  # (B, P) int32 which beam of its prompt wrote each place
    beams: int = 0  # rows of a prompt, next to each other; 0: the past moves with its row

    def per_prompt(self) -> "TransformerState":
        """The same for a search that keeps one memory for all beams of a prompt."""
        return self._replace(
            memory=PerPrompt(unwrap(self.memory)), mask=PerPrompt(unwrap(self.mask))
        )

    def max_position(self) -> int:
        """How many steps of a fixed room are in use, of all rows; waits for the device."""
        return 0 if self.position is None or not len(self.position) else int(self.position.max())

    def view_steps(self, steps: int) -> "TransformerState":
        """The same state with a view of the first steps of its room only."""
        return self._replace(past=tuple((k[:, :, :steps], v[:, :, :steps]) for k, v in self.past))

    def pin_beams(self, beams: int) -> "TransformerState":
        """The same for a search of so many beams, before its rows are spread."""
        if beams < 2:
            return self._replace(beams=beams)
        B, _, P, _ = self.past[0][0].shape
        rows = torch.zeros((B, P), dtype=torch.int32, device=self.past[0][0].device)
        return self._replace(past=Pinned(self.past), rows=rows, beams=beams)


class TransformerDecoderBlock(attend.TransformerBlock):
    """The encoder's block, causal, with attention to the memory if there is one."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        feed: int,
        memory_size: int = 0,
        norm: Literal["pre", "post"] = "pre",
        dropout: float = 0.0,
        activation: Activation = "gelu",
        inner_dropout: bool = True,
    ):
        super().__init__(hidden, heads, feed, norm, dropout, activation, inner_dropout)
        inner = dropout if inner_dropout else 0.0
        self.cross = MultiHeadAttention(hidden, heads, inner, memory_size) if memory_size else None
        self.cross_norm = nn.LayerNorm(hidden) if memory_size else None

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        past: KVPair | None = None,
        memory: KVPair | None = None,
        room: CacheWrite | CacheSlot | None = None,
        mask: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, KVPair | None, Tensor | None]:
        """The steps (B, T, H), a growing past with them in it, and the weights (B, N, T, S).

        Takes and gives only what it needs, so that one compiled function serves all blocks.
        """
        y = self.attention_norm(x) if self.norm_first else x
        mixed, past = self._self_attention(y, past, room)
        x = self._add_residual(x, mixed, self.attention_norm)  # (B, T, H)
        shares = None
        if self.cross is not None and self.cross_norm is not None and memory is not None:
            y = self.cross_norm(x) if self.norm_first else x
            mixed, shares = self._cross_attention(y, self.cross, memory, mask, weights)
            x = self._add_residual(x, mixed.view_as(x), self.cross_norm)  # (B, T, H)
        y = self.feed_norm(x) if self.norm_first else x
        return self._add_residual(x, self._feed_forward(y), self.feed_norm), past, shares

    def _self_attention(
        self, y: Tensor, past: KVPair | None, room: CacheWrite | CacheSlot | None
    ) -> tuple[Tensor, KVPair | None]:
        """What the steps find in themselves and the past (B, T, H), and a past that grew."""
        q, k, v = self.attention.project_qkv(y)  # each (B, N, T, K)
        if past is None:
            return self.attention.attend(q, k, v, causal=True)[0], None
        if isinstance(room, CacheSlot):
            return self.attention.output(room.attend(q, k, v, past)), None
        if room is not None:
            return self.attention.merge_heads(room.attend(q, k, v, past)), None
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
        """What the steps find in the memory, and the weights (B, N, T, S) if they are wanted."""
        if mask is not None and mask.dim() == 1:
            if y.shape[1] == 1:
                q = cross.query(y).unflatten(2, (cross.heads, -1)).transpose(1, 2)  # (B, N, 1, K)
                return cross.output(kv_cache.cross_attend(q, *memory, mask)), None
            mask = torch.arange(memory[0].shape[2], device=mask.device) < mask[:, None]  # (B, S)
        q = cross.split_heads(cross.query(fold_beams(y, len(memory[0]))))  # (B, N, T, K)
        return cross.attend(q, *memory, mask, return_weights=weights)

    def _add_residual(self, x: Tensor, made: Tensor, norm: nn.LayerNorm) -> Tensor:
        added = x + self.dropout(made)
        return added if self.norm_first else norm(added).to(x.dtype)


class TransformerDecoder(nn.Module):
    """What decoders with and without a memory share: words, positions, blocks."""

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
        feed: int,
        norm: Literal["pre", "post"],
        positions: Literal["sinusoidal", "learned"],
        limit: int,
        dropout: float,
        activation: Activation,
        tied: bool,
        bias: bool,
        inner_dropout: bool = True,
    ):
        super().__init__()
        where = f"decoder '{self.name}'"
        check_sizes(where, dropout, hidden=hidden, layers=layers, heads=heads, limit=limit)
        if feed < 0:
            raise UserError(f"{where}: 'feed' should be 0 (4 times hidden) or more, got {feed}.")
        self.learned = positions == "learned"
        self.limit = limit if self.learned else None
        # Waves have size one, and so should the words they are added to; but a tied table must be
        # smaller to score with, so Vaswani et al. (2017) multiply by √H on the way in.
        self.scale = 1.0 if self.learned else hidden**0.5
        deviation = 0.02 if self.learned else hidden**-0.5
        self.words = OutputLayer(vocabulary_size, hidden, hidden, tied, deviation, bias)
        self.positions = (LearnedPositions if self.learned else SinusoidalPositions)(hidden, limit)
        self.dropout, self.entrance = nn.Dropout(dropout), attend.EmbeddingSum()
        self.heads, self.hidden_size = heads, hidden
        shape = (hidden, heads, feed or 4 * hidden, memory_size, norm, dropout, activation)
        self.blocks = nn.ModuleList(
            TransformerDecoderBlock(*shape, inner_dropout) for _ in range(layers)
        )
        # Pre-norm blocks leave their sum unnormalised.
        self.norm = attend.FinalNorm(hidden) if norm == "pre" else nn.Identity()

    def step(self, ids: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        """The scores (B, V) of the word after `ids` (B,), and the state that follows."""
        read, state = self.step_features(ids, state)
        features = read.features[:, 0]
        if len(ids) <= self.small_batch_rows:
            return small_batch.fused_linear(features, self.words.weight, self.words.bias), state
        return self.words.logits(features), state

    def step_features(
        self, ids: Tensor, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        """One step without the scores, (B, 1, H)."""
        return self._forward_steps(ids[:, None], state)

    def prefill(
        self, ids: Padded, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        """Several steps at once, such as a prompt; rows of different lengths need a fixed cache."""
        if state.position is None and not ids.full:
            raise UserError(
                "Prompts of different lengths cannot share a growing cache. "
                "Start with a limit, or group them by length."
            )
        read, after = self._forward_steps(ids.data, state)
        if state.position is None:
            return read, after
        # What the padding wrote lies behind each row's position and is overwritten before it shows.
        ends = state.position + ids.lengths.to(state.position.device)
        return read, after._replace(position=ends)

    def with_static_cache(
        self, state: TransformerState, steps: int, beams: int = 0
    ) -> TransformerState | None:
        """The state with room for so many steps more; None where positions end before.

        With `beams` it is for a search of so many, 1 where rows never change places, on a device
        that has a kernel for it (`room.has_kernel`).
        """
        if state.position is None and state.past[0] is not None:
            grown = state.past[0][0].shape[2]
            if self.learned and grown + steps > len(self.positions.table):
                return None
            self._ensure_positions(grown + steps)
            size = -(-(grown + steps) // STEP_MULTIPLE) * STEP_MULTIPLE
            pairs, first = list(state.past), state.past[0][0]
            past = (
                kv_cache.from_prefill(pairs, size)
                if grown
                else kv_cache.allocate(first, size, len(pairs))
            )
            position = torch.full((len(first),), grown, device=first.device)
            state = state._replace(past=past, position=position)
        if not beams or state.beams or state.position is None:
            return state
        return _with_lengths(state).pin_beams(beams)

    def _forward_steps(
        self, ids: Tensor, state: TransformerState
    ) -> tuple[DecoderOutput, TransformerState]:
        pasts = state.past.value if isinstance(state.past, Pinned) else state.past
        grown = 0 if pasts[0] is None else pasts[0][0].shape[2]
        first = grown if state.position is None else state.position
        vectors = self.words.embed(ids)  # (B, T, H)
        vectors = vectors if self.learned else vectors * self.scale
        kind = attend.compute_dtype(vectors) if self.half_residual else vectors.dtype
        parts = [vectors, self._position_vectors(first, ids.shape[1], vectors)]
        x = self.entrance(parts, self.dropout, None, kind)  # (B, T, H)
        memory, mask, asked = unwrap(state.memory), unwrap(state.mask), state.weights is not None
        room = _plan_cache_write(state, ids.shape[1], pasts[0])
        past, shares = [], None
        counted = len(memory) == 0 or (mask is not None and mask.dim() == 1)
        if isinstance(room, CacheSlot) and len(ids) <= self.small_batch_rows and counted:
            x = small_batch.run_blocks(self.blocks, x, pasts, memory, room, mask)
        else:
            for i, block in enumerate(self.blocks):
                own = memory[i] if memory else None
                x, now, shares = block(x, pasts[i], own, room, mask, asked)
                past.append(now)
        x = self.norm(x)  # (B, T, H)
        weights = None if shares is None else shares.mean(1).reshape(*ids.shape, shares.shape[3])
        if state.position is None:
            state = state._replace(past=tuple(past))
        else:  # what has room was written in place
            state = _advance_position(state, state.position, ids.shape[1])
        if weights is not None:
            state = state._replace(weights=weights[:, -1])
        return DecoderOutput(self.words.narrow(x), x, weights), state

    def _position_vectors(self, first: int | Tensor, steps: int, like: Tensor) -> Tensor:
        """The vectors of positions, (T, H), or (B, T, H) where rows stand at different ones."""
        if isinstance(first, int):
            self._ensure_positions(first + steps)
            return self.positions.table[first : first + steps].to(like.dtype)
        at = first[:, None] + torch.arange(steps, device=first.device)  # (B, T)
        return self.positions.table[at].to(like.dtype)

    def _ensure_positions(self, steps: int) -> None:
        """Waves are computed as far as they are needed; learned positions end."""
        table = self.positions.table
        if steps <= len(table):
            return
        if self.learned:
            raise UserError(
                f"A sequence of {steps} steps, but the positions of decoder '{self.name}' end at "
                f"{len(table)}. Raise decoder.limit, or truncate."
            )
        grown = sinusoidal_table(max(steps, 2 * len(table)), table.shape[1])
        self.positions.table = grown.to(table.device, table.dtype)

    def _no_cache(self) -> tuple[None, ...]:
        return (None,) * len(self.blocks)

    def _initial_state(
        self, batch: int, device: Any, memory: tuple[KVPair, ...], mask: Tensor | None, limit: int
    ) -> TransformerState:
        """An empty past, growing or with room for `limit` steps."""
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
    """Blocks of self-attention and attention to a memory (Vaswani et al. 2017).

    `feed` is the inner width of the perceptrons, 4·hidden unless given. Learned positions end at
    `limit`. The weights that come back are the mean of the last layer's heads. With
    `inner_dropout` attention weights and the insides of the perceptrons are dropped as well.
    """

    reads_source, name = True, "transformer"

    def __init__(
        self,
        vocabulary_size: int,
        memory_size: int,
        hidden: int = 256,
        layers: int = 3,
        heads: int = 4,
        feed: int = 0,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["sinusoidal", "learned"] = "sinusoidal",
        limit: int = 512,
        dropout: float = 0.1,
        activation: Activation = "relu",
        tied: bool = True,
        inner_dropout: bool = True,
    ):
        shape = (hidden, layers, heads, feed, norm, positions, limit, dropout, activation)
        super().__init__(vocabulary_size, memory_size, *shape, tied, True, inner_dropout)

    def start(self, memory: Padded, weights: bool = False, limit: int = 0) -> TransformerState:
        """The state before the first word; the memory's keys and values are made here, once.

        With a `limit` the cache has that many steps and never changes its shape.
        """
        memory = memory.with_data(memory.data)
        made = tuple(block.cross.project_kv(memory.data) for block in self.blocks)  # type: ignore[union-attr, operator]
        mask = None if memory.full else memory.mask
        state = self._initial_state(len(memory), memory.data.device, made, mask, limit)
        if weights:
            empty = torch.zeros(memory.data.shape[:2], device=memory.data.device)  # (B, S)
            state = state._replace(weights=empty)
        return state

    def read(self, targets: Padded, memory: Padded, weights: bool = True) -> DecoderOutput:
        """All steps at once."""
        state = self.start(memory, weights=weights)
        return self._forward_steps(targets.data, state._replace(past=self._no_cache()))[0]

    def features(self, targets: Padded, memory: Padded) -> Tensor:  # type: ignore[override]
        """What is scored at every step, (B, T, F); without the weights attention is faster."""
        return self.read(targets, memory, False).features

    def forward(self, targets: Padded, memory: Padded) -> Tensor:
        scores = self.words.logits(self.features(targets, memory))  # (B, T, V)
        return scores


@register("decoder", "gpt")
class GPT(TransformerDecoder):
    """A Transformer without a memory, as a language model in GPT-2's layout.

    Pre-norm blocks, learned positions, one table for words and scores, weights that start small
    and smaller still where they add to the residual (Radford et al. 2019). `model` names where they
    come from otherwise; the constructor never opens it, whoever makes a fresh model does.

    With train.precision = "bf16" the sum that runs through the blocks is in half precision too, so
    that norms and sums move half the bytes; norms, softmax and the loss compute in single
    precision, and weights and their gradients stay in it.
    """

    name, half_residual = "gpt", True
    sync_free = True  # learning never waits for the device

    def __init__(
        self,
        vocabulary_size: int,
        hidden: int = 384,
        layers: int = 6,
        heads: int = 6,
        feed: int = 0,
        limit: int = 256,
        dropout: float = 0.1,
        activation: Activation = "gelu-tanh",
        tied: bool = True,
        model: str = "",
    ):
        shape = (hidden, layers, heads, feed, "pre", "learned", limit, dropout, activation)
        super().__init__(vocabulary_size, 0, *shape, tied, False, False)  # type: ignore[arg-type]
        self.model = model
        for block in self.blocks:  # GPT-2 drops attention weights, but nothing inside the MLP
            block.attention.dropout = dropout  # type: ignore[union-attr, assignment]
        for name, weight in self.blocks.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("output.weight", "feed_out.weight"))
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5 if last else 0.02)

    def start(self, batch: int, device: Any = None, limit: int = 0) -> TransformerState:
        """The state before the first word; with a `limit` the cache never changes its shape."""
        return self._initial_state(batch, device, (), None, limit)

    def features(self, ids: Padded) -> Tensor:
        """What is scored at every step, (B, T, H)."""
        state = TransformerState(self._no_cache(), (), None, None, None)
        return self._forward_steps(ids.data, state)[0].features

    def forward(self, ids: Padded) -> Tensor:
        scores = self.words.logits(self.features(ids))  # (B, T, V)
        return scores


def _plan_cache_write(
    state: TransformerState, steps: int, begun: KVPair | None
) -> CacheWrite | CacheSlot | None:
    """Where so many steps go, and what they see, in a state that has room."""
    if state.position is None or begun is None:
        return None
    if state.beams and steps == 1:
        return CacheSlot(state.position, state.rows, state.beams)
    return kv_cache.plan_write(state.position, steps, begun[0], state.rows, state.beams)


def _advance_position(state: TransformerState, position: Tensor, steps: int) -> TransformerState:
    """A state with room behind its next steps."""
    rows = state.rows
    if rows is not None:
        rows = kv_cache.mark_written(rows, position, steps, state.beams)
    return state._replace(position=position + steps, rows=rows)


def _with_lengths(state: TransformerState) -> TransformerState:
    """The state with how many steps of the memory are real, unless weights are asked for."""
    mask = unwrap(state.mask)
    if mask is None or state.weights is not None:
        return state
    lengths = mask.sum(1)  # (B,)
    return state._replace(mask=PerPrompt(lengths) if isinstance(state.mask, PerPrompt) else lengths)


def _attention_dtype(weight: Tensor) -> torch.dtype:
    """What attention will work in."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
