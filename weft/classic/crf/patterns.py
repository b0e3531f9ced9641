"""Kinds of words that a pattern recognises: e-mail addresses, URLs, phone numbers and numbers."""

import re

MAX_CHARACTERS = 300  # of a word that is looked at; longer ones are no such thing
PHONE_DIGITS = range(7, 16)  # from a local number to the longest of the ITU's E.164

_DOMAINS = "com|org|net|edu|gov|mil|int|info|biz|io|ai|co|tv|me|eu|uk|de|fr|nl|ca|au|jp|ru|in|us"
_NUMBER = r"\d+(?:[.,]\d+)*"
_CURRENCY = r"[$€£¥₹]"
PATTERNS = {
    "email": re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+"),
    "url": re.compile(
        rf"(?:https?|ftp)://\S+|www\.\S+|(?:[\w-]+\.)+(?:{_DOMAINS})(?:[:/?#]\S*)?",
        re.IGNORECASE,
    ),
    "date": re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})"),
    "time": re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?:[ap]\.?m\.?)?", re.IGNORECASE),
    "phone": re.compile(r"\+?\(?\d{1,4}\)?(?:[ ./-]?\(?\d{2,4}\)?){1,4}"),
    "percent": re.compile(rf"[+-]?{_NUMBER}%"),
    "money": re.compile(rf"[+-]?{_CURRENCY}{_NUMBER}[kmb]?|{_NUMBER}{_CURRENCY}", re.IGNORECASE),
    "ordinal": re.compile(r"\d+(?:st|nd|rd|th)", re.IGNORECASE),
    "number": re.compile(rf"[+-]?(?:{_NUMBER}|[.,]\d+)"),
}


def recognise(word: str) -> str:
    """Return the kind of a word, such as email or phone; "" if it is none of them."""
    if len(word) > MAX_CHARACTERS:
        return ""
    for kind, pattern in PATTERNS.items():
        if pattern.fullmatch(word) and (kind != "phone" or _is_phone(word)):
            return kind
    return ""


def _is_phone(word: str) -> bool:
    """Tell a phone number from a plain one: enough digits, and a plus or separators between."""
    digits = sum(character.isdigit() for character in word)
    separated = word.startswith("+") or any(mark in word for mark in " ()-/") or word.count(".") > 1
    return digits in PHONE_DIGITS and separated
