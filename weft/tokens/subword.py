"""Tokenizers that cut rare words into pieces: BPE, WordPiece and Unigram.

A run of whitespace is one word boundary, written "▁" at the front of a word (BPE, Unigram) or
lost (WordPiece); byte-level BPE alone keeps every character of the text. A "▁" that a text holds
itself counts as a space.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from weft.registry import register
from weft.tokens import word_pattern
from weft.tokens.offsets import SPACE_MARK
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.vocabulary import SPECIALS, UNK
from weft.tokens.word import Form, check_size, clean_texts, empty_corpus_error, normalise

if TYPE_CHECKING:
    import tokenizers
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

_MIN_SIZE = 4 * len(SPECIALS)  # sizes below this leave no room beside the special tokens


@register("tokenizer", "bpe")
class BPE:
    """Byte-pair encoding (Sennrich 2016): the most frequent pair is joined, again and again.

    At most a quarter of `vocab_size` goes to single characters; rarer ones become UNK, which
    `byte_level` avoids by starting from the 256 bytes.
    """

    def __init__(
        self,
        vocab_size: int = 8000,
        lowercase: bool = False,
        byte_level: bool = False,
        min_count: int = 2,
        normalise: Form = "nfc",
    ):
        check_size("bpe", vocab_size, min_count, 256 + _MIN_SIZE if byte_level else _MIN_SIZE)
        self.size = vocab_size
        self.lowercase = lowercase
        self.byte_level = byte_level
        self.minimum = min_count
        self.normalise: Form = normalise

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read a stream of texts once; memory grows with the distinct words only."""
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        raw = tokenizers.Tokenizer(models.BPE())
        if self.byte_level:
            normalise(raw, self.normalise, self.lowercase)
            raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            raw.decoder = decoders.ByteLevel()
            letters: list[str] = pre_tokenizers.ByteLevel.alphabet()
        else:
            _mark_spaces(raw, self.normalise, self.lowercase)
            letters = []
        entries, merges = _train_merges(raw, texts, self.size, self.minimum, letters, "bpe")
        vocabulary = {entry: i for i, entry in enumerate([*SPECIALS, *entries])}
        raw.model = models.BPE(vocabulary, merges, unk_token=UNK)
        return Tokenizer(raw)


@register("tokenizer", "wordpiece")
class WordPiece:
    """WordPiece as BERT reads it: the longest known piece first, "##" before all but the first."""

    LONGEST = 100  # a longer word is UNK, since matching costs its length squared

    def __init__(
        self,
        vocab_size: int = 8000,
        lowercase: bool = True,
        min_count: int = 2,
        normalise: Form = "nfc",
    ):
        check_size("wordpiece", vocab_size, min_count, _MIN_SIZE)
        self.size = vocab_size
        self.lowercase = lowercase
        self.minimum = min_count
        self.normalise: Form = normalise

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read a stream of texts once; memory grows with the distinct words only.

        The library's own trainer numbers "##" pieces in hash order, so two runs differ; here the
        pieces come from its BPE trainer, with each word marked at the front.
        """
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers

        raw = tokenizers.Tokenizer(models.BPE())
        normalise(raw, self.normalise, self.lowercase)
        words = _split_words()
        mark = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always", split=False)
        raw.pre_tokenizer = pre_tokenizers.Sequence([words, mark])
        # A letter at the front of a word is learned twice, marked and not, and written once.
        letters = self.size // 8
        size = self.size + letters
        pieces, _ = _train_merges(raw, texts, size, self.minimum, [], "wordpiece", letters)
        entries = list(dict.fromkeys([*SPECIALS, *_as_wordpieces(pieces)]))[: self.size]
        raw.pre_tokenizer = words
        raw.decoder = decoders.WordPiece(prefix="##", cleanup=True)
        raw.model = models.WordPiece(
            {entry: i for i, entry in enumerate(entries)},
            unk_token=UNK,
            max_input_chars_per_word=self.LONGEST,
        )
        return Tokenizer(raw)


@register("tokenizer", "unigram")
class Unigram:
    """Unigram pieces (Kudo 2018): the likeliest cut of a word under independent pieces."""

    def __init__(self, vocab_size: int = 8000, lowercase: bool = False, normalise: Form = "nfkc"):
        check_size("unigram", vocab_size, 1, _MIN_SIZE)
        self.size = vocab_size
        self.lowercase = lowercase
        self.normalise: Form = normalise

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read a stream of texts once; memory grows with the distinct words only."""
        import tokenizers
        from tokenizers import models

        from weft.tokens.unigram_trainer import train_unigram

        raw = tokenizers.Tokenizer(models.Unigram())
        _mark_spaces(raw, self.normalise, self.lowercase)
        counts = _count_words(texts, raw.normalizer, raw.pre_tokenizer)
        letters: Counter[str] = Counter()
        for word, count in counts.items():
            for letter in word:
                letters[letter] += count
        if not letters:
            raise empty_corpus_error("unigram")
        size = self.size - len(SPECIALS)
        pieces = train_unigram(counts, _most_frequent(letters, letters, self.size // 4), size)
        special = [(name, 0.0) for name in SPECIALS]
        raw.model = models.Unigram([*special, *pieces], unk_id=SPECIALS.index(UNK))
        return Tokenizer(raw)


def _mark_spaces(raw: "tokenizers.Tokenizer", form: Form, lowercase: bool) -> None:
    """Split into words that carry the space before them, so that decoding can put it back."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    normalise(raw, form, lowercase, False, spaces, normalizers.Strip())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="always", split=False),
            pre_tokenizers.Split(
                Regex(f"{SPACE_MARK}?(?:{word_pattern.word_regex()})"), "isolated"
            ),
        ]
    )
    raw.decoder = decoders.Metaspace(SPACE_MARK, prepend_scheme="always")


def _split_words() -> "PreTokenizer":
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    return Split(Regex(word_pattern.word_regex()), "removed", invert=True)


def _train_merges(
    raw: "tokenizers.Tokenizer",
    texts: Iterable[str],
    size: int,
    minimum: int,
    letters: list[str],
    kind: str,
    most: int = 0,
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return at most `size` entries, special ones included, and the merges that build them.

    The library's own limit on single characters breaks ties in hash order, so it is not used:
    more is learned than needed, and what rests on a rare character is dropped afterwards.
    """
    from tokenizers.trainers import BpeTrainer

    counts: Counter[str] = Counter()
    trainer = BpeTrainer(
        vocab_size=size if letters else size + size // 2 + 1000,
        min_frequency=minimum,
        initial_alphabet=letters,
        special_tokens=[],
        show_progress=False,
    )
    raw.train_from_iterator(_count_characters(clean_texts(texts), counts), trainer)
    if not any(not character.isspace() for character in counts):
        raise empty_corpus_error(kind)
    model = json.loads(raw.to_str())["model"]
    if not letters:
        seen = [piece for piece in model["vocab"] if len(piece) == 1]
        counts = _normalise_counts(counts, raw.normalizer)
        counts[SPACE_MARK] = sum(counts.values())  # never among the rare ones
        letters = _most_frequent(seen, counts, most or size // 4)
    entries, merges = dict.fromkeys(sorted(letters)), []
    for left, right in model["merges"]:
        if len(entries) == size - len(SPECIALS):
            break
        if left in entries and right in entries:
            merges.append((left, right))
            entries[left + right] = None
    return list(entries), merges


def _as_wordpieces(pieces: list[str]) -> Iterator[str]:
    """Pieces of marked words as WordPiece writes them."""
    joining = word_pattern.word_internal_characters([piece for piece in pieces if len(piece) == 1])
    for piece in pieces:
        if len(piece) == 1 and piece != SPACE_MARK:
            yield piece
            if piece in joining:
                yield "##" + piece
        elif len(piece) > 1:
            yield piece[1:] if piece.startswith(SPACE_MARK) else "##" + piece


def _count_characters(texts: Iterable[str], counts: Counter[str]) -> Iterator[str]:
    for text in texts:
        counts.update(text)
        yield text


def _normalise_counts(counts: Counter[str], normaliser: "Normalizer") -> Counter[str]:
    """Counts of raw characters as counts of what each becomes when normalised alone."""
    out: Counter[str] = Counter()
    for character, count in counts.items():
        for result in normaliser.normalize_str(character) if normaliser else character:
            out[result] += count
    return out


def _most_frequent(letters: Iterable[str], counts: Counter[str], most: int) -> list[str]:
    return sorted(letters, key=lambda letter: (-counts[letter], letter))[:most]


def _count_words(
    texts: Iterable[str], normaliser: "Normalizer", splitter: "PreTokenizer"
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in clean_texts(texts):
        clean = normaliser.normalize_str(text)
        if clean:
            counts.update([word for word, _ in splitter.pre_tokenize_str(clean)])
    return counts
