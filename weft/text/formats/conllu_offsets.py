"""Locate the words of a CoNLL-U sentence in its text, in characters."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from weft.errors import UserError
from weft.text.formats.conllu_sentence import ConlluRow, Sentence

Token = tuple[ConlluRow, int]  # a surface token and its number of words


def locate_words(
    sentence: Sentence, disagree: Literal["error", "join"] = "error"
) -> tuple[str, list[tuple[int, int]]]:
    """Return the text and (start, end) of each word; words of a multi-word token share offsets.

    The text is that of `# text =`. If there is none, or it disagrees with the forms and `disagree`
    is "join", the forms are joined by spaces except after SpaceAfter=No.
    """
    tokens = list(_surface_tokens(sentence))
    text = sentence.text
    if text is None:
        text, offsets = _join_tokens(tokens)
    else:
        offsets, reach = _match_tokens(text, tokens)
        if len(offsets) < len(tokens) or text[reach:].strip():
            if disagree == "error":
                raise _disagreement(sentence, text[reach:].strip(), tokens, len(offsets))
            text, offsets = _join_tokens(tokens)
    shared = zip(tokens, offsets, strict=True)
    return text, [offset for (_, count), offset in shared for _ in range(count)]


def locate_spaced_words(words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return (start, end) of each word in the words joined by spaces."""
    starts = accumulate((len(word) + 1 for word in words), initial=0)
    return tuple((at, at + len(word)) for word, at in zip(words, starts, strict=False))


def _surface_tokens(sentence: Sentence) -> Iterator[Token]:
    covered = 0
    for row in sentence.rows:
        if row.kind == "range":
            first, covered = row.bounds
            yield row, covered - first + 1
        elif row.kind == "word" and row.bounds[0] > covered:
            yield row, 1


def _match_tokens(text: str, tokens: Sequence[Token]) -> tuple[list[tuple[int, int]], int]:
    """Return the offsets of tokens up to the first mismatch, and the end of the matched text."""
    offsets: list[tuple[int, int]] = []
    reach = 0
    for row, _ in tokens:
        start = reach
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(row.form, start):
            break
        reach = start + len(row.form)
        offsets.append((start, reach))
    return offsets, reach


def _join_tokens(tokens: Sequence[Token]) -> tuple[str, list[tuple[int, int]]]:
    parts: list[str] = []
    offsets: list[tuple[int, int]] = []
    reach = 0
    for row, _ in tokens:
        offsets.append((reach, reach + len(row.form)))
        parts.append(row.form + " " * row.has_space_after)
        reach += len(parts[-1])
    return "".join(parts)[: offsets[-1][1] if offsets else 0], offsets


def _disagreement(
    sentence: Sentence, rest: str, tokens: Sequence[Token], matched: int
) -> UserError:
    row = tokens[min(matched, len(tokens) - 1)][0]
    if matched < len(tokens):
        reason = f"the form '{row.form}' does not match the text there, '{rest[:20]}'"
    else:
        reason = f"the text continues after the last form: '{rest[:20]}'"
    return UserError(
        f'{sentence.where(row)}: {reason}. Correct the form or "# text =", '
        'or pass disagree="join" to join the forms instead.'
    )
