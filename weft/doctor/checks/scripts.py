"""Detect the script of a text from the Unicode names of its letters."""

import functools
import unicodedata
from collections import Counter

NO_LETTERS = "no letters"
_KANA = ("Hiragana", "Katakana")
_LETTERS = (" LETTER", " SYLLABLE", " LIGATURE", " CHARACTER")


def detect_script(text: str) -> str:
    """Return the script of most letters; Han with kana is Japanese."""
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text)) else NO_LETTERS
    counts = Counter(map(_script_of_character, text))
    del counts[""]
    kana = sum(counts.pop(name, 0) for name in _KANA)
    if kana:
        counts["Japanese"] = kana + counts.pop("Han", 0)
    return counts.most_common(1)[0][0] if counts else NO_LETTERS


@functools.lru_cache(maxsize=1 << 16)
def _script_of_character(sign: str) -> str:
    """Return 'Latin', 'Cyrillic', 'Han'…, or "" for characters that scripts share."""
    if not sign.isalpha():
        return ""
    name = unicodedata.name(sign, "")
    if name.startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC")):
        return "Han"
    name = name.removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    if not any(kind in name for kind in _LETTERS):
        return ""  # symbols such as µ or ª
    first = name.split()[0]
    return "" if first in ("MODIFIER", "KATAKANA-HIRAGANA") else first.capitalize()
