"""CUDA graphs of search steps: captured once per shape, replayed without the host.

A step is hundreds of small kernels, and launching them one by one takes longer than running them.
A CUDA graph launches them all at once, over static buffers. The search does not know: it passes
its step function to `wrap_step`. The prefill of a lazily encoded source (encoding it, the decoder's
initial state and an empty search) is one graph too. The runtime provides the capture function; in
tests it is a plain call.
"""

import copy
import inspect
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor, nn

from weft.attend.multihead import MultiHeadAttention
from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.decode.cuda_graphs.compiled_step import CompilerOptions, compile_step
from weft.decode.cuda_graphs.prefill import (
    MAX_CACHED_SHAPES,
    CapturedPrefill,
    PrefillRequest,
    Work,
)
from weft.decode.decoders import small_batch
from weft.decode.decoders.kv_cache import has_kernel
from weft.decode.decoders.lazy_source import LazySource, round_up_steps
from weft.decode.decoders.transformer import TransformerDecoder
from weft.decode.search.constraints import Constraints
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import Run, StepWrapper, search
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import PerPrompt, Step, copy_into, map_tensors
from weft.protocols import Decoder, DecoderState, Head, Seq2SeqDecoder, State
from weft.runtime import Runtime

WARMUP_STEPS = 3  # eager steps of a shape before its capture, which costs about two
MIN_CACHE_STEPS = 64  # attended steps of a cache, at least; doubled when they are full
MIN_COMPILED_CACHE_STEPS = 512  # the same for a compiled step: every size is compiled anew
CHECK_EVERY = 16  # steps between checks for finished rows
# Graph steps of one shape after which that shape is compiled too. Compiling takes about as long as
# the steps did, so it never costs more than twice the best choice, whenever the work ends.
COMPILE_AFTER_STEPS = 50_000

Capture = Callable[[Work], Work]


def enable_decode_graphs(head: Head, runtime: Runtime) -> None:
    """Let a head that generates text decode with CUDA graphs, if there is a GPU."""
    decoder = head.graph_decoder
    if runtime.has_cuda_graphs and decoder is not None:
        head.graphs = DecodeGraphs(decoder, runtime.capture_graph)


class PreparedSearch(NamedTuple):
    """The arguments to call a search with."""

    step: Step
    state: State
    settings: SearchSettings
    wrap_step: StepWrapper | None


class DecodeGraphs:
    """The CUDA graphs of one decoder's steps, by shape.

    `capture` takes work over static buffers and returns a function that replays it. With `dtype`
    the decoder's weights are copied to that dtype once; without, graphs read the weights themselves
    and see every change. Whole search steps, network included, are also compiled: from the first
    step on with `compiled` or by the settings, else once a shape has had enough steps to pay off.
    `options` are the compiler's. `small` is the smallest attended part of a cache: fewer sizes,
    fewer graphs.
    """

    def __init__(
        self,
        decoder: Decoder,
        capture: Capture,
        dtype: torch.dtype | None = None,
        compiled: bool = False,
        options: CompilerOptions | None = None,
        small: int = 0,
    ):
        self.decoder = decoder if dtype is None else _cast_copy(decoder, dtype)
        self.capture, self.compiled, self.options = capture, compiled, options
        self.small = small
        # Each is True until it fails.
        self.can_capture = self.can_compile = self.can_prefill = True
        self.can_pin = self.can_fuse = True
        self.problem = ""  # why something could not be captured or compiled
        self.lock = threading.RLock()  # while a search acquires buffers or runs a step
        # Of searches of either kind.
        self.buffers: dict[Hashable, list[_GraphBuffers[Any]]] = {}
        self.dynamic_shapes: set[Hashable] = set()  # whose shapes change from step to step
        self.step_decoder: Decoder | None = None  # the decoder with fused QKV projections
        self.attentions: list[MultiHeadAttention] = []  # its self-attentions
        self.fused_weights: list[Tensor] = []  # their weights
        self.weight_versions: list[tuple[int, int]] | None = None  # of those when they were fused
        self.tables: list[Tensor] = []  # position tables: graphs still read outgrown ones

    def __deepcopy__(self, memo: dict[int, object]) -> None:
        """A copied model starts without graphs: they use the buffers of this one."""

    def prepare(
        self, state: State, settings: SearchSettings, constraints: Constraints
    ) -> PreparedSearch:
        """Prepare a search from a state: with CUDA graphs, or eagerly where they are impossible."""
        eager = PreparedSearch(self.decoder.step, state, settings, None)
        stepwise = constraints.allowed is not None and not isinstance(constraints.allowed, Tensor)
        if settings.cuda_graphs == "off" or stepwise or self._autocast:
            return eager
        steps = max_steps(settings, constraints)
        decoder = self.refreshed_decoder()
        beams = self._beams(decoder, settings) if isinstance(decoder, TransformerDecoder) else 0
        static = decoder.with_static_cache(state, steps, beams)
        if static is None:
            return eager
        if isinstance(decoder, TransformerDecoder):
            table = decoder.positions.table
            if all(table is not kept for kept in self.tables):
                self.tables.append(table)
        return PreparedSearch(decoder.step, static, _graph_settings(settings), self.wrap_step)

    def _beams(self, decoder: TransformerDecoder, settings: SearchSettings) -> int:
        """Return the rows per prompt if a kernel supports a pinned cache; else 0."""
        if not decoder.has_attention_kernel:
            return 0
        table, width = decoder.words.table.weight, decoder.hidden_size // decoder.heads
        try:
            has_attention = self.can_pin and has_kernel(table.device, table.dtype, width)
        except Exception as error:
            has_attention = self.can_pin = False
            self.record_problem("Decoding goes on without the KV-cache attention kernel", error)
        rows = settings.num_beams if settings.method == "beam" else 1
        if not has_attention:
            return 0
        try:
            fused = (
                self.can_fuse
                and small_batch.is_supported(decoder)
                and small_batch.has_kernel(table.device, table.dtype)
            )
        except Exception as error:
            fused = self.can_fuse = False
            self.record_problem("Small batches go on without the fused linear kernel", error)
        decoder.small_batch_rows = small_batch.SMALL_BATCH_ROWS if fused else 0
        return rows

    def wrap_step(
        self,
        body: "partial[Run]",
        buffers: "_GraphBuffers[Run] | None" = None,
        prefill: PrefillRequest | None = None,
    ) -> Callable[..., Run]:
        """Return an equivalent step function that uses CUDA graphs where they pay off.

        `buffers` already hold the started search; `prefill` is recorded with the new buffers.
        """
        return _GraphedSteps(self, body, buffers, prefill)

    @property
    def _autocast(self) -> bool:
        return torch.is_autocast_enabled(next(self.decoder.parameters()).device.type)

    def refreshed_decoder(self) -> Decoder:
        """Return the decoder for steps, with QKV projections fused from the current weights."""
        with self.lock:
            return self._refresh()

    def _refresh(self) -> Decoder:
        if self.step_decoder is None:
            self.step_decoder = copy_sharing_weights(self.decoder)
            self.attentions = [
                part.attention
                for part in self.step_decoder.modules()
                if isinstance(part, TransformerBlock)
            ]
            self.fused_weights = [p for layer in self.attentions for p in layer.parameters()]
        versions = [(p.data_ptr(), p._version) for p in self.fused_weights]
        if versions != self.weight_versions:
            for layer in self.attentions:
                layer.fuse_qkv()
            self.weight_versions = versions
        return self.step_decoder

    def should_compile(self, buffers: "_GraphBuffers[Run]", settings: SearchSettings) -> bool:
        """Return True if the step of a shape should be compiled now."""
        now = self.compiled or settings.cuda_graphs == "compiled"
        return self.can_compile and (now or buffers.steps >= COMPILE_AFTER_STEPS)

    def generate(
        self,
        source: Padded | LazySource,
        settings: SearchSettings,
        constraints: Constraints,
        *,
        bos: int,
        eos: int,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each row of encoder states or of a lazy source, best first.

        From its second occurrence on, a source shape is encoded by a CUDA graph.
        """
        per_row = (constraints.prefix, constraints.limit, constraints.minimum, constraints.seeds)
        masks = (constraints.source, constraints.allowed)
        constrained = any(per_row) or any(mask is not None for mask in masks)
        rows = len(source) if constrained else _round_up_rows(len(source))
        run_search = partial(search, batch=rows, bos=bos, eos=eos, constraints=constraints)
        prefill = None
        capturable = self.can_prefill and not constrained and not self._autocast
        if capturable and isinstance(source, LazySource) and source.is_plain:
            rest = (tuple(constraints.forbidden), bos, eos)
            prefill = PrefillRequest(self, source, rows, settings, rest)
            with self.lock:
                buffers = prefill.run()
            if buffers is not None:
                resume = partial(self.wrap_step, buffers=buffers)
                assert self.step_decoder is not None
                step, graphed = self.step_decoder.step, _graph_settings(settings)
                hypotheses = run_search(step, None, graphed, wrap_step=resume, initial=buffers.run)
                return hypotheses[: len(source)]
        assert isinstance(self.decoder, Seq2SeqDecoder)
        state = self.decoder.start(self._memory(source, rows, prefill is not None)).per_prompt()
        ready = self.prepare(state, settings, constraints)
        wrap_step = ready.wrap_step
        if wrap_step is not None and prefill is not None:
            wrap_step = partial(self.wrap_step, prefill=prefill)
        hypotheses = run_search(ready.step, ready.state, ready.settings, wrap_step=wrap_step)
        return hypotheses[: len(source)]

    def _memory(self, source: Padded | LazySource, rows: int, padded: bool) -> Padded:
        """Return encoder states of `rows` rows, in the dtype of the weights."""
        if isinstance(source, Padded):
            return _pad_memory(source, rows)
        memory = source.encode_ids(source.padded_ids(rows)) if padded else source.memory
        memory = memory.with_data(memory.data.to(next(self.decoder.parameters()).dtype))
        return memory if padded else _pad_memory(memory, rows)

    def record_problem(self, what: str, error: Exception) -> None:
        """Store why an optimisation failed."""
        first = str(error).strip().splitlines()[:1]
        self.problem = f"{what}: {type(error).__name__}: {''.join(first)}"

    def acquire(
        self, key: Hashable, run: Run, body: "partial[Run]", owner: object
    ) -> "_GraphBuffers[Run]":
        """Return buffers of a shape that no other search is using, and assign them to `owner`."""
        group = self.buffers.pop(key, [])
        self.buffers[key] = group  # the newest is last
        free = next((buffers for buffers in group if buffers.free), None)
        if free is None:
            free = _GraphBuffers(run, body)
            group.append(free)
        else:
            copy_into(free.run, run)
        free.owner = weakref.ref(owner)
        for old in list(self.buffers)[:-MAX_CACHED_SHAPES]:
            if all(buffers.free for buffers in self.buffers[old]):
                del self.buffers[old]
        return free


def _cast_copy(decoder: Decoder, dtype: torch.dtype) -> Decoder:
    copied = copy.deepcopy(decoder)
    assert isinstance(copied, nn.Module)
    copied.to(dtype).eval()
    return copied


def copy_sharing_weights(decoder: Decoder) -> Decoder:
    """Copy a decoder that shares its weights, so that QKV can be fused in the copy alone."""
    shared = [*decoder.parameters(), *decoder.buffers()]
    return copy.deepcopy(decoder, {id(tensor): tensor for tensor in shared})


class _GraphBuffers(Generic[Run]):
    """Buffers of one shape, and the graphs over them: one per attended size of the cache."""

    def __init__(self, run: Run, body: "partial[Run]"):
        self.run: Run = map_tensors(torch.clone, run, torch.clone)
        # The step of the first search; those of later ones are equivalent.
        self.eager_step: Callable[[Run], None] = partial(_step_in_place, body)
        self.step: Callable[[Run], None] = self.eager_step
        self.owner: Callable[[], object] = lambda: None
        self.steps = 0  # so far
        self.prefills: dict[Hashable, CapturedPrefill] = {}  # by the key of their request
        self.reset()

    @property
    def free(self) -> bool:
        """True if the search that used them has ended."""
        return self.owner() is None

    @property
    def compiled(self) -> bool:
        """True if the steps are compiled."""
        return self.step is not self.eager_step

    def reset(self) -> None:
        """Reset step counts and graphs."""
        self.step_counts: dict[int, int] = {}
        self.graphs: dict[int, Work] = {}

    def compile(self, options: CompilerOptions | None) -> None:
        """Compile the whole step."""
        self.step = compile_step(self.eager_step, self.run.ids, options)
        self.reset()

    def step_once(self, size: int) -> None:
        """Run one step in place, attending to the first `size` steps of the cache; 0 = all."""
        run = self.run
        if size:
            assert isinstance(run.state, DecoderState)
            run = replace(run, state=run.state.view_steps(size))
        self.step(run)


def _step_in_place(body: "partial[Run]", run: Run) -> None:
    """Run one step and write the result over its input."""
    copy_into(run, body(run))


class _GraphedSteps(Generic[Run]):
    """The step function of one search, backed by CUDA graphs."""

    def __init__(
        self,
        graphs: DecodeGraphs,
        body: "partial[Run]",
        buffers: _GraphBuffers[Run] | None = None,
        prefill: PrefillRequest | None = None,
    ):
        self.graphs, self.prefill = graphs, prefill
        self.body: partial[Run] = body
        self.buffers: _GraphBuffers[Run] | None = buffers
        self.eager = False
        self.used_steps = 0  # filled steps of the cache
        if buffers is not None:
            buffers.owner = weakref.ref(self)

    def __call__(self, run: Run) -> Run:
        with self.graphs.lock:
            return self._next(run)

    def _next(self, run: Run) -> Run:
        if not self.eager and (self.buffers is None or run is not self.buffers.run):
            self._enter(run)
        buffers = self.buffers
        if buffers is None:
            return self.body(run)
        settings = self.body.keywords["settings"]
        if not buffers.compiled and self.graphs.should_compile(buffers, settings):
            buffers.compile(self.graphs.options)
        self._step(buffers, self._size(buffers))
        self.used_steps += 1
        return buffers.run

    def _step(self, buffers: _GraphBuffers[Run], size: int) -> None:
        buffers.steps += 1
        if size in buffers.graphs:
            return buffers.graphs[size]()
        count = buffers.step_counts[size] = buffers.step_counts.get(size, 0) + 1
        if count > WARMUP_STEPS and self.graphs.can_capture:
            try:
                graph = self.graphs.capture(partial(buffers.step_once, size))
            except RuntimeError as error:
                self.graphs.can_capture = False
                self.graphs.record_problem("A step could not be captured", error)
            else:
                buffers.graphs[size] = graph
                return graph()
        try:
            buffers.step_once(size)
        except Exception as error:
            # The compiler failed; an error of the step itself will recur without it.
            if not buffers.compiled or count > 1:
                raise
            self.graphs.can_compile = False
            self.graphs.record_problem("A step could not be compiled", error)
            buffers.step = buffers.eager_step
            buffers.reset()
            self._step(buffers, self._size(buffers))

    def _size(self, buffers: _GraphBuffers[Run]) -> int:
        """Return how many steps of the cache this step attends to; 0: all."""
        state = buffers.run.state
        capacity = state.cache_steps if isinstance(state, DecoderState) else 0
        if not capacity:
            return 0
        size = self.graphs.small or (
            MIN_COMPILED_CACHE_STEPS if buffers.compiled else MIN_CACHE_STEPS
        )
        while size <= self.used_steps:
            size *= 2
        return min(size, capacity)

    def _enter(self, run: Run) -> None:
        """Acquire buffers for a run of this shape and copy it into them."""
        shapes = _shape_key(run)
        key = (_step_key(self.body), shapes)
        if key not in self.graphs.buffers and key not in self.graphs.dynamic_shapes:
            probe = map_tensors(torch.clone, run, torch.clone)
            if _shape_key(self.body(probe)) != shapes:
                self.graphs.dynamic_shapes.add(key)
        self.eager, self.buffers = key in self.graphs.dynamic_shapes, None
        if self.eager:
            return
        self.buffers = self.graphs.acquire(key, run, self.body, self)
        if self.prefill is not None:
            self.prefill.record(self.buffers, run)
        moves = isinstance(run.state, DecoderState) and not run.state.pinned_beams
        self.used_steps = run.state.max_position() if moves else 0


def _graph_settings(settings: SearchSettings) -> SearchSettings:
    """Return settings for CUDA graphs: rows are never dropped, as the shape must not change."""
    return replace(settings, drop_finished=False, check_every=settings.check_every or CHECK_EVERY)


def _step_key(body: "partial[Run]") -> Hashable:
    """Return a key that is equal for equivalent step functions."""
    arguments = body.keywords
    read, step = arguments["read_attention"], arguments["step"]
    decoder = step.__self__ if inspect.ismethod(step) else step
    code = read.__code__ if inspect.isfunction(read) else read
    return id(decoder), arguments["settings"], arguments["eos"], code


def _shape_key(nest: object) -> Hashable:
    """Return the shapes and dtypes of a nest's tensors, and its other values."""
    if isinstance(nest, Tensor):
        return tuple(nest.shape), nest.dtype
    if isinstance(nest, PerPrompt):
        return "shared", _shape_key(nest.value)
    if isinstance(nest, (tuple, list)):
        return (type(nest).__name__, *map(_shape_key, nest))
    if isinstance(nest, dict):
        return tuple((key, _shape_key(part)) for key, part in nest.items())
    if is_dataclass(nest) and not isinstance(nest, type):
        return tuple(_shape_key(getattr(nest, field.name)) for field in fields(nest))
    assert isinstance(nest, Hashable)
    return nest


def _pad_memory(memory: Padded, rows: int) -> Padded:
    """Pad encoder states with rows and steps, so that few shapes occur and all have a mask."""
    B, S = memory.data.shape[:2]
    data = memory.data.new_zeros(rows, round_up_steps(S), *memory.data.shape[2:])
    data[:B, :S] = memory.data
    data[B:] = data[B - 1]
    lengths = torch.cat([memory.lengths, memory.lengths[-1:].expand(rows - B)])
    return Padded(data, lengths)


def _round_up_rows(rows: int) -> int:
    """Return the next power of two, or the midpoint before it."""
    power = 1 << max(rows - 1, 0).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power >= 4 else power


def max_steps(settings: SearchSettings, rules: Constraints) -> int:
    """Return the maximum number of steps of a search."""
    limit = max(rules.limit, default=settings.max_length)
    return limit + max(map(len, rules.prefix), default=0)
