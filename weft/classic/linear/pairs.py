"""Features of text pairs for a linear model: the words of each, shared words, and overlap."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Literal

from weft.classic.linear.regularisation import GRIDS
from weft.classic.linear.tfidf import TfIdf
from weft.classic.linear.tfidf_vectorizer import TOKEN, Grams, span, word_grams
from weft.errors import UserError
from weft.registry import register
from weft.text.example import Example

OVERLAP_STEPS = 20  # features of a full overlap
VIEWS = ("first", "second", "shared", "added", "missing", "overlap")


@register("classic", "tfidf-pair")
class PairTfIdf(TfIdf):
    """TF-IDF of two texts, of their shared words and of their overlap, under a linear model.

    The overlap is that of words and bigrams, and the difference in length, as in the feature-based
    classifier of Bowman et al. (2015). Each value is a staircase of binary features, one per step
    up to it, so that a linear model can fit any curve.
    """

    kind = "tfidf-pair"
    pairs = True
    # Six feature families make longer rows than one text does, so smaller values of C suffice.
    grids = GRIDS | {"logistic": (0.1, 0.3, 1.0, 3.0, 10.0)}

    def __init__(
        self,
        classifier: Literal["logistic", "svm", "bayes"] = "logistic",
        words: list[int] = [1, 2],  # noqa: B006 -- never changed; a list is what a config holds
        min_count: int = 1,
        vocab_size: int = 0,
        lowercase: bool = True,
        sublinear: bool = True,
        C: float = 0.0,
    ) -> None:
        super().__init__(classifier, words, [], min_count, vocab_size, lowercase, sublinear, C)
        limits = span("words", words)
        if limits is None:
            raise UserError("classic 'tfidf-pair': words is []; give the shortest and longest.")
        single = (1, 1)
        self.families = {
            view: Grams(word_grams, limits if view in ("first", "second") else single, lowercase,
                        sublinear)
            for view in VIEWS
        }  # fmt: skip

    def view(self, family: str, texts: Iterable[str | Example]) -> list[str]:
        """Return the words of each pair that one feature family counts."""
        return [_view(family, pair) for pair in texts if isinstance(pair, Example)]


def _view(family: str, example: Example) -> str:
    first, second = example.text, example.other or ""
    if family in ("first", "second"):
        return first if family == "first" else second
    one, two = (TOKEN.findall(text.lower()) for text in (first, second))
    if family == "overlap":
        return " ".join(_overlap(one, two))
    left, right = set(one), set(two)
    kept = {"shared": (two, left & right), "added": (two, right - left)}
    words, chosen = kept.get(family, (one, left - right))
    return " ".join(word for word in words if word in chosen)


def _overlap(one: list[str], two: list[str]) -> list[str]:
    """Return the staircases of the overlap of two texts and of their difference in length."""
    pairs = [set(pairwise(words)) for words in (one, two)]
    longest = max(len(one), len(two), 1)
    heights = {
        "words": _overlap_fraction(set(one) & set(two), set(one) | set(two)),
        "inside": _overlap_fraction(set(one) & set(two), set(two)),
        "covered": _overlap_fraction(set(one) & set(two), set(one)),
        "runs": _overlap_fraction(pairs[0] & pairs[1], pairs[0] | pairs[1]),
        "longer": max(len(two) - len(one), 0) / longest,
        "shorter": max(len(one) - len(two), 0) / longest,
    }
    return [
        f"{name}{i}"
        for name, high in heights.items()
        for i in range(round(OVERLAP_STEPS * high) + 1)
    ]


def _overlap_fraction(shared: AbstractSet[object], whole: AbstractSet[object]) -> float:
    return len(shared) / len(whole) if whole else 0.0
