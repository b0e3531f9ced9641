"""Porter's stemmer (1980) with the later departures that `rouge-score` counts with (nltk's).

They are: a few irregular words, "ies" and "ied" of four-letter words, a y that turns into i only
after a consonant and more than one letter, and the endings "alli", "fulli", "logi" and "bli".
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise

IRREGULAR = {
    "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "innings": "inning",
    "outings": "outing", "cannings": "canning",
    **{word: word for word in ("sky", "news", "inning", "outing", "canning", "howe")},
    **{word: word for word in ("proceed", "exceed", "succeed")},
}  # fmt: skip

Rules = tuple[tuple[str, str], ...]

_SECOND: Rules = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"),
    ("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"),
    ("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive"),
    ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble"),
    ("fulli", "ful"),
)  # fmt: skip
_THIRD: Rules = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""),
    ("ness", ""),
)  # fmt: skip
_FOURTH = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
)  # fmt: skip


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case English word."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _consonant(word, len(word) - 2):
        word = word[:-1] + "i"
    return _tidy(_fourth(_replace(_second(word), _THIRD, _positive)))


def _consonant(word: str, i: int) -> bool:
    """Return True if letter i is a consonant; y is one at the start and after a vowel."""
    if word[i] in "aeiou":
        return False
    return word[i] != "y" or i == 0 or not _consonant(word, i - 1)


def _measure(stem: str) -> int:
    """m of [C](VC)^m[V]: how often a consonant follows a vowel."""
    kinds = [_consonant(stem, i) for i in range(len(stem))]
    return sum(not a and b for a, b in pairwise(kinds))


def _positive(stem: str) -> bool:
    return _measure(stem) > 0


def _vowel(stem: str) -> bool:
    return any(not _consonant(stem, i) for i in range(len(stem)))


def _short(word: str) -> bool:
    """Consonant, vowel, consonant at the end, the last no w, x or y; or just vowel, consonant."""
    kinds = [_consonant(word, i) for i in range(len(word))]
    if len(word) == 2:
        return kinds == [False, True]
    return kinds[-3:] == [True, False, True] and word[-1] not in "wxy"


def _double(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _consonant(word, len(word) - 1)


def _replace(word: str, rules: Iterable[tuple[str, str]], holds: Callable[[str], bool]) -> str:
    """The first ending that fits decides, whether or not its condition holds."""
    for ending, other in rules:
        if word.endswith(ending):
            head = word[: len(word) - len(ending)]
            return head + other if holds(head) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _positive(word[:-3]) else word
    ending = next((each for each in ("ed", "ing") if word.endswith(each)), "")
    head = word[: len(word) - len(ending)]
    if not ending or not _vowel(head):
        return word
    if head.endswith(("at", "bl", "iz")):
        return head + "e"
    if _double(head):
        return head if head[-1] in "lsz" else head[:-1]
    return head + "e" if _measure(head) == 1 and _short(head) else head


def _second(word: str) -> str:
    if word.endswith("alli") and _positive(word[:-4]):
        return _second(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _positive(word[:-3]) else word
    return _replace(word, _SECOND, _positive)


def _fourth(word: str) -> str:
    def holds(head: str) -> bool:
        return _measure(head) > 1 and not (word.endswith("ion") and head[-1] not in "st")

    return _replace(word, ((ending, "") for ending in _FOURTH), holds)


def _tidy(word: str) -> str:
    """Take off a last e, and one l of two, where enough is left."""
    if word.endswith("e"):
        head = word[:-1]
        if _measure(head) > 1 or (_measure(head) == 1 and not _short(head)):
            word = head
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
