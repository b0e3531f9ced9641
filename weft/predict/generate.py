"""Text generation: continue a prompt, or answer a source.

B rows   T tokens of a prompt
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft import registry
from weft.decode.search.allowed_phrases import AllowedPhrases
from weft.decode.search.results import Hypothesis
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError, near_miss
from weft.notebook import HtmlRepr
from weft.predict.generation.batch import GenerationBatch, TextSearch
from weft.predict.output import EngineInput, plain_texts
from weft.predict.predictor import Predictor
from weft.predict.rows import RowEngine
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
    if not isinstance(model, Predictor):
        from weft.loading import load  # of any kind of model; it imports this package

        model = load(model)
    writer = Generator(model)
    inputs = [prompts] if isinstance(prompts, str) else list(prompts)
    texts = writer.write(inputs, writer.search_settings(settings), prefix=prefix, only=only)
    return Generations(texts)


class Generator:
    """Generates text with any model: neural or n-gram, with or without a source."""

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
        self.eos = self.space.size[2]
        self.continues = kind == "language"  # else it answers
        self.search = self.engine.text_search(self.space) or _torch_search(predictor)
        self.size, self.bos = self.search.size, self.search.bos

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
            results = self.search.search(job, settings, self.eos)
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
        for (piece,) in self.search.stream(job, settings, self.eos):
            ids = [*piece.ids, *[self.eos] * piece.ended]
            for k, (id, logp) in enumerate(zip(ids, piece.logps, strict=True), 1):
                text = detokenizer.add(id)
                if piece.last and k == len(ids):
                    text += detokenizer.rest()
                yield Token(text, id, float(np.exp(logp)))

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

    def _prompt_batches(
        self, prompts: Sequence[str], names: Sequence[str]
    ) -> Iterator[GenerationBatch]:
        """Yield batches of prompts of equal length, each read up to its last token."""
        limit = self.search.limit
        rows = [[self.bos, *ids.tolist()] for ids in self.tokenizer.encode_ids(prompts)]
        for name, ids in zip(names, rows, strict=True):
            if limit is not None and len(ids) > limit:
                raise UserError(
                    f"{name} has {len(ids) - 1} tokens; this model reads at most "
                    f"{limit - 1}. Shorten it: the model would drop the beginning."
                )
        lengths = sorted({len(ids) for ids in rows})
        for length in lengths:
            same = [row for row, ids in enumerate(rows) if len(ids) == length]
            for at in range(0, len(same), MAX_PROMPTS):
                chosen = same[at : at + MAX_PROMPTS]
                yield replace(self.search.read_prompts([rows[row] for row in chosen]), rows=chosen)

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
        for rows, job in self.search.read_sources(inputs, names, settings):
            own = [inputs[number] for number in job.rows]
            words = [
                self.space.oov_words(row.words, _fields(one))
                for row, one in zip(rows, own, strict=True)
            ]
            yield replace(job, oov_words=words)

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
        if self.search.members:
            members = (Generator(member) for member in self.search.members)
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


def _torch_search(predictor: Predictor) -> TextSearch:
    """Return the search of a network."""
    from weft.predict.generation.torch_search import TorchSearch

    return TorchSearch(predictor)


def _fields(one: EngineInput) -> tuple[tuple[str, str], ...]:
    """Return the slots of a record."""
    return () if isinstance(one, str) else one.fields
