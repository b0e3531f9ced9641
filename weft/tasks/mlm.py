"""Masked language modelling and next-sentence prediction: how BERT is pre-trained on raw text.

D documents
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric
from weft.metrics.sentence_counts import Statistic
from weft.protocols import Engine, LabelSpace, ReadMode, Saved, Section, Task
from weft.registry import register
from weft.tasks.task import Answer, HeadLoss, Loss
from weft.text.example import Example
from weft.text.line_source import SKIP_HINT

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.batch.mlm_collator import Masking
    from weft.tokens.special_tokens import SpecialTokens
    from weft.tokens.tokenizer import Tokenizer

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>")
MAX_NATS = 700.0  # nats a token: e to this is still a number
EVALUATION_SEED = 0  # of the masks in evaluation: always the same


@dataclass(frozen=True)
class FilledMasks:
    """A text with masks, and for each the most probable words with their probabilities."""

    text: str
    blanks: tuple[tuple[tuple[str, float], ...], ...]


@dataclass(frozen=True)
class MLMStats:
    """The cost of a document: nats, number and correct predictions of its masked tokens, and the
    same of the next-sentence prediction of its rows."""

    nats: float = 0.0
    hidden: float = 0.0
    right: float = 0.0
    next_nats: float = 0.0
    rows: float = 0.0
    next_right: float = 0.0


@dataclass(frozen=True)
class MLMVocabulary(LabelSpace):
    """The vocabulary of a masked LM, and whether it has a next-sentence head."""

    tokenizer: "Tokenizer" = field()
    follows: bool = True
    shared: bool = True

    @property
    def size(self) -> tuple[int, bool]:
        """The vocabulary size, and whether there is a next-sentence head."""
        return len(self.tokenizer), self.follows

    def to_json(self) -> JsonObject:
        return {"tokenizer": json.loads(self.tokenizer.to_json()), "next": self.follows}


def require_mask(text: str, where: str) -> str:
    """Return the text, or raise a UserError if it has words but no mask."""
    if text.strip() and not MASK_PATTERN.search(text):
        others = f", or {SKIP_HINT}" if ":" in where else ""  # of a file
        raise UserError(
            f"{where}: there is nothing to fill in. Write [MASK] or <mask> in the place of a "
            f"word{others}."
        )
    return text


@register("task", "masked")
class MaskedLM(Task[MLMVocabulary]):
    """Predict masked words of documents (Devlin et al. 2019); labels are ignored.

    A row has `window` tokens, in the last `long_fraction` of training `long_window`. The fraction
    `mask_fraction` of its tokens is chosen: 80 % are masked, 10 % replaced, 10 % kept; with
    `whole_words`, all tokens of a word. With `next_sentence` a row has two segments, and whether
    the second follows the first is predicted; `short_fraction` of such rows is shorter on purpose.
    Without it, a row is one segment.
    """

    head = "masked"
    metric = "perplexity"
    read_mode: ReadMode = "documents"
    has_references = True
    has_target_tokenizer = True

    def __init__(
        self,
        tokenizer: Section | None = None,
        window: int = 128,
        long_window: int = 512,
        long_fraction: float = 0.0,
        mask_fraction: float = 0.15,
        short_fraction: float = 0.1,
        next_sentence: bool = True,
        whole_words: bool = False,
    ) -> None:
        for name, size in (("window", window), ("long_window", long_window)):
            if size < 8:
                raise UserError(f"task.{name} should be 8 or more, got {size}.")
        for name, value in (
            ("long_fraction", long_fraction),
            ("mask_fraction", mask_fraction),
            ("short_fraction", short_fraction),
        ):
            if not 0 <= value <= 1:
                raise UserError(f"task.{name} should be from 0 to 1, got {value}.")
        if not 0 < mask_fraction < 1:
            raise UserError(
                f"task.mask_fraction should be above 0 and below 1, got {mask_fraction}."
            )
        self.tokenizer, self.next, self.whole_words = tokenizer or {}, next_sentence, whole_words
        self.window, self.long_window, self.long_share = window, long_window, long_fraction
        self.share, self.short = mask_fraction, short_fraction

    @property
    def longest(self) -> int:
        """The widest window that the model must read."""
        return max(self.window, self.long_window) if self.long_share else self.window

    def target_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        """Yield every line of the documents."""
        return (line for example in examples for line in example.text.split("\n"))

    def text_space(self, examples: Iterable[Example], tokenizer: "Tokenizer") -> MLMVocabulary:
        """Return the vocabulary, or raise a UserError if it has no mask token."""
        if tokenizer.mask is None:
            path, kind = self.tokenizer.get("path"), self.tokenizer.get("kind")
            name = f"{path}: this tokenizer" if path else f"The tokenizer '{kind}'"
            raise UserError(
                f"{name} has neither <mask> nor [MASK], which stands for masked words. Use one "
                "that has: wordpiece, bpe or unigram."
            )
        return MLMVocabulary(tokenizer, self.next)

    def model_input(self, one: str | Example, space: MLMVocabulary, where: str) -> str:
        """Return the text with masks for the engine."""
        if isinstance(one, str):
            return require_mask(one, where)
        return require_mask(one.text, one.where if one.file else where)

    def load_space(self, saved: Saved) -> MLMVocabulary:
        from weft.tokens.tokenizer import Tokenizer

        try:
            text = json.dumps(saved["tokenizer"], ensure_ascii=False)
            return MLMVocabulary(Tokenizer.from_json(text), bool(saved["next"]))
        except (KeyError, TypeError) as error:
            raise UserError(f"The model's words are damaged: {error!r}. Train again.") from error

    def masking(
        self, space: MLMVocabulary, frame: "SpecialTokens", phases: bool = True
    ) -> "Masking":
        """Return the masking rules; without `phases`, those of evaluation."""
        from weft.batch.mlm_collator import Masking

        assert space.tokenizer.mask is not None
        return Masking(
            space.tokenizer.mask, space.tokenizer.ordinary, frame, self.window, self.share,
            self.whole_words, self.next, self.short, self.long_window,
            self.long_share if phases else 0.0,
        )  # fmt: skip

    def target(self, example: Example, space: MLMVocabulary) -> int:
        return 0  # it is drawn anew whenever the document is read

    def find_reference(self, example: Example) -> None:
        """Return None: a document has no reference but its text."""

    def golden_input(self, example: Example) -> str:
        """Return the first words of a document, one of them masked."""
        words = example.text.split("\n")[0].split()[:40]
        if words:
            words[len(words) // 2] = "[MASK]"
        return " ".join(words)

    def loss(self, scores: HeadLoss, batch: "LabelledBatch") -> Loss:
        return Loss(*scores.loss(batch.target))

    def score_texts(
        self, engine: Engine, texts: Iterable[str], space: MLMVocabulary
    ) -> Iterator[MLMStats]:
        """Return the statistics of each document, with the same tokens masked every time."""
        return engine.score_masked(texts, self, space)

    def answers(
        self, scores: Sequence[FilledMasks | MLMStats], space: MLMVocabulary
    ) -> list[Answer]:
        """Return texts with masks filled in, or the perplexities of scored documents."""
        return [
            _perplexity_answer(one) if isinstance(one, MLMStats) else fill_answer(one)
            for one in scores
        ]

    def predict_targets(
        self, scores: Sequence[MLMStats], space: MLMVocabulary
    ) -> Sequence[MLMStats]:
        return scores

    def build_metric(self, space: MLMVocabulary) -> "MLMMetric":
        return MLMMetric(space.follows)


class MLMMetric(SentenceMetric):
    """Perplexity and accuracy of masked tokens and, with a next-sentence head, its accuracy and
    loss. The interval is over documents."""

    def __init__(self, follows: bool = True) -> None:
        super().__init__(6, follows)
        self.follows = follows

    def add(self, predicted: Sequence[MLMStats], gold: Sequence[None] = ()) -> None:
        """Add the statistics of documents."""
        for one in predicted:
            self.add_row([one.nats, one.hidden, one.right, one.next_nats, one.rows, one.next_right])

    def statistics(self) -> Mapping[str, Statistic]:
        statistics: dict[str, Statistic] = {
            "perplexity": lambda sums: np.exp(
                np.minimum(safe_divide(sums[:, 0], sums[:, 1]), MAX_NATS)
            ),
            "accuracy": lambda sums: safe_divide(sums[:, 2], sums[:, 1]),
        }
        if self.follows:
            statistics["next_accuracy"] = lambda sums: safe_divide(sums[:, 5], sums[:, 4])
            statistics["next_loss"] = lambda sums: safe_divide(sums[:, 3], sums[:, 4])
        return statistics


def _perplexity_answer(stats: MLMStats) -> Answer:
    nats = stats.nats / max(stats.hidden, 1.0)
    value = float(np.exp(min(nats, MAX_NATS)))
    return Answer(value, value)


def fill_answer(filled: FilledMasks) -> Answer:
    """Return the text with the best word at every mask; word pieces join the text before them."""
    best = [words[0] for words in filled.blanks]
    parts = MASK_PATTERN.split(filled.text)
    value = parts[0]
    for (word, _), rest in zip(best, parts[1:], strict=True):
        value = value.rstrip() + word[2:] if word.startswith("##") else value + word
        value += rest
    probs = [prob for _, prob in best]
    score = float(np.exp(np.log(np.maximum(probs, 1e-300)).mean())) if best else 1.0
    first = tuple(prob for _, prob in filled.blanks[0]) if best else ()
    return Answer(value, score, scores=first, tokens=tuple(best), blanks=filled.blanks)
