"""Check an untrusted tokenizer.json before the library parses it.

The `tokenizers` library searches with Oniguruma, which backtracks: an expression such as (a+)+$
takes time exponential in the text, and panics when its own limit is reached. A normalizer that
replaces a letter by a page multiplies every text; an id of 2³¹ needs a table of as many rows.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import Json, JsonObject

MAX_GROWTH = (
    128  # times that a text may grow; the longest entry of SentencePiece's NFKC is 33 bytes
)
MAX_WORD_CHARACTERS = 10_000  # characters of a word that is cut into pieces
MAX_AFFIX_CHARACTERS = 100  # characters of what marks a piece inside a word
MAX_IDS_PER_ENTRY, SPARE_IDS = (
    4,
    65_536,
)  # ids: so many times the entries, and some more, may go unused
MAX_LOOPS = 2  # repetitions, one behind the other, that an expression may go back into
UNBOUNDED = 10  # from so many on a bounded repetition counts as one without bound


def check(text: str, where: str) -> None:
    """Raise a UserError for a tokenizer.json that could take unbounded time or memory."""
    try:
        data = jsonio.parse(text, where)
    except UserError as error:
        advice = "Make one with 'weft tokens train'."
        raise UserError(f"{where}: not a tokenizer file, or damaged: {error} {advice}") from None
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise UserError(
            f"{where}: not a tokenizer file, or damaged: there is no model in it. "
            "Make one with 'weft tokens train'."
        )
    for pattern in _patterns(data):
        if reason := find_backtracking(pattern):
            raise UserError(
                f"{where}: the regular expression {pattern[:60]!r} {reason}, so that a text could "
                "take hours. Weft does not load such a tokenizer."
            )
    for part in ("normalizer", "decoder"):
        if _growth(data.get(part)) > MAX_GROWTH:
            raise UserError(
                f"{where}: the {part} makes a text more than {MAX_GROWTH} times as long. Weft does "
                "not load such a tokenizer."
            )
    _check_model(data["model"], where)
    _check_all_ids(data["model"], data.get("added_tokens"), where)


def _check_model(model: JsonObject, where: str) -> None:
    longest = model.get("max_input_chars_per_word")
    if isinstance(longest, int) and longest > MAX_WORD_CHARACTERS:
        raise UserError(
            f"{where}: max_input_chars_per_word is {longest:,}; "
            f"{MAX_WORD_CHARACTERS:,} at most are read."
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        mark = model.get(name)
        if isinstance(mark, str) and len(mark) > MAX_AFFIX_CHARACTERS:
            message = f"{len(mark):,} characters; {MAX_AFFIX_CHARACTERS} at most are read"
            raise UserError(f"{where}: {name} has {message}.")


def _check_all_ids(model: JsonObject, added: Json, where: str) -> None:
    """Check the ids of the model and of the tokens that were added to it."""
    vocabulary = model.get("vocab")
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else []
    entries = len(vocabulary) if isinstance(vocabulary, (dict, list)) else 0
    if isinstance(added, list):
        ids += [one.get("id") for one in added if isinstance(one, dict)]
        entries += len(added)
    check_ids(ids, entries, where)


def check_ids(ids: Iterable[Json], entries: int, where: str) -> None:
    """Refuse ids far beyond the number of entries: the table has a row for each id up to them."""
    largest = max((i for i in ids if isinstance(i, int)), default=0)
    if largest > MAX_IDS_PER_ENTRY * entries + SPARE_IDS:
        raise UserError(
            f"{where}: the id {largest:,} in a vocabulary of {entries:,} entries. The file is "
            "damaged, or not meant for a model."
        )


def _patterns(data: Json) -> Iterator[str]:
    """Yield every regular expression in a file."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name == "Regex" and isinstance(value, str):
                yield value
            elif name != "vocab":
                yield from _patterns(value)
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        for value in data:
            yield from _patterns(value)


def _growth(part: Json) -> float:
    """Return the most times that a text can grow by what a file chooses freely."""
    if not isinstance(part, dict):
        return 1
    out = 1.0
    for name in ("normalizers", "decoders"):
        rows = part.get(name)
        for one in rows if isinstance(rows, list) else ():
            out *= _growth(one)
    kind, content = part.get("type"), part.get("content")
    if kind == "Replace" and isinstance(content, str):
        pattern = part.get("pattern")
        plain = pattern.get("String") if isinstance(pattern, dict) else None
        if isinstance(plain, str) and plain:
            out *= max(1, len(content.encode("utf-8", "replace")) / len(plain.encode()))
        else:  # an expression may match nothing, between any two characters
            out *= 1 + len(content.encode("utf-8", "replace"))
    elif kind == "Prepend":
        out *= 1 + len(str(part.get("prepend"))) / 16  # once for each piece of a text
    elif kind == "Precompiled":
        out *= _longest_entry(part.get("precompiled_charsmap"))
    return out


def _longest_entry(blob: Json) -> int:
    """Return the bytes of the longest text that a SentencePiece map can put for a character."""
    try:
        data = base64.b64decode(blob if isinstance(blob, str) else "", validate=False)
    except (ValueError, binascii.Error):
        return 1
    start = 4 + int.from_bytes(data[:4], "little")
    return max(map(len, data[start:].split(b"\0")), default=1) or 1


@dataclass
class _Group:
    """An open group of an expression: what its branches hold so far."""

    atomic: bool = False
    loops: int = 0  # in the branch that is read
    most: int = 0  # in the branches before
    varies: bool = False  # whether it can match in more than one way

    @property
    def total(self) -> int:
        return max(self.loops, self.most)


def find_backtracking(pattern: str) -> str:
    """Return why an expression can take more than a low power of a text's length; '' if not.

    Possessive repetitions and atomic groups never go back, and count for nothing. Every other
    expression may repeat what it likes, but not repeat what repeats or chooses; and only a few
    repetitions may stand behind each other.
    """
    stack, before, at = [_Group()], None, 0  # `before`: what a quantifier here would repeat
    while at < len(pattern):
        sign, top = pattern[at], stack[-1]
        if sign == "\\":
            if pattern[at + 1 : at + 2] in tuple("123456789kg"):
                return "refers back to what it matched"
            at = _escape_end(pattern, at)
            before = _Group()
        elif sign == "[":
            at = _class_end(pattern, at)
            before = _Group()
        elif sign == "(":
            group, length = _open_group(pattern, at)
            if group is None:
                return "uses a construct that is not read"
            stack.append(group)
            at, before = at + length, None
        elif sign == ")" and len(stack) > 1:
            before = stack.pop()
            if before.atomic:
                before.varies, before.loops, before.most = False, 0, 0
            stack[-1].loops += before.total
            stack[-1].varies |= before.varies
            at += 1
        elif sign == "|":
            top.most, top.loops, top.varies, before = top.total, 0, True, None
            at += 1
        elif (many := _quantifier(pattern, at)) is not None:
            most, length, possessive = many
            if not possessive and before is not None:
                if most >= UNBOUNDED and before.varies:
                    return "repeats what itself repeats or chooses"
                top.loops += most >= UNBOUNDED
                top.varies = True
                before = _Group(varies=True)
            at += length
        else:
            at, before = at + 1, _Group()
        if stack[-1].loops > MAX_LOOPS:
            return f"has more than {MAX_LOOPS} repetitions behind each other"
    return ""


def _open_group(pattern: str, at: int) -> tuple[_Group | None, int]:
    """The group that opens here and the length of its opening; None for what is not read."""
    rest = pattern[at : at + 4]
    if not rest.startswith("(?"):
        return (None, 1) if rest.startswith("(*") else (_Group(), 1)
    for start in ("(?<=", "(?<!", "(?=", "(?!", "(?:", "(?>"):
        if rest.startswith(start):
            return _Group(start == "(?>"), len(start)
    end = at + 2
    while end < len(pattern) and (pattern[end].isalnum() or pattern[end] in "-<_"):
        end += 1
    if pattern[end : end + 1] in (":", ">", ")"):  # (?i:…), (?<name>…), (?i)
        return _Group(), end - at + (pattern[end] != ")")
    return None, 1


def _quantifier(pattern: str, at: int) -> tuple[int, int, bool] | None:
    """The most repetitions, the length, and whether they are possessive; None if it is none."""
    sign = pattern[at]
    if sign in "*+?":
        more = pattern[at + 1 : at + 2]
        most = 1 if sign == "?" else UNBOUNDED
        return most, 1 + (more in ("?", "+") and more != ""), more == "+"
    end = pattern.find("}", at)
    if sign != "{" or end < 0:
        return None
    low, comma, high = pattern[at + 1 : end].partition(",")
    if not all(side == "" or (side.isascii() and side.isdigit()) for side in (low, high)):
        return None
    if not low and not high:
        return None
    most = UNBOUNDED if (comma and not high) else min(int((high or low)[:9]), 10**9)
    fixed = not comma
    lazy = pattern[end + 1 : end + 2] == "?"
    return (1 if fixed and most < UNBOUNDED else most), end + 1 - at + lazy, False


def _escape_end(pattern: str, at: int) -> int:
    """Return the end of an escape such as \\p{L} or \\x{200D}."""
    if pattern[at + 1 : at + 2] in tuple("pPxo") and pattern[at + 2 : at + 3] == "{":
        end = pattern.find("}", at)
        return end + 1 if end > 0 else len(pattern)
    return at + 2


def _class_end(pattern: str, at: int) -> int:
    """Return the end of a character class such as [a-z&&[^b]]."""
    depth, i = 0, at
    while i < len(pattern):
        if pattern[i] == "\\":
            i = _escape_end(pattern, i)
            continue
        depth += (pattern[i] == "[") - (pattern[i] == "]")
        i += 1
        if not depth:
            return i
    return len(pattern)
