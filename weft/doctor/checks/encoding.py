"""What happened to a text on its way here: mojibake, control characters, leftovers of HTML."""

import re
import unicodedata

# Bytes read as Windows-1252, with the five it does not define as Latin-1 reads them.
_BYTE = {bytes([b]).decode("cp1252", "ignore") or chr(b): b for b in range(0x80, 0x100)}
_BYTE |= {chr(b): b for b in range(0x80, 0xA0)}
# Control signs that were Windows-1252 punctuation before somebody read them as Latin-1.
_WINDOWS = {chr(b): bytes([b]).decode("cp1252", "ignore") for b in range(0x80, 0xA0)}
_C1 = re.compile("[\x80-\x9f]")
_FOLLOW = "".join(re.escape(sign) for sign, byte in _BYTE.items() if byte < 0xC0)
# First signs that hardly ever stand before such a second one in real text…
_SURE = re.compile(
    f"[ÂÃ][{_FOLLOW}]|â[\x80€‚\x82„\x84][{_FOLLOW}]|ï[»\xbb][¿\xbf]|ï¿½|ð\x9f[{_FOLLOW}]{{2}}|ðŸ[{_FOLLOW}]{{2}}"
)
# …and first signs that sometimes do: believed when there are two in a row (Cyrillic, Greek, Han…).
_RUN = re.compile(f"(?:[Ä-ß][{_FOLLOW}]|[à-ï][{_FOLLOW}]{{2}}){{2,}}")

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Joiners belong to pictures that are made of several (families, flags, skin tones), and to the
# spelling of Arabic, Indic and other scripts; after a Latin letter, to nothing.
_JOINED = "\u0590-\u10ff\u1780-\u18af\u1900-\u1cff\u20e3\u2190-\u2bff\u3030-\u303d\u3297\u3299"
_JOINED += "\ua800-\uabff\ufb1d-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U00011fff\U0001f000-\U0001faff"
INVISIBLE = re.compile(
    f"[\u200b\u200e\u200f\u2060\u00ad\ufeff]|(?<![{_JOINED}\U000e0020-\U000e007f])[\u200c\u200d]"
)
MARKUP = re.compile(
    r"</?(?:a|b|br|div|em|font|h[1-6]|i|img|li|ol|p|span|strong|table|td|tr|ul)\b[^<>]*>"
    r"|&(?:amp|lt|gt|quot|apos|nbsp|#\d{1,6}|#x[0-9a-f]{1,5});",
    re.IGNORECASE,
)
_HORIZONTAL = re.compile(r"[^\S\n]+")
_AROUND_BREAKS = re.compile(r" ?\n ?")
_MANY_BREAKS = re.compile(r"\n{3,}")


def find_damage(text: str) -> tuple[str, ...]:
    """The kinds of damage in a text, as the findings call them."""
    found = []
    if not text.isascii():
        if "\ufffd" in text:
            found.append("replacement")
        if fix_mojibake(text) != text:
            found.append("mojibake")
        if INVISIBLE.search(text):
            found.append("invisible")
        if not unicodedata.is_normalized("NFC", text):
            found.append("normalisation")
    if not text.isprintable() and CONTROL.search(text):
        found.append("control")
    if ("<" in text or "&" in text) and MARKUP.search(text):
        found.append("markup")
    return tuple(found)


def describe_invisible(text: str) -> str:
    """The first invisible character of a text, by its number and name, and how many there are."""
    found = list(INVISIBLE.finditer(text))
    if not found:
        return ""
    sign = found[0].group()
    name = unicodedata.name(sign, "").lower()
    more = f", {len(found)} in all" if len(found) > 1 else ""
    return f"U+{ord(sign):04X} {name} at character {found[0].start()}{more}"


def describe_unicode_form(text: str) -> str:
    """Which Unicode form a text that is not in NFC has, and the first letter that shows it."""
    if unicodedata.is_normalized("NFC", text):
        return "NFC"
    form = "NFD" if unicodedata.is_normalized("NFD", text) else "NFC and NFD mixed"
    for place, sign in enumerate(text):
        if place and unicodedata.combining(sign):
            pair = text[place - 1 : place + 1]
            if not unicodedata.is_normalized("NFC", pair):
                whole = unicodedata.normalize("NFC", pair)
                told = f"'{whole}' is '{pair[0]}' + U+{ord(sign):04X} at character {place - 1}"
                return f"{form}: {told}"
    return form


def fix_mojibake(text: str) -> str:
    """UTF-8 that was read as Windows-1252 or Latin-1, read again; only where that is exact."""
    for _ in range(2):  # it does happen twice
        mended = _RUN.sub(_decode_match, _SURE.sub(_decode_match, text))
        if mended == text:
            return text
        text = mended
    return text


def _decode_match(match: re.Match[str]) -> str:
    found = match.group()
    try:
        mended = bytes(_BYTE[sign] for sign in found).decode("utf-8")
    except (UnicodeDecodeError, KeyError):
        return found
    # A control character or an unassigned sign is no text that somebody wrote.
    sound = all(unicodedata.category(sign) not in ("Cc", "Cn", "Co", "Cs") for sign in mended)
    return mended if sound else found


def clean_text(text: str) -> str:
    """The text mended: mojibake, control and invisible characters, Unicode form, white space."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", fix_mojibake(text))
        text = INVISIBLE.sub("", text)
        text = _C1.sub(lambda found: _WINDOWS[found.group()], text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _HORIZONTAL.sub(" ", CONTROL.sub("", text))
    return _MANY_BREAKS.sub("\n\n", _AROUND_BREAKS.sub("\n", text)).strip()
