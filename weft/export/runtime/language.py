"""The engine of exported language models: probabilities of tokens, and words for masks."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np

from weft.batch.ragged import pad
from weft.errors import UserError
from weft.export.runtime.blanks import predict_masked, score_windows
from weft.export.runtime.engine import OnnxEngine
from weft.inference.windows import ScoringWindow, TextScorer, WindowSettings
from weft.predict.fill_mask import BlankLayout, fill, fill_or_score, mlm_layout
from weft.predict.output import EngineInput, EngineOutput, plain_texts, word_weights
from weft.predict.predictor import CHUNK_TEXTS
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import MaskedLM, MLMStats, MLMVocabulary
from weft.tokens.special_tokens import SpecialTokens


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
        gives = self.info.gives
        space = LMVocabulary(self.indexer.tokenizer, lines=self.info.config["task"]["lines"])
        settings = WindowSettings(
            gives["row_steps"], gives["new_steps"], self._reads_both_sides,
            np.array([gives["bos"]], np.int64),
        )  # fmt: skip
        stream = iter(texts)
        waiting: deque[tuple[np.ndarray, tuple[CharSpan, ...]]] = deque()

        def tokenise() -> Iterator[np.ndarray]:
            while chunk := list(islice(stream, CHUNK_TEXTS)):
                some = [(ids, ()) for ids in space.ids(chunk)] if running else space.places(chunk)
                waiting.extend(some)
                yield from (ids for ids, _ in some)

        for log_probs in TextScorer(settings, self._score_windows).score(tokenise(), running):
            ids, offsets = waiting.popleft()
            yield Decoded(ids[:, None], np.exp(log_probs.astype(np.float64))[:, None],
                          places=offsets)  # fmt: skip

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
    ) -> np.ndarray:
        """Return the log-probabilities (R,) of the scored tokens of some windows."""
        if self._reads_both_sides:
            return score_windows(self.session, windows, inputs, self.info.gives["masks"])
        lengths = np.array([len(ids) for ids in inputs], np.int64)
        feeds = {"ids": pad(inputs, lengths), "targets": pad(targets, lengths)}
        values = self.session(feeds, ["log_probs"])["log_probs"]
        rows = zip(values, windows, strict=True)
        return np.concatenate([row[w.start - w.low : w.stop - w.low] for row, w in rows])
