"""When two texts count as the same, and the words by which they are compared."""

import re
import unicodedata

# Written without spaces between words: each sign is taken for a word.
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_LETTERS = rf"[^\W{_UNSPACED}]+"
_CLITIC = r"['’]\w{1,2}\b"  # 's, 're, 'll: a word even where it stands alone
# Eyes, perhaps a nose, and a mouth; `://` is part of an address, `):` closes a bracket.
_FACE = r"(?<!\w)[:;=][-^'*~]?[dpo3x0](?!\w)|<3+|\^_*\^"  # a letter or digit for the mouth
_EMOTICON = re.compile(
    rf"{_FACE}|[:;=][-^'*~o]*[()\[\]{{}}\\|@$*<>]|[:;=][-^']?/(?!/)|[(\[{{][-^'*]?[:;=]"
)
_WORD = re.compile(rf"{_FACE}|[{_UNSPACED}]|{_LETTERS}(?:['’.\-]+{_LETTERS})*|{_CLITIC}|[^\w\s]+")


def normalise(text: str) -> str:
    """The text without differences of case, spacing and Unicode form."""
    if text.isascii():
        return " ".join(text.lower().split())
    # Case folding can undo the normal form (ẞ, ΐ), so it is made once more.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def is_emoticon(mark: str) -> bool:
    """Return whether a run of signs is a face or another picture: `:)`, `;-(`, `<3`, an emoji."""
    return bool(_EMOTICON.search(mark)) or any(unicodedata.category(c) == "So" for c in mark)


def split_words(normal_text: str) -> list[str]:
    """Words and runs of punctuation; `well-made`, `don't` and `u.s` are one word each."""
    return _WORD.findall(normal_text)
