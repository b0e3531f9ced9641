"""One explained quantity of one input, as a function of the words that are hidden.

W words   M ways to hide some of them   T steps   E embedding width
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from weft.batch import Padded
from weft.errors import UserError
from weft.explain.attention import state_flow
from weft.explain.explanation import ExplainedWord, Explanation, WordWeight
from weft.explain.faithfulness import Faithfulness, summarise_curves
from weft.explain.gradients import (
    MAX_BATCH_STEPS,
    ScoreFunction,
    attribute_tokens,
    mask_with_unknown,
    repeat_rows,
)
from weft.explain.method import ATTENTION, INTEGRATED, OCCLUSION, SHAPLEY
from weft.explain.perturb import hidden_curves, occlude, sample_shapley
from weft.explain.words import Span
from weft.model import EncoderModel
from weft.tasks.task import Answer


class ScoredTarget:
    """A log-probability that is explained, and the words it may depend on."""

    text: str
    name: str  # of what is explained
    spans: Sequence[Span]  # (W,) of the words in the text
    second: int  # where the second of two texts begins in the text; 0 if there is one
    marks: Sequence[Span]  # shown without a weight: what is explained, and what is not read

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M,) the explained log-probability while words (M, W) are hidden."""
        raise NotImplementedError

    def probs(self, hidden: np.ndarray) -> np.ndarray:
        """(M,) the probability that faithfulness is measured by."""
        return np.exp(self.log_probs(hidden))

    def gradients(self, steps: int) -> np.ndarray:
        """(W,) the share of each word by integrated gradients; 0 steps is gradient × input."""
        raise NotImplementedError

    def attention(self) -> np.ndarray:
        """(W,) how much of the explained step's state came from each word."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowTarget(ScoredTarget):
    """A quantity that an encoder model computes of one row, from its embedded steps on.

    A hidden word is read as unknown tokens, so that every other word stays in its place; special
    tokens are never hidden. All words hidden is where integrated gradients start.
    """

    model: EncoderModel
    source: Padded  # (1, T)
    owners: np.ndarray  # (T,) the word of each step; -1 of a special token
    spans: Sequence[Span]
    score: ScoreFunction  # embedded steps (B, T, E) -> (B, 1)
    text: str
    name: str
    states: tuple[int, ...] = ()  # the steps whose states it is read from, for attention
    second: int = 0
    unknown: int = 0  # the token that a hidden word is read as
    marks: Sequence[Span] = ()

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        together = max(1, MAX_BATCH_STEPS // max(1, self.source.data.shape[1]))
        out = []
        with torch.inference_mode():
            for start in range(0, len(hidden), together):
                embedded = self.model.embed(self._hide(hidden[start : start + together]))
                out.append(self.score(self.model, embedded)[:, 0].double().cpu().numpy())
        return np.concatenate(out)

    def gradients(self, steps: int) -> np.ndarray:
        bare = self._hide(np.ones((1, len(self.spans)), bool))
        one = torch.ones(1, 1, device=self.source.data.device)
        weights = attribute_tokens(self.model, self.source, bare, one, steps, self.score)  # (1, T)
        return self._sum_words(weights[0].double().cpu().numpy())

    def attention(self) -> np.ndarray:
        with torch.inference_mode():
            flow = state_flow(self.model, self.source)[0, list(self.states)].mean(0)  # (T,)
        return self._sum_words(flow.double().cpu().numpy())

    @cached_property
    def _inside(self) -> np.ndarray:
        return self.owners >= 0

    def _sum_words(self, weights: np.ndarray) -> np.ndarray:
        kept = self._inside
        return np.bincount(self.owners[kept], weights[kept], minlength=len(self.spans))

    def _hide(self, hidden: np.ndarray) -> Padded:
        """(M, T) rows with these words unknown and without sub-tokens, or as zero vectors."""
        padded = np.concatenate([hidden, np.zeros((len(hidden), 1), bool)], 1)  # -1: never
        gone = torch.from_numpy(padded[:, self.owners]).to(self.source.data.device)  # (M, T)
        rows = repeat_rows(self.source, len(hidden))
        if self.source.data.dim() == 3:  # vectors instead of tokens
            return rows.with_data(rows.data.masked_fill(gone[:, :, None], 0))
        bare = mask_with_unknown(self.source, self.unknown)
        pieces = zip(self.source.subtokens, bare.subtokens, strict=True)
        return replace(
            rows,
            data=torch.where(gone, bare.data, self.source.data),
            subtokens=tuple(torch.where(gone[:, :, None], none, own) for own, none in pieces),
        )


@dataclass(frozen=True)
class TargetRequest:
    """A target with the answer it belongs to, and the explained token if it is one of several."""

    target: ScoredTarget
    answer: Answer
    at: ExplainedWord | None = None


def attribute_target(request: TargetRequest, method: str, steps: int = 50) -> Explanation:
    """Weigh the words of one input by one method."""
    target = request.target
    count = len(target.spans)
    if method == ATTENTION:
        weights = target.attention()
    elif method == OCCLUSION:
        weights = occlude(target.log_probs, count)
    elif method == SHAPLEY:
        weights = sample_shapley(target.log_probs, count)
    else:
        weights = target.gradients(steps if method == INTEGRATED else 0)
    words = [
        WordWeight(int(start), int(end), weight)
        for (start, end), weight in zip(target.spans, weights.tolist(), strict=True)
    ]
    words += [WordWeight(start, end, 0.0) for start, end in target.marks]
    words.sort(key=lambda word: word.start)
    return Explanation(
        target.text, request.answer, target.name, method, tuple(words), request.at, target.second
    )


def measure_targets(
    requests: Sequence[TargetRequest],
    explanations: Sequence[Explanation],
    *,
    draws: int = 5,
    seed: int = 0,
) -> Faithfulness:
    """Deletion and insertion curves as for whole texts, with words hidden instead of removed."""
    pairs = [(r.target, e) for r, e in zip(requests, explanations, strict=True)]
    pairs = [(target, e) for target, e in pairs if len(target.spans)]
    if not pairs:
        raise UserError("There is no text with words to measure faithfulness on.")
    curves = [
        hidden_curves(target.probs, _hidden_words(target, e), draws, seed) for target, e in pairs
    ]
    return summarise_curves(explanations[0].method, np.stack(curves), seed)


def _hidden_words(target: ScoredTarget, explanation: Explanation) -> list[WordWeight]:
    """The words that may be hidden, without the marks."""
    kept = {(int(start), int(end)) for start, end in target.spans}
    return [word for word in explanation.words if (word.start, word.end) in kept]
