"""An explanation: the words of a text with their weights for the predicted target.

C scores
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.errors import UserError, near_miss
from weft.notebook import HtmlRepr
from weft.predict.predictor import Predictor
from weft.tasks.regress import VectorScale
from weft.tasks.task import Answer

NUMBER_TARGET = "number"  # the target of a model that answers with one

SHOWN_WORDS = 3  # in a repr
WordProbs = list[list[tuple[str, float]]]  # of each word what is said, then the rest by chance


@dataclass(frozen=True)
class WordWeight:
    """A word's place in the text and its weight: above 0 it speaks for the target."""

    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class ExplainedWord:
    """The explained word, or the root of a tree, with its prediction and the alternatives."""

    step: int  # the word's number, from 0; -1 a whole tree, a bracket or an answer
    name: str  # the word itself
    column: str  # what is said of it: upos, head, label …
    predicted: str
    probs: tuple[tuple[str, float], ...]  # of what is said, then of the rest, falling
    gold: str = ""  # what is right, where that is known
    start: int = -1  # where the word begins in the text of the explanation
    span: tuple[int, int] | None = None  # of a bracket: its words, from and up to
    # Symbolic features of the word, strongest first: weight for the target less the others' mean.
    features: tuple[tuple[str, float], ...] = ()

    @property
    def title(self) -> str:
        """The word in quotation marks; what is no part of the text by its name."""
        return f"“{self.name}”" if self.step >= 0 or self.span else self.name.capitalize()

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {
            "number": self.step + 1, "word": self.name, "column": self.column,
        }  # fmt: skip
        if self.span:
            out["span"] = [self.span[0] + 1, self.span[1]]
        right: dict[str, object] = {"gold": self.gold} if self.gold else {}
        if self.features:
            right["features"] = [list(feature) for feature in self.features]
        return {**out, "value": self.predicted, "chances": [list(c) for c in self.probs], **right}


@dataclass(frozen=True, repr=False)
class Explanation(HtmlRepr):
    """The words of one text that the model read, weighed by one method for one target."""

    text: str
    answer: Answer
    target: str
    method: str
    words: tuple[WordWeight, ...]
    at: ExplainedWord | None = (
        None  # what is explained, where it is not the answer about the whole text
    )
    second: int = 0  # where the second of two texts begins in the text

    def __repr__(self) -> str:
        best = (
            f"{self.text[w.start : w.end]} {w.weight:+.3g}" for w in self.strongest(SHOWN_WORDS)
        )
        return f"Explanation({self.target} by {self.method}: {', '.join(best) or 'no words'})"

    @property
    def sure(self) -> float:
        """The model's confidence in its prediction for the text, or for the explained word."""
        return self.answer.score if self.at is None else dict(self.at.probs)[self.at.predicted]

    def strongest(self, count: int) -> list[WordWeight]:
        """The words with the largest weights of either sign."""
        return sorted(self.words, key=lambda word: -abs(word.weight))[:count]

    def to_json(self) -> dict[str, object]:
        value = self.answer.value
        return {
            "text": self.text,
            "value": list(value) if isinstance(value, tuple) else value,
            "score": self.answer.score,
            "coverage": self.answer.coverage,
            "target": self.target,
            "method": self.method,
            "words": [[word.start, word.end, word.weight] for word in self.words],
            **({"second": self.second} if self.second else {}),
            **({"at": self.at.to_json()} if self.at else {}),
            **({"blanks": self.answer.blanks} if self.answer.blanks else {}),
        }


class Explanations(list[Explanation], HtmlRepr):
    """The explanations of several texts; notebooks show one under the other."""


@dataclass(frozen=True)
class Target:
    """The explained target: one label out of C, or the number.

    Of classes that exclude each other it is the target's score less the mean of the others': a
    softmax does not see a constant added to all scores, so neither should an explanation. With
    two classes that is the log-odds. Labels that come in sets have a score each, explained alone.
    """

    name: str
    index: int
    size: int
    alone: bool

    @cached_property
    def direction(self) -> np.ndarray:
        """(C,) coefficients of the scores: scores · direction is what the weights are shares of."""
        rest = 0.0 if self.alone else -1 / (self.size - 1)
        out = np.full(self.size, rest, np.float32)
        out[self.index] = 1
        return out

    def prob(self, answer: Answer) -> float:
        """Return the probability of the target in an answer, or the predicted number."""
        if answer.scores:
            return answer.scores[self.index]
        value = answer.value
        return float(value[self.index] if isinstance(value, tuple) else value)


def make_target(predictor: Predictor, name: str | None, answer: Answer) -> Target:
    """The target called `name`, or for None what was answered; of several labels the first."""
    labels = predictor.class_labels
    if isinstance(predictor.space, VectorScale):
        dimensions = predictor.space.dimensions
        if name is not None and name not in dimensions:
            raise UserError(
                f"This model answers with {len(dimensions)} numbers, so there is no label "
                f"'{name}' to explain. Name one by its place, 1 to {len(dimensions)}."
            )
        index = dimensions.index(name) if name else 0
        return Target(f"{NUMBER_TARGET} {dimensions[index]}", index, len(dimensions), True)
    if not labels:
        if name not in (None, NUMBER_TARGET):
            raise UserError(
                f"This model answers with a number, so there is no label '{name}' to explain. "
                "Leave the target out."
            )
        return Target(NUMBER_TARGET, 0, 1, True)
    if name is None:
        # A threshold may have decided for the less probable of two labels.
        decided = answer.value if predictor.space.positive else ""
        index = labels.index(decided) if decided else int(np.argmax(answer.scores))
    elif name in labels:
        index = labels.index(name)
    else:
        shown = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
        raise UserError(
            f"Unknown target '{name}'.{near_miss(name, labels)} The model's labels: {shown}."
        )
    return Target(labels[index], index, len(labels), predictor.task.multi_label)
