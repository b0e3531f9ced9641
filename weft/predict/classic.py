"""The engine around a model of the generation before: it reads every text whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.predict.predictor import Scored


class Classic:
    """Gives a classic part the face of an Engine."""

    def __init__(self, part: Any):
        self.part = part
        if hasattr(part, "states"):
            self.states = part.states

    def scores(self, texts: Sequence[str], parts: bool = False) -> Scored:
        """Scores of each text; there are no weights on tokens to give back."""
        covered = np.array([1.0 if text.strip() else 0.0 for text in texts])
        return Scored(self.part.scores(texts), covered)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.part.embed(texts)

    def save(self, folder: Path) -> None:
        self.part.save(folder)

    @property
    def parameters(self) -> int:
        return self.part.parameters()
