"""Text into tokens into ids: vocabularies, tokenizers, alignment and truncation."""

from weft.tokens.offsets import Tokens
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import Policy, coverage, split_windows
from weft.tokens.vocabulary import BOS, CLS, EOS, MASK, PAD, SEP, SPECIALS, UNK, Vocabulary

__all__ = [
    "BOS",
    "CLS",
    "EOS",
    "MASK",
    "PAD",
    "SEP",
    "SPECIALS",
    "UNK",
    "Policy",
    "Tokenizer",
    "Tokens",
    "Vocabulary",
    "coverage",
    "split_windows",
]
