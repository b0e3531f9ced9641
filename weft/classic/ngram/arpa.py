"""N-gram models as ARPA files, the text format that KenLM, SRILM and speech decoders read.

A line is a base-10 logarithm, the words, and a backoff where longer n-grams may follow. There <s>
and </s> mark a sentence, which are <bos> and <eos> here. M n-grams   N the order
"""

import gzip
import math
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from weft.classic.ngram import kernels as kernels
from weft.classic.ngram.counts import Marks
from weft.classic.ngram.trie import NGram
from weft.errors import UserError
from weft.tokens.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

NEVER = -99.0  # how the format writes the logarithm of zero
TEN = math.log(10)
_OURS = {b"<s>": BOS, b"</s>": EOS, b"<unk>": UNK, b"<UNK>": UNK}
_BLANK = re.compile(r"[ \t\r\n\v\f\0]")
_SIZES = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)\s*$")


def write_arpa(model: NGram, vocabulary: Vocabulary, path: Path) -> None:
    """Write a model; a name that ends in .gz is compressed."""
    names = _written(model, vocabulary)
    try:
        with _open_to_write(Path(path)) as file:
            _write(model, names, file)
    except OSError as error:
        raise UserError(f"{path}: cannot write the n-grams: {error.strerror}.") from error


def _written(model: NGram, vocabulary: Vocabulary) -> list[str]:
    """The words as they stand in the file."""
    if len(vocabulary) != model.size:
        raise UserError(
            f"The vocabulary has {len(vocabulary)} entries and the n-gram model {model.size} words."
        )
    marks = {model.marks.bos: "<s>", model.marks.eos: "</s>", model.marks.unk: "<unk>"}
    names = [marks.get(i, entry) for i, entry in enumerate(vocabulary.entries)]
    for i, name in enumerate(names):
        if not name or _BLANK.search(name) or (name.encode() in _OURS and i not in marks):
            raise UserError(
                f"An ARPA file cannot hold the word {name!r}: words stand between spaces there, "
                "and <s>, </s> and <unk> are marks."
            )
    return names


def _write(model: NGram, names: list[str], file: IO[str]) -> None:
    silent = {*model.marks.silent} - {model.marks.bos}  # have no place in the format
    sizes = np.diff(model.starts)
    sizes[0] -= len(silent)
    file.write("\\data\\\n")
    file.writelines(f"ngram {k}={n}\n" for k, n in enumerate(sizes.tolist(), 1))
    # float32 has 7 to 8 digits that mean something.
    scores = np.maximum(model.scores.astype(np.float64) / TEN, NEVER)
    backoffs = np.maximum(model.backoffs.astype(np.float64) / TEN, NEVER) + 0.0
    before = [""]  # the words of the order below
    for order in range(1, model.order + 1):
        file.write(f"\n\\{order}-grams:\n")
        begin, end = model.starts[order - 1 : order + 1]
        texts = []
        for node, prefix in zip(range(begin, end), _prefixes(model, order, before), strict=True):
            text = prefix + names[model.words[node]]
            texts.append(text + " ")
            if order == 1 and node in silent:
                continue
            tail = f"\t{backoffs[node]:.8g}" if order < model.order else ""
            file.write(f"{scores[node]:.8g}\t{text}{tail}\n")
        before = texts
    file.write("\n\\end\\\n")


def _prefixes(model: NGram, order: int, before: list[str]) -> Iterator[str]:
    """The words before the last of each n-gram of an order."""
    if order == 1:
        yield from before * model.size
        return
    begin, end = model.starts[order - 2 : order]
    for prefix, times in zip(before, np.diff(model.first[begin : end + 1]).tolist(), strict=True):
        yield from [prefix] * times


def read_arpa(path: Path) -> tuple[NGram, Vocabulary]:
    """Read a model and its words; files with <s>, </s> and, for unknown words, <unk>.

    Where there is no <unk>, unknown words are impossible: their logarithm is −inf.
    """
    try:
        with _open_to_read(Path(path)) as file:
            return _Reader(path, file).read()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file.") from None
    except (OSError, EOFError) as error:
        raise UserError(f"{path}: cannot read the n-grams: {error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason}). Convert the file first.") from error


def _open_to_read(path: Path) -> IO[bytes] | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")


def _open_to_write(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return open(path, "w", encoding="utf-8", newline="\n")


class _Reader:
    """Lines of an ARPA file, with their numbers for messages.

    They are read as bytes: those are cut at ASCII blanks alone, and a word may hold any other.
    """

    def __init__(self, path: Path, file: IO[bytes] | gzip.GzipFile) -> None:
        self.path, self.file, self.number = path, file, 0
        # The marks have the places they have elsewhere; the file has no line for PAD.
        self.names = [PAD, UNK, BOS, EOS]
        self.ids = {ours: self.names.index(mark) for ours, mark in _OURS.items()}

    def read(self) -> tuple[NGram, Vocabulary]:
        """Everything, checked."""
        sizes = self._sizes()
        tables = [self._section(order, sizes) for order in range(1, len(sizes) + 1)]
        line = self._line()
        while line == "":
            line = self._line()
        if line != "\\end\\":
            raise self._wrong(f"expected \\end\\ after the last n-gram, found {line!r}")
        for name in (b"<s>", b"</s>"):
            if self.ids[name] not in tables[0][0][:, 0]:
                raise UserError(f"{self.path}: {name.decode()} is not among the single words.")
        return _trie(tables, len(self.names), self._orphan), Vocabulary(self.names)

    def _line(self) -> str | None:
        line = self.file.readline()
        self.number += 1
        return line.decode("utf-8", "replace").strip(" \t\r\n") if line else None

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self.path}:{self.number}: not an ARPA file: {what}.")

    def _orphan(self, order: int, row: np.ndarray) -> UserError:
        names = [self.names[i] for i in row]
        if order == 1:
            return UserError(f"{self.path}: '{names[0]}' is among the single words twice.")
        return UserError(
            f"{self.path}: '{' '.join(names)}' is among the {order}-grams twice or without "
            f"'{' '.join(names[:-1])}' among the {order - 1}-grams."
        )

    def _sizes(self) -> list[int]:
        """Return the announced number of n-grams of each order."""
        while (line := self._line()) != "\\data\\":
            if line is None:
                raise self._wrong("there is no line \\data\\")
        sizes: list[int] = []
        while line := self._line():
            match = _SIZES.match(line)
            if match is None or int(match[1]) != len(sizes) + 1:
                raise self._wrong(f"expected 'ngram {len(sizes) + 1}=…', found {line!r}")
            sizes.append(int(match[2]))
        while sizes and not sizes[-1]:
            sizes.pop()
        if not all(sizes) or not sizes:
            raise self._wrong(f"it announces no {sizes.index(0) + 1 if sizes else 1}-grams")
        return sizes

    def _section(self, order: int, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Ids (n, order), and the two logarithms (n, 2) of each n-gram."""
        head = self._line()
        while head == "":
            head = self._line()
        if head != f"\\{order}-grams:":
            raise self._wrong(f"expected \\{order}-grams:, found {head!r}")
        size, words, numbers = sizes[order - 1], array("i"), array("d")
        begin, known = self.number, self._add_word if order == 1 else self.ids.__getitem__
        for i, line in enumerate(islice(self.file, size), 1):
            parts = line.split()
            self.number = begin + i
            if not order + 1 <= len(parts) <= order + 2:
                raise self._wrong(f"n-gram {i} of {size} is {line.decode().strip()!r}")
            try:
                numbers.append(float(parts[0]))
                numbers.append(float(parts[-1]) if len(parts) == order + 2 else 0.0)
            except ValueError:
                raise self._wrong(f"no number in {line.decode().strip()!r}") from None
            try:
                words.extend(map(known, parts[1 : order + 1]))
            except KeyError as error:
                raise self._wrong(f"'{error.args[0].decode()}' is not a single word") from None
        if len(numbers) < 2 * size:
            raise self._wrong(f"it ends after {len(numbers) // 2} of {size} {order}-grams")
        logs = np.frombuffer(numbers).reshape(size, 2)
        wrong = ~((logs[:, 0] <= 0) & (logs[:, 1] < np.inf))
        if wrong.any():
            self.number = begin + int(wrong.argmax()) + 1
            chance, backoff = logs[wrong][0]
            raise self._wrong(f"{chance:g} and {backoff:g} are no logarithms of a probability")
        return np.frombuffer(words, dtype=np.int32).reshape(size, order), logs

    def _add_word(self, word: bytes) -> int:
        name = word.decode("utf-8")
        if name in (PAD, BOS, EOS):
            raise self._wrong(f"'{name}' is a mark here; rename that word")
        if word not in self.ids:
            self.ids[word] = len(self.names)
            self.names.append(name)
        return self.ids[word]


def _trie(
    tables: list[tuple[np.ndarray, np.ndarray]],
    size: int,
    orphan: Callable[[int, np.ndarray], UserError],
) -> NGram:
    """Sort the n-grams of every order and find the node that each continues."""
    marks, order = Marks(), len(tables)
    ids, logs = tables[0]
    if len(np.unique(ids)) != len(ids):
        values, times = np.unique(ids, return_counts=True)
        raise orphan(1, values[times > 1][:1])
    scores, backoffs = [np.full(size, -np.inf)], [np.zeros(size)]
    scores[0][ids[:, 0]], backoffs[0][ids[:, 0]] = logs.T
    scores[0][list(marks.silent)] = -np.inf
    words, first = [np.arange(size, dtype=np.int32)], [np.array([size])]
    start, end = 0, size  # of the nodes of the order below
    for ids, logs in tables[1:]:
        everything = (np.concatenate(words), np.concatenate(first))
        parents = np.full(len(ids), -1, dtype=np.int64)
        kernels.trace(*everything, ids, parents)
        ranks = np.lexsort((ids[:, -1], parents))
        parents, last = parents[ranks], ids[ranks, -1]
        twice = np.append(False, (np.diff(parents) == 0) & (np.diff(last) == 0))
        if (parents < 0).any() or twice.any():
            raise orphan(ids.shape[1], ids[ranks[((parents < 0) | twice).argmax()]])
        children = np.bincount(parents - start, minlength=end - start)
        first.append(end + np.cumsum(children))
        words.append(last)
        scores.append(logs[ranks, 0])
        backoffs.append(logs[ranks, 1])
        start, end = end, end + len(ids)
    values = np.concatenate(scores) * TEN
    values[values <= NEVER * TEN] = -np.inf
    starts = (0, *np.cumsum([len(part) for part in words]).tolist())
    inner = np.concatenate([np.empty(0), *backoffs[: order - 1]]) * TEN
    return NGram(
        np.concatenate(words),
        np.concatenate(first).astype(np.int32),
        values.astype(np.float32),
        inner.astype(np.float32),
        starts,
        marks,
    )
