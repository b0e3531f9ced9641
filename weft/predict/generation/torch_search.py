"""Text from the steps of torch: networks on any device, and ensembles.

B rows   T tokens of a prompt
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from weft.batch.indexer import Row
from weft.decode.cuda_graphs.decode_step import DecodeGraphs, PreparedSearch, max_steps
from weft.decode.decoders.packed import pack_if_possible
from weft.decode.decoders.prompt_continuation import PromptContinuation, SlidingState
from weft.decode.search.results import Hypothesis, StreamDelta
from weft.decode.search.rules import Constraints
from weft.decode.search.search import search, stream
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.inference.lm_scoring import lm_head
from weft.predict.classic import ClassicEngine
from weft.predict.ensemble import EnsembleEngine
from weft.predict.generation.batch import (
    NO_RULES,
    GenerationBatch,
    TextSearch,
    check_whole,
    first_input,
)
from weft.predict.joint_decoding import JointContinuation, encode_jointly
from weft.predict.neural import NeuralEngine
from weft.predict.output import EngineInput
from weft.predict.predictor import Predictor
from weft.protocols import Engine
from weft.tasks.target_vocabulary import TargetVocabulary

MAX_SOURCES = 64  # sources that all members of an ensemble encode together


class TorchSearch(TextSearch):
    """The searches of torch, with CUDA graphs where they help."""

    continuing: PromptContinuation | JointContinuation

    def __init__(self, predictor: Predictor):
        assert isinstance(predictor.space, TargetVocabulary)
        self.engine: Engine = predictor.engine
        engine, self.limit = self.engine, None
        self.members = engine.members if isinstance(engine, EnsembleEngine) else ()
        self.size, self.bos = predictor.space.size[:2]
        if predictor.config["task"]["kind"] == "language":
            self._prepare_continuation(predictor.space)
            self.limit = self.continuing.limit

    def _prepare_continuation(self, space: TargetVocabulary) -> None:
        """Prepare prompt continuation: the first token and the context limit."""
        engine = self.engine
        if isinstance(engine, EnsembleEngine):
            self._prepare_joint_continuation(engine)
            return
        if isinstance(engine, ClassicEngine):
            ngrams = engine.part.ngrams
            self.continuing = PromptContinuation(ngrams)
            self.size, self.bos = ngrams.size, first_input(space, ngrams.marks.bos)
            return
        assert isinstance(engine, NeuralEngine)
        head = lm_head(engine.model)
        if head.is_bidirectional:
            raise UserError(
                "This language model is bidirectional, so it cannot generate text. Use one that "
                "reads from left to right: kneser-ney, lstm-lm, gpt."
            )
        limit = head.decoder.max_positions
        # Positions beyond the training window were never trained.
        decoder = pack_if_possible(head.decoder)
        self.continuing = PromptContinuation(decoder, None if limit is None else head.window)

    def _prepare_joint_continuation(self, engine: EnsembleEngine) -> None:
        """Prepare the continuation by all members of an ensemble."""
        members = [TorchSearch(member) for member in engine.members]
        first = members[0]
        for i, member in enumerate(members):
            if (member.size, member.bos) != (first.size, first.bos):
                raise UserError(
                    f"Members 0 and {i} of this ensemble number their tokens differently, so they "
                    "cannot generate together."
                )
        self.size, self.bos = first.size, first.bos
        self.continuing = JointContinuation([m.continuing for m in members], engine.weights)

    def read_prompts(self, ids: Sequence[Sequence[int]]) -> GenerationBatch:
        continuing, runtime = self.continuing, self.engine.runtime
        read = torch.tensor(ids, device=None if runtime is None else runtime.device)  # (B, T)
        return GenerationBatch(
            list(range(len(ids))), continuing.step, continuing.start(read[:, :-1]), read[:, -1],
            [list(one[1:]) for one in ids],
        )  # fmt: skip

    @torch.no_grad()
    def read_sources(
        self, inputs: Sequence[EngineInput], names: Sequence[str], settings: SearchSettings
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:
        engine = self.engine
        if isinstance(engine, EnsembleEngine):
            yield from self._read_jointly(engine, inputs, names, settings)
            return
        assert isinstance(engine, NeuralEngine)
        for rows, source in engine.batches(inputs):
            check_whole(rows, names, engine.indexer)
            yield rows, self._first_step(engine.model.run(source).scores, rows, settings)

    def _read_jointly(
        self, engine: EnsembleEngine, inputs: Sequence[EngineInput], names: Sequence[str],
        settings: SearchSettings,
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:  # fmt: skip
        """Yield batches of sources that are encoded by all members of an ensemble."""
        if settings.coverage_penalty:
            raise UserError("generate.coverage_penalty needs the attention of a single model.")
        head = engine.neural_engines[0].model.head
        for at in range(0, len(inputs), MAX_SOURCES):
            chosen = list(range(at, min(at + MAX_SOURCES, len(inputs))))
            own = [inputs[i] for i in chosen]
            job = encode_jointly(engine.neural_engines, engine.weights, own, settings)
            for rows in job.rows:
                for row in rows:
                    if row.read_fraction < 1:
                        raise UserError(
                            f"{names[at + row.text]} is longer than a member of this ensemble "
                            "reads. Shorten it, or split it."
                        )
            yield (
                job.rows[0],
                GenerationBatch(
                    chosen, job.step, job.state, head.bos, [[] for _ in chosen],
                    extra_ids=job.extended_ids,
                ),
            )  # fmt: skip

    def _first_step(
        self, scores: Any, rows: Sequence[Row], settings: SearchSettings
    ) -> GenerationBatch:
        """Return the batch before its first decoding step."""
        head, memory, rules = scores.head, scores.memory, NO_RULES
        if head.extended_vocab_start:
            decoder, state = head.decoder, scores.start()
        else:
            decoder = pack_if_possible(head.decoder)
            state = decoder.start(memory, weights=bool(settings.coverage_penalty))
        if settings.coverage_penalty and state.attention_weights is not None:
            rules = Constraints(attention=lambda state: state.attention_weights, source=memory.mask)
        extra_ids = state.num_extended_ids
        return GenerationBatch(
            [row.text for row in rows], decoder.step, state.per_prompt(), head.bos,
            [[] for _ in rows], rules, extra_ids=extra_ids,
        )  # fmt: skip

    def search(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> list[list[Hypothesis]]:
        step, state, how, faster = self.prepare(job, settings)
        return search(
            step, state, how, batch=len(job.rows), bos=job.first, eos=eos,
            constraints=job.rules, wrap_step=faster,
        )  # fmt: skip

    def stream(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> Iterator[list[StreamDelta]]:
        step, state, how, faster = self.prepare(job, settings)
        yield from stream(
            step, state, how, batch=len(job.rows), bos=job.first, eos=eos,
            constraints=job.rules, wrap_step=faster,
        )  # fmt: skip

    def prepare(self, job: GenerationBatch, settings: SearchSettings) -> PreparedSearch:
        """Return the prepared search: with CUDA graphs, unless the context must slide."""
        plain, state = PreparedSearch(job.step, job.state, settings, None), job.state
        model = self.engine.model
        graphs: DecodeGraphs | None = None if model is None else model.head.graphs
        if isinstance(state, SlidingState):
            most = self.continuing.limit or 0
            if state.seen.shape[1] + max_steps(settings, job.rules) > most:
                return plain
            state = state.inner
        ready = plain if graphs is None else graphs.prepare(state, settings, job.rules)
        return plain if ready.wrap_step is None else ready
