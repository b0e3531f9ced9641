"""Properties of a model that data, training and inference depend on. Importable without torch."""

from dataclasses import dataclass

from weft.protocols import InputKind
from weft.text.formats.features import Frontend
from weft.tokens.special_tokens import NO_SPECIAL_TOKENS, SpecialTokens


@dataclass(frozen=True)
class Traits:
    """Properties of a model that data, training and inference depend on."""

    input_kind: InputKind  # what the steps of a row are
    pooling: str  # the kind of its pool, or "decoder"
    is_lm: bool = False  # a language model: rows are running text
    is_mlm: bool = False  # a masked language model
    is_structured: bool = False  # the output is decoded: a label for every word, or a text
    is_bi_encoder: bool = False  # the two texts of a row are encoded separately
    has_auxiliary_lm: bool = False  # trained with an auxiliary language-model loss
    needs_full_sentence: bool = False  # sentences may not be split: the output is a tree over each
    extended_vocab_start: int = 0  # first id of source words that can be copied; 0: none can
    features: int = 0  # width of input feature vectors; 0: the input is tokens
    frontend: Frontend | None = None  # how recordings or images become input vectors
    subwords: bool = False  # words are read with their subwords
    frame: SpecialTokens = NO_SPECIAL_TOKENS  # special tokens around each text
