"""The words of a text, and weights of tokens brought together on them.

Words are the units that every method weighs and every perturbation removes, whatever the model
reads: sub-words, characters or n-grams.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from weft.explain.explanation import WordWeight
from weft.text.example import PAIR_SEPARATOR
from weft.text.formats.records import SLOT_CLOSE, SLOT_OPEN
from weft.tokens import word_pattern
from weft.tokens.align import align_to_words
from weft.tokens.tokenizer import replace_surrogates

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import Split

    from weft.batch.indexer import Row

Span = tuple[int, int]
TokenWeight = tuple[int, int, float]  # start, end, weight of a token
Variant = str | tuple[str, str]  # a text or a pair with words removed


def word_spans(text: str) -> np.ndarray:
    """(n, 2) where the words of a text stand; marks are words of their own."""
    spans = [span for _, span in _splitter().pre_tokenize_str(replace_surrogates(text))]
    return np.array(spans, np.int32).reshape(-1, 2)


@lru_cache(maxsize=1)
def _splitter() -> "Split":
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    # A slot of a record keeps its brackets.
    slot = f"{SLOT_OPEN}[^{SLOT_OPEN}{SLOT_CLOSE}]+{SLOT_CLOSE}"
    return Split(Regex(f"{slot}|{word_pattern.word_regex()}"), "removed", invert=True)


def sum_by_word(text: str, tokens: Iterable[TokenWeight]) -> tuple[WordWeight, ...]:
    """The words that some piece touches, each with the sum of its pieces' weights.

    A piece of several words counts for the one it shares most with. One without a word of its own
    (a space, "▁") counts for the next word that was read, or the last: nothing of the total is
    lost.
    """
    ordered = sorted(tokens)
    read, owners = own_words(text, np.array([piece[:2] for piece in ordered], np.int32))
    if not len(read):
        return ()
    sums = np.bincount(owners, [piece[2] for piece in ordered], minlength=len(read))
    return tuple(
        WordWeight(start, end, weight)
        for (start, end), weight in zip(read.tolist(), sums.tolist(), strict=True)
    )


def own_words(text: str, token_spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the words (W, 2) that tokens (T, 2) touch, and the word (T,) of each token.

    The tokens are in the order of the text. Where they touch no word, each has the number -1.
    """
    spans = word_spans(text)
    nothing = np.zeros((0, 2), np.int32), np.full(len(token_spans), -1)
    if not len(spans) or not len(token_spans):
        return nothing
    read = spans[_covered_words(spans, token_spans)]
    if not len(read):
        return nothing
    owners = align_to_words(token_spans, read)
    lost = owners < 0
    following = np.searchsorted(read[:, 0], token_spans[:, 0])
    owners[lost] = np.minimum(following, len(read) - 1)[lost]
    return read, owners


def _covered_words(spans: np.ndarray, token_spans: np.ndarray) -> np.ndarray:
    """Return a mask of words that overlap some span; spans are sorted by their start."""
    solid = token_spans[token_spans[:, 0] < token_spans[:, 1]]
    if not len(solid):
        return np.zeros(len(spans), bool)
    reach = np.maximum.accumulate(solid[:, 1])
    start = np.searchsorted(solid[:, 0], spans[:, 1], side="left")  # places before a word's end
    return (start > 0) & (reach[np.maximum(start, 1) - 1] > spans[:, 0])


def keep_words(text: str, spans: Sequence[Span], second: int = 0) -> Variant:
    """The words at these spans as a text; where a second one begins in the text, as two."""
    if not second:
        return join_spans(text, spans)
    first = [span for span in spans if span[1] <= second - len(PAIR_SEPARATOR)]
    return join_spans(text, first), join_spans(text, [span for span in spans if span[0] >= second])


def mark_separator(second: int) -> Span:
    """Return the place of the mark between two texts that are shown as one."""
    return second - len(PAIR_SEPARATOR.lstrip()), second - 1


def token_offsets(row: "Row", second: int = 0) -> list[Span]:
    """Return the offsets of a row's tokens in a text, or in a pair joined to one text."""
    assert row.spans is not None
    spans = row.spans.copy()
    if second:
        spans[row.second :] += second
    return [(start, end) for start, end in spans.tolist()]


def join_spans(text: str, spans: Sequence[Span]) -> str:
    """The words at these spans, in the order of the text, as a text of their own.

    Neighbours stay as they were; where something is missing between two words stands one space.
    """
    out, before = [], None
    for start, end in spans:
        if before is not None:
            gap = text[before:start]
            out.append(gap if not gap.strip() else " ")
        out.append(text[start:end])
        before = end
    return "".join(out)
