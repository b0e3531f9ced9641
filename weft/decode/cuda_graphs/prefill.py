"""What comes before the first step of a search by graphs, as a graph too."""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from weft.batch import Padded
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import copy_into, expand_beams, map_tensors

MAX_CACHED_SHAPES = 16  # shapes whose memory and graphs are kept

Work = Callable[[], None]


@dataclass
class CapturedPrefill:
    """How a search began in some memory, and a graph that begins another there."""

    first: Any  # the run before its first step, without the state
    source: Padded | None = None  # memory for ids (B, S), with where rows end on the device
    again: Work | None = None


class PrefillRequest:
    """What comes before the first step of a search from a source that is still unread."""

    def __init__(
        self, graphs: Any, given: LazySource, rows: int, settings: SearchSettings, rest: Hashable
    ):
        self.graphs, self.given, self.rows, self.settings = graphs, given, rows, settings
        self.key = (given.read, given.half, rows, given.steps, settings, rest)

    def note(self, slot: Any, run: Any) -> None:
        """Keep what a search begins with here, so that another can begin alike."""
        first = map_tensors(torch.clone, replace(run, state=None))
        slot.begun.setdefault(self.key, CapturedPrefill(first))
        for old in list(slot.begun)[:-MAX_CACHED_SHAPES]:
            del slot.begun[old]

    def slot(self) -> Any:
        """Memory in which this search has begun, if one began alike before."""
        held = (slot for slots in self.graphs.slots.values() for slot in slots)
        slot = next((slot for slot in held if slot.free and self.key in slot.begun), None)
        if slot is None:
            return None
        slot.owner = weakref.ref(self)  # until the search is there
        begun = slot.begun[self.key]
        if begun.source is None:
            filled = self.given.padded_ids(self.rows)
            begun.source = Padded(filled.data, filled.lengths.to(filled.data.device))
        else:
            self.given.into(begun.source.data)
            begun.source.lengths.copy_(self.given.lengths(self.rows), non_blocking=True)
        self.graphs._laid_out()
        if begun.again is None:
            try:
                begun.again = self.graphs.capture(partial(self._once, slot, begun))
            except RuntimeError as error:
                self.graphs.begins = False
                self.graphs.note("Reading could not be captured", error)
                return None
        begun.again()
        return slot

    def _once(self, slot: Any, begun: CapturedPrefill) -> None:
        """Read the source, and put an empty search of it in the place of the one before."""
        assert begun.source is not None
        decoder, writer = self.graphs.decoder, self.graphs.writer
        source = replace(begun.source)  # one that has no mask yet: that belongs to the graph
        source.__dict__["full"] = False  # or it would be asked of the device
        memory = self.given.of(source)
        memory = memory.with_data(memory.data.to(next(decoder.parameters()).dtype))
        state = decoder.start(memory).per_prompt()
        if hasattr(writer, "with_static_cache"):
            state = writer.with_static_cache(state, self.settings.max_length, slot.run.state.beams)
        run = begun.first
        copy_into(slot.run, replace(run, state=expand_beams(state, run.width)))
