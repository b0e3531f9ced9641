"""Text generation: continue a prompt, or answer a source.

B rows   T tokens of a prompt
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft import registry
from weft.batch.indexer import Row
from weft.decode.cuda_graphs.decode_step import DecodeGraphs, PreparedSearch, max_steps
from weft.decode.decoders.packed import pack_if_possible
from weft.decode.decoders.prompt_continuation import PromptContinuation, SlidingState
from weft.decode.search.allowed_phrases import AllowedPhrases
from weft.decode.search.constraints import Constraints
from weft.decode.search.hypotheses import Hypothesis
from weft.decode.search.search import NO_CONSTRAINTS, search, stream
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError, near_miss
from weft.inference.lm_scoring import lm_head
from weft.notebook import HtmlRepr
from weft.predict.classic import ClassicEngine
from weft.predict.ensemble import EnsembleEngine
from weft.predict.joint_decoding import JointContinuation, encode_jointly
from weft.predict.neural import NeuralEngine
from weft.predict.output import EngineInput, plain_texts
from weft.predict.predictor import Predictor, load
from weft.predict.rows import RowEngine
from weft.protocols import State
from weft.tasks.language import LMVocabulary
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.text.example import Example
from weft.tokens.streaming_decoder import StreamingDecoder
from weft.tokens.tokenizer import NO_OOV_WORDS, Tokenizer
from weft.tokens.vocabulary import EOS, SPECIALS, UNK

MAX_PROMPTS = 64  # prompts that are continued together


@dataclass(frozen=True)
class Token:
    """One generated token."""

    text: str  # "" for the end, and while a character is incomplete
    id: int
    probability: float  # before constraints

    def to_json(self) -> dict[str, object]:
        """Return the token as plain values."""
        return {"text": self.text, "id": self.id, "probability": self.probability}


@dataclass(frozen=True, repr=False)
class Generation(HtmlRepr):
    """One generated text."""

    prompt: str
    text: str  # of a language model, the continuation alone
    score: float  # normalised log-probability
    tokens: tuple[Token, ...]
    ended: bool  # False: it reached max_length

    def __repr__(self) -> str:
        return f"Generation({self.text!r}, score={self.score:.4g})"

    @property
    def whole(self) -> str:
        """The prompt with its continuation."""
        return self.prompt + self.text

    def to_json(self) -> dict[str, object]:
        """Return the text with its tokens, as `generate --json` prints it."""
        out = {name: getattr(self, name) for name in ("prompt", "text", "score", "ended")}
        return {**out, "tokens": [token.to_json() for token in self.tokens]}


class Generations(list[list[Generation]], HtmlRepr):
    """The texts of each prompt, best first."""


@dataclass(frozen=True)
class GenerationBatch:
    """A batch of prompts with the decoder state to generate from."""

    rows: list[int]  # the numbers of the prompts
    step: Callable[[Tensor, State], tuple[Tensor, State]]
    state: State
    first: int | Tensor  # the first input id, of all or (B,) of each
    before: list[list[int]]  # ids of the text that each continues
    rules: Constraints = NO_CONSTRAINTS
    oov_words: Sequence[Mapping[int, str]] = ()  # of each, the words that only its source has
    extra_ids: int = 0  # ids of those words, beyond the vocabulary


@registry.check_types
def generate(
    model: Predictor | str | Path,
    prompts: str | Sequence[Any] = "",  # texts or arrays, checked by the predictor
    *,
    prefix: str = "",
    only: Sequence[str] = (),
    **settings: Any,
) -> Generations:
    """Generate texts for each prompt, best first; a language model continues it.

    Settings are those of [generate]: method, max_length, num_beams, num_return, num_samples,
    temperature, …; the model's own are the default. `prefix` begins every text, and `only` are the
    words or phrases that a text may consist of. A model that reads vectors takes their names or
    arrays.
    """
    writer = Generator(model if isinstance(model, Predictor) else load(model))
    inputs = [prompts] if isinstance(prompts, str) else list(prompts)
    texts = writer.write(inputs, writer.search_settings(settings), prefix=prefix, only=only)
    return Generations(texts)


class Generator:
    """Generates text with any model: neural or n-gram, with or without a source."""

    continuing: PromptContinuation | JointContinuation

    def __init__(self, predictor: Predictor):
        kind = predictor.config["task"]["kind"]
        if kind not in ("language", "seq2seq"):
            raise UserError(
                f"A model of task '{kind}' does not generate text; use `weft predict`. Models that "
                "generate come from --recipe kneser-ney, gpt or seq2seq, for example."
            )
        if kind == "seq2seq" and "head" in predictor.config:
            raise UserError(
                "A CTC model has one text for each recording and no search to set; use "
                "`weft predict`. With a decoder, as in --recipe seq2seq-speech, it can generate."
            )
        self.predictor, self.engine = predictor, predictor.engine
        assert isinstance(predictor.space, TargetVocabulary)
        self.space = predictor.space
        self.tokenizer = self.space.tokenizer
        self.size, self.bos, self.eos = self.space.size
        self.continues = kind == "language"  # else it answers
        if self.continues:
            self._prepare_continuation()

    def _prepare_continuation(self) -> None:
        """Prepare prompt continuation: the first token and the context limit."""
        engine = self.engine
        if isinstance(engine, EnsembleEngine):
            self._prepare_joint_continuation(engine)
            return
        if isinstance(engine, ClassicEngine):
            ngrams = engine.part.ngrams
            self.continuing = PromptContinuation(ngrams)
            self.size = ngrams.size
            # Running text continues after a line break.
            self.bos = self.bos if self._is_running_text else ngrams.marks.bos
            return
        head = lm_head(self._neural.model)
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
        members = [Generator(member) for member in engine.members]
        first = members[0]
        for i, member in enumerate(members):
            if (member.size, member.bos) != (first.size, first.bos):
                raise UserError(
                    f"Members 0 and {i} of this ensemble number their tokens differently, so they "
                    "cannot generate together."
                )
        self.size, self.bos = first.size, first.bos
        self.continuing = JointContinuation([m.continuing for m in members], engine.weights)

    def search_settings(self, changes: Mapping[str, object]) -> SearchSettings:
        """Return the model's search settings, overridden by `changes`."""
        saved = self.predictor.config.get("generate") or {"method": "sample"}
        return SearchSettings(**registry.check(SearchSettings, {**saved, **changes}, "[generate]"))

    def write(
        self, prompts: Sequence[str | np.ndarray], settings: SearchSettings, *, prefix: str = "",
        only: Sequence[str] = (), first: int = 0, file: str = "",
    ) -> list[list[Generation]]:  # fmt: skip
        """Generate texts for each prompt; `first` is the number of the first prompt.

        With a `file` the prompts are its lines, and errors name them so.
        """
        inputs = self.predictor.prepare_inputs(prompts, first)
        texts = plain_texts(inputs)
        out: list[list[Generation]] = [[] for _ in inputs]
        for job in self._make_batches(inputs, settings, prefix, only, first, file):
            step, state, how, faster = self._prepare_search(job, settings)
            results = search(
                step, state, how, batch=len(job.rows), bos=job.first, eos=self.eos,
                constraints=job.rules, wrap_step=faster,
            )  # fmt: skip
            for k, (row, hypotheses) in enumerate(zip(job.rows, results, strict=True)):
                out[row] = [self._to_generation(texts[row], job, k, one) for one in hypotheses]
        return out

    def stream(
        self, prompt: str, settings: SearchSettings, *, prefix: str = "", only: Sequence[str] = (),
        first: int = 0, file: str = "",
    ) -> Iterator[Token]:  # fmt: skip
        """Yield the tokens of one text as they are generated; not for beams or several samples."""
        settings = replace(settings, check_every=1, num_samples=1)
        (job,) = self._make_batches([prompt], settings, prefix, only, first, file)
        detokenizer = self._make_detokenizer(prompt, job, 0)
        step, state, how, faster = self._prepare_search(job, settings)
        pieces = stream(
            step,
            state,
            how,
            batch=1,
            bos=job.first,
            eos=self.eos,
            constraints=job.rules,
            wrap_step=faster,
        )
        for (piece,) in pieces:
            ids = [*piece.ids, *[self.eos] * piece.ended]
            for k, (id, logp) in enumerate(zip(ids, piece.logps, strict=True), 1):
                text = detokenizer.add(id)
                if piece.last and k == len(ids):
                    text += detokenizer.rest()
                yield Token(text, id, float(np.exp(logp)))

    def _prepare_search(self, job: GenerationBatch, settings: SearchSettings) -> PreparedSearch:
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

    def _make_batches(
        self, prompts: Sequence[str | Example], settings: SearchSettings, prefix: str,
        only: Sequence[str], first: int, file: str,
    ) -> Iterator[GenerationBatch]:  # fmt: skip
        called = f"{file}:" if file else "Prompt "
        names = [f"{called}{first + i}" for i in range(1, len(prompts) + 1)]
        if names == ["Prompt 1"]:
            names = ["The prompt"]
        texts = plain_texts(prompts)
        if self.continues:
            started = self._prompt_batches(texts, names)
        else:
            started = self._source_batches(prompts, names, settings)
        forced = self._prefix_ids(prefix)
        for job in started:
            rules = replace(
                job.rules,
                prefix=[forced] * len(job.rows) if forced else (),
                seeds=[settings.seed + first + row for row in job.rows],
                forbidden=self._forbidden_ids,
                allowed=self._allowed_phrases(
                    only, forced, [texts[row] for row in job.rows], job.extra_ids
                ),
            )
            yield replace(job, rules=rules)

    @property
    def _neural(self) -> NeuralEngine:
        if not isinstance(self.engine, NeuralEngine):
            raise UserError(
                "An exported language model gives the probability of every token, but does not "
                "continue texts. Generate with the model that it was made from."
            )
        return self.engine

    def _prompt_batches(
        self, prompts: Sequence[str], names: Sequence[str]
    ) -> Iterator[GenerationBatch]:
        """Yield batches of prompts of equal length, each read up to its last token."""
        continuing, runtime = self.continuing, self.engine.runtime
        device = None if runtime is None else runtime.device
        rows = [[self.bos, *ids.tolist()] for ids in self.tokenizer.encode_ids(prompts)]
        for name, ids in zip(names, rows, strict=True):
            if continuing.limit is not None and len(ids) > continuing.limit:
                raise UserError(
                    f"{name} has {len(ids) - 1} tokens; this model reads at most "
                    f"{continuing.limit - 1}. Shorten it: the model would drop the beginning."
                )
        lengths = sorted({len(ids) for ids in rows})
        for length in lengths:
            same = [row for row, ids in enumerate(rows) if len(ids) == length]
            for at in range(0, len(same), MAX_PROMPTS):
                chosen = same[at : at + MAX_PROMPTS]
                read = torch.tensor([rows[row] for row in chosen], device=device)  # (B, T)
                yield GenerationBatch(
                    chosen, continuing.step, continuing.start(read[:, :-1]), read[:, -1],
                    [rows[row][1:] for row in chosen],
                )  # fmt: skip

    @torch.no_grad()
    def _source_batches(
        self, prompts: Sequence[str | Example], names: Sequence[str], settings: SearchSettings
    ) -> Iterator[GenerationBatch]:
        """Yield batches of encoded sources."""
        for name, prompt in zip(names, prompts, strict=True):
            if isinstance(prompt, str) and not prompt.strip():
                raise UserError(
                    f"{name} is empty; this model needs a source text. Give it as PROMPT, or "
                    "a file of texts with --input (- is standard input)."
                )
        inputs = [self._engine_input(*one) for one in zip(prompts, names, strict=True)]
        if isinstance(self.engine, EnsembleEngine):
            yield from self._joint_batches(self.engine, inputs, names, settings)
            return
        engine = self.engine
        assert isinstance(engine, RowEngine)
        for rows, job in self._started_batches(inputs, settings):
            for row in rows:
                if row.read_fraction < 1:
                    most = engine.indexer.limit
                    limit = (
                        f"{most} tokens" if most else f"{engine.indexer.characters:,} characters"
                    )
                    raise UserError(
                        f"{names[row.text]} is longer than {limit}, the most this model reads. "
                        "Shorten it, or split it."
                    )
            oov_words = [self.space.oov_words(row.words, _fields(inputs[row.text])) for row in rows]
            before: list[list[int]] = [[] for _ in rows]
            chosen = [row.text for row in rows]
            yield replace(job, rows=chosen, before=before, oov_words=oov_words)

    def _started_batches(
        self, inputs: Sequence[EngineInput], settings: SearchSettings
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:
        """Yield rows with the batch that they form before its first step."""
        if isinstance(self.engine, NeuralEngine):
            model = self.engine.model
            for rows, source in self.engine.batches(inputs):
                yield rows, self._first_step(model.run(source).scores, settings)
            return
        if settings.coverage_penalty:
            raise UserError(
                "generate.coverage_penalty needs the attention of the decoder, which an export "
                "does not give. Use the model that it was made from."
            )
        for one in self.engine.generation_batches(inputs):
            yield (
                one.rows,
                GenerationBatch([], one.step, one.state, one.first, [], extra_ids=one.extra_ids),
            )

    def _joint_batches(
        self, engine: EnsembleEngine, inputs: Sequence[EngineInput], names: Sequence[str],
        settings: SearchSettings,
    ) -> Iterator[GenerationBatch]:  # fmt: skip
        """Yield batches of sources that are encoded by all members of an ensemble."""
        if settings.coverage_penalty:
            raise UserError("generate.coverage_penalty needs the attention of a single model.")
        head = engine.neural_engines[0].model.head
        for at in range(0, len(inputs), MAX_PROMPTS):
            chosen = list(range(at, min(at + MAX_PROMPTS, len(inputs))))
            own = [inputs[i] for i in chosen]
            job = encode_jointly(engine.neural_engines, engine.weights, own, settings)
            for rows in job.rows:
                for row in rows:
                    if row.read_fraction < 1:
                        raise UserError(
                            f"{names[at + row.text]} is longer than a member of this ensemble "
                            "reads. Shorten it, or split it."
                        )
            words = [self.space.oov_words(row.words, _fields(own[row.text])) for row in job.rows[0]]
            yield GenerationBatch(
                chosen, job.step, job.state, head.bos, [[] for _ in chosen], oov_words=words,
                extra_ids=job.extended_ids,
            )  # fmt: skip

    def _first_step(self, scores: Any, settings: SearchSettings) -> GenerationBatch:
        """Return the batch before its first decoding step."""
        head, memory, rules = scores.head, scores.memory, NO_CONSTRAINTS
        if head.extended_vocab_start:
            decoder, state = head.decoder, scores.start()
        else:
            decoder = pack_if_possible(head.decoder)
            state = decoder.start(memory, weights=bool(settings.coverage_penalty))
        if settings.coverage_penalty and state.attention_weights is not None:
            rules = Constraints(attention=lambda state: state.attention_weights, source=memory.mask)
        extra_ids = state.num_extended_ids
        return GenerationBatch(
            [], decoder.step, state.per_prompt(), head.bos, [], rules, extra_ids=extra_ids
        )

    def _engine_input(self, prompt: EngineInput, where: str) -> EngineInput:
        """Return the engine's input; records are parsed first."""
        if isinstance(prompt, Example):
            return prompt  # a matrix
        return self.predictor.task.model_input(prompt, self.space, where)

    def _prefix_ids(self, prefix: str) -> list[int]:
        if not prefix:
            return []
        self.check_known([prefix], ["prefix"])
        return [int(id) for id in self.tokenizer.encode_ids([prefix])[0]]

    def _allowed_phrases(
        self, only: Sequence[str], forced: list[int], prompts: list[str], extra_ids: int
    ) -> AllowedPhrases | None:
        entries = [text for text in only if text.strip()]
        if not entries:
            return None
        self.check_known(entries, ["only"] * len(entries))
        first, then = (
            [ids.tolist() for ids in self.tokenizer.encode_ids([space + text for text in entries])]
            for space in ("", " ")
        )
        if forced or (self.continues and any(text and not text[-1].isspace() for text in prompts)):
            first = then  # it follows other text
        forced_steps = [len(forced)] * len(prompts) if forced else ()
        return AllowedPhrases(
            first, then, size=self.size + extra_ids, eos=self.eos, forced=forced_steps
        )

    def unknown_words(self, prompts: Sequence[str]) -> list[str]:
        """Return the words of the prompts that are not in the vocabulary, each once.

        There are none for a model that copies or reads vectors, or for records, whose slots are
        checked one by one.
        """
        task = self.predictor.config["task"]
        if task.get("pointer") or task.get("record") or self.engine.input_kind == "vectors":
            return []
        if isinstance(self.engine, EnsembleEngine):
            members = (Generator(member) for member in self.engine.members)
            return list(dict.fromkeys(w for m in members for w in m.unknown_words(prompts)))
        tokenizer = self.tokenizer if self.continues else self._source_tokenizer
        if UNK not in tokenizer.vocabulary:
            return []
        unknown = tokenizer.vocabulary.index(UNK)
        tokens = zip(tokenizer.strings(prompts), tokenizer.encode_ids(prompts), strict=True)
        words = (
            word
            for strings, ids in tokens
            for word, id in zip(strings, ids.tolist(), strict=True)
            if id == unknown
        )
        return list(dict.fromkeys(words))

    @property
    def _source_tokenizer(self) -> Tokenizer:
        assert isinstance(self.engine, RowEngine)
        return self.engine.indexer.tokenizer

    def check_known(self, texts: Sequence[str], where: Sequence[str]) -> None:
        """Raise UserError for a text with words outside the vocabulary."""
        vocabulary = self.tokenizer.vocabulary
        unknown = vocabulary.index(UNK) if UNK in vocabulary else -1
        for text, origin, ids in zip(texts, where, self.tokenizer.encode_ids(texts), strict=True):
            if not len(ids) or unknown in ids:
                (words,) = self.tokenizer.strings([text])
                oov = [w for w, id in zip(words, ids.tolist(), strict=True) if id == unknown]
                word = oov[0] if oov else text
                raise UserError(
                    f"{origin}: '{word}' is not in the vocabulary, so it cannot be generated."
                    f"{near_miss(word, vocabulary)} Leave it out, or train with text that has it."
                )

    @property
    def _is_running_text(self) -> bool:
        """True if the model learned one text without ends, rather than lines."""
        return isinstance(self.space, LMVocabulary) and not self.space.lines

    @property
    def _forbidden_ids(self) -> list[int]:
        """Return the ids that must not be generated: special tokens and the unknown word."""
        vocabulary = self.tokenizer.vocabulary
        marks = {vocabulary.index(mark) for mark in SPECIALS if mark in vocabulary and mark != EOS}
        if not self.continues:
            marks.add(self.bos)
        elif self._is_running_text:
            marks.add(self.eos)  # running text never ends
        return sorted(marks)

    def _make_detokenizer(self, prompt: str, job: GenerationBatch, row: int) -> StreamingDecoder:
        oov_words = job.oov_words[row] if job.oov_words else NO_OOV_WORDS
        spaced = not self.continues or prompt[-1:].isspace()
        return StreamingDecoder(self.tokenizer, job.before[row], spaced, oov_words)

    def _to_generation(
        self, prompt: str, job: GenerationBatch, row: int, hypothesis: Hypothesis
    ) -> Generation:
        detokenizer = self._make_detokenizer(prompt, job, row)
        texts = [detokenizer.add(id) for id in hypothesis.ids]
        ids = [*hypothesis.ids, *[self.eos] * hypothesis.ended]
        texts += [""] * hypothesis.ended
        if texts:
            texts[-1] += detokenizer.rest()
        probs = np.exp(np.array(hypothesis.logps, np.float64)).tolist()
        tokens = tuple(map(Token, texts, ids, probs))
        return Generation(prompt, "".join(texts), hypothesis.score, tokens, hypothesis.ended)


def _fields(one: EngineInput) -> tuple[tuple[str, str], ...]:
    """Return the slots of a record."""
    return () if isinstance(one, str) else one.fields
