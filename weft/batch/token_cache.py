"""Tokens of a corpus on disk, in shards: made once by all processes together, used by later runs.

A shard is a file named by a hash of its texts and of the tokenizer, so it is never out of date, and
another run, seed, split or file with the same texts finds it.
"""

import hashlib
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.runtime import World
from weft.storage import atomic_write
from weft.text.example import Example
from weft.text.location import format_location

SHARD_CHARACTERS = 2**23  # of the texts of a shard
SHARD_TEXTS = 100_000  # at most
CHUNK_TEXTS = 10_000  # tokenised together

Encode = Callable[[Sequence[str]], Sequence[np.ndarray]]


@dataclass
class Shard:
    """A run of texts: where they stand, and the file that holds their tokens."""

    path: Path
    lines: "array[int]" = field(default_factory=lambda: array("q"))
    files: list[tuple[int, str]] = field(default_factory=list)  # from which text on, the file

    def add(self, example: Example) -> None:
        """Note where the next text stands."""
        if not self.files or self.files[-1][1] != example.file:
            self.files.append((len(self.lines), example.file))
        self.lines.append(example.line)

    def where(self, text: int) -> str:
        """Return the place of a text, for messages."""
        name = next(file for first, file in reversed(self.files) if first <= text)
        return format_location(name, self.lines[text]) if name else "input"

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids (N,) of all texts, and where each text ends."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            arrays = load_file(self.path)
            ids, ends = arrays["ids"], arrays["ends"]
        except (SafetensorError, KeyError) as error:
            raise UserError(
                f"{self.path}: damaged ({error}). Delete it, and its texts are tokenised again."
            ) from error
        except FileNotFoundError:
            raise UserError(
                f"{self.path}: not found, though another process has written it. The folder of "
                "tokens must be one that all processes see: set data.token_cache."
            ) from None
        return ids, ends


class TokenCache:
    """Tokenises texts in shards, and keeps the shards in a folder.

    `name` stands for all that decides what a text becomes. Of several processes each makes every
    N-th shard that is missing; all of them read all shards.
    """

    def __init__(self, folder: Path, name: str, encode: Encode, world: World):
        self.folder, self.encode, self.world = folder, encode, world
        self.name = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16)
        self.made = 0  # shards tokenised by this process
        folder.mkdir(parents=True, exist_ok=True)

    def build(self, examples: Iterable[Example]) -> list[Shard]:
        """Return the shards of the texts in order; the missing ones are made."""
        shards: list[Shard] = []
        for number, some in enumerate(_cut(examples)):
            texts = [example.text for example in some]
            shard = Shard(self.folder / f"{self._digest(texts)}.safetensors")
            for example in some:
                shard.add(example)
            if number % self.world.size == self.world.rank and not shard.path.exists():
                self._write(shard.path, texts)
            shards.append(shard)
        self.world.wait()
        return shards

    def remove(self) -> None:
        """Delete the folder, once all processes have read it."""
        self.world.wait()
        if self.world.rank == 0:
            shutil.rmtree(self.folder)

    def _digest(self, texts: Sequence[str]) -> str:
        total = self.name.copy()
        for text in texts:
            raw = text.encode("utf-8", "surrogatepass")
            total.update(len(raw).to_bytes(8, "little"))
            total.update(raw)
        return total.hexdigest()

    def _write(self, path: Path, texts: Sequence[str]) -> None:
        from safetensors.numpy import save_file

        rows = [
            np.asarray(ids, np.int32)
            for start in range(0, len(texts), CHUNK_TEXTS)
            for ids in self.encode(texts[start : start + CHUNK_TEXTS])
        ]
        ends = np.cumsum([len(ids) for ids in rows], dtype=np.int64)
        with atomic_write(path) as part:
            save_file({"ids": np.concatenate(rows), "ends": ends}, part)
        self.made += 1


def _cut(examples: Iterable[Example]) -> Iterator[list[Example]]:
    """Yield the examples of one shard after the other."""
    rest = iter(examples)
    while some := list(islice(rest, 1)):
        size = len(some[0].text)
        while size < SHARD_CHARACTERS and len(some) < SHARD_TEXTS:
            example = next(rest, None)
            if example is None:
                break
            some.append(example)
            size += len(example.text)
        yield some
