"""Where the words of a CoNLL-U sentence stand in its text, by character."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

from weft.errors import UserError
from weft.text.formats.conllu_sentence import Sentence, Word

Token = tuple[Word, int]  # what is seen in the text, and of how many words it is made


def locate_words(
    sentence: Sentence, disagree: Literal["error", "join"] = "error"
) -> tuple[str, list[tuple[int, int]]]:
    """The text, and (start, end) of each word; the words of a multi-word token share its place.

    The text is that of `# text =`. Where there is none, or where it disagrees with the forms and
    `disagree` is "join", the forms are joined by spaces except after SpaceAfter=No.
    """
    tokens = list(_surface_tokens(sentence))
    text = sentence.text
    if text is None:
        text, places = _join_tokens(tokens)
    else:
        places, reach = _match_tokens(text, tokens)
        if len(places) < len(tokens) or text[reach:].strip():
            if disagree == "error":
                raise _disagreement(sentence, text[reach:].strip(), tokens, len(places))
            text, places = _join_tokens(tokens)
    shared = zip(tokens, places, strict=True)
    return text, [place for (_, count), place in shared for _ in range(count)]


def locate_spaced_words(words: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Where words stand in a text that is made of them, with spaces between."""
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
    """The places of the tokens up to the first that is not there, and where the text goes on."""
    places: list[tuple[int, int]] = []
    reach = 0
    for row, _ in tokens:
        start = reach
        while start < len(text) and text[start].isspace():
            start += 1
        if not text.startswith(row.form, start):
            break
        reach = start + len(row.form)
        places.append((start, reach))
    return places, reach


def _join_tokens(tokens: Sequence[Token]) -> tuple[str, list[tuple[int, int]]]:
    pieces: list[str] = []
    places: list[tuple[int, int]] = []
    reach = 0
    for row, _ in tokens:
        places.append((reach, reach + len(row.form)))
        pieces.append(row.form + " " * row.spaced)
        reach += len(pieces[-1])
    return "".join(pieces)[: places[-1][1] if places else 0], places


def _disagreement(
    sentence: Sentence, rest: str, tokens: Sequence[Token], matched: int
) -> UserError:
    row = tokens[min(matched, len(tokens) - 1)][0]
    if matched < len(tokens):
        told = f"the form '{row.form}' is not what the text says there, '{rest[:20]}'"
    else:
        told = f"the text goes on after the last form: '{rest[:20]}'"
    return UserError(
        f'{sentence.where(row)}: {told}. Correct the form or "# text =", '
        'or pass disagree="join" to put the text together from the forms.'
    )
