"""CUDA graphs of encoder and prefill: everything before the first step of a search."""

import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from weft.batch import Padded
from weft.decode.decoders.lazy_source import LazySource
from weft.decode.search.beam import BeamState
from weft.decode.search.greedy import GreedyState
from weft.decode.search.search import Run
from weft.decode.search.settings import SearchSettings
from weft.decode.search.state import copy_into, expand_beams, map_tensors
from weft.protocols import DecoderState, Seq2SeqDecoder

if TYPE_CHECKING:
    from weft.decode.cuda_graphs.decode_step import DecodeGraphs, _GraphBuffers

MAX_CACHED_SHAPES = 16  # shapes whose buffers and graphs are cached

Work = Callable[[], None]


@dataclass
class CapturedPrefill:
    """The initial search state in its buffers, and a graph that starts another search there."""

    initial: GreedyState | BeamState  # the search before its first step, without the decoder state
    source: Padded | None = None  # buffers for ids (B, S), with lengths on the device
    replay: Work | None = None


class PrefillRequest:
    """The prefill of a search from a source that is not encoded yet."""

    def __init__(
        self,
        graphs: "DecodeGraphs",
        source: LazySource,
        rows: int,
        settings: SearchSettings,
        rest: Hashable,
    ):
        self.graphs, self.source, self.rows, self.settings = graphs, source, rows, settings
        steps = source.padded_steps
        self.key = (source.encode, source.autocast_dtype, rows, steps, settings, rest)

    def record(self, buffers: "_GraphBuffers[Run]", run: Run) -> None:
        """Store a search's initial state with its buffers, so that another can start alike."""
        initial = map_tensors(torch.clone, replace(run, state=None))
        buffers.prefills.setdefault(self.key, CapturedPrefill(initial))
        for old in list(buffers.prefills)[:-MAX_CACHED_SHAPES]:
            del buffers.prefills[old]

    # The buffers of a search of either kind.
    def run(self) -> "_GraphBuffers[Any] | None":
        """Replay the prefill and return its buffers, or None if no search started alike before."""
        cached = (each for group in self.graphs.buffers.values() for each in group)
        buffers = next((each for each in cached if each.free and self.key in each.prefills), None)
        if buffers is None:
            return None
        buffers.owner = weakref.ref(self)  # until the search takes over
        prefill = buffers.prefills[self.key]
        if prefill.source is None:
            padded = self.source.padded_ids(self.rows)
            prefill.source = Padded(padded.data, padded.lengths.to(padded.data.device))
        else:
            self.source.copy_ids_into(prefill.source.data)
            prefill.source.lengths.copy_(self.source.lengths(self.rows), non_blocking=True)
        self.graphs.refreshed_decoder()
        if prefill.replay is None:
            try:
                prefill.replay = self.graphs.capture(partial(self._prefill, buffers, prefill))
            except RuntimeError as error:
                self.graphs.can_prefill = False
                self.graphs.record_problem("The prefill could not be captured", error)
                return None
        prefill.replay()
        return buffers

    def _prefill(self, buffers: "_GraphBuffers[Run]", prefill: CapturedPrefill) -> None:
        """Encode the source and write the initial search state into the buffers."""
        assert prefill.source is not None
        decoder, step_decoder = self.graphs.decoder, self.graphs.step_decoder
        assert isinstance(decoder, Seq2SeqDecoder)
        assert step_decoder is not None
        source = replace(prefill.source)  # without a cached mask: the graph computes it
        source.__dict__["full"] = False  # computing it would synchronise with the device
        memory = self.source.encode_ids(source)
        memory = memory.with_data(memory.data.to(next(decoder.parameters()).dtype))
        state = decoder.start(memory).per_prompt()
        kept = buffers.run.state
        beams = kept.pinned_beams if isinstance(kept, DecoderState) else 0
        static = step_decoder.with_static_cache(state, self.settings.max_length, beams)
        run = prefill.initial
        copy_into(buffers.run, replace(run, state=expand_beams(static, run.width)))
