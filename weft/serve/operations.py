"""The operations on a model that the compute thread runs; all of them call the Predictor."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.tasks.task import Answer
from weft.text.example import Example

if TYPE_CHECKING:  # both import torch, which exports are served without
    from weft.explain.run import ExplainRun
    from weft.predict.generate import Generation, Generator

GENERATING_TASKS = ("language", "seq2seq")


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


@dataclass(frozen=True)
class Explain:
    """The words that one answer rests on, as in `weft explain`."""

    predictor: Predictor = field(hash=False)
    model: str
    method: str
    target: str
    word: str
    column: str

    batchable = False  # hundreds of variants of one text are a batch already

    @property
    def cost_key(self) -> tuple[str, str]:
        return self.model, "explain"

    def run(self, inputs: Sequence[Any]) -> "list[ExplainRun]":
        from weft.explain.run import run_explain

        return [
            run_explain(
                self.predictor, [_as_example(one)], method=self.method,
                target=self.target or None, compare=False, word=self.word, column=self.column,
            )
            for one in inputs
        ]  # fmt: skip


@dataclass(frozen=True)
class Write:
    """Generated texts, best first for each prompt."""

    generator: "Generator" = field(hash=False)
    model: str
    version: int
    settings: SearchSettings
    prefix: str

    @property
    def batchable(self) -> bool:
        """True unless the place of a prompt in the batch decides what is drawn for it."""
        return self.settings.method != "sample"

    @property
    def cost_key(self) -> tuple[str, str]:
        return self.model, "generate"

    def run(self, inputs: Sequence[Any]) -> "list[list[Generation]]":
        return self.generator.write(inputs, self.settings, prefix=self.prefix)


def make_generator(predictor: Predictor) -> "Generator | None":
    """Return a generator, or None for a model that does not generate."""
    if predictor.config["task"]["kind"] not in GENERATING_TASKS:
        return None
    try:
        from weft.predict.generate import Generator

        return Generator(predictor)
    except (UserError, ImportError):  # an export where torch is not installed
        return None


def _as_example(one: Any) -> Example:
    if isinstance(one, Example):
        return one
    if isinstance(one, np.ndarray):
        return Example("", vectors=one)
    if isinstance(one, Mapping):
        return Example(json.dumps(one, ensure_ascii=False))
    return Example(one) if isinstance(one, str) else Example(one[0], other=one[1])


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
