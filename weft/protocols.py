"""The interfaces of the parts: every member that other code calls on a part is declared here.

A part derives from the class of its kind and overrides what differs. Members without a value are
required; the others have the default that suits most parts. Types of
later stages are named in annotations only, so this file imports nothing at run time.

B batch   T steps   S steps of the other text   E embedding width   H hidden width   C scores
"""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from torch import Tensor, nn

    from weft.batch import Padded
    from weft.embed.contextual import ScalarMix
    from weft.tokens.special_tokens import SpecialTokens

# What the steps of a row are: tokens of a text or of a pair, words, nodes of a tree, vectors.
InputKind = Literal["text", "pairs", "words", "trees", "vectors"]


class Embedder:
    """Ids (B, T), or sub-token ids (B, T, W) -> vectors (B, T, E)."""

    output_size: int
    max_positions: int | None = None  # steps of a row, special tokens included; None: any number
    max_bytes: int | None = None  # bytes of a word that are read, for embedders that spell words
    features: int = 0  # width of the input vectors, for an embedder that reads no tokens
    frame: "SpecialTokens | None" = None  # special tokens around each text
    subwords: bool = False  # words come with the ids of their subwords
    reads_subtokens: bool = False  # the input is sub-token ids, made by `subtoken_ids`
    frozen: bool = False  # its network is not trained, so its features can be cached
    has_frozen_features: bool = False  # `frozen_features` and `from_cached` are implemented
    has_attention: bool = False  # `attention_weights` is implemented
    predicts_next: bool = False  # state · token_table gives the logits of the next token
    shared: bool = False  # reads the decoder's table, handed over by `borrow`
    vectors: str = ""  # the file of word vectors that `initialise` reads
    model: str = ""  # the checkpoint its weights come from

    if TYPE_CHECKING:

        def __call__(self, x: Padded) -> Padded: ...

    @property
    def token_table(self) -> "nn.Embedding | None":
        """One vector per vocabulary entry, if it has such a table."""
        return None

    @property
    def scalar_mix(self) -> "ScalarMix | None":
        """The learned weights of its layers, if it mixes them."""
        return None

    def subtoken_ids(self, words: "Sequence[str]") -> list[list[int]]:
        """Return the sub-token ids of each token, from 1; 0 is padding."""
        raise NotImplementedError

    def initialise(self, vocabulary: "Sequence[str]") -> int:
        """Copy word vectors from the file `vectors`; return how many entries were found."""
        return 0

    def borrow(self, table: "nn.Embedding", factor: float) -> None:
        """Read another part's table from now on."""
        raise NotImplementedError

    def frozen_features(self, x: "Padded") -> "Padded":
        """Return the features (B, T, W) of the frozen network, which can be cached."""
        raise NotImplementedError

    def from_cached(self, x: "Padded", features: "Tensor") -> "Padded":
        """Return the vectors from cached features."""
        raise NotImplementedError

    def layer_groups(self) -> "list[list[nn.Parameter]]":
        """Return the parameters of a pre-trained network, lowest layer first."""
        return []

    def layer(self, x: "Padded", number: int) -> "Padded":
        """Return the vectors of one layer; 0 is the input of the first."""
        raise NotImplementedError

    def attention_weights(self, x: "Padded") -> "list[Tensor]":
        """Return the attention weights, one (B, N, S, S) tensor per layer."""
        raise NotImplementedError


class Encoder:
    """Vectors (B, T, E) -> states (B, T, H)."""

    output_size: int
    directions: int = 1  # states of two directions lie side by side
    max_positions: int | None = None  # tokens of a row; None: any number
    input_kind: "InputKind | None" = None  # if it fixes what the steps of a row are
    stride: int = 1  # input steps per output step
    leading: int = 0  # steps in front of the text's, such as [CLS]

    if TYPE_CHECKING:

        def __call__(self, x: Padded) -> Padded: ...


class Pool:
    """States (B, T, H) -> vectors (B, H), with the weight of each step where pooling has one."""

    output_size: int

    if TYPE_CHECKING:

        def __call__(self, x: Padded) -> tuple[Tensor | Padded, Tensor | None]: ...


class Pair:
    """Combines the two texts of a pair.

    One that `encodes_separately` is called with the encoder's states of both texts; any other with
    the embedded row of both, before the encoder.
    """

    output_size: int
    encodes_separately: bool
    has_text_vectors: bool = False  # a single text has a vector of its own
    directions: int | None = None  # of the states it returns; None: those of the encoder
    modelled: int = 0  # width of the modelling layer at the end of each state (BiDAF)

    if TYPE_CHECKING:

        def __call__(self, *texts: Padded) -> Any: ...

    def join(self, width: int) -> "PairJoin | None":
        """Return the module that joins two pooled vectors; None if its output is one text's."""
        return None


class PairJoin:
    """Two vectors (B, H) -> one (B, output_size)."""

    output_size: int

    if TYPE_CHECKING:

        def __call__(self, first: Tensor, second: Tensor) -> Tensor: ...


class Head:
    """Encoder output -> scores. No loss, argmax or metric inside."""


class Decoder:
    """Predicts the next token from the tokens before it, and from encoder states if there are."""


class LabelSpace:
    """The answers a task can give, learned from the training labels."""


class Task:
    """Labels, loss, answers and metric of one kind of problem. Stateless: settings only."""


class ClassicModel:
    """A model that is trained without gradients through a Model: linear, n-gram, CRF."""


class Engine:
    """Texts -> scores: what a Predictor calls, neural or classic."""
