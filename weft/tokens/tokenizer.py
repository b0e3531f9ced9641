"""One face for every tokenizer: texts in, ids and character offsets out."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.storage import write_text
from weft.tokens import safety
from weft.tokens.offsets import SPACE_MARK, Tokens, align_tokens
from weft.tokens.vocabulary import MASK, SPECIALS, UNK

if TYPE_CHECKING:
    import tokenizers

BYTE_LEVEL_SPACE = "Ġ"  # how byte-level pieces write it
NO_OOV_WORDS: Mapping[int, str] = {}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A trained tokenizer of the `tokenizers` library, of any kind and origin."""

    def __init__(self, raw: "tokenizers.Tokenizer"):
        raw.encode_special_tokens = True  # a text that spells "<pad>" is text, not padding
        raw.no_truncation()  # cutting is `truncate`'s work, where it is counted
        raw.no_padding()
        self._raw = raw

    def encode(self, text: str) -> Tokens:
        """Return the ids of a text with their character offsets; `decode` is the inverse."""
        return self.encode_batch([text])[0]

    def encode_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text without offsets, which is faster."""
        return [np.array(one.ids, dtype=np.int32) for one in self._encode(texts, fast=True)]

    def encode_batch(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the ids of each text with the characters and the word each one stands for."""
        return align_tokens(
            texts, self._encode(texts, fast=False), self._raw.token_to_id(SPACE_MARK)
        )

    def encode_words(self, words: Sequence[str]) -> np.ndarray:
        """One id a word, given as a word: of one that is cut further, that of its first piece."""
        return np.array([pieces[0] for pieces in self.encode_subtokens(words)], dtype=np.int32)

    def encode_subtokens(self, words: Sequence[str]) -> list[list[int]]:
        """Return the subword ids of each word, at least one; do not modify them.

        A tokenizer that marks word starts by the space before them gets one.
        """
        cache = self._subtoken_cache
        new = [word for word in dict.fromkeys(words) if word not in cache]
        texts = [f" {word}" for word in new] if self.marks_leading_space else new
        for word, one in zip(new, self._encode(texts, fast=True), strict=True):
            cache[word] = one.ids or [self.unknown]
        return [cache[word] for word in words]

    @cached_property
    def _subtoken_cache(self) -> dict[str, list[int]]:
        """Cached ids of words."""
        return {}

    @cached_property
    def unknown(self) -> int:
        """The id of what it has no other id for."""
        return min(1, len(self) - 1) if self.unknown_entry is None else self.unknown_entry

    @cached_property
    def unknown_entry(self) -> int | None:
        """The id of the entry for unknown tokens; None where every text can be spelled."""
        candidates = (self._raw.token_to_id(entry) for entry in (UNK, "[UNK]"))
        return next((i for i in candidates if i is not None), None)

    def known_fraction(self, texts: Sequence[str]) -> np.ndarray:
        """(texts,) The fraction of each text's tokens that are not unknown; 0 for an empty text."""
        rows = self.encode_ids(texts)
        return np.array(
            [np.mean(ids != self.unknown_entry) if len(ids) else 0.0 for ids in rows], float
        )

    @cached_property
    def mask(self) -> int | None:
        """The id of what stands for a hidden token, where it has one."""
        candidates = (self._raw.token_to_id(entry) for entry in (MASK, "[MASK]"))
        return next((i for i in candidates if i is not None), None)

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids that texts are written with: neither special ones nor UNK."""
        special = {*self._skipped_ids, self.unknown}
        return np.array([i for i, e in enumerate(self.vocabulary) if e and i not in special])

    @cached_property
    def marks_leading_space(self) -> bool:
        """True if sub-tokens include the space before a word, as in GPT-2."""
        return BYTE_LEVEL_SPACE in self._raw.get_vocab(with_added_tokens=True)

    def strings(self, texts: Sequence[str]) -> list[list[str]]:
        """The surface of each token as it stands in the text."""
        return [
            [text[start:end] for start, end in tokens.offsets.tolist()]
            for text, tokens in zip(texts, self.encode_batch(texts), strict=True)
        ]

    def decode(self, ids: Iterable[int], oov_words: Mapping[int, str] = NO_OOV_WORDS) -> str:
        """Decode ids to text, without special tokens except "<unk>".

        `oov_words` have ids beyond the vocabulary: words copied from a source.
        """
        wanted = [int(i) for i in ids]
        for i in wanted:
            if not 0 <= i < len(self) and i not in oov_words:
                raise UserError(
                    f"Id {i} is not in this tokenizer; its ids go from 0 to {len(self) - 1}."
                )
        shown = [i for i in wanted if i not in self._skipped_ids]
        if not any(i in oov_words for i in shown):
            return self._raw.decode(shown)
        tokens = [oov_words[i] if i in oov_words else self.vocabulary[i] for i in shown]
        decoder = self._raw.decoder
        return " ".join(tokens) if decoder is None else decoder.decode(tokens)

    def encode_with_oov(
        self,
        texts: Sequence[str],
        extended_vocab_start: int,
        oov_words: Sequence[Sequence[str]] | None = None,
    ) -> list[tuple[Tokens, tuple[str, ...]]]:
        """Return the tokens of each text with its out-of-vocabulary words.

        These have ids from `extended_vocab_start` on, in order of occurrence. If `oov_words` of
        another text are given, only those have ids; other unknown words stay unknown.
        """
        unknown = self._raw.token_to_id(UNK)
        out = []
        for i, (text, tokens) in enumerate(zip(texts, self.encode_batch(texts), strict=True)):
            ids = tokens.ids.copy()
            own = {word: n for n, word in enumerate(oov_words[i])} if oov_words is not None else {}
            for place in np.flatnonzero(ids == unknown).tolist():
                start, end = tokens.offsets[place].tolist()
                word = self._normalise(text[start:end])
                if oov_words is None:
                    own.setdefault(word, len(own))
                ids[place] = extended_vocab_start + own[word] if word in own else unknown
            out.append((replace(tokens, ids=ids), tuple(own)))
        return out

    def _normalise(self, word: str) -> str:
        normalizer = self._raw.normalizer
        return word if normalizer is None else normalizer.normalize_str(replace_surrogates(word))

    @cached_property
    def space(self) -> str:
        """The sign that pieces begin a word with, or nothing where decoding puts the spaces."""
        return SPACE_MARK if any(entry.startswith(SPACE_MARK) for entry in self.vocabulary) else ""

    def with_words(self, words: Sequence[str]) -> "Tokenizer":
        """The same with words that are one token wherever they stand, whatever is around them."""
        from tokenizers import AddedToken
        from tokenizers import Tokenizer as Raw

        raw = Raw.from_str(self._raw.to_str())
        raw.add_tokens([AddedToken(word, normalized=False) for word in words])
        return Tokenizer(raw)

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The entries by id; an id that a foreign file leaves out is an empty string."""
        ids = self._raw.get_vocab(with_added_tokens=True)
        entries = [""] * (max(ids.values(), default=-1) + 1)
        for entry, i in ids.items():
            entries[i] = entry
        return tuple(entries)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The entries by id in one notation: a word start is bare, "##" is inside a word.

        An entry that is no text, or that another one is written like, stays as it is; so do all
        where that leaves two alike.
        """
        entries = self.vocabulary
        if not (self.marks_leading_space or self.space):
            return entries
        words = {i: self._word(entries[i]) or entries[i] for i in self.ordinary.tolist()}
        uses = Counter(words.get(i, entry) for i, entry in enumerate(entries))
        out = tuple(
            words[i] if i in words and uses[words[i]] == 1 else entry
            for i, entry in enumerate(entries)
        )
        return out if len(set(out)) == len(set(entries)) else entries

    def _word(self, entry: str) -> str:
        """A subword with its mark in WordPiece's notation; "" if it is no text."""
        if self.marks_leading_space:
            decoder = self._raw.decoder
            text = entry if decoder is None else decoder.decode([entry])
        else:
            text = entry.replace(SPACE_MARK, " ")
        word = text.strip()
        if not word or "\ufffd" in word:
            return ""
        return word if text.startswith(" ") else f"##{word}"

    def __len__(self) -> int:
        return len(self.vocabulary)

    def save(self, path: Path) -> None:
        """One JSON file, the format of the `tokenizers` library."""
        write_text(path, self.to_json())

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json; a UserError that names the file when it cannot be read."""
        try:
            text = Path(path).read_text("utf-8")
        except OSError as error:
            raise UserError(f"{path}: cannot read the tokenizer: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not a tokenizer file: {error}.") from error
        return cls.from_json(text, str(path))

    def to_json(self) -> str:
        """The whole tokenizer as one JSON text; the same training gives the same text."""
        return self._raw.to_str()

    @classmethod
    def from_json(cls, text: str, where: str = "tokenizer") -> "Tokenizer":
        """The tokenizer that `to_json` described."""
        from tokenizers import Tokenizer as Raw

        safety.check(text, where)
        try:
            return cls(Raw.from_str(text))
        except BaseException as error:  # the library raises bare Exception, and Rust's panics
            raise _as_user_error(
                error,
                f"{where}: not a tokenizer file, or damaged",
                "Make one with 'weft tokens train'.",
            ) from error

    @cached_property
    def _skipped_ids(self) -> frozenset[int]:
        """Ids that decoding leaves out."""
        quiet = {i for i, t in self._raw.get_added_tokens_decoder().items() if t.special}
        ids = self._raw.get_vocab(with_added_tokens=True)
        quiet.update(ids[entry] for entry in SPECIALS if entry in ids)
        return frozenset(quiet - {ids.get(UNK, -1)})

    def _encode(self, texts: Sequence[str], *, fast: bool) -> list["tokenizers.Encoding"]:
        if isinstance(texts, str):
            raise TypeError("expected a sequence of texts, got one text")
        texts = [replace_surrogates(text) for text in texts]
        encode = getattr(self._raw, "encode_batch_fast", None) if fast else None
        try:
            return (encode or self._raw.encode_batch)(texts, add_special_tokens=False)
        except BaseException as error:
            raise _as_user_error(
                error, "The tokenizer cannot read a text", "Its file is damaged."
            ) from error


def _as_user_error(error: BaseException, what: str, advice: str) -> BaseException:
    """The error of the library as a UserError; what is not its error stays as it is."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        return error
    if isinstance(error, (MemoryError, UserError)):
        return error
    reason = " ".join(str(error).split())[:200]
    return UserError(f"{what}: {reason}. {advice}")


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates, which have no UTF-8, replaced one for one by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
