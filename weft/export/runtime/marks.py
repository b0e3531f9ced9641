"""Marks of words that decoding reads beside their states, such as their lemmas."""

from functools import partial
from typing import Any

from weft.batch.indexer import MarkWords
from weft.decode.heads.semantics.mentions import mark_words as mark_document_words
from weft.decode.heads.semantics.role_spans import mark_words as mark_role_words


def word_marks(kind: object, space: Any) -> MarkWords | None:
    """Return what marks the words of a text for decoding of a kind; None if nothing does."""
    if kind == "chains":
        genres = {genre: number for number, genre in enumerate(space.genres)}
        return partial(mark_document_words, genres=genres)
    if kind == "roles":
        return partial(mark_role_words, inventory=space.inventory)
    return None
