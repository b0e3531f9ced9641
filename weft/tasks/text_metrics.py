"""Metrics of generated text, by the names used in task.metrics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import unknown_name
from weft.metrics.generation.slots import SlotErrors, SlotRules
from weft.metrics.per_sentence import CombinedMetric, SentenceMetric
from weft.metrics.value import MetricValue
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.text.formats.records import Record

# The value that early stopping reads when a metric comes first.
MAIN_METRICS = {
    "bleu": "bleu",
    "bleu-lower": "bleu_lower",
    "bleu-tokenised": "bleu_tokenised",
    "chrf": "chrf",
    "rouge": "rougeL",
    "exact": "exact_match",
    "nist": "nist",
    "rouge-l": "rouge_l",
    "cider": "cider",
    "wer": "wer",
    "cer": "cer",
    "slots": "faultless",
    "restaurants": "faultless",
    "joint": "joint_goal_accuracy",
    "distinct": "distinct2",
}


@dataclass(frozen=True)
class GoldTexts:
    """The references of one source: texts, and the record that they should express."""

    texts: tuple[str, ...]
    record: Record


Gold = GoldTexts | tuple[str, ...] | str | np.ndarray  # what an answer is compared with


class RecordSlotErrors(SlotErrors):
    """Slot errors by rules that know the names of every record that was measured."""

    def __init__(self, rules: SlotRules) -> None:
        super().__init__(rules)
        self.pairs: list[tuple[str, Record]] = []

    def add(self, predicted: Sequence[str], gold: Sequence[Record]) -> None:
        """Keep texts, each with the record that it should say."""
        self.pairs.extend(zip(predicted, gold, strict=True))

    def merge(self, other: "RecordSlotErrors") -> None:
        self.pairs.extend(other.pairs)

    @property
    def n(self) -> int:
        return len(self.pairs)

    def table(self) -> np.ndarray:
        whole = SlotErrors(self.rules.with_names(record for _, record in self.pairs))
        whole.add([text for text, _ in self.pairs], [record for _, record in self.pairs])
        return np.array(whole.rows, dtype=float).reshape(-1, self.width)


class TextMetrics:
    """Several text metrics of the same answers."""

    def __init__(
        self, space: TargetVocabulary, names: Sequence[str] = ("bleu", "chrf", "exact")
    ) -> None:
        self.space = space
        self.metrics = [_BUILDERS[check_name(name)]() for name in names]
        self.combined = CombinedMetric(*self.metrics)

    def add(self, predicted: Sequence[str], gold: Sequence[Gold]) -> None:
        """Count answers against references, one or several each, records, or tables of ids."""
        right = [_as_gold(one, self.space) for one in gold]
        texts = [one.texts for one in right]
        for each in self.metrics:
            known = [one.record for one in right] if isinstance(each, RecordSlotErrors) else texts
            each.add(list(predicted), known)

    def merge(self, other: "TextMetrics") -> None:
        self.combined.merge(other.combined)

    @property
    def n(self) -> int:
        return self.combined.n

    @property
    def signatures(self) -> list[str]:
        """Lines that let others reproduce the metrics, where a metric has one."""
        return [each.signature for each in self.metrics if each.signature]

    def compute(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, MetricValue]:
        return self.combined.compute(resamples, seed, level)


def check_name(name: str) -> str:
    """The name itself, when it is a measure."""
    if name not in MAIN_METRICS:
        raise unknown_name("measure", name, MAIN_METRICS, "task.metrics")
    return name


def _as_gold(one: Gold, space: TargetVocabulary) -> GoldTexts:
    if isinstance(one, GoldTexts):
        return one
    texts = (one,) if isinstance(one, str) else one
    return GoldTexts(texts if isinstance(texts, tuple) else (space.text(texts),), {})


def _bleu(lowercase: bool = False, tokenize: str = "13a", name: str = "bleu") -> SentenceMetric:
    from weft.metrics.generation.text_overlap import Bleu

    return Bleu(lowercase, tokenize, name)


def _lazy(module: str, kind: str) -> Callable[[], SentenceMetric]:
    def build() -> SentenceMetric:
        from importlib import import_module

        metric: SentenceMetric = vars(import_module(f"weft.metrics.generation.{module}"))[kind]()
        return metric

    return build


def _restaurants() -> SentenceMetric:
    from weft.metrics.generation.e2e_slots import RULES

    return RecordSlotErrors(RULES)


_BUILDERS: dict[str, Callable[[], SentenceMetric]] = {
    "bleu": _bleu,
    "bleu-lower": lambda: _bleu(True, name="bleu_lower"),
    "bleu-tokenised": lambda: _bleu(True, "none", "bleu_tokenised"),
    "chrf": _lazy("text_overlap", "Chrf"),
    "rouge": _lazy("rouge", "Rouge"),
    "exact": _lazy("text_overlap", "ExactMatch"),
    "nist": _lazy("nist", "Nist"),
    "rouge-l": _lazy("coco", "CocoRouge"),
    "cider": _lazy("coco", "Cider"),
    "wer": _lazy("error_rates", "WordErrors"),
    "cer": _lazy("error_rates", "CharacterErrors"),
    "slots": lambda: RecordSlotErrors(SlotRules()),
    "restaurants": _restaurants,
    "joint": _lazy("dialogue", "StateAccuracy"),
    "distinct": _lazy("dialogue", "Distinct"),
}
