"""The engine of exported language models: probabilities of tokens, and words for masks."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice

import numpy as np

from weft.batch.ragged import pad
from weft.embed.spelling import ByteSpelling
from weft.errors import UserError
from weft.export.runtime.blanks import predict_masked, score_windows
from weft.export.runtime.engine import GRAPH_FILE, OnnxEngine
from weft.export.runtime.feeds import Arrays
from weft.export.runtime.generation import ExportedSteps
from weft.inference.windows import ScoringWindow, TextScorer, WindowSettings, reverse_text
from weft.predict.fill_mask import BlankLayout, fill, fill_or_score, mlm_layout
from weft.predict.generation.array_search import PromptSearch
from weft.predict.generation.batch import TextSearch
from weft.predict.output import EngineInput, EngineOutput, plain_texts, word_weights
from weft.predict.predictor import CHUNK_TEXTS
from weft.protocols import LabelSpace
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import MaskedLM, MLMStats, MLMVocabulary
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.subtoken_table import append_subtokens


class OnnxLanguageEngine(OnnxEngine):
    """Texts -> tokens -> a graph -> the probabilities of tokens."""

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the probability of each token, or the best words for masks."""
        if self.traits.is_mlm:
            return self._fill_masks(inputs)
        if not self._reads_both_sides:
            return self._score_tokens(inputs)
        return fill_or_score(inputs, self._fill_masks, self._score_tokens)

    @property
    def _reads_both_sides(self) -> bool:
        return self.info.gives.get("kind") == "words"

    def _fill_masks(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the best words for the masks of each text."""
        gives, layout = self.info.gives, None
        if self.traits.is_lm:
            end = (gives["eos"],) if self.info.config["task"]["lines"] else ()
            layout = BlankLayout(gives["blank"], SpecialTokens(after=end), gives["window"])
        return EngineOutput(
            *fill(
                plain_texts(inputs), self.indexer, layout or mlm_layout(self.indexer),
                partial(predict_masked, self.session),
            )
        )  # fmt: skip

    def _score_tokens(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the probability of each token of the texts."""
        texts = plain_texts(inputs)
        scored = list(self.likelihoods(texts))
        weights = [word_weights(one) for one in scored]
        return EngineOutput(scored, self.indexer.tokenizer.known_fraction(texts), weights)

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        if not self.traits.is_lm:
            raise UserError("Only a language model has token probabilities.")
        space = self._vocabulary(self.info.config["task"]["lines"])
        stream = iter(texts)
        waiting: deque[tuple[np.ndarray, tuple[CharSpan, ...]]] = deque()

        def tokenise() -> Iterator[np.ndarray]:
            while chunk := list(islice(stream, CHUNK_TEXTS)):
                some = [(ids, ()) for ids in space.ids(chunk)] if running else space.places(chunk)
                waiting.extend(some)
                if self.has_backward_lm:
                    yield from self._with_subtokens(space, chunk)
                else:
                    yield from (ids for ids, _ in some)

        scorer = TextScorer(self._window_settings, self._score_windows)
        for log_probs in scorer.score(tokenise(), running):
            ids, offsets = waiting.popleft()
            yield Decoded(ids[:, None], _to_probs(log_probs), places=offsets)

    @property
    def has_backward_lm(self) -> bool:
        return bool(self.info.gives.get("backward"))

    def score_backward(self, texts: Sequence[str]) -> list[Decoded]:
        """Return the backward language model's scores of running text, in reading order."""
        tokens = self._with_subtokens(self._vocabulary(lines=True), texts)
        rows = [reverse_text(one) for one in tokens[::-1]]
        score = partial(self._score_windows, side=1)
        scored = TextScorer(self._window_settings, score).score(rows, running=True)
        decoded = [
            Decoded(row[:, :1].astype(np.int64), _to_probs(log_probs))
            for row, log_probs in zip(rows, scored, strict=True)
        ]
        return decoded[::-1]

    def _vocabulary(self, lines: bool) -> LMVocabulary:
        return LMVocabulary(self.indexer.tokenizer, lines=lines)

    def _with_subtokens(self, space: LMVocabulary, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the tokens (T, 1+W) of each text with their bytes."""
        width = self.info.gives["max_subtokens"]
        return space.with_subtokens(texts, ByteSpelling(width - 2).subtoken_ids, width)

    @cached_property
    def _steps(self) -> ExportedSteps:
        return ExportedSteps(self.session, self.info.graphs[GRAPH_FILE])

    def text_search(self, space: LabelSpace) -> TextSearch | None:
        assert isinstance(space, TargetVocabulary)
        if self._reads_both_sides or self.has_backward_lm or self.traits.is_mlm:
            raise UserError(
                "This language model is bidirectional, so it cannot generate text. Use one that "
                "reads from left to right: kneser-ney, lstm-lm, gpt."
            )
        size, bos, _ = space.size
        return PromptSearch(self._steps, size, bos, self.info.gives["limit"])

    @property
    def _window_settings(self) -> WindowSettings:
        gives = self.info.gives
        bos = np.array([gives["bos"]], np.int64)
        if self.has_backward_lm:
            bos = append_subtokens(bos, ByteSpelling().subtoken_ids([""]), gives["max_subtokens"])
        return WindowSettings(gives["row_steps"], gives["new_steps"], self._reads_both_sides, bos)

    def score_masked(
        self, texts: Iterable[str], task: MaskedLM, space: MLMVocabulary
    ) -> Iterator[MLMStats]:
        """Raise UserError: masks are drawn by PyTorch."""
        raise UserError(
            "An exported masked language model fills masks, but masks of whole documents are drawn "
            "by PyTorch: to evaluate it, use the model that it was made from."
        )

    def _score_windows(
        self,
        windows: Sequence[ScoringWindow],
        inputs: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
        side: int = 0,
    ) -> np.ndarray:
        """Return the log-probabilities (R,) of the scored tokens of some windows."""
        if self._reads_both_sides:
            return score_windows(self.session, windows, inputs, self.info.gives["masks"])
        lengths = np.array([len(ids) for ids in inputs], np.int64)
        if self.has_backward_lm:
            feeds = _spelled_feeds(inputs, lengths) | {"side": np.array([side], np.int64)}
            targets = [rows[:, 0] for rows in targets]
            feeds["targets"] = pad(targets, lengths)
        else:
            steps = self._steps
            feeds = steps.feeds(
                pad(inputs, lengths), steps.begin(len(inputs)), pad(targets, lengths)
            )
        values = self.session(feeds, ["log_probs"])["log_probs"]
        rows = zip(values, windows, strict=True)
        return np.concatenate([row[w.start - w.low : w.stop - w.low] for row, w in rows])


def _spelled_feeds(tokens: Sequence[np.ndarray], lengths: np.ndarray) -> Arrays:
    """Return each distinct word of rows (T, 1+W) once, and where it stands; the first is empty."""
    words = np.concatenate([rows[:, 1:] for rows in tokens]).astype(np.int64)
    words = np.concatenate([np.zeros_like(words[:1]), words])
    words = words[:, : max(1, int((words > 0).sum(1).max()))]
    distinct, index = np.unique(words, axis=0, return_inverse=True)
    numbers = np.split(index.reshape(-1)[1:], np.cumsum(lengths)[:-1])
    return {"spelled": distinct, "spelling": pad(numbers, lengths)}


def _to_probs(log_probs: np.ndarray) -> np.ndarray:
    """Return probabilities (N, 1) of log-probabilities (N,)."""
    probs: np.ndarray = np.exp(log_probs.astype(np.float64))[:, None]
    return probs
