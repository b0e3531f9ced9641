"""The measures of answers that are texts, by the names that task.metrics has for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import unknown_name
from weft.metrics.generation.slots import Rules, SlotErrors
from weft.metrics.per_sentence import SentenceMeasure, Together
from weft.metrics.value import Figure
from weft.tasks.target_vocabulary import Words
from weft.text.formats.records import Record

# The figure that early stopping looks at when a measure comes first.
MAIN = {
    "bleu": "bleu",
    "bleu-lower": "bleu_lower",
    "bleu-tokenised": "bleu_tokenised",
    "chrf": "chrf",
    "rouge": "rougeL",
    "exact": "exact_match",
    "nist": "nist",
    "rouge-l": "rouge_l",
    "cider": "cider",
    "slots": "faultless",
    "restaurants": "faultless",
}


@dataclass(frozen=True)
class Right:
    """What is right for one source: texts, and the record that they should say."""

    texts: tuple[str, ...]
    record: Record


class RecordErrors(SlotErrors):
    """Slot errors by rules that know the names of every record that was measured."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules)
        self.pairs: list[tuple[str, Record]] = []

    def add(self, predicted: Sequence[str], gold: Sequence[Record]) -> None:
        """Keep texts, each with the record that it should say."""
        self.pairs.extend(zip(predicted, gold, strict=True))

    def merge(self, other: "RecordErrors") -> None:
        self.pairs.extend(other.pairs)

    @property
    def n(self) -> int:
        return len(self.pairs)

    def table(self) -> np.ndarray:
        whole = SlotErrors(self.rules.with_names(record for _, record in self.pairs))
        whole.add([text for text, _ in self.pairs], [record for _, record in self.pairs])
        return np.array(whole.rows, dtype=float).reshape(-1, self.width)


class TextMeasure:
    """Answers against texts, by several measures at once."""

    def __init__(self, space: Words, names: Sequence[str] = ("bleu", "chrf", "exact")) -> None:
        self.space = space
        self.measures = [_MADE[checked(name)]() for name in names]
        self.figures_of = Together(*self.measures)

    def add(self, predicted: Sequence[str], gold: Sequence[Any]) -> None:
        """Count answers against texts, lists of them, records, or tables of ids."""
        right = [_right(one, self.space) for one in gold]
        texts = [one.texts for one in right]
        for each in self.measures:
            known = [one.record for one in right] if isinstance(each, RecordErrors) else texts
            each.add(list(predicted), known)

    def merge(self, other: "TextMeasure") -> None:
        self.figures_of.merge(other.figures_of)

    @property
    def n(self) -> int:
        return self.figures_of.n

    @property
    def signatures(self) -> list[str]:
        """What others need to repeat the figures, where a measure has such a line."""
        found = (getattr(each, "signature", "") for each in self.measures)
        return [line for line in found if line]

    def figures(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Figure]:
        return self.figures_of.figures(resamples, seed, level)


def checked(name: str) -> str:
    """The name itself, when it is a measure."""
    if name not in MAIN:
        raise unknown_name("measure", name, MAIN, "task.metrics")
    return name


def _right(one: Any, space: Words) -> Right:
    if isinstance(one, Right):
        return one
    texts = (one,) if isinstance(one, str) else one
    return Right(texts if isinstance(texts, tuple) else (space.text(texts),), {})


def _bleu(lowercase: bool = False, tokenize: str = "13a", name: str = "bleu") -> SentenceMeasure:
    from weft.metrics.generation.text_overlap import Bleu

    return Bleu(lowercase, tokenize, name)


def _of(module: str, kind: str) -> Callable[[], SentenceMeasure]:
    def made() -> SentenceMeasure:
        from importlib import import_module

        return getattr(import_module(f"weft.metrics.generation.{module}"), kind)()

    return made


def _restaurants() -> SentenceMeasure:
    from weft.metrics.generation.e2e_slots import RULES

    return RecordErrors(RULES)


_MADE: dict[str, Callable[[], SentenceMeasure]] = {
    "bleu": _bleu,
    "bleu-lower": lambda: _bleu(True, name="bleu_lower"),
    "bleu-tokenised": lambda: _bleu(True, "none", "bleu_tokenised"),
    "chrf": _of("text_overlap", "Chrf"),
    "rouge": _of("rouge", "Rouge"),
    "exact": _of("text_overlap", "ExactMatch"),
    "nist": _of("nist", "Nist"),
    "rouge-l": _of("coco", "CaptionRouge"),
    "cider": _of("coco", "Cider"),
    "slots": lambda: RecordErrors(Rules()),
    "restaurants": _restaurants,
}
