"""Steps of a search as graphs of a device: captured once for a shape, replayed without the host.

A step of a network is hundreds of small kernels, and starting them one by one takes longer than
they run. A graph starts them all at once, over memory that stays where it is. The search does not
know: it hands `wrap_step` the function of one step. So is what comes before the first step, where a
source is still unread: reading it, the decoder's first state and an empty search are one graph.
What captures a graph comes from the runtime, and in tests it is a plain call.
"""

import copy
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from weft.attend.transformer_block import TransformerBlock
from weft.batch import Padded
from weft.decode.cuda_graphs.compiled_step import compile_step
from weft.decode.cuda_graphs.prefill import (
    MAX_CACHED_SHAPES,
    CapturedPrefill,
    PrefillRequest,
    Work,
)
from weft.decode.decoders import small_batch
from weft.decode.decoders.kv_cache import has_kernel
from weft.decode.decoders.lazy_source import LazySource, round_up_steps
from weft.decode.search.constraints import Constraints
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import search
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import PerPrompt, State, copy_into, map_tensors

WARMUP_STEPS = (
    3  # steps of a shape that are taken one by one before a graph is made: it costs about two
)
MIN_CACHE_STEPS = 64  # steps of a cache that are looked at, at least; doubled when they are full
MIN_COMPILED_CACHE_STEPS = 512  # the same for a compiled step: every size is compiled anew
CHECK_EVERY = 16  # steps between looks at what is finished
# Steps of one shape as graphs after which that shape is compiled as well. Compiling takes about as
# long as the steps did, so it never costs more than twice the best choice, whenever the work ends.
COMPILE_AFTER_STEPS = 50_000

Capture = Callable[[Work], Work]


class PreparedSearch(NamedTuple):
    """What a search is to be called with."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]
    state: State
    settings: SearchSettings
    wrap_step: "Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None"


class DecodeGraphs:
    """The graphs of one decoder's steps, by shape.

    `capture` takes work over memory that stays and returns what does it again. With `dtype` the
    decoder's weights are copied to that precision once; without, graphs read the weights
    themselves and see every change of them. A whole step of the search, network and all, is also
    compiled: from the first step on with `compiled` or by the settings, else once a shape has had
    enough steps to make up for it. `options` are the compiler's. `small` is how much of a cache is
    looked at, at least: fewer sizes are fewer graphs.
    """

    def __init__(
        self,
        decoder: Any,
        capture: Capture,
        dtype: torch.dtype | None = None,
        compiled: bool = False,
        options: dict[str, Any] | None = None,
        small: int = 0,
    ):
        self.decoder = decoder if dtype is None else copy.deepcopy(decoder).to(dtype).eval()
        self.capture, self.compiled, self.options = capture, compiled, options
        self.small = small
        # Until it could not be done.
        self.captures = self.can_compile = self.begins = self.can_pin = self.can_fuse = True
        self.trouble = ""  # in words, when something could not be captured or compiled
        self.lock = threading.RLock()  # held while a search takes memory or a step is made
        self.slots: dict[Hashable, list[_GraphBuffers]] = {}
        self.dynamic_shapes: set[Hashable] = set()  # shapes that change from step to step
        self.writer: Any = None  # the decoder with its matrices laid out for steps
        self.looks: list[Any] = []  # its attentions to itself
        self.fused_weights: list[Tensor] = []  # their weights
        self.stamp: Any = None  # of those when they were laid out
        self.tables: list[Tensor] = []  # of positions: graphs still read those that were outgrown

    def __deepcopy__(self, memo: dict) -> None:
        """A copy of a model begins without graphs: they are over the memory of this one."""

    def prepare(
        self, state: State, settings: SearchSettings, constraints: Constraints
    ) -> PreparedSearch:
        """How to search from a state: as graphs, or step by step where those cannot be."""
        plain = PreparedSearch(self.decoder.step, state, settings, None)
        asks = constraints.allowed is not None and not isinstance(constraints.allowed, Tensor)
        if settings.cuda_graphs == "off" or asks or self._autocast:
            return plain
        fixed, steps = state, max_steps(settings, constraints)
        writer = self._laid_out()
        if hasattr(writer, "with_static_cache"):
            fixed = writer.with_static_cache(state, steps, self._beams(writer, settings))
        elif self.decoder.limit is not None and steps > self.decoder.limit:
            fixed = None
        if fixed is None:
            return plain
        table = getattr(getattr(writer, "positions", None), "table", None)
        if table is not None and all(table is not kept for kept in self.tables):
            self.tables.append(table)
        return PreparedSearch(writer.step, fixed, _graph_settings(settings), self.wrap_step)

    def _beams(self, writer: Any, settings: SearchSettings) -> int:
        """The rows of a prompt, where a kernel lets their past stay in its place; else 0."""
        table, width = writer.words.table.weight, writer.hidden_size // writer.heads
        try:
            there = self.can_pin and has_kernel(table.device, table.dtype, width)
        except Exception as error:
            there = self.can_pin = False
            self.note("The past is attended to without a kernel of its own", error)
        rows = settings.num_beams if settings.method == "beam" else 1
        if not there:
            return 0
        try:
            able = (
                self.can_fuse
                and small_batch.is_supported(writer)
                and small_batch.has_kernel(table.device, table.dtype)
            )
        except Exception as error:
            able = self.can_fuse = False
            self.note("Products of few rows are made without a kernel of their own", error)
        writer.small_batch_rows = small_batch.SMALL_BATCH_ROWS if able else 0
        return rows

    def wrap_step(
        self,
        body: Callable[[Any], Any],
        slot: "_GraphBuffers | None" = None,
        begin: "PrefillRequest | None" = None,
    ) -> Callable[[Any], Any]:
        """The same function of one step, as a graph where it pays.

        `slot` is where the search has begun already; `begin` is to be noted where it begins.
        """
        return _GraphedSteps(self, body, slot, begin)

    @property
    def _autocast(self) -> bool:
        return torch.is_autocast_enabled(next(self.decoder.parameters()).device.type)

    def _laid_out(self) -> Any:
        """The decoder for steps: queries, keys and values from one product, of today's weights."""
        with self.lock:
            return self._as_of_today()

    def _as_of_today(self) -> Any:
        if self.writer is None:
            self.writer = copy_sharing_weights(self.decoder)
            self.looks = [
                part.attention
                for part in self.writer.modules()
                if isinstance(part, TransformerBlock)
            ]
            self.fused_weights = [p for look in self.looks for p in look.parameters()]
        stamp = [(p.data_ptr(), p._version) for p in self.fused_weights]
        if stamp != self.stamp:
            for look in self.looks:
                look.fuse_qkv()
            self.stamp = stamp
        return self.writer

    def wants_compiled(self, slot: "_GraphBuffers", settings: SearchSettings) -> bool:
        """Whether the step of a shape is to be compiled now."""
        now = (
            self.compiled or settings.cuda_graphs == "compiled" or slot.steps >= COMPILE_AFTER_STEPS
        )
        return now and self.can_compile

    def generate(
        self,
        given: Padded | LazySource,
        settings: SearchSettings,
        constraints: Constraints,
        *,
        bos: int,
        eos: int,
    ) -> list[list[Hypothesis]]:
        """The sequences of each row of a memory, or of a source that is still unread; best first.

        A source whose shape comes for the second time is read by a graph from then on.
        """
        own = any((constraints.prefix, constraints.limit, constraints.minimum, constraints.seeds))
        own = own or constraints.source is not None or constraints.allowed is not None
        rows = len(given) if own else _round_up_rows(len(given))
        ends: dict[str, Any] = {"batch": rows, "bos": bos, "eos": eos, "constraints": constraints}
        begin = None
        again = self.begins and not own and not self._autocast
        if again and isinstance(given, LazySource) and given.plain:
            begin = PrefillRequest(
                self, given, rows, settings, (tuple(constraints.forbidden), bos, eos)
            )
            with self.lock:
                slot = begin.slot()
            if slot is not None:
                ends |= {"wrap_step": partial(self.wrap_step, slot=slot), "initial": slot.run}
                return search(self.writer.step, None, _graph_settings(settings), **ends)[
                    : len(given)
                ]
        state = self.decoder.start(self._memory(given, rows, begin is not None)).per_prompt()
        step, state, settings, wrap_step = self.prepare(state, settings, constraints)
        if wrap_step is not None and begin is not None:
            wrap_step = partial(self.wrap_step, begin=begin)
        return search(step, state, settings, **ends, wrap_step=wrap_step)[: len(given)]

    def _memory(self, given: Padded | LazySource, rows: int, filled: bool) -> Padded:
        """A memory of some rows, in the precision of the weights."""
        if isinstance(given, Padded):
            return _pad_memory(given, rows)
        memory = given.of(given.padded_ids(rows)) if filled else given.memory
        memory = memory.with_data(memory.data.to(next(self.decoder.parameters()).dtype))
        return memory if filled else _pad_memory(memory, rows)

    def note(self, what: str, error: Exception) -> None:
        """Say why something goes on without help."""
        first = str(error).strip().splitlines()[:1]
        self.trouble = f"{what}: {type(error).__name__}: {''.join(first)}"

    def slot(
        self, key: Hashable, run: Any, body: Callable[[Any], Any], owner: Any
    ) -> "_GraphBuffers":
        """Memory of a shape that no other search is using, from now on its owner's."""
        held = self.slots.pop(key, [])
        self.slots[key] = held  # the newest is last
        free = next((slot for slot in held if slot.free), None)
        if free is None:
            free = _GraphBuffers(run, body)
            held.append(free)
        else:
            copy_into(free.run, run)
        free.owner = weakref.ref(owner)
        for old in list(self.slots)[:-MAX_CACHED_SHAPES]:
            if all(slot.free for slot in self.slots[old]):
                del self.slots[old]
        return free


def copy_sharing_weights(decoder: Any) -> Any:
    """A decoder with the same weights that can be laid out while the other one stays as it is."""
    held = [*decoder.parameters(), *decoder.buffers()]
    return copy.deepcopy(decoder, {id(tensor): tensor for tensor in held})


class _GraphBuffers:
    """Memory of one shape, and the graphs over it: one for each size of the cache."""

    def __init__(self, run: Any, body: Callable[[Any], Any]):
        self.run = map_tensors(torch.clone, run, torch.clone)
        # Of the first search; those of later ones do the same.
        self.plain: Callable[[Any], None] = partial(_step_in_place, body)
        self.step: Callable[[Any], None] = self.plain
        self.owner: Callable[[], Any] = lambda: None
        self.steps = 0  # taken so far
        self.begun: dict[
            Hashable, CapturedPrefill
        ] = {}  # how searches began here, by what they began from
        self.forget()

    @property
    def free(self) -> bool:
        """Whether the search that used it has ended."""
        return self.owner() is None

    @property
    def compiled(self) -> bool:
        """Whether its steps are compiled."""
        return self.step is not self.plain

    def forget(self) -> None:
        """PrefillRequest to count steps again, and to make graphs."""
        self.taken: dict[int, int] = {}
        self.graphs: dict[int, Work] = {}

    def compile(self, options: dict[str, Any] | None) -> None:
        """Let the compiler see the whole step at once."""
        self.step = compile_step(self.plain, self.run.ids, options)
        self.forget()

    def once(self, size: int) -> None:
        """One step in place, with a view of so many steps of the cache; 0 = all."""
        run = self.run
        if size:
            run = replace(run, state=run.state.view_steps(size))
        self.step(run)


def _step_in_place(body: Callable[[Any], Any], run: Any) -> None:
    """One step, written over what it started from."""
    copy_into(run, body(run))


class _GraphedSteps:
    """The steps of one search."""

    def __init__(
        self,
        graphs: DecodeGraphs,
        body: Callable[[Any], Any],
        slot: _GraphBuffers | None = None,
        begin: "PrefillRequest | None" = None,
    ):
        self.graphs, self.body, self.begin = graphs, body, begin
        self.slot = slot
        self.plain = False
        self.used_steps = 0  # steps of the cache that are in use
        if slot is not None:
            slot.owner = weakref.ref(self)

    def __call__(self, run: Any) -> Any:
        with self.graphs.lock:
            return self._next(run)

    def _next(self, run: Any) -> Any:
        if not self.plain and (self.slot is None or run is not self.slot.run):
            self._enter(run)
        slot = self.slot
        if slot is None:
            return self.body(run)
        if not slot.compiled and self.graphs.wants_compiled(slot, self.body.keywords["settings"]):  # type: ignore[attr-defined]
            slot.compile(self.graphs.options)
        self._step(slot, self._size(slot))
        self.used_steps += 1
        return slot.run

    def _step(self, slot: _GraphBuffers, size: int) -> None:
        slot.steps += 1
        if size in slot.graphs:
            return slot.graphs[size]()
        taken = slot.taken[size] = slot.taken.get(size, 0) + 1
        if taken > WARMUP_STEPS and self.graphs.captures:
            try:
                made = self.graphs.capture(partial(slot.once, size))
            except RuntimeError as error:
                self.graphs.captures = False
                self.graphs.note("A step could not be captured", error)
            else:
                slot.graphs[size] = made
                return made()
        try:
            slot.once(size)
        except Exception as error:
            # Whatever went wrong in the compiler; what is wrong with the step itself comes again.
            if not slot.compiled or taken > 1:
                raise
            self.graphs.can_compile = False
            self.graphs.note("A step could not be compiled", error)
            slot.step = slot.plain
            slot.forget()
            self._step(slot, self._size(slot))

    def _size(self, slot: _GraphBuffers) -> int:
        """How much of the cache this step looks at."""
        state = slot.run.state
        if not hasattr(state, "view_steps") or state.beams:
            return 0
        room = state.past[0][0].shape[2]
        size = self.graphs.small or (MIN_COMPILED_CACHE_STEPS if slot.compiled else MIN_CACHE_STEPS)
        while size <= self.used_steps:
            size *= 2
        return min(size, room)

    def _enter(self, run: Any) -> None:
        """Memory for a run of this shape, with its contents in it."""
        form = _shape_key(run)
        key = (_step_key(self.body), form)
        if key not in self.graphs.slots and key not in self.graphs.dynamic_shapes:
            probe = map_tensors(torch.clone, run, torch.clone)
            if _shape_key(self.body(probe)) != form:
                self.graphs.dynamic_shapes.add(key)
        self.plain, self.slot = key in self.graphs.dynamic_shapes, None
        if self.plain:
            return
        self.slot = self.graphs.slot(key, run, self.body, self)
        if self.begin is not None:
            self.begin.note(self.slot, run)
        max_position = (
            None if getattr(run.state, "beams", 0) else getattr(run.state, "max_position", None)
        )
        self.used_steps = 0 if max_position is None else max_position()


def _graph_settings(settings: SearchSettings) -> SearchSettings:
    """The settings of a search by graphs: no row leaves, other numbers of rows are other graphs."""
    return replace(settings, drop_finished=False, check_every=settings.check_every or CHECK_EVERY)


def _step_key(body: Any) -> Hashable:
    """What makes two functions of one step do the same."""
    asked = body.keywords
    read, step = asked["read_attention"], asked["step"]
    owner = getattr(step, "__self__", step)
    return id(owner), asked["settings"], asked["eos"], getattr(read, "__code__", read)


def _shape_key(nest: Any) -> Hashable:
    """The shapes of a nest, and what in it is no tensor."""
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
    return nest


def _pad_memory(memory: Padded, rows: int) -> Padded:
    """A memory with rows and steps added, so that few shapes occur and all of them have a mask."""
    B, S = memory.data.shape[:2]
    data = memory.data.new_zeros(rows, round_up_steps(S), *memory.data.shape[2:])
    data[:B, :S] = memory.data
    data[B:] = data[B - 1]
    lengths = torch.cat([memory.lengths, memory.lengths[-1:].expand(rows - B)])
    return Padded(data, lengths)


def _round_up_rows(rows: int) -> int:
    """The next power of two, or half-way to it."""
    power = 1 << max(rows - 1, 0).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power >= 4 else power


def max_steps(settings: SearchSettings, rules: Constraints) -> int:
    """The most steps that a search can take."""
    limit = max(rules.limit, default=settings.max_length)
    return limit + max(map(len, rules.prefix), default=0)
