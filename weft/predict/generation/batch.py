"""Batches of prompts or sources, and the searches that continue them.

B prompts   T steps   V words
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from weft.batch.indexer import Indexer, Row
from weft.decode.search.results import Hypothesis, StreamDelta
from weft.decode.search.rules import Constraints
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError
from weft.predict.output import EngineInput
from weft.tasks.language import LMVocabulary
from weft.tasks.target_vocabulary import TargetVocabulary

if TYPE_CHECKING:
    from weft.predict.predictor import Predictor

NO_RULES = Constraints()


@dataclass(frozen=True)
class GenerationBatch:
    """A batch of prompts with the decoder state to generate from."""

    rows: list[int]  # the numbers of the prompts
    step: Any  # the function that takes a step, of tensors or of arrays
    state: Any
    first: Any  # the first input id, of all or (B,) of each
    before: list[list[int]]  # ids of the text that each continues
    rules: Constraints = NO_RULES
    oov_words: Sequence[Mapping[int, str]] = ()  # of each, the words that only its source has
    extra_ids: int = 0  # ids of those words, beyond the vocabulary


class TextSearch(Protocol):
    """A model that text can be searched with."""

    size: int  # of the vocabulary
    bos: int  # the first input of a text
    limit: int | None  # steps that a prompt may have, with `bos`
    members: "Sequence[Predictor]"  # of an ensemble

    def read_prompts(self, ids: Sequence[Sequence[int]]) -> GenerationBatch:
        """Return the batch after prompts of the same length, which begin with `bos`."""

    def read_sources(
        self, inputs: Sequence[EngineInput], names: Sequence[str], settings: SearchSettings
    ) -> Iterator[tuple[Sequence[Row], GenerationBatch]]:
        """Yield batches of sources before the first step, with the rows that were read."""

    def search(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each prompt of a batch, best first."""

    def stream(
        self, job: GenerationBatch, settings: SearchSettings, eos: int
    ) -> Iterator[list[StreamDelta]]:
        """Yield the new tokens of each prompt of a batch."""


def check_whole(rows: Sequence[Row], names: Sequence[str], indexer: Indexer) -> None:
    """Raise UserError for a source that is longer than the model reads."""
    for row in rows:
        if row.read_fraction < 1:
            limit = f"{indexer.limit} tokens" if indexer.limit else (
                f"{indexer.characters:,} characters"
            )  # fmt: skip
            raise UserError(
                f"{names[row.text]} is longer than {limit}, the most this model reads. "
                "Shorten it, or split it."
            )


def first_input(space: TargetVocabulary, own: int) -> int:
    """Return the id before the first token of a text; `own` is that of an n-gram model."""
    running = isinstance(space, LMVocabulary) and not space.lines
    return space.size[1] if running else own  # running text continues after a line break
