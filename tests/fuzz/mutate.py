"""Damage to files: of their bytes, their lines, their numbers, their JSON, or inside a packing.

Every mutator takes the bytes of a file and a `random.Random`, and returns other bytes. The same
random state gives the same bytes.
"""

import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutator = Callable[[bytes, Random], bytes]

LARGEST = 1 << 20  # bytes of a mutated file

# Pieces that broke some reader of some toolkit before.
PIECES = (
    *(b"\x00", b"\xff", b"\r", b"\r\n", b"\n", b"\n\n", b"\t", b'"', b'""', b",", b";", b" "),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xf0\x9f\x98\x80", b"\x1b]0;x\x07"),
    *("²".encode(), "٣".encode(), "\u200b".encode(), "e\u0301".encode(), "\u2028".encode()),
    *(b"\\ud800", b"\\u0000", b"NaN", b"Infinity", b"1e999", b"null", b"-1", b"0", b"__label__"),
    *(b"(", b")", b"((", b"[", b"]", b"{", b"}", b"-DOCSTART-", b"#", b"# sent_id =", b"B-", b"="),
    *(b"9" * 4301, b"[" * 5000, b"(" * 5000, b'{"a":' * 5000, b"a" * 140_000, b"a,\r" * 300),
)
NUMBERS = (
    *(b"0", b"-1", b"1", b"255", b"65536", b"2147483647", b"2147483648", b"4294967296"),
    *(b"9223372036854775807", b"9223372036854775808", b"1000000000000", b"1e400", b"nan", b"-0"),
    *(b"9" * 4301, "²".encode(), "٣".encode(), b"0x10", b"1_000", b"", b"1.5", b"007"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -1e308, float("nan"), float("inf")),
    *("", " ", "\ud800", "\x00", "²", "\x1b[2J", "a" * 140_000, "text", "label", "\u200b", "\n"),
    *([], {}, [None], [[]], [{}], {"": ""}, {"text": {}}, ["\ud800"], [0, 1, "PER"], {"start": 0}),
)


def mutated(data: bytes, random: Random, mates: Sequence[bytes] = ()) -> bytes:
    """Damage data in one to three ways; `mates` are files from which a piece may come."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if mates and random.random() < 0.05:
            data = splice(data, random.choice(mates), random)
        else:
            data = random.choice(MUTATORS)(data, random)
    return data[:LARGEST]


def flip(data: bytes, random: Random) -> bytes:
    """Change some bytes."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        if out:
            place = random.randrange(len(out))
            out[place] = random.choice(
                (out[place] ^ 1 << random.randrange(8), random.randrange(256))
            )
    return bytes(out)


def cut(data: bytes, random: Random) -> bytes:
    """Truncate."""
    return data[: random.randrange(len(data) + 1)]


def drop(data: bytes, random: Random) -> bytes:
    """Remove a stretch."""
    start, end = _stretch(data, random)
    return data[:start] + data[end:]


def repeat(data: bytes, random: Random) -> bytes:
    """Repeat a stretch."""
    start, end = _stretch(data, random)
    times = random.choice((1, 2, 50, 1000))
    return data[:end] + (data[start:end] * times)[:LARGEST] + data[end:]


def insert(data: bytes, random: Random) -> bytes:
    """Insert a piece that is known for trouble."""
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(PIECES) + data[place:]


def renumber(data: bytes, random: Random) -> bytes:
    """Replace a run of digits by another number."""
    starts = [i for i, b in enumerate(data) if 48 <= b < 58 and not data[i - 1 : i].isdigit()]
    if not starts:
        return insert(data, random)
    start = end = random.choice(starts)
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    return data[:start] + random.choice(NUMBERS) + data[end:]


def relined(data: bytes, random: Random) -> bytes:
    """Move, repeat, drop, join or blank whole lines."""
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            lines[at], lines[other] = lines[other], lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            del lines[at]
        case 3:
            lines[at : at + 2] = [b"".join(lines[at : at + 2])]
        case 4:
            lines.insert(at, random.choice((b"", b" ", b"\t", b"\xc2\xa0", b"#", b"-DOCSTART- O")))
        case 5:
            lines[at] = lines[at][: random.randrange(len(lines[at]) + 1)]
    return b"\n".join(lines)


def rewritten(data: bytes, random: Random) -> bytes:
    """Change the JSON of the whole file, or of one of its lines."""
    if len(data) > LARGEST:
        return flip(data, random)
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    for piece, put in ((data, None), (lines[at], at)):
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        made = json.dumps(_changed(value, random), ensure_ascii=random.random() < 0.5)
        made_bytes = made.encode("utf-8", "surrogatepass")
        if put is None:
            return made_bytes
        lines[put] = made_bytes
        return b"\n".join(lines)
    return insert(data, random)


def inside(data: bytes, random: Random) -> bytes:
    """Damage what is packed and pack it again, so that the packing itself stays sound."""
    inner = random.choice((flip, cut, drop, insert, renumber, relined, rewritten))
    try:
        if data.startswith(b"\x1f\x8b"):
            return gzip.compress(inner(gzip.decompress(data), random), 1, mtime=0)
        if data.startswith(b"\xfd7zXZ"):
            return lzma.compress(inner(lzma.decompress(data), random), preset=0)
        if data.startswith(b"PK"):
            return _rezipped(data, inner, random)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError):
        pass
    except Exception as error:  # what a damaged archive raises is not of interest here
        del error
    return inner(data, random)


def splice(data: bytes, other: bytes, random: Random) -> bytes:
    """The beginning of one file and the end of another."""
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


MUTATORS: tuple[Mutator, ...] = (
    flip, cut, drop, repeat, insert, insert, renumber, renumber, relined, relined, rewritten,
    rewritten, inside, inside,
)  # fmt: skip


def _stretch(data: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 7, 31, 257)))


def _changed(value: Any, random: Random) -> Any:
    """The value with one node of it replaced, removed or renamed."""
    if not isinstance(value, (dict, list)) or not value or random.random() < 0.2:
        return random.choice(VALUES)
    if isinstance(value, list):
        out = list(value)
        at = random.randrange(len(out))
        out[at] = _changed(out[at], random)
        if random.random() < 0.1:
            del out[at]
        return out
    made = dict(value)
    key = random.choice(list(made))
    draw = random.random()
    if draw < 0.1:
        del made[key]
    elif draw < 0.15:
        made[random.choice(("", "text", "label", "\ud800", "²"))] = made.pop(key)
    else:
        made[key] = _changed(made[key], random)
    return made


def _rezipped(data: bytes, inner: Mutator, random: Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        names = old.namelist()
        chosen = random.choice(names) if names else ""
        for name in names:
            member = old.read(name)
            new.writestr(name, inner(member, random) if name == chosen else member)
    return out.getvalue()
