"""Words as ids of what they are spelled with: bytes, or hashed character n-grams. Without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from weft.embed.subwords import fnv1a, ngram_hashes

BEGIN_WORD, END_WORD = 257, 258  # 0 is padding, 1 to 256 are the bytes 0 to 255
NUM_SYMBOLS = 259


@lru_cache(maxsize=200_000)
def encode_word(word: str, max_bytes: int = 50) -> list[int]:
    """Begin mark, at most `max_bytes` UTF-8 bytes, end mark, as in ELMo.

    The list is cached and shared between callers: do not modify it.
    """
    letters = word.encode("utf-8", "surrogatepass")[:max_bytes]
    return [BEGIN_WORD, *(byte + 1 for byte in letters), END_WORD]


@lru_cache(maxsize=200_000)
def ngram_buckets(word: str, shortest: int, longest: int, buckets: int) -> tuple[int, ...]:
    """Return the bucket of each n-gram and of the whole word, counted from 1."""
    hashes = ngram_hashes(word, shortest, longest)
    if len(word) + 2 > longest:  # in shorter words the whole word is one of the n-grams
        hashes.append(fnv1a(f"<{word}>".encode("utf-8", "surrogatepass")))
    return tuple(value % buckets + 1 for value in hashes)


@dataclass(frozen=True)
class ByteSpelling:
    """Words as their bytes between two marks."""

    max_bytes: int | None = 50  # bytes of a word that are read

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the byte ids of each word, from 1; 0 is padding."""
        return [encode_word(word, self.max_bytes or 50) for word in words]


@dataclass(frozen=True)
class NgramSpelling:
    """Words as the buckets of their character n-grams."""

    shortest: int
    longest: int
    buckets: int
    max_bytes: int | None = None  # a word is read whole

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the buckets of each word, from 1; 0 is padding."""
        sizes = (self.shortest, self.longest, self.buckets)
        return [list(ngram_buckets(word, *sizes)) for word in words]
