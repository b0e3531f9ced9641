"""Language modelling: the probability of each token of a text, given the tokens before it.

T tokens of a text, with the one that ends it   W pieces of a token
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.perplexity import Perplexity, TextCost, TextSize, count_text
from weft.metrics.value import MetricValue
from weft.protocols import Engine, ReadMode, Saved, Section, Task
from weft.registry import register
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.mlm import FilledMasks, fill_answer
from weft.tasks.seq2seq import TargetVocabulary
from weft.tasks.task import Answer, Loss
from weft.text.example import Example
from weft.tokens.subtoken_table import append_subtokens
from weft.tokens.vocabulary import EOS, SPECIALS, UNK

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.decode.heads.lm import LMOutput
    from weft.tokens.tokenizer import Tokenizer

UNKNOWN_ID = SPECIALS.index(UNK)
GPT2_EOS = "<|endoftext|>"  # how GPT-2 calls EOS
MAX_NATS = 700.0  # nats a token: e to this is still a number


@dataclass(frozen=True)
class LMVocabulary(TargetVocabulary):
    """The vocabulary of a language model, and where texts end.

    With `lines` every text ends in EOS, and begins where one has ended: EOS is also what stands
    before its first token. Without, all texts are one, which line breaks run through as tokens;
    what stands before the first is a line break, where the tokenizer has one.
    """

    shared: bool = True  # what is read is what is written
    lines: bool = True

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """The vocabulary size, the id before a text, and the id that ends it."""
        known = {token: i for i, token in enumerate(self.tokenizer.vocabulary)}
        last = known.get(EOS, known.get(GPT2_EOS, len(known)))
        first = last
        if not self.lines:
            (found,) = self.tokenizer.encode_ids(["\n"])
            first = int(found[0]) if len(found) == 1 and found[0] != self.unknown else last
        return max(len(known), last + 1), first, last

    @cached_property
    def unknown(self) -> int:
        """The id of out-of-vocabulary words; -1 if there are none, as in GPT-2."""
        unknown = self.tokenizer.unknown
        return unknown if self.tokenizer.vocabulary[unknown] in (UNK, "[UNK]") else -1

    def ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids (T,) of each text, EOS included."""
        return [self._add_end(ids) for ids in self.tokenizer.encode_ids(texts)]

    def places(self, texts: Sequence[str]) -> list[tuple[np.ndarray, tuple[CharSpan, ...]]]:
        """Return the ids of each text and their character offsets; those of EOS are empty."""
        out = []
        for text, tokens in zip(texts, self.tokenizer.encode_batch(texts), strict=True):
            places = [(start, end) for start, end in tokens.offsets.tolist()]
            if self.lines:
                places.append((len(text), len(text)))
            out.append((self._add_end(tokens.ids), tuple(places)))
        return out

    def token_strings(self, texts: Sequence[str]) -> list[tuple[np.ndarray, list[str]]]:
        """Return the ids (T,) of each text with its tokens as text; EOS is empty."""
        end = [""] if self.lines else []
        return [
            (self._add_end(tokens.ids), [text[a:b] for a, b in tokens.offsets.tolist()] + end)
            for text, tokens in zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        ]

    def with_subtokens(
        self,
        texts: Sequence[str],
        pieces: Callable[[list[str]], Sequence[Sequence[int]]],
        width: int,
    ) -> list[np.ndarray]:
        """Return the tokens (T, 1+W) of each text: an id and sub-tokens (`append_subtokens`)."""
        return [
            append_subtokens(ids, pieces(words), width) for ids, words in self.token_strings(texts)
        ]

    def _add_end(self, ids: np.ndarray) -> np.ndarray:
        ids = ids.astype(np.int64)
        return np.append(ids, self.size[2]) if self.lines else ids

    def to_json(self) -> JsonObject:
        return {"tokenizer": json.loads(self.tokenizer.to_json()), "lines": self.lines}


@register("task", "language")
class LanguageModelling(Task[LMVocabulary]):
    """Language modelling: the probability of each token; labels are ignored.

    With `lines` each row of the file is a text that ends; without, the file is one running text
    and its line breaks are tokens, as for models of characters. `window` is how many steps a
    training piece has, 0: 35, or as many as the decoder sees. `overlap` is the share of a window
    that is read again as context where a text is longer than what the decoder sees.
    """

    head = "running"
    metric = "perplexity"  # of running text, bits_per_character: its words are not its units
    read_mode: ReadMode = "texts"  # without `lines`, "running"
    has_references = True
    has_target_tokenizer = True
    can_average = True

    def __init__(
        self,
        tokenizer: Section | None = None,
        lines: bool = True,
        window: int = 0,
        overlap: float = 0.5,
    ) -> None:
        if window < 0 or window == 1:
            raise UserError(f"task.window should be 2 or more (0: the usual), got {window}.")
        if not 0 <= overlap < 1:
            raise UserError(f"task.overlap should be from 0 to below 1, got {overlap}.")
        self.tokenizer, self.lines = tokenizer or {}, lines
        self.window, self.overlap = window, overlap
        if not lines:
            self.metric, self.read_mode = "bits_per_character", "running"

    def target_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield every text."""
        return (example.text for example in examples)

    def text_space(self, examples: Iterable[Example], tokenizer: "Tokenizer") -> LMVocabulary:
        """Return the vocabulary; nothing else is learned from the examples."""
        return LMVocabulary(tokenizer, lines=self.lines)

    def load_space(self, saved: Saved) -> LMVocabulary:
        from weft.tokens.tokenizer import Tokenizer

        try:
            text = json.dumps(saved["tokenizer"], ensure_ascii=False)
            return LMVocabulary(Tokenizer.from_json(text), lines=bool(saved["lines"]))
        except (KeyError, TypeError) as error:
            raise UserError(f"The model's words are damaged: {error!r}. Train again.") from error

    def target(self, example: Example, space: LMVocabulary) -> np.ndarray:
        """Return the number (2,) of words and characters, by which the cost is divided."""
        right = self.find_reference(example)
        return np.array([right.words, right.characters], np.int64)

    def find_reference(self, example: Example) -> TextSize:
        """Return the length of the text; running text includes its line breaks."""
        if self.lines:
            return count_text(example.text)
        return TextSize(len(example.text.split()), len(example.text))

    def loss(self, scores: "LMOutput", batch: "LabelledBatch") -> Loss:
        return Loss(*scores.loss(batch.target, batch.carried))

    def score_texts(
        self, engine: Engine, texts: Iterable[str], space: LMVocabulary
    ) -> Iterator[Decoded]:
        """Yield the probability of every token of texts that follow each other."""
        return engine.likelihoods(texts, running=True)

    def answers(self, scores: Sequence[Decoded | FilledMasks], space: LMVocabulary) -> list[Answer]:
        """Return the perplexity of each text by its token probabilities, or its filled masks."""
        return [
            fill_answer(one) if isinstance(one, FilledMasks) else _answer(one) for one in scores
        ]

    def predict_targets(self, scores: Sequence[Decoded], space: LMVocabulary) -> list[TextCost]:
        """Return the cost of each text."""
        last = space.size[2] if self.lines else -1
        return [
            sum_cost(found.table[:, 0], np.log(found.probs[:, 0]), last, space.unknown)
            for found in scores
        ]

    def average(
        self,
        scores: Sequence[Sequence[Decoded]],
        spaces: Sequence[LMVocabulary],
        weights: np.ndarray,
        space: LMVocabulary,
    ) -> list[Decoded]:
        """Return the mean probability of every token: linear interpolation of the models."""
        return [
            replace(row[0], probs=np.tensordot(weights, np.stack([one.probs for one in row]), 1))
            for row in zip(*scores, strict=True)
        ]

    def build_metric(self, space: LMVocabulary) -> "LMMetric":
        return LMMetric(self.lines)


class LMMetric(Perplexity):
    """Perplexity of texts whose length may also be given as rows of words and characters.

    `backward` holds the cost of the same texts read from the end, if the model does that.
    """

    backward: "LMMetric | None" = None

    def add(self, predicted: Sequence[TextCost], gold: Sequence[TextSize | Iterable[int]]) -> None:
        """Count texts: the cost of each, and its length."""
        super().add(
            predicted, [one if isinstance(one, TextSize) else TextSize(*one) for one in gold]
        )

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        tokens, unknown = self.table()[:, [1, 5]].sum(0)
        if tokens and tokens == unknown:
            raise UserError(
                f"None of the {int(tokens)} tokens to measure on is known to the model: are they "
                "of another language, or is their case another? Measure on text like that of the "
                "training."
            )
        values = super().compute(resamples, seed, level)
        if self.backward is not None:
            other = self.backward.compute(resamples, seed, level)
            values["backward_perplexity"] = other["perplexity"]
        return values


def sum_cost(
    ids: np.ndarray, log_probs: np.ndarray, eos_id: int, unknown_id: int = UNKNOWN_ID
) -> TextCost:
    """Sum the cost of a text with ids (T,) and log-probabilities (T,); `eos_id` ends texts.

    `unknown_id` is the id of all out-of-vocabulary words.
    """
    ends, unknown = ids == eos_id, ids == unknown_id
    nats = -log_probs.astype(np.float64)
    return TextCost(
        nats=float(nats[~ends].sum()),
        tokens=int((~ends).sum()),
        end_nats=float(nats[ends].sum()),
        ends=int(ends.sum()),
        unknown_nats=float(nats[unknown].sum()),
        unknown=int(unknown.sum()),
    )


def _answer(decoded: Decoded) -> Answer:
    probs = decoded.probs[:, 0]
    nats = -np.log(np.maximum(probs, 1e-300)).mean() if len(probs) else 0.0
    value = float(np.exp(min(nats, MAX_NATS)))
    return Answer(value, value, scores=tuple(probs.tolist()))
