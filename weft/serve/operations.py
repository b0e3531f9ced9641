"""The operations on a model that the compute thread runs; all of them call the Predictor."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.tasks.task import Answer


@dataclass(frozen=True)
class Predict:
    """Answers of the model, with the options of `weft predict`."""

    predictor: Predictor = field(hash=False)
    model: str
    version: int  # of the model: a reloaded one is not batched with the one before
    weights: bool = False
    abstain_at: float | None = None
    label_sets: float | None = None

    batchable = True

    @property
    def cost_key(self) -> tuple[str, str]:
        return self.model, "predict"

    def run(self, inputs: Sequence[Any]) -> list[Answer]:
        return self.predictor(
            inputs, parts=self.weights, abstain_at=self.abstain_at, label_sets=self.label_sets
        )


@dataclass(frozen=True)
class Embed:
    """Sentence vectors, with the number of tokens of each text."""

    predictor: Predictor = field(hash=False)
    model: str
    version: int

    batchable = True

    @property
    def cost_key(self) -> tuple[str, str]:
        return self.model, "embed"

    def run(self, inputs: Sequence[Any]) -> list[tuple[np.ndarray, int]]:
        vectors = self.predictor.embed(inputs)
        return list(zip(vectors, count_tokens(self.predictor, inputs), strict=True))


def count_tokens(predictor: Predictor, inputs: Sequence[Any]) -> list[int]:
    """Return the number of tokens of each text or pair."""
    texts = [one if isinstance(one, str) else " ".join(one) for one in inputs]
    return predictor.engine.count_tokens(texts)


def can_embed(predictor: Predictor) -> bool:
    """Return True if the model has a vector for a whole text."""
    if predictor.engine.input_kind == "vectors":
        return False
    try:
        predictor.embed([("a", "b")] if predictor.pairs else ["a"])
    except (UserError, NotImplementedError):
        return False
    return True
