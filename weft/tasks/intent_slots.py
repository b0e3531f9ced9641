"""Joint intent classification and slot filling: a label of each sentence, and spans in it.

T words
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.metrics.structure.intent_slots import IntentSlotMetric
from weft.protocols import Section
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.tag import Tag, all_tags
from weft.tasks.tag_vocabulary import TagSpace, decode_tags, read_column, require_annotations
from weft.tasks.task import Answer, Loss
from weft.text.annotation import schemes
from weft.text.example import Example

if TYPE_CHECKING:
    from weft.batch import LabelledBatch
    from weft.decode.heads.intent_slots import IntentSlotOutput

INTENT = "intent"  # the second column of the label space
FORMATS_HELP = (
    'Give JSON lines {"tokens": […], "tags": […], "label": …}, a folder with seq.in, seq.out and '
    "label, or columns with a `# intent = …` comment before each sentence."
)


@register("task", "intent-slots")
class IntentSlots(Tag):
    """An intent of each sentence, and the slots in it: spans of words with a label.

    Both come from the states of one encoder. The loss is −log p(slots) − w log p(intent), w the
    `intent_weight`: with 1, that of both answers together. `scheme`, `invalid` and `learn` are
    those of the task 'tag'.
    """

    head = "intent-slots"
    metric = "exact_match"
    has_classes = False

    def __init__(
        self,
        columns: list[str] = [],  # noqa: B006 -- never changed; a list is what a config holds
        scheme: str = "",
        invalid: str = "repair",
        learn: str = "BIOES",
        intent_weight: float = 1.0,
    ) -> None:
        if len(columns) > 1:
            raise UserError(
                f"task 'intent-slots': slots are one column of tags, not {len(columns)}: "
                f"{', '.join(columns)}. Name one."
            )
        if not 0 < intent_weight < math.inf:
            raise UserError(
                f"task 'intent-slots': intent_weight is a weight above 0; got {intent_weight}."
            )
        super().__init__(columns, scheme, invalid, learn)
        self.metric, self.intent_weight = "exact_match", intent_weight

    @staticmethod
    def infer(settings: Section, examples: Iterable[Example]) -> dict[str, object]:
        """Infer the column of the slots and its scheme from the file, unless configured."""
        found = Tag.infer(settings, examples)
        if "scheme" in found and not found["scheme"]:
            raise UserError(
                "The tags mark no spans: slots are written B-…, I-… and O. To tag every word, use "
                "--recipe tagger-bilstm."
            )
        return found

    def space(self, examples: Iterable[Example]) -> TagSpace:
        """Return the tags of the slots, every mark of every label, and the intents."""
        tags: set[str] = set()
        intents: set[str] = set()
        name, where = (*self.columns, "")[0], "input"
        for example in examples:
            where = example.file or where
            name = name or require_annotations(example).main
            tags.update(read_column(example, name))
            intents.add(self._intent(example))
        if not tags:
            raise UserError(f"{where}: there are no sentences to learn from. {FORMATS_HELP}")
        if len(intents) == 1:
            (only,) = intents
            raise UserError(
                f"{where}: every sentence has the intent '{only}'; a classifier needs at least two "
                "classes. For slots alone, use --recipe tagger-bilstm-crf."
            )
        entries = (tuple(sorted(all_tags(tags, self.learn))), tuple(sorted(intents)))
        return TagSpace((name, INTENT), entries, self.learn)

    def _columns(self, example: Example, space: TagSpace) -> list[tuple[str, ...]]:
        tags = read_column(example, space.names[0])
        learned = schemes.convert(tags, self.scheme, space.scheme, "repair")
        return [tuple(learned), (self._intent(example),) * len(tags)]

    def loss(self, scores: "IntentSlotOutput", batch: "LabelledBatch") -> Loss:  # type: ignore[override]  # a head's own
        """Return the summed loss of slots and intents, and the words."""
        total, words = scores.loss(batch.target, self.intent_weight, batch.row_weights)
        return Loss(total, words if batch.row_weights is None else batch.count)

    def _answer(self, decoded: Decoded, space: TagSpace) -> Answer:
        slots, intents = decode_tags(decoded.table, space)
        seen = self._annotate(decoded.words, decoded.places, [slots], space.scheme)
        intent = intents[0] if intents else None
        sure = float(decoded.probs[0, 1]) if intents else 0.0
        probs = np.append(decoded.probs[:, 0], sure)
        score = replace(decoded, probs=probs).score if intents else 0.0
        named = replace(seen, label=intent or "", label_score=sure)
        spans = schemes.tags_to_spans(slots, space.scheme, "repair")
        value = {
            "intent": intent,
            "slots": [
                {"label": label, "start": start, "end": end, "text": " ".join(decoded.words[i:j])}
                for (start, end, label), (_, i, j) in zip(seen.spans, spans, strict=True)
            ],
        }
        return Answer(value, score, scores=tuple(probs.tolist()), structure=named)

    def gold(
        self, example: Example, space: TagSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        slots, _ = self._columns(example, space)
        seen = self._annotate(example.words, example.places, [slots], space.scheme, example.text)
        return replace(seen, label=self._intent(example))

    def build_metric(self, space: TagSpace) -> "JointMetric":  # type: ignore[override]
        return JointMetric(space)

    def _intent(self, example: Example) -> str:
        label = require_annotations(example).label
        if not label:
            raise UserError(f"{example.sentence_where}: no intent. {FORMATS_HELP}")
        return label


class JointMetric(IntentSlotMetric):
    """The metrics of targets (T, 2): tags of the slots, and the intent at every word."""

    def __init__(self, space: TagSpace) -> None:
        super().__init__()
        self.space = space

    def add(self, predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> None:
        for ours, theirs in zip(predicted, gold, strict=True):
            (mine, my_intents), (right, intents) = (
                decode_tags(table, self.space) for table in (ours, theirs)
            )
            self.add_sentence(
                ("".join(my_intents[:1]), "".join(intents[:1])),
                *(schemes.tags_to_spans(tags, self.space.scheme, "repair")
                  for tags in (mine, right)),
            )  # fmt: skip
