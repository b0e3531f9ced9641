"""The engine around a model of the generation before: it reads every text whole."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.predict.predictor import Scored
from weft.tasks.structure import Found
from weft.tasks.task import Space
from weft.text.example import Example


class Classic:
    """Gives a classic part the face of an Engine."""

    def __init__(self, part: Any, space: Space):
        self.part, self.space = part, space
        if hasattr(part, "states"):
            self.states = part.states

    def scores(self, texts: Sequence[str | Example], parts: bool = False) -> Scored:
        """Scores of each text; only a part that tags words has a weight for each of them."""
        covered = np.array([1.0 if _text(one).strip() else 0.0 for one in texts])
        read = covered
        if hasattr(self.part, "coverage") and not getattr(self.part, "pairs", False):
            covered = self.part.coverage([_text(one) for one in texts])
        if getattr(self.part, "task", "") == "language":
            plain = [_text(one) for one in texts]
            covered = self.space.tokenizer.known_fraction(plain)  # type: ignore[attr-defined]
            found: Any = list(self.likelihoods(plain))
        else:
            found = self.part.scores(texts)
        if not isinstance(found, list):
            return Scored(found, covered, read=read)
        return Scored(found, covered, [_weights(one) for one in found], read)

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Found]:
        """Of a language model: how probable each token of each text is, in order."""
        return self.part.likelihoods(texts, self.space, running)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.part.embed(texts)

    def save(self, folder: Path) -> None:
        self.part.save(folder)

    @property
    def parameters(self) -> int:
        return self.part.parameters()


def _text(one: str | Example) -> str:
    return one if isinstance(one, str) else one.text


def _weights(found: Found) -> tuple[tuple[int, int, float], ...]:
    """The words' places, each with the probability of the least probable of its tags."""
    chances = found.chances.min(1).tolist()
    return tuple((*place, chance) for place, chance in zip(found.places, chances, strict=True))
