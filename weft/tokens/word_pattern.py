"""The definition of a word as one regular expression of the `tokenizers` library.

Letters, marks and digits run together, in every script that puts spaces between words and in
those that do not (Thai, Lao, Khmer: a run is one token). Inside a run stay
- apostrophes between letters: "don't" and "l'homme" are one token each, in every language;
- points and commas between digits: "3.14", "1,000";
- hyphens between letters or digits, if `hyphens` is set: "well-made", else three tokens.
Chinese and Japanese characters are one token each. An emoji is one token with its skin tone and
joined parts, a flag likewise. Any other character that is not whitespace is a token by itself.
URLs, e-mail addresses and hashtags are not special.
"""

from weft.tokens.vocabulary import SPECIALS

# ー is shared by scripts in Unicode's tables, but only ever written between kana.
_IDEOGRAPH = r"\p{Han}\p{Hiragana}\p{Katakana}ー"
# Joiners and the soft hyphen are invisible and belong to the word around them (Persian, Hindi).
_LETTER = rf"[\p{{L}}\p{{M}}\p{{N}}\x{{200C}}\x{{200D}}\x{{AD}}&&[^{_IDEOGRAPH}]]"
_PICTURE = r"\p{Extended_Pictographic}[\x{FE0E}\x{FE0F}\x{1F3FB}-\x{1F3FF}\x{E0020}-\x{E007F}]*+"
_EMOJI = (
    rf"{_PICTURE}(?:\x{{200D}}{_PICTURE})*+"
    r"|[\x{1F1E6}-\x{1F1FF}]{2}"  # a flag is two regional letters
    r"|[0-9#*]\x{FE0F}?\x{20E3}"  # a key: 1️⃣
)

# `++` and `*+` never give back what they matched, so a line of a million characters is linear.
_INSIDE = r"(?<=\p{L}|\p{M})['’](?=\p{L})|(?<=\p{N})[.,](?=\p{N})"

WHITESPACE_WORDS = "|".join(
    (
        # A text that spells "<pad>" must not become padding, so it is two tokens: "<" and "pad>".
        rf"(?<!\S)<(?=(?:{'|'.join(special[1:-1] for special in SPECIALS)})>(?!\S))",
        r"\S++",
    )
)


def word_regex(hyphens: bool = False) -> str:
    """The expression that matches exactly the words of a text."""
    inside = _INSIDE + (rf"|-(?={_LETTER})" if hyphens else "")
    run = rf"{_LETTER}++(?:(?:{inside}){_LETTER}++)*+"
    return rf"{_EMOJI}|{run}|[{_IDEOGRAPH}]\p{{M}}*+|\S"


def word_internal_characters(letters: list[str]) -> set[str]:
    """Those of the single characters that can stand inside a word, after its first character."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    inner = Split(Regex(rf"{_LETTER}|['’.,]"), "removed", invert=True)
    return {letter for letter in letters if inner.pre_tokenize_str(letter)}
