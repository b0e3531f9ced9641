"""Normalise texts and split them into words for comparison."""

import re
import unicodedata

# Scripts without spaces: each character counts as a word.
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_UNSPACED}]+"
_CLITIC = r"['’]\w{1,2}\b"  # 's, 're, 'll: a word of its own
# Eyes, optional nose, mouth; `://` is part of a URL, `):` closes a bracket.
_FACE = r"(?<!\w)[:;=][-^'*~]?[dpo3x0](?!\w)|<3+|\^_*\^"  # a letter or digit as mouth
_EMOTICON = re.compile(
    rf"{_FACE}|[:;=][-^'*~o]*[()\[\]{{}}\\|@$*<>]|[:;=][-^']?/(?!/)|[(\[{{][-^'*]?[:;=]"
)
_WORD = re.compile(rf"{_FACE}|[{_UNSPACED}]|{_LETTERS}(?:['’.\-]+{_LETTERS})*|{_CLITIC}|[^\w\s]+")


def normalise(text: str) -> str:
    """Return the text with case, spacing and Unicode form normalised."""
    if text.isascii():
        return " ".join(text.lower().split())
    # Case folding can undo the normal form (ẞ, ΐ), so normalise again.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def is_emoticon(mark: str) -> bool:
    """Return whether a run of punctuation is an emoticon or emoji: `:)`, `;-(`, `<3`."""
    if _EMOTICON.search(mark):
        return True
    return not mark.isascii() and any(unicodedata.category(c) == "So" for c in mark)


def split_words(normal_text: str) -> list[str]:
    """Split into words and punctuation runs; `well-made`, `don't` and `u.s` are one word each."""
    return _WORD.findall(normal_text)
