"""Detect and repair mojibake, control and invisible characters, and HTML remnants."""

import re
import unicodedata

# Characters of bytes read as Windows-1252, its five undefined ones as Latin-1.
_BYTE = {bytes([b]).decode("cp1252", "ignore") or chr(b): b for b in range(0x80, 0x100)}
_BYTE |= {chr(b): b for b in range(0x80, 0xA0)}
# Control characters that were Windows-1252 punctuation, read as Latin-1.
_WINDOWS = {chr(b): bytes([b]).decode("cp1252", "ignore") for b in range(0x80, 0xA0)}
_C1 = re.compile("[\x80-\x9f]")
_FOLLOW = "".join(re.escape(sign) for sign, byte in _BYTE.items() if byte < 0xC0)
# Lead characters that hardly ever precede such a second one in real text…
_SURE = re.compile(
    f"[ÂÃ][{_FOLLOW}]|â[\x80€‚\x82„\x84][{_FOLLOW}]|ï[»\xbb][¿\xbf]|ï¿½|ð\x9f[{_FOLLOW}]{{2}}|ðŸ[{_FOLLOW}]{{2}}"
)
# …and those that sometimes do: accepted if there are two in a row (Cyrillic, Greek, Han…).
_RUN = re.compile(f"(?:[Ä-ß][{_FOLLOW}]|[à-ï][{_FOLLOW}]{{2}}){{2,}}")

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Joiners belong in composed emoji (families, flags, skin tones) and in the spelling of Arabic,
# Indic and other scripts, but not after a Latin letter.
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
    """Return the kinds of damage in a text, as findings name them."""
    kinds = []
    if not text.isascii():
        if "\ufffd" in text:
            kinds.append("replacement")
        if fix_mojibake(text) != text:
            kinds.append("mojibake")
        if INVISIBLE.search(text):
            kinds.append("invisible")
        if not unicodedata.is_normalized("NFC", text):
            kinds.append("normalisation")
    if not text.isprintable() and CONTROL.search(text):
        kinds.append("control")
    if ("<" in text or "&" in text) and MARKUP.search(text):
        kinds.append("markup")
    return tuple(kinds)


def describe_invisible(text: str) -> str:
    """Describe the first invisible character of a text, and how many there are."""
    matches = list(INVISIBLE.finditer(text))
    if not matches:
        return ""
    sign = matches[0].group()
    name = unicodedata.name(sign, "").lower()
    more = f", {len(matches)} in all" if len(matches) > 1 else ""
    return f"U+{ord(sign):04X} {name} at character {matches[0].start()}{more}"


def describe_unicode_form(text: str) -> str:
    """Describe the Unicode form of a text, and the first decomposed letter."""
    if unicodedata.is_normalized("NFC", text):
        return "NFC"
    form = "NFD" if unicodedata.is_normalized("NFD", text) else "NFC and NFD mixed"
    for position, sign in enumerate(text):
        if position and unicodedata.combining(sign):
            pair = text[position - 1 : position + 1]
            if not unicodedata.is_normalized("NFC", pair):
                whole = unicodedata.normalize("NFC", pair)
                letter = f"'{whole}' is '{pair[0]}' + U+{ord(sign):04X} at character {position - 1}"
                return f"{form}: {letter}"
    return form


def fix_mojibake(text: str) -> str:
    """Repair UTF-8 that was read as Windows-1252 or Latin-1, where that is exact."""
    for _ in range(2):  # it may have happened twice
        repaired = _RUN.sub(_decode_match, _SURE.sub(_decode_match, text))
        if repaired == text:
            return text
        text = repaired
    return text


def _decode_match(match: re.Match[str]) -> str:
    garbled = match.group()
    try:
        repaired = bytes(_BYTE[sign] for sign in garbled).decode("utf-8")
    except (UnicodeDecodeError, KeyError):
        return garbled
    # Nobody writes control or unassigned characters.
    sound = all(unicodedata.category(sign) not in ("Cc", "Cn", "Co", "Cs") for sign in repaired)
    return repaired if sound else garbled


def clean_text(text: str) -> str:
    """Repair mojibake, control and invisible characters, Unicode form and white space."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", fix_mojibake(text))
        text = INVISIBLE.sub("", text)
        text = _C1.sub(lambda match: _WINDOWS[match.group()], text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _HORIZONTAL.sub(" ", CONTROL.sub("", text))
    return _MANY_BREAKS.sub("\n\n", _AROUND_BREAKS.sub("\n", text)).strip()
