"""Steps of a search as graphs of a device: captured once for a shape, replayed without the host.

A step of a network is hundreds of small kernels, and starting them one by one takes longer than
they run. A graph starts them all at once, over memory that stays where it is. The search does not
know: it hands `faster` the function of one step. So is what comes before the first step, where a
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

from weft.attend.transformer_block import Block
from weft.batch import Padded
from weft.decode.cuda_graphs.compiled_step import compiled
from weft.decode.cuda_graphs.prefill import KEPT, Begin, Begun, Work
from weft.decode.decoders import small_batch
from weft.decode.decoders.kv_cache import has_kernel
from weft.decode.decoders.lazy_source import Unread, rounded_up
from weft.decode.search.constraints import Rules
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import search
from weft.decode.search.settings import Settings
from weft.decode.search.state import Shared, State, copy_into, mapped

WARM = 3  # steps of a shape that are taken one by one before a graph is made: it costs about two
SMALL = 64  # steps of a cache that are looked at, at least; doubled when they are full
LARGE = 512  # the same for a compiled step: every size is compiled anew
CHECK = 16  # steps between looks at what is finished
# Steps of one shape as graphs after which that shape is compiled as well. Compiling takes about as
# long as the steps did, so it never costs more than twice the best choice, whenever the work ends.
LONG = 50_000

Capture = Callable[[Work], Work]


class Ready(NamedTuple):
    """What a search is to be called with."""

    step: Callable[[Tensor, State], tuple[Tensor, State]]
    state: State
    settings: Settings
    faster: "Callable[[Callable[[Any], Any]], Callable[[Any], Any]] | None"


class Graphs:
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
        self.captures = self.compiles = self.begins = self.stays = self.fuses = True
        self.trouble = ""  # in words, when something could not be captured or compiled
        self.lock = threading.RLock()  # held while a search takes memory or a step is made
        self.slots: dict[Hashable, list[_Slot]] = {}
        self.unfit: set[Hashable] = set()  # shapes that change from step to step
        self.writer: Any = None  # the decoder with its matrices laid out for steps
        self.looks: list[Any] = []  # its attentions to itself
        self.laid: list[Tensor] = []  # their weights
        self.stamp: Any = None  # of those when they were laid out
        self.tables: list[Tensor] = []  # of positions: graphs still read those that were outgrown

    def __deepcopy__(self, memo: dict) -> None:
        """A copy of a model begins without graphs: they are over the memory of this one."""

    def ready(self, state: State, settings: Settings, rules: Rules) -> Ready:
        """How to search from a state: as graphs, or step by step where those cannot be."""
        plain = Ready(self.decoder.step, state, settings, None)
        asks = rules.allowed is not None and not isinstance(rules.allowed, Tensor)
        if settings.graphs == "off" or asks or self._autocast:
            return plain
        fixed, steps = state, most_steps(settings, rules)
        writer = self._laid_out()
        if hasattr(writer, "fixed"):
            fixed = writer.fixed(state, steps, self._beams(writer, settings))
        elif self.decoder.limit is not None and steps > self.decoder.limit:
            fixed = None
        if fixed is None:
            return plain
        table = getattr(getattr(writer, "positions", None), "table", None)
        if table is not None and all(table is not kept for kept in self.tables):
            self.tables.append(table)
        return Ready(writer.step, fixed, _wanted(settings), self.faster)

    def _beams(self, writer: Any, settings: Settings) -> int:
        """The rows of a prompt, where a kernel lets their past stay in its place; else 0."""
        table, width = writer.words.table.weight, writer.hidden_size // writer.heads
        try:
            there = self.stays and has_kernel(table.device, table.dtype, width)
        except Exception as error:
            there = self.stays = False
            self.note("The past is attended to without a kernel of its own", error)
        rows = settings.width if settings.method == "beam" else 1
        if not there:
            return 0
        try:
            able = (
                self.fuses
                and small_batch.fits(writer)
                and small_batch.has_kernel(table.device, table.dtype)
            )
        except Exception as error:
            able = self.fuses = False
            self.note("Products of few rows are made without a kernel of their own", error)
        writer.few = small_batch.MOST if able else 0
        return rows

    def faster(
        self,
        body: Callable[[Any], Any],
        slot: "_Slot | None" = None,
        begin: "Begin | None" = None,
    ) -> Callable[[Any], Any]:
        """The same function of one step, as a graph where it pays.

        `slot` is where the search has begun already; `begin` is to be noted where it begins.
        """
        return _Search(self, body, slot, begin)

    @property
    def _autocast(self) -> bool:
        return torch.is_autocast_enabled(next(self.decoder.parameters()).device.type)

    def _laid_out(self) -> Any:
        """The decoder for steps: queries, keys and values from one product, of today's weights."""
        with self.lock:
            return self._as_of_today()

    def _as_of_today(self) -> Any:
        if self.writer is None:
            self.writer = twin(self.decoder)
            self.looks = [
                part.attention for part in self.writer.modules() if isinstance(part, Block)
            ]
            self.laid = [p for look in self.looks for p in look.parameters()]
        stamp = [(p.data_ptr(), p._version) for p in self.laid]
        if stamp != self.stamp:
            for look in self.looks:
                look.fuse_qkv()
            self.stamp = stamp
        return self.writer

    def wants_compiled(self, slot: "_Slot", settings: Settings) -> bool:
        """Whether the step of a shape is to be compiled now."""
        now = self.compiled or settings.graphs == "compiled" or slot.steps >= LONG
        return now and self.compiles

    def written(
        self, given: Padded | Unread, settings: Settings, rules: Rules, *, bos: int, eos: int
    ) -> list[list[Hypothesis]]:
        """The sequences of each row of a memory, or of a source that is still unread; best first.

        A source whose shape comes for the second time is read by a graph from then on.
        """
        own = any((rules.prefix, rules.limit, rules.minimum, rules.seeds))
        own = own or rules.source is not None or rules.allowed is not None
        rows = len(given) if own else _rounded(len(given))
        ends: dict[str, Any] = {"batch": rows, "bos": bos, "eos": eos, "rules": rules}
        begin = None
        again = self.begins and not own and not self._autocast
        if again and isinstance(given, Unread) and given.plain:
            begin = Begin(self, given, rows, settings, (tuple(rules.forbidden), bos, eos))
            with self.lock:
                slot = begin.slot()
            if slot is not None:
                ends |= {"faster": partial(self.faster, slot=slot), "begun": slot.run}
                return search(self.writer.step, None, _wanted(settings), **ends)[: len(given)]
        state = self.decoder.start(self._memory(given, rows, begin is not None)).shared()
        step, state, settings, faster = self.ready(state, settings, rules)
        if faster is not None and begin is not None:
            faster = partial(self.faster, begin=begin)
        return search(step, state, settings, **ends, faster=faster)[: len(given)]

    def _memory(self, given: Padded | Unread, rows: int, filled: bool) -> Padded:
        """A memory of some rows, in the precision of the weights."""
        if isinstance(given, Padded):
            return _even(given, rows)
        memory = given.of(given.filled_up(rows)) if filled else given.memory
        memory = memory.with_data(memory.data.to(next(self.decoder.parameters()).dtype))
        return memory if filled else _even(memory, rows)

    def note(self, what: str, error: Exception) -> None:
        """Say why something goes on without help."""
        first = str(error).strip().splitlines()[:1]
        self.trouble = f"{what}: {type(error).__name__}: {''.join(first)}"

    def slot(self, key: Hashable, run: Any, body: Callable[[Any], Any], owner: Any) -> "_Slot":
        """Memory of a shape that no other search is using, from now on its owner's."""
        held = self.slots.pop(key, [])
        self.slots[key] = held  # the newest is last
        free = next((slot for slot in held if slot.free), None)
        if free is None:
            free = _Slot(run, body)
            held.append(free)
        else:
            copy_into(free.run, run)
        free.owner = weakref.ref(owner)
        for old in list(self.slots)[:-KEPT]:
            if all(slot.free for slot in self.slots[old]):
                del self.slots[old]
        return free


def twin(decoder: Any) -> Any:
    """A decoder with the same weights that can be laid out while the other one stays as it is."""
    held = [*decoder.parameters(), *decoder.buffers()]
    return copy.deepcopy(decoder, {id(tensor): tensor for tensor in held})


class _Slot:
    """Memory of one shape, and the graphs over it: one for each size of the cache."""

    def __init__(self, run: Any, body: Callable[[Any], Any]):
        self.run = mapped(torch.clone, run, torch.clone)
        # Of the first search; those of later ones do the same.
        self.plain: Callable[[Any], None] = partial(_in_place, body)
        self.step: Callable[[Any], None] = self.plain
        self.owner: Callable[[], Any] = lambda: None
        self.steps = 0  # taken so far
        self.begun: dict[Hashable, Begun] = {}  # how searches began here, by what they began from
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
        """Begin to count steps again, and to make graphs."""
        self.taken: dict[int, int] = {}
        self.graphs: dict[int, Work] = {}

    def compile(self, options: dict[str, Any] | None) -> None:
        """Let the compiler see the whole step at once."""
        self.step = compiled(self.plain, self.run.ids, options)
        self.forget()

    def once(self, size: int) -> None:
        """One step in place, with a view of so many steps of the cache; 0 = all."""
        run = self.run
        if size:
            run = replace(run, state=run.state.within(size))
        self.step(run)


def _in_place(body: Callable[[Any], Any], run: Any) -> None:
    """One step, written over what it started from."""
    copy_into(run, body(run))


class _Search:
    """The steps of one search."""

    def __init__(
        self,
        graphs: Graphs,
        body: Callable[[Any], Any],
        slot: _Slot | None = None,
        begin: "Begin | None" = None,
    ):
        self.graphs, self.body, self.begin = graphs, body, begin
        self.slot = slot
        self.plain = False
        self.reach = 0  # steps of the cache that are in use
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
        self.reach += 1
        return slot.run

    def _step(self, slot: _Slot, size: int) -> None:
        slot.steps += 1
        if size in slot.graphs:
            return slot.graphs[size]()
        taken = slot.taken[size] = slot.taken.get(size, 0) + 1
        if taken > WARM and self.graphs.captures:
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
            self.graphs.compiles = False
            self.graphs.note("A step could not be compiled", error)
            slot.step = slot.plain
            slot.forget()
            self._step(slot, self._size(slot))

    def _size(self, slot: _Slot) -> int:
        """How much of the cache this step looks at."""
        state = slot.run.state
        if not hasattr(state, "within") or state.beams:
            return 0
        room = state.past[0][0].shape[2]
        size = self.graphs.small or (LARGE if slot.compiled else SMALL)
        while size <= self.reach:
            size *= 2
        return min(size, room)

    def _enter(self, run: Any) -> None:
        """Memory for a run of this shape, with its contents in it."""
        form = _form(run)
        key = (_same(self.body), form)
        if key not in self.graphs.slots and key not in self.graphs.unfit:
            probe = mapped(torch.clone, run, torch.clone)
            if _form(self.body(probe)) != form:
                self.graphs.unfit.add(key)
        self.plain, self.slot = key in self.graphs.unfit, None
        if self.plain:
            return
        self.slot = self.graphs.slot(key, run, self.body, self)
        if self.begin is not None:
            self.begin.note(self.slot, run)
        reach = None if getattr(run.state, "beams", 0) else getattr(run.state, "reach", None)
        self.reach = 0 if reach is None else reach()


def _wanted(settings: Settings) -> Settings:
    """The settings of a search by graphs: no row leaves, other numbers of rows are other graphs."""
    return replace(settings, shrink=False, check=settings.check or CHECK)


def _same(body: Any) -> Hashable:
    """What makes two functions of one step do the same."""
    asked = body.keywords
    read, step = asked["read"], asked["step"]
    owner = getattr(step, "__self__", step)
    return id(owner), asked["settings"], asked["eos"], getattr(read, "__code__", read)


def _form(nest: Any) -> Hashable:
    """The shapes of a nest, and what in it is no tensor."""
    if isinstance(nest, Tensor):
        return tuple(nest.shape), nest.dtype
    if isinstance(nest, Shared):
        return "shared", _form(nest.value)
    if isinstance(nest, (tuple, list)):
        return (type(nest).__name__, *map(_form, nest))
    if isinstance(nest, dict):
        return tuple((key, _form(part)) for key, part in nest.items())
    if is_dataclass(nest) and not isinstance(nest, type):
        return tuple(_form(getattr(nest, field.name)) for field in fields(nest))
    return nest


def _even(memory: Padded, rows: int) -> Padded:
    """A memory with rows and steps added, so that few shapes occur and all of them have a mask."""
    B, S = memory.data.shape[:2]
    data = memory.data.new_zeros(rows, rounded_up(S), *memory.data.shape[2:])
    data[:B, :S] = memory.data
    data[B:] = data[B - 1]
    lengths = torch.cat([memory.lengths, memory.lengths[-1:].expand(rows - B)])
    return Padded(data, lengths)


def _rounded(rows: int) -> int:
    """The next power of two, or half-way to it."""
    power = 1 << max(rows - 1, 0).bit_length()
    return power * 3 // 4 if rows <= power * 3 // 4 and power >= 4 else power


def most_steps(settings: Settings, rules: Rules) -> int:
    """The most steps that a search can take."""
    limit = max(rules.limit, default=settings.limit)
    return limit + max(map(len, rules.prefix), default=0)
