"""Split plain text into words, for models trained on text that a file had split."""

from functools import cache
from typing import TYPE_CHECKING

from weft.tokens import word_pattern
from weft.tokens.tokenizer import replace_surrogates

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import Split

Offsets = tuple[tuple[int, int], ...]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of each word."""
    return [span for _, span in _splitter().pre_tokenize_str(replace_surrogates(text))]


def split_words(text: str) -> tuple[tuple[str, ...], Offsets]:
    """Split a text into words; also return (start, end) of each."""
    offsets = tuple(word_spans(text))
    return tuple([text[start:end] for start, end in offsets]), offsets


@cache
def _splitter() -> "Split":
    import tokenizers
    from tokenizers.pre_tokenizers import Split

    return Split(tokenizers.Regex(word_pattern.word_regex()), "removed", invert=True)
