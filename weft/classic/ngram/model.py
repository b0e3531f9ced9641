"""N-gram models as language models of the spine: texts become ids, ids a trie, the trie answers.

T tokens of a text, with the one that ends it   N the order
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.classic.ngram.counts import Counts, Marks, count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.classic.ngram.kneser_ney import check_limits, kneser_ney
from weft.classic.ngram.trie import NGram
from weft.classic.progress import Progress, ProgressCallback, no_callback
from weft.classic.weights_io import WEIGHTS, damaged_file_error
from weft.errors import UserError
from weft.registry import register
from weft.tasks.annotation import Decoded
from weft.tokens.vocabulary import BOS, CLS, MASK, PAD, SEP, UNK

if TYPE_CHECKING:
    from weft.tasks.language import LMVocabulary

CHUNK_TEXTS = 8192  # texts that are looked up together
Rows = Iterable[np.ndarray]  # ids of texts, without the one that ends each


class NGramLM:
    """Base of the n-gram language models: count, estimate, look up."""

    kind = ""
    task = "language"
    seeded = False  # nothing in it is random
    model: NGram

    def __init__(self, order: int) -> None:
        if order < 1:
            raise UserError(f"classic '{self.kind}': 'order' should be 1 or more, got {order}.")
        self.order = order

    def fit(
        self, rows: Rows, held: Rows, space: "LMVocabulary", watch: ProgressCallback = no_callback
    ) -> None:
        """Learn from the ids of texts, gone through once, and of texts that are not among them."""
        marks, plain = marks_of(space), _plain(space)
        size = max(space.size[0], marks.bos + 1)
        watch(Progress(0.0, "counting n-grams"))
        words = (plain[row] for row in rows)
        counts = count(words if space.lines else _as_one(words), size, self.order, marks)
        watch(Progress(0.5, f"estimating {counts.starts[-1]:,} n-grams"))
        kept = (plain[row] for row in held)
        self.model = self._estimate_model(counts, kept if space.lines else _as_one(kept))
        watch(Progress(1.0, f"{len(self.model.words):,} n-grams"))

    def _estimate_model(self, counts: Counts, held: Rows) -> NGram:
        raise NotImplementedError

    def likelihoods(
        self, texts: Iterable[str], space: "LMVocabulary", running: bool = False
    ) -> Iterator[Decoded]:
        """The ids of each text (T, 1), the probability of each (T, 1), and where it stands.

        With `running`, what is no line of its own is heard after the texts before it.
        """
        if marks_of(space) != self.model.marks:
            raise damaged_file_error(self.kind, Path(WEIGHTS), "it does not fit labels.json")
        plain, stream = _plain(space), iter(texts)
        before = self.first(space)
        while chunk := list(islice(stream, CHUNK_TEXTS)):
            if running:
                found: list[tuple[np.ndarray, Any]] = [(ids, ()) for ids in space.ids(chunk)]
            else:
                found = space.places(chunk)
            rows = [plain[ids[:-1] if space.lines else ids] for ids, _ in found]
            if space.lines:
                logps = self.model.sentence_scores(rows)
            elif running:
                logps, before = self._running(rows, before)
            else:
                logps = [self._running([row], before)[0][0] for row in rows]
            for (ids, places), own in zip(found, logps, strict=True):
                chances = np.exp(own.astype(np.float64))[:, None]
                yield Decoded(ids[:, None], chances, places=places)

    def _running(
        self, rows: Sequence[np.ndarray], before: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Log-probabilities of texts that follow `before` and each other, and what follows then."""
        whole = np.concatenate([before, *rows])
        (scores,) = self.model.sentence_scores([whole])
        ends = np.cumsum([len(row) for row in rows])
        after = whole[max(len(whole) - self.model.order + 1, 0) :]
        return np.split(scores[len(before) : -1], ends[:-1]), after

    def first(self, space: "LMVocabulary") -> np.ndarray:
        """The token before a text that has no start of its own: a line break, if any."""
        first, last = space.size[1:]
        return np.array([] if space.lines or first == last else [first], dtype=np.int64)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Refused: it has probabilities, not vectors."""
        raise UserError(f"A '{self.kind}' model has no vectors. Use a neural model for them.")

    def parameters(self) -> int:
        """The number of n-grams."""
        return len(self.model.words)

    def save(self, folder: Path) -> None:
        """Write weights.safetensors."""
        self.model.save(folder)

    @classmethod
    def load(cls, folder: Path, settings: dict[str, Any]) -> "NGramLM":
        """The model that `save` wrote, under the settings it was made with."""
        part = cls(**settings)
        part.model = NGram.load(folder)
        return part


@register("classic", "ngram")
class Interpolated(NGramLM):
    """Relative frequencies of all orders, mixed by weights that are fitted on dev by EM.

    With `buckets`, histories that were met about equally often have weights of their own
    (Jelinek and Mercer 1980).
    """

    kind = "ngram"

    def __init__(self, order: int = 5, buckets: bool = True) -> None:
        super().__init__(order)
        self.buckets = buckets

    def _estimate_model(self, counts: Counts, held: Rows) -> NGram:
        return estimate_interpolated(counts, held, self.buckets).model


@register("classic", "kneser-ney")
class KneserNey(NGramLM):
    """Modified Kneser–Ney smoothing (Chen and Goodman 1998), as KenLM has it.

    `prune` leaves out n-grams that occur so often or less, a number for each order and the last
    for all further ones: [0, 0, 1].
    """

    kind = "kneser-ney"

    def __init__(
        self,
        order: int = 5,
        prune: list[int] = [],  # noqa: B006 -- never changed; a list is what a config holds
    ) -> None:
        super().__init__(order)
        check_limits(prune, order)
        self.prune = tuple(prune)

    def _estimate_model(self, counts: Counts, held: Rows) -> NGram:
        # The order is lower where no text is long enough.
        return kneser_ney(counts, self.prune[: counts.order]).model


def marks_of(space: "LMVocabulary") -> Marks:
    """The ids that are no words; a tokenizer without a mark for the beginning gets one more id."""
    known = {token: i for i, token in enumerate(space.tokenizer.vocabulary)}
    size, _, last = space.size
    others = tuple(known[name] for name in (CLS, SEP, MASK) if name in known)
    return Marks(known[PAD], known[UNK], known.get(BOS, size), last, others)


def _plain(space: "LMVocabulary") -> np.ndarray:
    """(V,) int32: each id as it is counted; a mark that stands in a text is an unknown word."""
    marks = marks_of(space)
    out = np.arange(max(space.size[0], marks.bos + 1), dtype=np.int32)
    out[[*marks.silent, marks.eos]] = marks.unk
    return out


def _as_one(rows: Rows) -> list[np.ndarray]:
    whole = np.concatenate([np.empty(0, np.int32), *rows])
    return [whole] if len(whole) else []
