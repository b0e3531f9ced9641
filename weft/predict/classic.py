"""The engine of classical models."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.predict.predictor import EngineOutput
from weft.protocols import LabelSpace
from weft.tasks.annotation import Decoded
from weft.text.example import Example
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, Policy, shorten_text


class ClassicEngine:
    """Wraps a classical model as an Engine."""

    def __init__(
        self,
        part: Any,
        space: LabelSpace,
        characters: int = DEFAULT_MAX_CHARACTERS,
        policy: Policy = "head",
    ) -> None:
        self.part, self.space = part, space
        # What answers for words, or foretells them, goes through a text word by word.
        by_word = getattr(part, "is_structured", False) or getattr(part, "task", "") == "language"
        self.characters, self.policy = 0 if by_word else characters, policy
        if hasattr(part, "states"):
            self.states = part.states

    def scores(self, texts: Sequence[str | Example], parts: bool = False) -> EngineOutput:
        """Return the scores of each text; only taggers give a weight per word."""
        cut = [
            truncate_text(one, self.characters, self.policy, f"text {i}")
            for i, one in enumerate(texts, 1)
        ]
        texts = [one for one, _ in cut]
        shares = np.array([share for _, share in cut])
        covered = np.array([1.0 if _text(one).strip() else 0.0 for one in texts]) * shares
        read = covered
        if hasattr(self.part, "coverage") and not getattr(self.part, "pairs", False):
            covered = self.part.coverage([_text(one) for one in texts]) * shares
        if getattr(self.part, "task", "") == "language":
            plain = [_text(one) for one in texts]
            assert self.space.tokenizer is not None, "a language model has one"
            covered = self.space.tokenizer.known_fraction(plain)
            found: Any = list(self.likelihoods(plain))
        else:
            found = self.part.scores(texts)
        if not isinstance(found, list):
            return EngineOutput(found, covered, read=read)
        return EngineOutput(found, covered, [_word_weights(one) for one in found], read)

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        """Yield the token probabilities of each text, for language models."""
        return self.part.likelihoods(texts, self.space, running)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        cut = (truncate_text(one, self.characters, self.policy)[0] for one in texts)
        return self.part.embed([_text(one) for one in cut])

    def save(self, folder: Path) -> None:
        self.part.save(folder)

    @property
    def parameters(self) -> int:
        return self.part.parameters()


def truncate_text(
    one: str | Example, most: int, policy: Policy, where: str = ""
) -> tuple[str | Example, float]:
    """Truncate a text or a pair to so many characters each; return the fraction kept, too."""
    longest = max(len(_text(one)), len(getattr(one, "other", None) or ""))
    if not most or longest <= most:
        return one, 1.0
    if isinstance(one, str):
        text, _, left = shorten_text(one, most, policy, where)
        return text, 1 - left / len(one)
    text, _, left = shorten_text(one.text, most, policy, one.where if one.file else where)
    other, whole = one.other, len(one.text)
    if other is not None:
        other, _, more = shorten_text(other, most, policy, one.where if one.file else where)
        whole, left = whole + len(one.other or ""), left + more
    return replace(one, text=text, other=other), 1 - left / whole


def _text(one: str | Example) -> str:
    return one if isinstance(one, str) else one.text


def _word_weights(found: Decoded) -> tuple[tuple[int, int, float], ...]:
    """Return the offsets of the words, each with the lowest probability of its tags."""
    chances = found.probs.min(1).tolist()
    return tuple((*place, chance) for place, chance in zip(found.places, chances, strict=True))
