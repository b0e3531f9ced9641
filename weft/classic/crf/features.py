"""Symbolic features of each word of a sentence: what stands in a window around it, and its looks.

The tradition of the CoNLL-2000 chunkers (Sha and Pereira 2003): words, tags and their n-grams.
"""

import re
from collections.abc import Sequence

from weft.classic.crf.patterns import recognise

REACH = 2  # columns are seen this many places to the left and to the right
AFFIX = 4  # longest beginning and ending of a word that is a feature
OUTSIDE = "∅"  # in place of a column before the first or after the last word
RUNS = re.compile(r"(.)\1+")
DIGITS = re.compile(r"\d")


def features(sentence: Sequence[Sequence[str]], patterns: bool = False) -> list[list[str]]:
    """Features of each word of a sentence, from its columns: the word, then tags where known.

    Every column is seen alone and in pairs of neighbours, tags in threes too. A feature is a
    string that names column, place and length before its value, as in `0[-1]1=the`. With
    `patterns`, e-mail addresses, URLs, phone numbers and numbers within reach are features by
    kind, as in `pattern[-1]=email`.
    """
    columns = list(zip(*sentence, strict=True))
    seen: list[list[str]] = [[] for _ in sentence]
    for number, column in enumerate(columns):
        _window(seen, str(number), column, longest=3 if number else 2)
    if columns:
        _window(seen, "low", [word.lower() for word in columns[0]], longest=1)
        for own, word in zip(seen, columns[0], strict=True):
            own += word_shape_features(word)
        if patterns:
            _add_patterns(seen, columns[0])
    return seen


def _add_patterns(seen: list[list[str]], words: Sequence[str]) -> None:
    """Add the kind of each word that a pattern recognises to the words within reach."""
    for place, kind in enumerate(map(recognise, words)):
        if kind:
            for at in range(max(place - REACH, 0), min(place + REACH + 1, len(words))):
                seen[at].append(f"pattern[{place - at}]={kind}")


def _window(seen: list[list[str]], name: str, column: Sequence[str], longest: int) -> None:
    """Add the runs of 1 to `longest` neighbours within reach of each place."""
    edge = (OUTSIDE,) * REACH
    padded = (*edge, *column, *edge)
    for length in range(1, longest + 1):
        # Pairs of words only where the word itself takes part; of tags anywhere in reach.
        reach = REACH if longest == 3 or length == 1 else 1
        runs = list(map("|".join, zip(*(padded[i:] for i in range(length)), strict=False)))
        for first in range(-reach, reach + 2 - length):
            label = f"{name}[{first}]{length}="
            for place, own in enumerate(seen):
                own.append(label + runs[place + first + REACH])


def word_shape_features(word: str) -> list[str]:
    """Beginnings and endings, shape, capitals, digits and hyphens of a word."""
    drawn = shape(word)
    out = ["shape=" + drawn, "runs=" + RUNS.sub(r"\1", drawn)]
    for length in range(1, min(AFFIX, len(word) - 1) + 1):
        out += (f"begin={word[:length]}", f"end={word[-length:]}")
    if word[:1].isupper():
        out.append("capital")
    if word.isupper():
        out.append("capitals")
    if DIGITS.search(word):
        out.append("digit")
        out.append(f"number={DIGITS.sub('0', word)}")
    if "-" in word:
        out.append("hyphen")
    return out


def shape(word: str) -> str:
    """Letters and digits by kind: 'McDonald-7' is 'XxXxxxxx-0'."""
    return "".join(map(_kind, word))


def _kind(character: str) -> str:
    if character.isdigit():
        return "0"
    if character.isalpha():
        return "X" if character.isupper() else "x"
    return character
