"""Character offsets of tokens, computed for many texts at once.

n tokens of all texts
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tokenizers

SPACE_MARK = "▁"  # how BPE and Unigram pieces write the space before a word
MAX_BATCH_CHARACTERS = (
    2**20
)  # characters that are looked at together, about 50 bytes of memory each


@dataclass(frozen=True)
class Tokens:
    """One text, tokenised.

    Offsets never run backwards. They may overlap: the bytes of one character share its span. Only
    a "▁" that the tokenizer put before the first word has an empty one.
    """

    ids: np.ndarray  # (n,) int32
    offsets: np.ndarray  # (n, 2) int32 half-open character offsets into the original text
    words: np.ndarray  # (n,) int32 word each token belongs to; -1 where it is only whitespace

    def __len__(self) -> int:
        return len(self.ids)


def align_tokens(
    texts: Sequence[str], encoded: Sequence["tokenizers.Encoding"], mark: int | None
) -> list[Tokens]:
    """The tokens of each text; `mark` is the id of "▁" alone, where there is one.

    Texts lie one after the other with a line break behind each, which no token reaches over: twenty
    steps of arithmetic for all of them in place of twenty a text, which for a sentence take longer
    than the tokenizer does.
    """
    rest, out = iter(encoded), []
    for some in _groups(texts):
        out += _align_batch(some, list(islice(rest, len(some))), mark)
    return out


def _groups(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts in order, not many characters at a time."""
    group: list[str] = []
    size = 0
    for text in texts:
        if group and size + len(text) > MAX_BATCH_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(text)
        size += len(text)
    if group:
        yield group


def _align_batch(
    texts: list[str], encoded: list["tokenizers.Encoding"], mark: int | None
) -> list[Tokens]:
    counts = np.array([len(one) for one in encoded])
    total, after_each = int(counts.sum()), counts.cumsum()
    ids = np.fromiter(chain.from_iterable(one.ids for one in encoded), np.int32, total)
    words = np.fromiter(chain.from_iterable(one.word_ids for one in encoded), np.int64, total)
    pairs = chain.from_iterable(one.offsets for one in encoded)
    spans = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * total).reshape(-1, 2)
    if mark is not None:
        _empty_added_marks(texts, ids, spans, (after_each - counts)[counts > 0], counts, mark)
    owner = np.repeat(np.arange(len(texts)), counts)  # (n,) whose text it is
    sizes = np.array([len(text) + 1 for text in texts])
    first = (sizes.cumsum() - sizes)[owner]  # (n,) where that text begins among all
    space = _is_whitespace("\n".join(texts) + "\n")
    after = _next_nonspace(space)
    starts, ends = (spans + first[:, None]).T
    solid = after[starts] < ends
    starts = np.where(solid, after[starts], starts)  # "▁word" does not own the space before it
    foreign = np.array([not text.isascii() for text in texts])
    if foreign.any():
        ends = np.where(solid & foreign[owner], _extend_ends(starts, ends, space), ends)
    spans = np.stack([starts - first, ends - first], axis=1).astype(np.int32)
    words = np.where(solid, words, -1)
    words[solid] = _number_words(words[solid], owner[solid], len(texts))
    words = words.astype(np.int32)
    cuts = after_each[:-1]
    parts = zip(*(np.split(x, cuts) for x in (ids, spans, words)), strict=True)
    return [Tokens(*part) for part in parts]


def _empty_added_marks(
    texts: list[str], ids: np.ndarray, spans: np.ndarray, firsts: np.ndarray, counts: np.ndarray,
    mark: int,
) -> None:  # fmt: skip
    """Give a "▁" in front that the tokenizer put there, not the text, an empty span."""
    owners = np.flatnonzero(counts)
    for token, owner in zip(firsts.tolist(), owners.tolist(), strict=True):
        if ids[token] == mark:
            begin = spans[token, 0]
            letter = texts[owner][begin]
            if letter != SPACE_MARK and not letter.isspace():
                spans[token, 1] = begin


def _number_words(words: np.ndarray, owner: np.ndarray, texts: int) -> np.ndarray:
    """The words of each text counted from 0, without those that are only whitespace."""
    wide = int(words.max(initial=0)) + 1
    kinds, numbers = np.unique(owner * wide + words, return_inverse=True)
    counted: np.ndarray = numbers - np.searchsorted(kinds, np.arange(texts) * wide)[owner]
    return counted


@cache
def _whitespace_table() -> np.ndarray:
    """Return a table, True at whitespace codes; the last entry serves all higher codes."""
    last = 0x3000  # the last that is
    return np.array(
        [chr(i).isspace() and not "\x1c" <= chr(i) <= "\x1f" for i in range(last + 1)] + [False]
    )


def _is_whitespace(text: str) -> np.ndarray:
    """Return a mask (length,) that is True at whitespace."""
    if text.isascii():
        return _whitespace_table()[np.frombuffer(text.encode("ascii"), dtype=np.uint8)]
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    table = _whitespace_table()
    return table[np.minimum(codes, len(table) - 1)]


def _next_nonspace(space: np.ndarray) -> np.ndarray:
    """For each position the first one at or after it that is not whitespace, (length + 1,)."""
    here = np.where(space, len(space), np.arange(len(space)))
    return np.append(np.minimum.accumulate(here[::-1])[::-1], len(space))


def _extend_ends(starts: np.ndarray, ends: np.ndarray, space: np.ndarray) -> np.ndarray:
    """Ends moved over characters that normalising merged or removed.

    The library gives "e" + accent, composed into "é", the span of the "e" alone.
    """
    here = np.where(space, np.arange(len(space)), len(space))
    next_space = np.append(np.minimum.accumulate(here[::-1])[::-1], len(space))
    following = np.searchsorted(starts, ends, side="left")
    next_start = np.append(starts, len(space))[following]
    extended: np.ndarray = np.maximum(ends, np.minimum(next_start, next_space[ends]))
    return extended
