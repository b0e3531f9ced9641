"""A text answered with a text: translation, summaries, what a record says in words.

T words of an answer, with the one that ends it
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import registry
from weft.errors import UserError
from weft.measure.figure import Figure
from weft.registry import register
from weft.tasks.structure import Found
from weft.tasks.task import Answer, Labels, Loss
from weft.text.example import Example
from weft.tokens.vocabulary import BOS, EOS

if TYPE_CHECKING:
    from weft.batch import Labelled
    from weft.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Words:
    """What answers are written with: the tokenizer of the target, or of both sides."""

    tokenizer: "Tokenizer"
    shared: bool = False
    width: int = 1  # a target is a table of one column

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """How many tokens there are, and which begin and end a text.

        A tokenizer of whole words has none of its own for that; those come after its words.
        """
        known = {token: i for i, token in enumerate(self.tokenizer.vocabulary)}
        size, ends = len(known), []
        for token in (BOS, EOS):
            ends.append(known.get(token, size))
            size += token not in known
        return size, ends[0], ends[1]

    def text(self, ids: np.ndarray) -> str:
        """The text of some ids, up to the one that ends it."""
        kept, last = ids.ravel().tolist(), self.size[2]
        kept = kept[: kept.index(last)] if last in kept else kept
        return self.tokenizer.decode(id for id in kept if id < len(self.tokenizer))

    def to_json(self) -> dict[str, Any]:
        return {"tokenizer": json.loads(self.tokenizer.to_json()), "shared": self.shared}


@register("task", "seq2seq")
class Seq2Seq:
    """A text for a text; the label of an example is what it should become.

    The target is cut by the tokenizer of [target], or with `shared` by one that learns both sides.
    `smoothing` spreads that share of the right answer over all words; `sampling` is the share of
    inputs that are the model's own words while it learns.
    """

    head = "sequence"
    metric = "bleu"
    higher_is_better = True
    tuned = False

    def __init__(
        self,
        tokenizer: dict[str, Any] | None = None,
        shared: bool = False,
        smoothing: float = 0.0,
        sampling: float = 0.0,
    ) -> None:
        for name, value in (("smoothing", smoothing), ("sampling", sampling)):
            if not 0 <= value < 1:
                raise UserError(f"task.{name} should be from 0 to below 1, got {value}.")
        self.tokenizer, self.shared = tokenizer or {}, shared
        self.smoothing, self.sampling = smoothing, sampling

    def space(self, examples: Iterable[Example]) -> Words:
        """Learn the tokenizer of the target, or of both sides."""
        kind = registry.build("tokenizer", self.tokenizer)
        watch = Labels("target text")

        def texts() -> Iterator[str]:
            for example in examples:
                if watch.count(example):
                    yield _said(example)
                    if self.shared:
                        yield example.text

        try:
            made = kind.train(texts())
        except UserError:
            if watch.first is not None:
                watch.check()  # that there is no text to learn is what was wrong
            raise
        watch.check()
        return Words(made, self.shared)

    def load_space(self, saved: dict[str, Any]) -> Words:
        from weft.tokens.tokenizer import Tokenizer

        try:
            text = json.dumps(saved["tokenizer"], ensure_ascii=False)
            return Words(Tokenizer.from_json(text), bool(saved["shared"]))
        except (KeyError, TypeError) as error:
            raise UserError(f"The target's words are damaged: {error!r}. Train again.") from error

    def target(self, example: Example, space: Words) -> np.ndarray:
        """(T, 1) the ids of the answer and the one that ends it."""
        (ids,) = space.tokenizer.ids([_said(example)])
        return np.append(ids, space.size[2]).astype(np.int64)[:, None]

    def loss(self, scores: Any, batch: "Labelled") -> Loss:
        return Loss(*scores.loss(batch.target, self.smoothing, self.sampling))

    def answers(self, scores: Sequence[Found], space: Words) -> list[Answer]:
        """Each text with the mean probability of its words."""
        return [self._answer(found, space) for found in scores]

    def _answer(self, found: Found, space: Words) -> Answer:
        chances = tuple(found.chances.ravel().tolist())
        return Answer(space.text(found.table), found.score, scores=chances)

    def right(self, example: Example) -> str:
        """The answer that is right, as it stands in the file: no word of it is unknown."""
        return _said(example)

    def predicted(self, scores: Sequence[Found], space: Words) -> list[str]:
        return [space.text(found.table) for found in scores]

    def tune(self, scores: Any, targets: Any, space: Words) -> Words:
        return space

    def measure(self, space: Words) -> "TextMeasure":
        return TextMeasure(space)


class TextMeasure:
    """BLEU and chrF as sacrebleu has them, and answers that are right to the letter."""

    def __init__(self, space: Words) -> None:
        from weft.measure.generation import Bleu, Chrf, ExactMatch
        from weft.measure.rows import Together

        self.space = space
        self.figures_of = Together(Bleu(), Chrf(), ExactMatch())

    def add(self, predicted: Sequence[str], gold: Sequence[Any]) -> None:
        """Count answers against texts, or against tables of ids."""
        texts = [one if isinstance(one, str) else self.space.text(one) for one in gold]
        self.figures_of.add(list(predicted), texts)

    def merge(self, other: "TextMeasure") -> None:
        self.figures_of.merge(other.figures_of)

    @property
    def n(self) -> int:
        return self.figures_of.n

    def figures(
        self, resamples: int = 1000, seed: int = 0, level: float = 0.95
    ) -> dict[str, Figure]:
        return self.figures_of.figures(resamples, seed, level)


def _said(example: Example) -> str:
    if isinstance(example.label, tuple):
        return str(example.label[0])
    if not isinstance(example.label, str) or not example.label.strip():
        raise UserError(
            f"{example.where}: there is no text to learn. Pass --label with the column that holds "
            "it, or data.target with the ending of the file beside this one."
        )
    return example.label
