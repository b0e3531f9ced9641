"""Tokenizers whose vocabulary is read off the text: words and characters."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from weft.errors import UserError
from weft.registry import register
from weft.tokens import word_pattern
from weft.tokens.tokenizer import Tokenizer, replace_surrogates
from weft.tokens.vocabulary import PAD, UNK, rank_entries

if TYPE_CHECKING:
    from tokenizers import Tokenizer as RawTokenizer
    from tokenizers.normalizers import Normalizer

Form = Literal["none", "nfc", "nfkc"]
_NO_LIMIT = 2**40  # more types than any corpus has


@register("tokenizer", "word")
class Word:
    """Unicode-aware words, or with `whitespace` only what stands between spaces.

    `vocab_size` counts every entry, PAD and UNK included; 0 keeps all words seen `min_count` times.
    """

    def __init__(
        self,
        lowercase: bool = True,
        min_count: int = 1,
        vocab_size: int = 0,
        normalise: Form = "nfc",
        accents: Literal["keep", "strip"] = "keep",
        hyphens: bool = False,
        whitespace: bool = False,
    ):
        check_size("word", vocab_size, min_count)
        self.minimum = min_count
        self.size = vocab_size
        self.normalise: Form = normalise
        self.lowercase = lowercase
        self.accents = accents
        self.pattern = (
            word_pattern.WHITESPACE_WORDS if whitespace else word_pattern.word_regex(hyphens)
        )

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read a stream of texts once; memory grows with the distinct words only."""
        import tokenizers
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import Split
        from tokenizers.trainers import WordLevelTrainer

        raw = tokenizers.Tokenizer(WordLevel(unk_token=UNK))
        normalise(raw, self.normalise, self.lowercase, self.accents == "strip")
        raw.pre_tokenizer = Split(tokenizers.Regex(self.pattern), "removed", invert=True)
        size = self.size - 2 if self.size else _NO_LIMIT
        trainer = WordLevelTrainer(
            vocab_size=size, min_frequency=self.minimum, special_tokens=[], show_progress=False
        )
        raw.train_from_iterator(clean_texts(texts), trainer)
        known = raw.get_vocab()
        if not known:
            raise empty_corpus_error("word", self.minimum)
        entries = [PAD, UNK, *sorted(known, key=known.__getitem__)]
        raw.model = WordLevel({entry: i for i, entry in enumerate(entries)}, unk_token=UNK)
        return Tokenizer(raw)


@register("tokenizer", "character")
class Character:
    """One token a character, spaces included."""

    def __init__(
        self,
        lowercase: bool = False,
        min_count: int = 1,
        vocab_size: int = 0,
        normalise: Form = "nfc",
    ):
        check_size("character", vocab_size, min_count)
        self.minimum = min_count
        self.size = vocab_size
        self.lowercase = lowercase
        self.normalise: Form = normalise

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Read a stream of texts once; memory grows with the distinct characters only."""
        import tokenizers
        from tokenizers.decoders import Fuse
        from tokenizers.models import BPE
        from tokenizers.pre_tokenizers import Split

        # Sub-words without a single merge are characters, and they still know their word.
        raw = tokenizers.Tokenizer(BPE(unk_token=UNK))
        normalise(raw, self.normalise, self.lowercase)
        raw.pre_tokenizer = Split(tokenizers.Regex(word_pattern.word_regex()), "isolated")
        raw.decoder = Fuse()
        counts: Counter[str] = Counter()
        for text in clean_texts(texts):
            counts.update(raw.normalizer.normalize_str(text) if raw.normalizer else text)
        entries = rank_entries(counts, minimum=self.minimum, size=self.size)
        if len(entries) == 2:
            raise empty_corpus_error("character", self.minimum)
        vocabulary = {entry: i for i, entry in enumerate(entries)}
        raw.model = BPE(vocabulary, [], unk_token=UNK)
        return Tokenizer(raw)


def normalise(
    raw: "RawTokenizer",
    form: Form,
    lowercase: bool,
    strip_accents: bool = False,
    *more: "Normalizer",
) -> None:
    """Set the normalizer of a raw tokenizer."""
    from tokenizers.normalizers import NFC, NFD, NFKC, Lowercase, Sequence, StripAccents

    steps: list[Normalizer] = []
    if strip_accents:
        steps += [NFD(), StripAccents()]
    if form != "none":
        steps.append(NFC() if form == "nfc" else NFKC())
    if lowercase:
        steps.append(Lowercase())
    steps.extend(more)
    if steps:
        raw.normalizer = Sequence(steps)


def clean_texts(texts: Iterable[str]) -> Iterator[str]:
    """Replace what the `tokenizers` library cannot encode."""
    return map(replace_surrogates, texts)


def check_size(kind: str, size: int, minimum: int, least: int = 3) -> None:
    """Raise a UserError for sizes too small for a vocabulary."""
    if minimum < 1:
        raise UserError(f"tokenizer '{kind}': 'min_count' should be 1 or more, got {minimum}.")
    if size and size < least:
        raise UserError(
            f"tokenizer '{kind}': 'vocab_size' should be {least} or more "
            f"(special tokens count), got {size}."
        )


def empty_corpus_error(kind: str, minimum: int = 1) -> UserError:
    """The error for training texts that hold nothing."""
    often = f" that occurs {minimum} times" if minimum > 1 else ""
    advice = " or lower 'min_count'" if minimum > 1 else ""
    return UserError(
        f"tokenizer '{kind}': the training texts hold no {kind}{often}. "
        f"Check the file and its text column{advice}."
    )
