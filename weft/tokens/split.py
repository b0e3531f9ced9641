"""The words of plain text, for models that were taught with words that a file had cut."""

from functools import cache
from typing import Any

from weft.tokens import pattern


def word_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of each word."""
    return [span for _, span in _splitter().pre_tokenize_str(text)]


@cache
def _splitter() -> Any:
    import tokenizers
    from tokenizers.pre_tokenizers import Split

    return Split(tokenizers.Regex(pattern.words()), "removed", invert=True)
