"""N-gram language models: texts become ids, ids a trie, the trie gives probabilities.

T tokens of a text, with the one that ends it   N the order
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft import jsonio
from weft.classic.ngram.counts import Counts, Marks, count
from weft.classic.ngram.interpolated import estimate_interpolated
from weft.classic.ngram.kneser_ney import check_limits, kneser_ney
from weft.classic.ngram.trie import NGram
from weft.classic.progress import FitProgress, ProgressCallback, no_callback
from weft.classic.weights_io import WEIGHTS, damaged_file_error
from weft.errors import UserError
from weft.protocols import ClassicModel, Section
from weft.registry import register
from weft.storage import write_text
from weft.tasks.annotation import CharSpan, Decoded
from weft.tokens.vocabulary import BOS, CLS, MASK, PAD, SEP, UNK

if TYPE_CHECKING:
    from weft.tasks.language import LMVocabulary

LAMBDAS = "interpolation.json"  # the weights of an interpolated model
CHUNK_TEXTS = 8192  # texts that are scored together
Rows = Iterable[np.ndarray]  # ids of texts, without the one that ends each


class NGramLM(ClassicModel):
    """Base of the n-gram language models: count, estimate, look up."""

    is_lm = True
    model: NGram

    def __init__(self, order: int) -> None:
        if order < 1:
            raise UserError(f"classic '{self.kind}': 'order' should be 1 or more, got {order}.")
        self.order = order

    def fit_ids(
        self,
        rows: Rows,
        dev_rows: Rows,
        space: "LMVocabulary",
        watch: ProgressCallback = no_callback,
    ) -> None:
        """Count the ids of the training texts, and estimate with those of the dev texts."""
        marks, plain = marks_of(space), _plain(space)
        size = max(space.size[0], marks.bos + 1)
        watch(FitProgress(0.0, "counting n-grams"))
        words = (plain[row] for row in rows)
        counts = count(words if space.lines else _as_one(words), size, self.order, marks)
        watch(FitProgress(0.5, f"estimating {counts.starts[-1]:,} n-grams"))
        held_out = (plain[row] for row in dev_rows)
        self.model = self._estimate_model(counts, held_out if space.lines else _as_one(held_out))
        watch(FitProgress(1.0, f"{len(self.model.words):,} n-grams"))

    def _estimate_model(self, counts: Counts, held: Rows) -> NGram:
        raise NotImplementedError

    def likelihoods(
        self, texts: Iterable[str], space: "LMVocabulary", running: bool = False
    ) -> Iterator[Decoded]:
        if marks_of(space) != self.model.marks:
            raise damaged_file_error(self.kind, Path(WEIGHTS), "it does not match labels.json")
        plain, stream = _plain(space), iter(texts)
        before = self.first(space)
        while chunk := list(islice(stream, CHUNK_TEXTS)):
            if running:
                tokens: list[tuple[np.ndarray, tuple[CharSpan, ...]]]
                tokens = [(ids, ()) for ids in space.ids(chunk)]
            else:
                tokens = space.places(chunk)
            rows = [plain[ids[:-1] if space.lines else ids] for ids, _ in tokens]
            if space.lines:
                logps = self.model.sentence_scores(rows)
            elif running:
                logps, before = self._running(rows, before)
            else:
                logps = [self._running([row], before)[0][0] for row in rows]
            for (ids, offsets), log_probs in zip(tokens, logps, strict=True):
                probs = np.exp(log_probs.astype(np.float64))[:, None]
                yield Decoded(ids[:, None], probs, places=offsets)

    def _running(
        self, rows: Sequence[np.ndarray], before: np.ndarray
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the log-probabilities of texts that continue `before`, and the last tokens."""
        whole = np.concatenate([before, *rows])
        (scores,) = self.model.sentence_scores([whole])
        ends = np.cumsum([len(row) for row in rows])
        after = whole[max(len(whole) - self.model.order + 1, 0) :]
        return np.split(scores[len(before) : -1], ends[:-1]), after

    def next_log_probs(
        self, contexts: Sequence[np.ndarray], token: int, space: "LMVocabulary"
    ) -> np.ndarray:
        plain, before = _plain(space), self.first(space)
        ends = space.lines and token == space.size[2]
        last = np.array([] if ends else [token], np.int64)
        rows = [
            np.concatenate([before, plain[np.append(c, last).astype(np.int64)]]) for c in contexts
        ]
        scores = self.model.sentence_scores(rows)
        return np.array(
            [own[len(before) + len(c)] for own, c in zip(scores, contexts, strict=True)]
        )

    def first(self, space: "LMVocabulary") -> np.ndarray:
        """Return the token before a text without a start token: a line break, if any."""
        first, last = space.size[1:]
        return np.array([] if space.lines or first == last else [first], dtype=np.int64)

    @property
    def ngrams(self) -> NGram:
        return self.model

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise UserError(f"A '{self.kind}' model has no vectors. Use a neural model for them.")

    def parameters(self) -> int:
        """Return the number of n-grams."""
        return len(self.model.words)

    def save(self, folder: Path) -> None:
        """Write weights.safetensors."""
        self.model.save(folder)

    @classmethod
    def load(cls, folder: Path, settings: Section) -> "NGramLM":
        """Load what `save` wrote, with the settings it was built with."""
        part = cls(**settings)
        part.model = NGram.load(folder)
        return part


@register("classic", "ngram")
class Interpolated(NGramLM):
    """Relative frequencies of all orders, interpolated with weights fitted on dev by EM.

    With `buckets`, histories of similar frequency share weights (Jelinek and Mercer 1980).
    """

    kind = "ngram"

    def __init__(self, order: int = 5, buckets: bool = True) -> None:
        super().__init__(order)
        self.buckets = buckets
        self.weights: np.ndarray = np.zeros(0)  # (N + 1,) λ of orders 0 … N
        self.shares: np.ndarray = np.zeros((0, 1))  # (N, K) μ of orders 1 … N by bucket
        self.held_out_perplexity = math.nan

    def _estimate_model(self, counts: Counts, held: Rows) -> NGram:
        fit = estimate_interpolated(counts, held, self.buckets)
        self.weights, self.shares = fit.weights, fit.shares
        self.held_out_perplexity = fit.perplexity
        return fit.model

    @property
    def note(self) -> str:
        """The fitted λ, from the uniform distribution to the longest n-grams."""
        shown = ", ".join(f"λ{k} {weight:.4g}" for k, weight in enumerate(self.weights))
        mean = f", mean over held-out words; {LAMBDAS} has each bucket" if self.buckets else ""
        return f"interpolation weights fitted on held-out text: {shown} (0 is uniform{mean})"

    def save(self, folder: Path) -> None:
        """Write weights.safetensors and interpolation.json."""
        super().save(folder)
        fitted = {
            "lambdas": self.weights.tolist(),
            "shares": self.shares.tolist(),
            "held_out_perplexity": self.held_out_perplexity,
        }
        write_text(folder / LAMBDAS, json.dumps(fitted))

    @classmethod
    def load(cls, folder: Path, settings: Section) -> "Interpolated":
        """Load what `save` wrote, with the settings it was built with."""
        part = cls(**settings)
        part.model = NGram.load(folder)
        path = folder / LAMBDAS
        try:
            saved = jsonio.read(path)
            part.weights = np.array(saved["lambdas"], np.float64)
            part.shares = np.array(saved["shares"], np.float64)
            part.held_out_perplexity = float(saved["held_out_perplexity"])
        except FileNotFoundError:
            raise damaged_file_error(cls.kind, path, "the file is missing") from None
        except (ValueError, KeyError, TypeError) as error:
            raise damaged_file_error(cls.kind, path, repr(error)) from error
        fits = part.shares.ndim == 2 and part.weights.shape == (len(part.shares) + 1,)
        if not fits or not np.isfinite(part.weights).all():
            raise damaged_file_error(cls.kind, path, "its weights do not match its shares")
        return part


@register("classic", "kneser-ney")
class KneserNey(NGramLM):
    """Modified Kneser–Ney smoothing (Chen and Goodman 1998), as in KenLM.

    `prune` is the count up to which n-grams are left out, for each order; the last number counts
    for all higher orders: [0, 0, 1].
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
        # The order is lower if no text is long enough.
        return kneser_ney(counts, self.prune[: counts.order]).model


def marks_of(space: "LMVocabulary") -> Marks:
    """Return the special ids; a tokenizer without BOS gets one more id."""
    known = {token: i for i, token in enumerate(space.tokenizer.vocabulary)}
    size, _, last = space.size
    others = tuple(known[name] for name in (CLS, SEP, MASK) if name in known)
    return Marks(known[PAD], known[UNK], known.get(BOS, size), last, others)


def _plain(space: "LMVocabulary") -> np.ndarray:
    """Return the counted id (V,) of each id: special tokens inside a text count as unknown."""
    marks = marks_of(space)
    out = np.arange(max(space.size[0], marks.bos + 1), dtype=np.int32)
    out[[*marks.silent, marks.eos]] = marks.unk
    return out


def _as_one(rows: Rows) -> list[np.ndarray]:
    whole = np.concatenate([np.empty(0, np.int32), *rows])
    return [whole] if len(whole) else []
