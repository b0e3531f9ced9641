"""The engine of classical models."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.predict.output import EngineInput, EngineOutput, plain_texts, word_weights
from weft.protocols import ClassicModel, Engine, LabelSpace
from weft.tasks.annotation import Decoded
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, Policy, shorten_text

if TYPE_CHECKING:
    from weft.predict.generation.batch import TextSearch
    from weft.tasks.language import LMVocabulary
    from weft.tokens.word_segmenter import WordSegmenter


class ClassicEngine(Engine):
    """A classical model as an engine: inputs are truncated, coverage is counted."""

    def __init__(
        self,
        part: ClassicModel,
        space: LabelSpace,
        characters: int = DEFAULT_MAX_CHARACTERS,
        policy: Policy = "head",
    ) -> None:
        self.part, self.space = part, space
        # Taggers and language models read a text word by word, whatever its length.
        self.characters = 0 if part.is_structured or part.is_lm else characters
        self.policy = policy

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the scores of each text; only models of words give a weight per word."""
        truncated = [
            truncate_text(one, self.characters, self.policy, f"text {i}")
            for i, one in enumerate(inputs, 1)
        ]
        inputs = [one for one, _ in truncated]
        texts, kept = plain_texts(inputs), np.array([fraction for _, fraction in truncated])
        read = np.array([1.0 if text.strip() else 0.0 for text in texts]) * kept
        if self.part.is_lm:
            scored = list(self.likelihoods(texts))
            coverage = self._vocabulary.tokenizer.known_fraction(texts)
            return EngineOutput(scored, coverage, [word_weights(one) for one in scored], read)
        known = None if self.part.pairs else self.part.coverage(texts)
        coverage = read if known is None else known * kept
        scores = self.part.predict(inputs)
        if isinstance(scores, list):
            return EngineOutput(scores, coverage, [word_weights(one) for one in scores], read)
        return EngineOutput(scores, coverage, read=read)

    def text_search(self, space: LabelSpace) -> "TextSearch | None":
        from weft.predict.generation.array_search import ngram_search

        assert isinstance(space, TargetVocabulary)
        return ngram_search(self.part.ngrams, space)

    def distributions(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the probabilities of all tags of words, else what `predict` does."""
        if not self.part.is_structured:
            return self.predict(inputs)
        read = np.array([1.0 if text.strip() else 0.0 for text in plain_texts(inputs)])
        known = self.part.coverage(plain_texts(inputs))
        scores = self.part.distributions(inputs, self.space)
        return EngineOutput(scores, read if known is None else known, read=read)

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        return self.part.likelihoods(texts, self._vocabulary, running)

    @property
    def _vocabulary(self) -> "LMVocabulary":
        from weft.tasks.language import LMVocabulary  # only language models need it

        assert isinstance(self.space, LMVocabulary)
        return self.space

    def embed(self, texts: Sequence[EngineInput]) -> np.ndarray:
        truncated = [truncate_text(one, self.characters, self.policy)[0] for one in texts]
        return self.part.embed(plain_texts(truncated))

    def states(self, text: EngineInput) -> tuple[np.ndarray, np.ndarray]:
        return self.part.states(text if isinstance(text, str) else text.text)

    def save(self, folder: Path) -> None:
        self.part.save(folder)

    @property
    def word_segmenter(self) -> "WordSegmenter | None":
        return self.part.cuts

    @property
    def note(self) -> str:
        return self.part.note

    @property
    def parameters(self) -> int:
        return self.part.parameters()


def truncate_text(
    one: EngineInput, max_characters: int, policy: Policy, where: str = ""
) -> tuple[EngineInput, float]:
    """Truncate a text, or both texts of a pair; return the kept fraction, too."""
    if isinstance(one, str):
        if not max_characters or len(one) <= max_characters:
            return one, 1.0
        text, _, dropped = shorten_text(one, max_characters, policy, where)
        return text, 1 - dropped / len(one)
    if not max_characters or max(len(one.text), len(one.other or "")) <= max_characters:
        return one, 1.0
    where = one.where if one.file else where
    text, _, dropped = shorten_text(one.text, max_characters, policy, where)
    other, whole = one.other, len(one.text)
    if other is not None:
        other, _, more = shorten_text(other, max_characters, policy, where)
        whole, dropped = whole + len(one.other or ""), dropped + more
    return replace(one, text=text, other=other), 1 - dropped / whole
