"""Texts -> rows of ids, cut to what the model can read; nothing is cut without being counted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Protocol

import numpy as np

from weft.batch.trees import binarise_example, flatten_tree
from weft.errors import UserError
from weft.text.annotation.trees import Tree
from weft.text.example import Example, Label
from weft.text.formats.features import Frontend, load_matrix
from weft.tokens.offsets import Tokens
from weft.tokens.pretokenizer import split_words
from weft.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import (
    DEFAULT_OVERLAP,
    Policy,
    coverage,
    shorten_text,
    split_pair_windows,
    split_windows,
)
from weft.tokens.word_segmenter import WordSegmenter

MAX_SENTENCE_WORDS = 10_000  # words of a row of a model that has no limit


MarkWords = Callable[[Sequence[str], Label], np.ndarray]  # words, and the annotation of a file


class SubtokenEncoder(Protocol):
    """Splits tokens, as they stand in the text, into sub-token ids."""

    @property
    def max_bytes(self) -> int | None:
        """The bytes of a token that are read; None: all."""

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]: ...


def _text_name(i: int) -> str:
    return f"text {i + 1}"


@dataclass(frozen=True)
class Row:
    """One row for a model: a whole text, what is left of one, or one window of it."""

    text: int  # which of the given texts it came from
    ids: np.ndarray  # (T,), or (T, F) vectors
    subtokens: tuple[list[list[int]], ...]
    coverage: float  # fraction of the text's tokens that its rows hold and the model distinguishes
    spans: np.ndarray | None  # (T, 2) character offsets
    clipped: int = 0  # words longer than an embedder that spells them out will read
    words: tuple[str, ...] = ()  # given or cut as words; or those that can only be copied
    start: int = 0  # the number of its first word in the text
    parents: np.ndarray | None = None  # (T,) where the steps are the nodes of a tree
    tree: Tree | None = None  # that tree; spans are those of its leaves
    second: int = 0  # the step where the second text begins, where there are two; spans count anew
    read_fraction: float = (
        1.0  # fraction of the text's tokens that its rows hold, distinguished or not
    )
    unknown: int = 0  # tokens of the row that the model does not distinguish
    marks: np.ndarray | None = None  # (T, W) what the head reads of each word


@dataclass(frozen=True)
class Indexer:
    """Turns texts into rows: tokenizer, subtoken encoders and the length limit."""

    tokenizer: Tokenizer
    subtoken_encoders: Sequence[SubtokenEncoder] = ()
    limit: int | None = None
    policy: Policy = "head"
    full_sentences: bool = False  # a sentence may not be cut
    segmenter: WordSegmenter | None = (
        None  # how words are found in plain text, where that was learned
    )
    extended_vocab_start: int = (
        0  # the first id of words outside of the vocabulary; 0: they are UNK
    )
    frame: SpecialTokens = NO_SPECIAL_TOKENS  # what stands around a text
    subwords: bool = False  # whether words are given to the model with the tokens they consist of
    overlap: float = DEFAULT_OVERLAP  # of windows with their neighbours
    reads_ids: bool = True  # whether an embedder reads the ids, and not only how tokens are spelled
    characters: int = 0  # of a text that are read where there is no limit; 0: all
    mark_words: MarkWords | None = None  # what the head reads of words, if it does

    def distinguishes(self, ids: np.ndarray, words: Sequence[str]) -> np.ndarray:
        """Return a mask (T,) of tokens the model distinguishes, by id or by spelling.

        An unknown token is like any other unknown one; a word cut by an embedder that spells it
        out is like all that begin alike.
        """
        distinct = np.full(len(ids), self.reads_ids)
        if self.reads_ids and self.tokenizer.unknown_entry is not None:
            distinct = np.asarray(ids) != self.tokenizer.unknown_entry
        if self.subtoken_encoders and len(words) == len(distinct) and not distinct.all():
            longest = max(limit or 2**31 for limit in self._byte_limits)
            distinct |= [len(word.encode("utf-8", "replace")) <= longest for word in words]
        return distinct

    @property
    def _byte_limits(self) -> list[int | None]:
        """The byte limit of each subtoken encoder; None for no limit."""
        return [encoder.max_bytes for encoder in self.subtoken_encoders]

    def _subtokens(self, words: Sequence[str]) -> tuple[list[list[int]], ...]:
        """Return the sub-token ids of each word, of every kind."""
        return tuple(encoder.subtoken_ids(words) for encoder in self.subtoken_encoders)

    @property
    def subtoken_kinds(self) -> int:
        """The number of subtoken kinds per row."""
        return len(self.subtoken_encoders) + self.subwords

    @property
    def never_empty(self) -> bool:
        """True if special tokens surround every text, so that no row is empty."""
        return self.frame.num_added() > 0 and not self.subtoken_encoders

    def rows(
        self,
        texts: Sequence[str],
        where: Callable[[int], str] = _text_name,
        spans: bool = False,
        others: Sequence[str] = (),
    ) -> Iterator[Row]:
        """Rows in the order of the texts; a text without tokens is read as one unknown token, or
        as nothing but what stands around it.

        With `others`, the second texts, each row holds both.
        """
        most = 0 if self.limit is not None else self.characters
        if not most or max(map(len, (*texts, *others)), default=0) <= most:
            yield from self._rows(texts, where, spans, others)
            return
        policy: Policy = "head" if others and self.policy != "error" else self.policy
        first = [shorten_text(one, most, policy, where(i)) for i, one in enumerate(texts)]
        second = [shorten_text(one, most, policy, where(i)) for i, one in enumerate(others)]
        short, second_short = ([text for text, _, _ in some] for some in (first, second))
        for row in self._rows(short, where, spans, second_short):
            _, at, left = first[row.text]
            offsets = row.spans
            if offsets is not None and left and not others:
                offsets = np.where(offsets >= at, offsets + left, offsets)
            whole = len(texts[row.text])
            if others:
                whole, left = whole + len(others[row.text]), left + second[row.text][2]
            kept = 1 - left / max(whole, 1)
            yield replace(
                row,
                coverage=kept * row.coverage,
                read_fraction=kept * row.read_fraction,
                spans=offsets,
            )

    def _rows(
        self,
        texts: Sequence[str],
        where: Callable[[int], str],
        spans: bool,
        others: Sequence[str],
    ) -> Iterator[Row]:
        if others:
            yield from self._pair_rows(texts, others, where)
            return
        if self.extended_vocab_start:
            encoded = self.tokenizer.encode_with_oov(texts, self.extended_vocab_start)
            for i, (tokens, oov_words) in enumerate(encoded):
                for row in self._windows(i, tokens.ids, tokens.offsets, texts[i], where):
                    yield replace(row, words=oov_words, spans=row.spans if spans else None)
        elif not spans and not self.subtoken_encoders:
            for i, ids in enumerate(self.tokenizer.encode_ids(texts)):
                yield from self._windows(i, ids, None, "", where)
        else:
            for i, tokens in enumerate(self.tokenizer.encode_batch(texts)):
                yield from self._windows(i, tokens.ids, tokens.offsets, texts[i], where)

    def sentence_rows(self, inputs: Sequence[str | Example]) -> Iterator[Row]:
        """Rows with one id a word: those of an example, or those a plain text is cut into.

        A text longer than the limit becomes several rows, one after the other; a text without a
        word becomes none.
        """
        cut = split_words if self.segmenter is None else self.segmenter.words_of
        split = [(e.words, e.places) if isinstance(e, Example) else cut(e) for e in inputs]
        # Of all texts at once: to ask for the words of each would cost more than the answer.
        word_ids = self.tokenizer.encode_words([word for words, _ in split for word in words])
        ends = np.cumsum([len(words) for words, _ in split])
        for i, (one, (words, offsets)) in enumerate(zip(inputs, split, strict=True)):
            ids = word_ids[ends[i] - len(words) : ends[i]]
            spans = np.array(offsets, np.int32).reshape(-1, 2)
            size = self.limit or MAX_SENTENCE_WORDS
            if self.full_sentences and len(ids) > size:
                where = one.sentence_where if isinstance(one, Example) else f"text {i + 1}"
                raise UserError(
                    f"{where}: a sentence of {len(ids)} words; the model reads at most {size} as a "
                    "whole. Give one sentence a line."
                )
            cut_words = self.tokenizer.encode_subtokens(words) if self.subwords else []
            seen = self.distinguishes(ids, words)
            if self.subwords:
                none = self.tokenizer.unknown_entry
                seen = np.array([none not in some for some in cut_words], bool)
            fraction = float(seen.mean()) if len(seen) else 0.0
            marks = None
            if self.mark_words is not None:
                marks = self.mark_words(words, one.label if isinstance(one, Example) else None)
            for here in self._split_words(cut_words, len(ids), size, one, i):
                # Counted from 1: a 0 is no piece.
                subword_ids = [[p + 1 for p in some] for some in cut_words[here]]
                subtokens = tuple(
                    encoder.subtoken_ids(words[here]) for encoder in self.subtoken_encoders
                )
                subtokens = (subword_ids, *subtokens) if self.subwords else subtokens
                yield Row(
                    i, ids[here], subtokens, fraction, spans[here], 0, words[here], here.start,
                    unknown=int((~seen[here]).sum()), marks=None if marks is None else marks[here],
                )  # fmt: skip

    def _split_words(
        self, cut_words: list[list[int]], count: int, size: int, one: str | Example, i: int
    ) -> Iterator[slice]:
        """Yield the words of each row: at most `size`, and no more subwords than fit."""
        if not self.subwords:
            yield from (slice(start, start + size) for start in range(0, count, size))
            return
        most = (self.limit or 2**31) - self.frame.num_added()
        start = length = 0
        for n, subwords in enumerate(cut_words):
            if n > start and (length + len(subwords) > most or n - start == size):
                if self.full_sentences:
                    where = one.sentence_where if isinstance(one, Example) else f"text {i + 1}"
                    total = sum(map(len, cut_words))
                    raise UserError(
                        f"{where}: a sentence of {total} pieces of words; the model reads at most "
                        f"{most} as a whole. Give one sentence a line."
                    )
                yield slice(start, n)
                start, length = n, 0
            length += len(subwords)
        if count:
            yield slice(start, count)

    def _pair_rows(
        self, texts: Sequence[str], others: Sequence[str], where: Callable[[int], str]
    ) -> Iterator[Row]:
        """Rows of two texts each, the first before the second."""
        first, second = self.tokenizer.encode_batch(texts), self.tokenizer.encode_batch(others)
        for i, two in enumerate(zip(first, second, strict=True)):
            sizes = [len(one.ids) for one in two]
            limit = None if self.limit is None else self.limit - self.frame.num_added(pair=True)
            most = limit or max(sum(sizes), 2)
            if self.frame.each:  # the limit is that of either text; all parts of both meet
                parts = [
                    split_windows(size, most, self.policy, self.overlap, where(i)) for size in sizes
                ]
                windows = list(product(parts[0], parts[1]))
            else:
                windows = split_pair_windows(
                    sizes[0], sizes[1], most, self.policy, where(i), self.overlap
                )
            read = [[part for window in windows for part in window[side]] for side in (0, 1)]
            covered = sum(n * coverage(n, [parts]) for n, parts in zip(sizes, read, strict=True))
            read_fraction = covered / sum(sizes) if all(sizes) else 0.0
            seen = [
                self.distinguishes(one.ids, _token_texts(text, one.offsets))[
                    _covered_positions(parts)
                ].sum()
                for one, text, parts in zip(two, (texts[i], others[i]), read, strict=True)
            ]
            fraction = float(sum(seen)) / sum(sizes) if all(sizes) else 0.0
            for window in windows:
                row = self._pair_row(i, two, (texts[i], others[i]), window, fraction)
                yield replace(
                    row, read_fraction=read_fraction, unknown=round(covered) - int(sum(seen))
                )

    def _pair_row(
        self, i: int, two: Sequence[Tokens], texts: Sequence[str], window: Any, fraction: float
    ) -> Row:
        ids, spans = [], []
        subtokens: list[list[list[int]]] = [[] for _ in self.subtoken_encoders]
        for tokens, text, parts in zip(two, texts, window, strict=True):
            kept = np.concatenate([np.arange(part.start, part.stop) for part in parts])
            ids.append(tokens.ids[kept])
            spans.append(tokens.offsets[kept])
            if not len(kept) and not self.never_empty:  # nothing there is read as one unknown token
                ids[-1] = np.array([self.tokenizer.unknown], np.int32)
                spans[-1] = np.zeros((1, 2), np.int32)
            words = [text[start:end] for start, end in spans[-1].tolist()]
            for rows, encoder in zip(subtokens, self.subtoken_encoders, strict=True):
                rows += encoder.subtoken_ids(words)
        framed, second = self.frame.wrap(*ids)
        offsets = self.frame.spans(*spans)
        return Row(i, framed, tuple(subtokens), fraction, offsets, second=second)

    def tree_rows(self, examples: Sequence[Example]) -> Iterator[Row]:
        """Rows with one id a node of each example's tree: a leaf's word, or padding above.

        An example without a tree becomes none.
        """
        for i, one in enumerate(examples):
            if one.tree is None:
                continue
            example = one if one.words else binarise_example(one)
            assert example.tree is not None
            nodes = flatten_tree(example.tree)
            ids = np.zeros(len(nodes.words), np.int32)
            leaves = self.tokenizer.encode_words(example.words)
            ids[[bool(word) for word in nodes.words]] = leaves
            seen = self.distinguishes(leaves, example.words)
            fraction = float(seen.mean()) if len(seen) else 0.0
            subtokens = tuple(
                encoder.subtoken_ids(nodes.words) for encoder in self.subtoken_encoders
            )
            spans = np.array(example.places, np.int32).reshape(-1, 2)
            yield Row(
                i, ids, subtokens, fraction, spans, 0, example.words, 0, nodes.parents,
                example.tree, unknown=int((~seen).sum()),
            )  # fmt: skip

    def feature_rows(
        self,
        examples: Sequence[Example],
        features: int,
        where: Callable[[int], str] = _text_name,
        frontend: Frontend | None = None,
    ) -> Iterator[Row]:
        """Rows whose steps are the vectors that each example names; none may be cut."""
        for i, one in enumerate(examples):
            vectors = load_matrix(one, features, where(i), frontend)
            if self.limit is not None and len(vectors) > self.limit:
                origin = one.where if one.file else where(i)
                raise UserError(
                    f"{origin}: a matrix of {len(vectors)} vectors; the model reads at most "
                    f"{self.limit}. Shorten it, or raise the limit of positions."
                )
            yield Row(i, vectors, (), 1.0, None)

    def _windows(
        self,
        i: int,
        ids: np.ndarray,
        spans: np.ndarray | None,
        text: str,
        where: Callable[[int], str],
    ) -> Iterator[Row]:
        if len(ids) == 0 and self.never_empty:
            yield replace(self._row(i, ids, spans, [], 0.0), read_fraction=0.0)
            return
        if len(ids) == 0:
            ids = np.array([self.tokenizer.unknown], np.int32)
            spans = None if spans is None else np.zeros((1, 2), np.int32)
            yield replace(self._row(i, ids, spans, [""], 0.0), read_fraction=0.0)
            return
        words = _token_texts(text, spans) if self.subtoken_encoders and spans is not None else []
        seen = self.distinguishes(ids, words)
        limit = None if self.limit is None else self.limit - self.frame.num_added()
        if limit is None or len(ids) <= limit:
            row = self._row(i, ids, spans, words, float(seen.mean()))
            yield replace(row, unknown=int((~seen).sum()))
            return
        windows = split_windows(len(ids), limit, self.policy, self.overlap, where(i))
        every = _covered_positions([part for window in windows for part in window])
        fraction = float(seen[every].sum()) / len(ids)
        for window in windows:
            here = np.concatenate([np.arange(len(ids))[part] for part in window])
            kept = None if spans is None else spans[here]
            window_words = [words[k] for k in here] if words else []
            row = self._row(i, ids[here], kept, window_words, fraction)
            yield replace(
                row, read_fraction=coverage(len(ids), windows), unknown=int((~seen[here]).sum())
            )

    def _row(
        self, i: int, ids: np.ndarray, spans: np.ndarray | None, words: list[str], fraction: float
    ) -> Row:
        if not self.subtoken_encoders or spans is None:
            framed, _ = self.frame.wrap(ids)
            return Row(i, framed, (), fraction, None if spans is None else self.frame.spans(spans))
        longest = min((limit for limit in self._byte_limits if limit), default=None)
        clipped = 0
        if longest is not None:
            clipped = sum(len(word.encode("utf-8", "replace")) > longest for word in words)
        return Row(
            i,
            ids,
            tuple(encoder.subtoken_ids(words) for encoder in self.subtoken_encoders),
            fraction,
            spans,
            clipped,
        )


def _token_texts(text: str, spans: np.ndarray) -> list[str]:
    """The tokens of a text as they stand in it."""
    return [text[start:end] for start, end in spans.tolist()]


def _covered_positions(parts: Sequence[slice]) -> np.ndarray:
    """The places that some slices hold, each once."""
    ranges = [np.arange(part.start, part.stop) for part in parts]
    return np.unique(np.concatenate(ranges)) if ranges else np.zeros(0, np.int64)
