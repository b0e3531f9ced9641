"""The interfaces of the parts: every member that other code calls on a part is declared here.

A part derives from the class of its kind and overrides what differs. Members without a value are
required; the others have the default that suits most parts. Values are named by annotations only,
so this file imports nothing at run time.

B batch   T steps   S steps of the other text   E embedding width   H hidden width   C scores
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from torch import Tensor
    from torch.nn import Module, Parameter
    from typing_extensions import Self

    from weft.batch import Padded
    from weft.decode.cuda_graphs.decode_step import DecodeGraphs
    from weft.decode.decoders.language_models import BPTTOutput
    from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
    from weft.decode.heads.crf import CRF
    from weft.decode.search.settings import SearchSettings

# What a decoder keeps between steps. Search moves its rows; only the decoder looks inside.
State: TypeAlias = Any


class Embedder:
    """(B, T) ids, or (B, T, W) sub-token ids -> (B, T, E)."""


class Encoder:
    """(B, T, E) -> (B, T, H)."""


class Pool:
    """(B, T, H) -> (B, H), with the weight of each step where pooling has one."""


class Pair:
    """Combines the two texts of a pair, before or after they are encoded."""


class Head:
    """Encoder output -> scores. No argmax or metric inside.

    An output may compute its loss itself, where the loss never materialises the logits.
    """

    task: str = ""  # the task whose outputs it gives; "": any task about a text as a whole
    reads: str | None = None  # kind of rows it needs; None: words, or the text if it is pooled
    max_positions: int | None = None  # longest row
    whole: bool = False  # sentences may not be split: the output is a tree over each
    is_mlm: bool = False  # a masked language model: also called with the pooled vector
    is_stateful: bool = False  # a language model that carries its state from window to window
    sync_free: bool = False  # training never waits for the device, if rows are full
    fitted: bool = False  # by a solver on fixed vectors, not by gradient descent
    extended_vocab_start: int = 0  # first id of a copied source word; 0: copies none
    target_limit: int | None = None  # longest target text
    note: str = ""  # a caveat about the metrics
    graphs: DecodeGraphs | None = None  # CUDA graphs of the decoder's steps

    # (B, H) or (B, T, H), with the source if it copies, with the vector if it is an MLM.
    def __call__(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def borrow(self, embedder: Embedder) -> None:
        """Use tables of the first embedder; called once, when the model is built."""

    @property
    def accepts_lazy_source(self) -> bool:
        """True if it prefers a source that is not encoded yet."""
        return False

    @property
    def graph_decoder(self) -> Decoder | None:
        """The decoder whose steps may be CUDA graphs, if there is one."""
        return None

    @property
    def crfs(self) -> Sequence[CRF]:
        """The CRF of each column of tags; empty if tags are independent."""
        return ()

    def greedy_decoding(self) -> AbstractContextManager[None]:
        """Decode greedily inside the context."""
        return nullcontext()


class DecoderHead(Head):
    """A decoder in place of a head: a language model, or a seq2seq model."""

    decoder: Decoder
    search: SearchSettings
    first: int  # bos
    last: int  # eos


class DecoderState:
    """A decoder's state with encoder states or a KV cache: a frozen dataclass, rows first.

    States without either may be any nest of tensors; only their decoder looks inside.
    """

    def per_prompt(self) -> Self:
        """Return the state with one set of encoder states for all beams of a prompt."""
        return self

    @property
    def attention_weights(self) -> Tensor | None:
        """Attention (B, S) of the last step, if it was requested."""
        return None

    @property
    def num_extended_ids(self) -> int:
        """The number of source words outside the vocabulary that can be copied."""
        return 0

    @property
    def pinned_beams(self) -> int:
        """Adjacent rows per prompt whose cache stays in place; 0: the cache moves with its row."""
        return 0

    @property
    def cache_steps(self) -> int:
        """The slots of a static cache that `view_steps` can cut; 0: none."""
        return 0

    def view_steps(self, steps: int) -> Self:
        """Return the state with a view of the first `steps` slots of its cache."""
        raise NotImplementedError

    def max_position(self) -> int:
        """Return the number of used slots over all rows; synchronises with the device."""
        return 0


class Decoder:
    """Predicts the next token from the tokens before it, and from encoder states if there are.

    Stepping gives the same logits as running all steps at once.
    """

    words: OutputLayer
    causal: bool  # never sees the tokens after a step
    reads_source: bool
    training: bool
    max_positions: int | None = None  # longest sequence
    scale: float = 1.0  # of word vectors
    model: str = ""  # the checkpoint it starts from
    extended_vocab_start: int = 0  # first id of a copied source word; 0: copies none
    sync_free: bool = False  # training never waits for the device, if rows are full

    @property
    def base_decoder(self) -> Decoder:
        """The decoder without wrappers, such as a pointer-generator."""
        return self

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        raise NotImplementedError

    def step_features(self, ids: Tensor, state: State) -> tuple[DecoderOutput, State]:
        """Run one step without the output layer, (B, 1, F)."""
        raise NotImplementedError

    def with_static_cache(self, state: State, steps: int, beams: int = 0) -> State | None:
        """Return the state in shapes that stay for `steps` more steps; None if it ends before."""
        over = self.max_positions is not None and steps > self.max_positions
        return None if over else state

    # Of nn.Module, which a decoder also derives from.
    def parameters(self) -> Iterator[Parameter]:
        raise NotImplementedError

    def buffers(self) -> Iterator[Tensor]:
        raise NotImplementedError

    def modules(self) -> Iterator[Module]:
        raise NotImplementedError


class LanguageModelDecoder(Decoder):
    """Predicts running text, without a source."""

    reads_source = False
    is_stateful: bool = False  # `carry` continues from the window before
    needs_masking: bool = False  # sees a word unless it is masked
    has_backward_lm: bool = False  # also predicts preceding tokens, and has a loss of both
    reads_subtokens: bool = False  # of each token, beside its id
    max_subtokens: int = 0

    def __call__(self, ids: Padded) -> Tensor:
        """Return the logits (B, T, V) of the word after every step."""
        raise NotImplementedError

    def features(self, ids: Padded) -> Tensor:
        """Return features (B, T, F) of every step, the inputs of the output layer."""
        raise NotImplementedError

    def backward_features(self, ids: Padded) -> Tensor:
        """Return features of the backward model; the rows are in reverse order."""
        raise NotImplementedError

    def start(self, batch: int, device: torch.device | None = None) -> State:
        """Return the state before the first token."""
        raise NotImplementedError

    def carry(self, ids: Padded, state: State = None) -> BPTTOutput:
        """Run one window from the state of the window before."""
        raise NotImplementedError

    def prefill(self, ids: Padded, state: State) -> tuple[DecoderOutput | None, State]:
        """Run several steps at once, such as a prompt; the output may be left out."""
        return None, self.carry(ids, state).state

    def loss(
        self, source: Padded, target: Tensor, carried: State = None
    ) -> tuple[Tensor, int, State]:
        """Return the summed loss of both directions, the steps, and the state after them."""
        raise NotImplementedError

    def penalty(self, carried: BPTTOutput, ids: Padded) -> Tensor | None:
        """Return a regularisation term to add to the summed loss, if there is one."""
        return None

    def subtoken_ids(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids inside each token, counted from 1."""
        raise NotImplementedError

    def set_vocabulary(self, vocabulary: Sequence[str]) -> None:
        """Store the spelling of each word, if it reads them."""


class Seq2SeqDecoder(Decoder):
    """Predicts a target text from encoder states (B, S, M)."""

    causal = True
    reads_source = True
    hidden_size: int
    attends: bool = True  # has attention to the encoder states

    def __call__(self, targets: Padded, memory: Padded) -> Tensor:
        """Return the logits (B, T, V) of the word after every step."""
        raise NotImplementedError

    def features(self, targets: Padded, memory: Padded) -> Tensor:
        """Return features (B, T, F) of every step, the inputs of the output layer."""
        raise NotImplementedError

    def read(self, targets: Padded, memory: Padded) -> DecoderOutput:
        """Run all steps, with attention weights if it attends."""
        raise NotImplementedError

    def start(self, memory: Padded, weights: bool = False) -> DecoderState:
        """Return the state before the first word; `weights` records the attention of a step."""
        raise NotImplementedError


class LabelSpace:
    """The answers a task can give, learned from the training labels."""


class Task:
    """Labels, loss, answers and metric of one kind of problem. Stateless: settings only."""


class ClassicModel:
    """A model that is trained without gradients through a Model: linear, n-gram, CRF."""


class Engine:
    """Texts -> scores: what a Predictor calls, neural or classic."""
