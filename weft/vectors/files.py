"""Writing word vectors: word2vec text and binary, GloVe, fastText .vec and .bin, NumPy, ours.

Reading is weft/embed/vector_files/text.py: embedders need it too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from weft.embed.subwords import word_bytes
from weft.embed.vector_files import fasttext_bin
from weft.embed.vector_files.memory_map import encode_words
from weft.errors import UserError, unknown_name
from weft.storage import atomic_write, write_bytes

if TYPE_CHECKING:
    from weft.vectors.store import Vectors

_SPACE = re.compile(rb"[\x00-\x20\x7f]")  # what ends a word, or looks binary, in those formats
_CHUNK_ROWS = 1000  # rows formatted at once
_SKIPGRAM, _NEGATIVE = 2, 2  # fastText's numbers for its model and loss
# What fastText itself starts from; a reader needs a value, and these change no vector.
_DEFAULTS = {
    **{"ws": 5, "epoch": 5, "minCount": 1, "neg": 5, "wordNgrams": 1, "loss": _NEGATIVE},
    **{"model": _SKIPGRAM, "lrUpdateRate": 100, "t": 1e-4},
}


def write_vectors(vectors: Vectors, path: str | Path, format: str = "") -> None:
    """Write a file in the format that its ending says, or that is named.

    What is there already is replaced only once the new file is whole. Words, vectors and (in
    .bin, .npz, .safetensors) counts and sub-words come back exactly as they were; a text file
    has as many digits as a 32-bit number needs.
    """
    place = Path(path)
    name = writable(place, format)
    if name in ("npy", "npz", "safetensors"):
        _refuse(vectors, rb"\n", place, name, "Rename it.")
    else:
        hint = "Rename it (new_york), or write .npz or .safetensors, which hold any word."
        _refuse(vectors, _SPACE.pattern, place, name, hint)
    if isinstance(vectors.matrix, np.memmap):
        _ = vectors.lengths  # what is mapped was not looked at yet, and may not be finite
    with atomic_write(place) as part, part.open("wb") as stream:
        FORMATS[name](vectors, stream)
    if name == "npy":
        write_bytes(
            place.with_suffix(".words"), encode_words(list(vectors.words)).tobytes() + b"\n"
        )


def writable(path: str | Path, format: str = "") -> str:
    """The format in which vectors would be written there; an error where they cannot be."""
    place = Path(path)
    if place.is_dir():
        raise UserError(f"{place} is a folder. Name a file in it: {place / 'vectors.safetensors'}.")
    name = format or _by_ending(place)
    if name not in FORMATS:
        raise unknown_name("format", name, FORMATS, "word vectors")
    if not place.parent.is_dir():
        raise UserError(f"{place}: the folder {place.parent} does not exist. Make it first.")
    return name


def _by_ending(place: Path) -> str:
    ending = place.suffix.lower()
    if ending == ".bin":
        return "bin"
    if place.name.lower().endswith((".glove.txt", ".glove")):
        return "glove"
    if ending not in ENDINGS:
        known = ", ".join([*ENDINGS, ".glove.txt", ".bin"])
        raise UserError(
            f"{place}: the ending does not say a format of word vectors. "
            f"Use one of {known}, or name the format: {', '.join(FORMATS)}."
        )
    return ENDINGS[ending]


def _refuse(vectors: Vectors, pattern: bytes, place: Path, name: str, hint: str) -> None:
    bad = re.compile(pattern)
    for row, word in enumerate(vectors.words, start=1):
        if not word or bad.search(word_bytes(word)):
            what = f"the word {word!r} (row {row}) has a space or control character in it"
            raise UserError(
                f"{place}: {what if word else f'an empty word (row {row})'}; "
                f"a file of format '{name}' cannot hold it. {hint}"
            )


def _text(vectors: Vectors, stream: IO[bytes]) -> None:
    stream.write(f"{len(vectors)} {vectors.width}\n".encode())
    _glove(vectors, stream)


def _glove(vectors: Vectors, stream: IO[bytes]) -> None:
    matrix = vectors.matrix
    for begin in range(0, len(vectors), _CHUNK_ROWS):
        # The shortest decimals that give back the same 32-bit number.
        rows = np.asarray(matrix[begin : begin + _CHUNK_ROWS], np.float32).astype(str)
        words = vectors.words[begin : begin + _CHUNK_ROWS]
        for word, row in zip(words, rows.tolist(), strict=True):
            stream.write(word_bytes(word) + b" " + " ".join(row).encode() + b"\n")


def _word2vec_binary(vectors: Vectors, stream: IO[bytes]) -> None:
    stream.write(f"{len(vectors)} {vectors.width}\n".encode())
    matrix = vectors.matrix
    for row, word in enumerate(vectors.words):
        stream.write(word_bytes(word) + b" " + matrix[row].astype("<f4").tobytes() + b"\n")


def _fasttext(vectors: Vectors, stream: IO[bytes]) -> None:
    """A model that fastText and gensim load; without known context vectors those are zero."""
    V, E, subwords = len(vectors), vectors.width, vectors.subwords
    table = vectors.matrix if subwords is None else subwords.table
    kept = dict(vectors.record.get("fasttext", {}))
    counts = np.ones(V, np.int64) if vectors.counts is None else vectors.counts
    tokens = kept.get("tokens", int(counts.sum()))
    output = vectors.output
    if kept.get("model") == fasttext_bin.SUPERVISED:
        # Labels were not read, so what is left is a model of words.
        kept, output = {}, None
    settings = {**_DEFAULTS, **{name: kept[name] for name in _DEFAULTS if name in kept}}
    settings |= {"dim": E, "bucket": len(table) - V}
    settings["minn"] = subwords.shortest if subwords else kept.get("minn", 0)
    settings["maxn"] = subwords.longest if subwords else 0
    stream.write(fasttext_bin.START.pack(fasttext_bin.MAGIC_NUMBER, fasttext_bin.VERSION))
    stream.write(fasttext_bin.SETTINGS.pack(*(settings[name] for name in fasttext_bin.NAMES)))
    stream.write(fasttext_bin.SIZES.pack(V, V, 0, tokens, -1))
    for word, count in zip(vectors.words, counts.tolist(), strict=True):
        stream.write(word_bytes(word) + b"\0" + fasttext_bin.ENTRY.pack(count, 0))
    _matrix(stream, table)
    _matrix(stream, np.zeros((V, E), np.float32) if output is None else output)


def _matrix(stream: IO[bytes], matrix: np.ndarray) -> None:
    stream.write(fasttext_bin.SHAPE.pack(False, *matrix.shape))
    for begin in range(0, len(matrix), _CHUNK_ROWS):
        stream.write(np.ascontiguousarray(matrix[begin : begin + _CHUNK_ROWS], "<f4").tobytes())


def _bin(vectors: Vectors, stream: IO[bytes]) -> None:
    """fastText's where there is something only it can hold, else word2vec's."""
    own = vectors.subwords is not None or "fasttext" in vectors.record
    (_fasttext if own else _word2vec_binary)(vectors, stream)


def _arrays(vectors: Vectors) -> dict[str, np.ndarray]:
    about: dict[str, object] = {"format": 1, "record": vectors.record}
    arrays = {"matrix": vectors.matrix, "words": encode_words(list(vectors.words))}
    if vectors.counts is not None:
        arrays["counts"] = np.asarray(vectors.counts, np.int64)
    if vectors.output is not None:
        arrays["output"] = vectors.output
    if vectors.subwords is not None:
        arrays["subwords"] = vectors.subwords.table
        about |= {"shortest": vectors.subwords.shortest, "longest": vectors.subwords.longest}
    arrays["about"] = np.frombuffer(json.dumps(about, default=_plain).encode(), np.uint8)
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _plain(value: object) -> object:
    """Numbers of NumPy as JSON knows them; anything else as it is written."""
    return value.item() if isinstance(value, np.generic) else str(value)


def _npz(vectors: Vectors, stream: IO[bytes]) -> None:
    np.savez(stream, **_arrays(vectors))  # type: ignore[arg-type]


def _npy(vectors: Vectors, stream: IO[bytes]) -> None:
    np.save(stream, np.ascontiguousarray(vectors.matrix, np.float32))


def _safetensors(vectors: Vectors, stream: IO[bytes]) -> None:
    from safetensors.numpy import save_file

    save_file(_arrays(vectors), stream.name, metadata={"format": "weft word vectors"})


FORMATS: dict[str, Callable[[Vectors, IO[bytes]], None]] = {
    "word2vec": _text,
    "glove": _glove,
    "word2vec-binary": _word2vec_binary,
    "fasttext": _fasttext,
    "bin": _bin,
    "npz": _npz,
    "npy": _npy,
    "safetensors": _safetensors,
}
ENDINGS = {
    ".txt": "word2vec",
    ".vec": "word2vec",
    ".npz": "npz",
    ".npy": "npy",
    ".safetensors": "safetensors",
}
