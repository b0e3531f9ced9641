"""Are the weights true? Words are taken out, or put in, in the order of their weight.

A method is faithful when the answer falls quickly as its strongest words go (deletion) and rises
quickly as they come (insertion), compared with words in random order. AOPC (Samek et al. 2017), in
the form of DeYoung et al. (2020): the mean fall of the target's probability over the shares of
words removed.

n texts   F shares of the words
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import UserError
from weft.explain.explanation import Explanation, Target, WordWeight, make_target
from weft.explain.words import Variant, keep_words
from weft.metrics.bootstrap import bootstrap_interval
from weft.metrics.value import MetricValue
from weft.predict.predictor import Predictor
from weft.tasks.task import Answer

Curves = tuple[list[Variant], list[Variant]]  # the texts of the deletion and the insertion curve

FRACTIONS = tuple(k / 10 for k in range(11))


@dataclass(frozen=True)
class Faithfulness:
    """The gain of a method's word order over a random order: AOPC with intervals."""

    method: str
    aopc: MetricValue  # with 95 % bootstrap intervals over the texts
    random: MetricValue  # the same with words in random order
    gain: MetricValue  # the difference, text by text
    shares: tuple[float, ...]  # (F,) of the words deleted or inserted
    deletion: tuple[float, ...]  # (F,) the target's mean probability, strongest words gone first
    insertion: tuple[float, ...]  # strongest words there first
    random_deletion: tuple[float, ...]
    random_insertion: tuple[float, ...]

    def to_json(self) -> dict[str, object]:
        figures = {name: getattr(self, name).to_json() for name in ("aopc", "random", "gain")}
        curves = ("shares", "deletion", "insertion", "random_deletion", "random_insertion")
        return {"method": self.method, **figures, **{c: list(getattr(self, c)) for c in curves}}


def faithfulness(
    predictor: Predictor,
    explanations: Sequence[Explanation],
    *,
    draws: int = 5,
    seed: int = 0,
    known: dict[Variant, Answer] | None = None,
) -> Faithfulness:
    """Deletion and insertion curves of one method on some texts, beside `draws` random orders.

    The random orders depend on the seed and the words only, so all methods meet the same ones;
    a `known` dictionary, given again, keeps their answers from one method to the next.
    """
    known = {} if known is None else known
    explained = [e for e in explanations if e.words]
    if not explained:
        raise UserError("There is no text with words to measure faithfulness on.")
    plans = [word_orders(e.words, draws, seed) for e in explained]
    texts = [
        [curve_texts(e, order) for order in plan] for e, plan in zip(explained, plans, strict=True)
    ]
    _answer_new_texts(predictor, texts, known)
    curves = np.stack(
        [
            _target_probs(make_target(predictor, e.target, e.answer), of_text, known)
            for e, of_text in zip(explained, texts, strict=True)
        ]
    )  # (n, 1 + draws, 2, F)
    return summarise_curves(explained[0].method, curves, seed)


def summarise_curves(method: str, curves: np.ndarray, seed: int = 0) -> Faithfulness:
    """The figures of (n, 1 + draws, 2, F) curves: of each text its own order, then random ones."""
    ordered, shuffled = curves[:, 0], curves[:, 1:].mean(1)  # (n, 2, F)
    drop, random_drop = _aopc(ordered[:, 0]), _aopc(shuffled[:, 0])  # (n,)
    mean, random_mean = ordered.mean(0), shuffled.mean(0)  # (2, F)
    return Faithfulness(
        method=method,
        aopc=bootstrap_interval(_mean, drop, seed=seed),
        random=bootstrap_interval(_mean, random_drop, seed=seed),
        gain=bootstrap_interval(_mean, drop - random_drop, seed=seed),
        shares=FRACTIONS,
        deletion=tuple(mean[0].tolist()),
        insertion=tuple(mean[1].tolist()),
        random_deletion=tuple(random_mean[0].tolist()),
        random_insertion=tuple(random_mean[1].tolist()),
    )


def choose_format(results: Sequence[Faithfulness]) -> str:
    """Return the number format of a table of results.

    Tokens of language models are so improbable that three decimals would show nothing.
    """
    return ".3f" if max(one.aopc.value for one in results) >= 0.01 else ".2g"


def _aopc(deletion: np.ndarray) -> np.ndarray:
    """(n, F) -> (n,) the mean fall from the whole text, over the shares that remove something."""
    return (deletion[:, :1] - deletion[:, 1:]).mean(1)


def _mean(values: np.ndarray) -> float:
    return float(values.mean())


def word_orders(words: Sequence[WordWeight], draws: int, seed: int) -> list[list[int]]:
    """The words by weight, strongest support of the target first; then random orders."""
    own = sorted(range(len(words)), key=lambda i: -words[i].weight)
    entropy = [seed, *(word.start for word in words)]
    random = np.random.default_rng(entropy)
    return [own, *(random.permutation(len(words)).tolist() for _ in range(draws))]


def first_words_at(order: list[int]) -> list[set[int]]:
    """At every share of a curve, the words that have had their turn."""
    return [set(order[: math.ceil(share * len(order) - 1e-9)]) for share in FRACTIONS]


def curve_texts(explanation: Explanation, order: list[int]) -> Curves:
    """Return the texts along the deletion and the insertion curve."""
    words = explanation.words
    deleted: list[Variant] = []
    inserted: list[Variant] = []
    for first in first_words_at(order):
        for out, inside in ((deleted, False), (inserted, True)):
            kept = [(w.start, w.end) for i, w in enumerate(words) if (i in first) == inside]
            out.append(keep_words(explanation.text, kept, explanation.second))
    return deleted, inserted


def _answer_new_texts(
    predictor: Predictor, texts: Sequence[Sequence[Curves]], known: dict[Variant, Answer]
) -> None:
    """Answer every text that has no answer yet."""
    new = {
        text: None
        for plan in texts
        for curves in plan
        for curve in curves
        for text in curve
        if text not in known
    }
    known.update(zip(new, predictor.stream(new), strict=True))


def _target_probs(
    target: Target, texts: Sequence[Curves], known: dict[Variant, Answer]
) -> np.ndarray:
    """(1 + draws, 2, F) the target's probability along every curve."""
    return np.array(
        [[[target.prob(known[text]) for text in curve] for curve in both] for both in texts]
    )
