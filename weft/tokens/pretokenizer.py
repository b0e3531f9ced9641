"""The words of plain text, for models that were taught with words that a file had cut."""

from functools import cache
from typing import Any

from weft.tokens import word_pattern
from weft.tokens.tokenizer import replace_surrogates

Offsets = tuple[tuple[int, int], ...]


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each word."""
    return [span for _, span in _splitter().pre_tokenize_str(replace_surrogates(text))]


def split_words(text: str) -> tuple[tuple[str, ...], Offsets]:
    """The words of a text, and (start, end) of each."""
    places = tuple(word_spans(text))
    return tuple([text[start:end] for start, end in places]), places


@cache
def _splitter() -> Any:
    import tokenizers
    from tokenizers.pre_tokenizers import Split

    return Split(tokenizers.Regex(word_pattern.word_regex()), "removed", invert=True)
