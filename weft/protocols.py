"""The interfaces of the parts: every member that other code calls on a part is declared here.

A part derives from the class of its kind and overrides what differs. Members without a value are
required; the others have the default that suits most parts. Types of later stages are named by
annotations only, so this file imports nothing of them at run time.

B batch   T steps   S steps of the other text   E embedding width   H hidden width   C scores
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from weft.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    import torch
    from scipy.sparse import csr_matrix
    from torch import Tensor, nn
    from typing_extensions import Self

    from weft.batch import LabelledBatch, Padded
    from weft.classic.ngram.trie import NGram
    from weft.classic.progress import ProgressCallback
    from weft.decode.cuda_graphs.decode_step import DecodeGraphs
    from weft.decode.decoders.language_models import BPTTOutput
    from weft.decode.decoders.output_layer import DecoderOutput, OutputLayer
    from weft.decode.heads.crf import CRF
    from weft.decode.search.settings import SearchSettings
    from weft.embed.contextual import ScalarMix
    from weft.jsonio import JsonObject
    from weft.metrics import Metric
    from weft.model import Model
    from weft.predict.generation.batch import TextSearch
    from weft.predict.output import EngineOutput
    from weft.predict.predictor import Predictor
    from weft.runtime import Runtime
    from weft.tasks.annotation import Annotation, Decoded, SentenceDistribution
    from weft.tasks.confidence.table import ConfidenceTable
    from weft.tasks.language import LMVocabulary
    from weft.tasks.mlm import MaskedLM, MLMStats, MLMVocabulary
    from weft.tasks.task import Answer, Loss
    from weft.text.class_balance import Balance
    from weft.text.example import Example, Label, SkipCounter
    from weft.text.formats.dialogue.entities import EntityDatabase
    from weft.text.formats.features import Frontend
    from weft.text.label_tree import LabelTree
    from weft.tokens.special_tokens import SpecialTokens
    from weft.tokens.tokenizer import Tokenizer
    from weft.tokens.word_segmenter import WordSegmenter

# What the steps of a row are: tokens of a text or of a pair, words, nodes of a tree, vectors.
InputKind = Literal["text", "pairs", "words", "trees", "vectors"]
# How files are read: with labels, as texts by line, as one running text, as documents.
ReadMode = Literal["labelled", "texts", "running", "documents"]
# The number of scores; (vocabulary size, ids or flags); or the labels and scheme of each column.
OutputSize = int | tuple[int, ...] | tuple[tuple[tuple[str, ...], str], ...]
Section: TypeAlias = Mapping[str, Any]  # of a configuration, as TOML has it
Saved: TypeAlias = Mapping[str, Any]  # parsed JSON, checked where it is read
Space = TypeVar("Space", bound="LabelSpace")
# What a head returns: logits (B, C), or a structured output that only its task looks into.
Scores: TypeAlias = Any
# What a decoder keeps between steps. Search moves its rows; only the decoder looks inside.
State: TypeAlias = Any


class WeightMatrices:
    """A module with weight matrices beside those of PyTorch's layers, for `train.init`."""

    def weight_matrices(self) -> "Iterable[Tensor]":
        """Return views of the matrices (outputs, inputs), one per gate or head."""
        return ()

    def finish_init(self) -> None:
        """Set what depends on the matrices, and biases that do not start at zero."""


class Embedder:
    """Ids (B, T), or sub-token ids (B, T, W) -> vectors (B, T, E)."""

    output_size: int
    max_positions: int | None = None  # steps of a row, special tokens included; None: any number
    max_bytes: int | None = None  # bytes of a word that are read, for embedders that spell words
    features: int = 0  # width of the input vectors, for an embedder that reads no tokens
    frontend: "Frontend | None" = None  # how recordings or images become input vectors
    frame: "SpecialTokens | None" = None  # special tokens around each text
    subwords: bool = False  # words come with the ids of their subwords
    reads_windows: bool = False  # words beyond `max_positions` are read in windows
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
    mixes_steps: bool = True  # a state depends on other steps than its own
    has_attention: bool = False  # `attention_weights` is implemented

    if TYPE_CHECKING:

        def __call__(self, x: Padded) -> Padded: ...

    def unroll(self, x: "Padded") -> "tuple[Padded, dict[str, list[Tensor]]]":
        """Run a recurrent encoder step by step; also return the states of every layer."""
        raise NotImplementedError

    def attention_weights(self, x: "Padded") -> "list[Tensor]":
        """Return the attention weights, one (B, N, T, T) tensor per layer."""
        raise NotImplementedError


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
    has_attention: bool = False  # the texts attend to each other; see `attention_weights`
    leading: int = 0  # steps that it puts in front of each text

    if TYPE_CHECKING:

        def __call__(self, *texts: Padded) -> Any: ...

    def attention_weights(self, first: "Padded", second: "Padded") -> "tuple[Tensor, Tensor]":
        """Return the weights (B, T, S) of the first text's steps on the second's, and (B, S, T)."""
        raise NotImplementedError

    def join(self, width: int) -> "PairJoin | None":
        """Return the module that joins two pooled vectors; None if its output is one text's."""
        return None


class PairJoin:
    """Two vectors (B, H) -> one (B, output_size)."""

    output_size: int

    if TYPE_CHECKING:

        def __call__(self, first: Tensor, second: Tensor) -> Tensor: ...


class Head:
    """Encoder output -> scores. No argmax or metric inside.

    An output may compute its loss itself, where the loss never materialises the logits.
    """

    task: str = ""  # the task whose outputs it gives; "": any task about a text as a whole
    reads: "InputKind | None" = None  # rows it needs; None: words, or the text if it is pooled
    max_positions: int | None = None  # longest row
    needs_full_sentence: bool = False  # sentences may not be split: the output is a tree over each
    reads_documents: bool = False  # rows may be longer than what an embedder reads at once
    is_mlm: bool = False  # a masked language model: also called with the pooled vector
    is_stateful: bool = False  # a language model that carries its state from window to window
    sync_free: bool = False  # training never waits for the device, if rows are full
    fitted: bool = False  # by a solver on fixed vectors, not by gradient descent
    # Losses of labels (`Task.loss_kind`) that it can be trained with.
    losses: "tuple[str, ...]" = ("cross-entropy", "margin", "margin-sum")
    balances: "tuple[str, ...]" = ("weights", "sampling", "focal")  # ways of `train.balance`
    extended_vocab_start: int = 0  # first id of a copied source word; 0: copies none
    max_target_length: int | None = None  # longest target text
    note: str = ""  # a caveat about the metrics
    can_average: bool = True  # its output has the `distributions` that an ensemble averages
    num_marks: int = 0  # numbers it reads of each word beside the states, made by `mark_words`
    sentence_columns: int = 0  # last columns of a decoded table that are of the whole sentence
    graphs: "DecodeGraphs | None" = None  # CUDA graphs of the decoder's steps

    # (B, H) or (B, T, H), with the source if it copies, with the vector if it is an MLM.
    def __call__(self, *inputs: Any) -> Any:
        raise NotImplementedError

    def borrow(self, embedder: "Embedder") -> None:
        """Use tables of the first embedder; called once, when the model is built."""

    def mark_words(self, words: "Sequence[str]", label: "Label") -> "np.ndarray":
        """Return the marks (T, num_marks) of words, and of what a file says of them."""
        raise NotImplementedError

    def hide_marks(self, marks: "Tensor", hidden: "Tensor") -> "Tensor":
        """Return marks (B, T, num_marks) that do not give away the words that are hidden (B, T)."""
        return marks

    def min_steps(self, target: Any) -> int:
        """Return the fewest steps of a row that can hold a target; 0: any number."""
        return 0

    @property
    def accepts_lazy_source(self) -> bool:
        """True if it prefers a source that is not encoded yet."""
        return False

    @property
    def graph_decoder(self) -> "Decoder | None":
        """The decoder whose steps may be CUDA graphs, if there is one."""
        return None

    @property
    def crfs(self) -> "Sequence[CRF]":
        """The CRF of each column of tags; empty if tags are independent."""
        return ()

    def greedy_decoding(self) -> AbstractContextManager[None]:
        """Decode greedily inside the context."""
        return nullcontext()


class DecoderHead(Head):
    """A decoder in place of a head: a language model, or a seq2seq model."""

    decoder: "Decoder"
    search: "SearchSettings"
    bos: int
    eos: int


class DecoderState:
    """A decoder's state with encoder states or a KV cache: a frozen dataclass, rows first.

    States without either may be any nest of tensors; only their decoder looks inside.
    """

    def per_prompt(self) -> "Self":
        """Return the state with one set of encoder states for all beams of a prompt."""
        return self

    @property
    def attention_weights(self) -> "Tensor | None":
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

    def view_steps(self, steps: int) -> "Self":
        """Return the state with a view of the first `steps` slots of its cache."""
        raise NotImplementedError

    def max_position(self) -> int:
        """Return the number of used slots over all rows; synchronises with the device."""
        return 0


class Decoder:
    """Predicts the next token from the tokens before it, and from encoder states if there are.

    Stepping gives the same logits as running all steps at once.
    """

    words: "OutputLayer"
    causal: bool  # never sees the tokens after a step
    reads_source: bool
    training: bool
    max_positions: int | None = None  # longest sequence
    scale: float = 1.0  # of word vectors
    model: str = ""  # the checkpoint it starts from
    extended_vocab_start: int = 0  # first id of a copied source word; 0: copies none
    sync_free: bool = False  # training never waits for the device, if rows are full

    @classmethod
    def uses_attention(cls, options: Section) -> bool:
        """Return True if [attention] applies to a decoder with these options that accepts it."""
        return True

    @property
    def base_decoder(self) -> "Decoder":
        """The decoder without wrappers, such as a pointer-generator."""
        return self

    def step(self, ids: "Tensor", state: State) -> "tuple[Tensor, State]":
        """Return the logits (B, V) of the word after `ids` (B,), and the next state."""
        raise NotImplementedError

    def step_features(self, ids: "Tensor", state: State) -> "tuple[DecoderOutput, State]":
        """Run one step without the output layer, (B, 1, F)."""
        raise NotImplementedError

    def with_static_cache(self, state: State, steps: int, beams: int = 0) -> State | None:
        """Return the state in shapes that stay for `steps` more steps; None if it ends before."""
        over = self.max_positions is not None and steps > self.max_positions
        return None if over else state

    # Of nn.Module, which a decoder also derives from.
    def parameters(self) -> "Iterator[nn.Parameter]":
        raise NotImplementedError

    def buffers(self) -> "Iterator[Tensor]":
        raise NotImplementedError

    def modules(self) -> "Iterator[nn.Module]":
        raise NotImplementedError


class LanguageModelDecoder(Decoder):
    """Predicts running text, without a source."""

    reads_source = False
    is_stateful: bool = False  # `carry` continues from the window before
    needs_masking: bool = False  # sees a word unless it is masked
    has_backward_lm: bool = False  # also predicts preceding tokens, and has a loss of both
    reads_subtokens: bool = False  # of each token, beside its id
    max_subtokens: int = 0

    @property
    def input_layer(self) -> "nn.Module":
        """The module whose last T outputs are the vectors of the input steps, (B, T, E)."""
        raise NotImplementedError

    def __call__(self, ids: "Padded") -> "Tensor":
        """Return the logits (B, T, V) of the word after every step."""
        raise NotImplementedError

    def features(self, ids: "Padded") -> "Tensor":
        """Return features (B, T, F) of every step, the inputs of the output layer."""
        raise NotImplementedError

    def backward_features(self, ids: "Padded") -> "Tensor":
        """Return features of the backward model; the rows are in reverse order."""
        raise NotImplementedError

    def start(self, batch: int, device: "torch.device | None" = None) -> State:
        """Return the state before the first token."""
        raise NotImplementedError

    def carry(self, ids: "Padded", state: State = None) -> "BPTTOutput":
        """Run one window from the state of the window before."""
        raise NotImplementedError

    def prefill(self, ids: "Padded", state: State) -> "tuple[DecoderOutput | None, State]":
        """Run several steps at once, such as a prompt; the output may be left out."""
        return None, self.carry(ids, state).state

    def loss(
        self, source: "Padded", target: "Tensor", carried: State = None
    ) -> "tuple[Tensor, int, State]":
        """Return the summed loss of both directions, the steps, and the state after them."""
        raise NotImplementedError

    def penalty(self, carried: "BPTTOutput", ids: "Padded") -> "Tensor | None":
        """Return a regularisation term to add to the summed loss, if there is one."""
        return None

    def subtoken_ids(self, words: "Sequence[str]") -> list[list[int]]:
        """Return the ids inside each token, counted from 1."""
        raise NotImplementedError

    def set_vocabulary(self, vocabulary: "Sequence[str]") -> None:
        """Store the spelling of each word, if it reads them."""


class Seq2SeqDecoder(Decoder):
    """Predicts a target text from encoder states (B, S, M)."""

    causal = True
    reads_source = True
    hidden_size: int
    attends: bool = True  # has attention to the encoder states

    def __call__(self, targets: "Padded", memory: "Padded") -> "Tensor":
        """Return the logits (B, T, V) of the word after every step."""
        raise NotImplementedError

    def features(self, targets: "Padded", memory: "Padded") -> "Tensor":
        """Return features (B, T, F) of every step, the inputs of the output layer."""
        raise NotImplementedError

    def read(self, targets: "Padded", memory: "Padded") -> "DecoderOutput":
        """Run all steps, with attention weights if it attends."""
        raise NotImplementedError

    def start(self, memory: "Padded", weights: bool = False) -> "DecoderState":
        """Return the state before the first word; `weights` records the attention of a step."""
        raise NotImplementedError

    def source_vector(self, memory: "Padded") -> "Tensor | None":
        """Return the vector (B, M) that is all it reads of the source; None if it attends."""
        return None


class LabelSpace:
    """The answers a task can give, learned from the training labels.

    Spaces are frozen dataclasses as a rule. A field of the same name as a default below needs
    `= field()` to stay required.
    """

    entries: tuple[str, ...] | tuple[tuple[str, ...], ...] = ()  # labels, or tags by column
    names: tuple[str, ...] = ()  # of the columns of tags
    threshold: float | None = None  # of a decision that is tuned after training
    confidence: "ConfidenceTable | None" = None  # what held-out texts say of confidences
    rejection: float = 0.0  # probability below which a text is out of scope
    deviation: float | None = None  # standard deviation of the labels, where they are numbers
    class_counts: tuple[int, ...] = ()  # training examples of each entry; not saved
    positive: str = ""  # of two classes the one that is predicted from the threshold on
    tokenizer: "Tokenizer | None" = None  # of answers that are texts
    shared: bool = False  # inputs are read by the same tokenizer
    slots: tuple[str, ...] = ()  # of the records that inputs are
    database: "EntityDatabase | None" = None  # by which responses are delexicalised

    @property
    def size(self) -> OutputSize:
        """The sizes that the head is built for: scores, tags by column, or a vocabulary."""
        raise NotImplementedError

    @property
    def tree(self) -> "LabelTree | None":
        """The tree that labels are paths in, if they are."""
        return None

    @property
    def width(self) -> int:
        """The columns of a target that is a table; 0 if it is a number or a row."""
        return 0

    def to_json(self) -> "JsonObject":
        """Return what `Task.load_space` restores."""
        raise NotImplementedError

    @staticmethod
    def without_marks(text: str) -> str:
        """Return a text without marks that a tokenizer should not learn."""
        return text


class Task(Generic[Space]):
    """Labels, loss, answers and metric of one kind of problem. Stateless: settings only.

    Flags are class attributes, because they are read before a task is built. `scores` are the
    head's output in `loss`, and on the host what the engine makes of it in the other methods.
    """

    head: str  # that answers it unless the configuration names another
    metric: str  # that early stopping and the leaderboard look at
    tokenizer: Section  # section of the tokenizer, if `has_target_tokenizer`
    read_mode: ReadMode = "labelled"  # how files are read; only "labelled" examples have targets
    pairs: bool = False  # inputs are two texts
    is_structured: bool = False  # answers are about the words of a text, and `gold` draws them
    reads_trees: bool = False  # examples have trees, from the file or from a parser
    record: bool = False  # inputs are records: slots and values
    multi_label: bool = False  # an answer is a set of labels
    smoothing: float = 0.0  # label smoothing
    loss_kind: str = "cross-entropy"  # of labels: cross-entropy, or a margin
    lines: bool = True  # every line of raw text is a text of its own
    has_threshold: bool = False  # `tune` has something to decide
    threshold_for: str = ""  # the goal of the threshold, if one is configured
    has_references: bool = False  # the metric compares with `find_reference`, not with `target`
    has_target_tokenizer: bool = False  # answers are texts: `text_space` takes their tokenizer
    gives_vectors: bool = False  # there are no answers, only vectors
    file_format: str = ""  # that column files are read in; empty: as tagged words
    shares_heads_of: str = ""  # the task whose heads answer it; empty: it has its own
    has_boundaries: bool = False  # an answer has a start and an end distribution
    can_average: bool = False  # several models can answer as one: an ensemble
    has_classes: bool = False  # `classes` of a target can be counted and balanced
    has_confidence: bool = False  # answers have probabilities that `calibrate` can correct
    takes_weights: bool = False  # `loss` multiplies the losses of rows by their weights

    @staticmethod
    def infer(settings: Section, examples: "Iterable[Example]") -> dict[str, object]:
        """Return settings that are inferred from the training file."""
        return {}

    def prepare(self, example: "Example", tally: "SkipCounter") -> "Example":
        """Return the example as the task reads it, or raise a UserError for a bad row."""
        return example

    def training_instances(self, example: "Example") -> "Iterator[Example]":
        """Yield one example for each answer to learn."""
        yield example

    def group_references(self, examples: "Iterable[Example]") -> "Iterator[Example]":
        """Yield the examples to evaluate on, with the references of equal inputs together."""
        yield from examples

    def target_texts(self, examples: "Iterable[Example]") -> "Iterator[str]":
        """Yield the texts that the tokenizer of the answers is trained on."""
        raise NotImplementedError

    def space(self, examples: "Iterable[Example]") -> Space:
        """Learn the label space in one pass over the training examples."""
        raise NotImplementedError

    def text_space(self, examples: "Iterable[Example]", tokenizer: "Tokenizer") -> Space:
        """Return the label space of answers that are texts, instead of `space`.

        The tokenizer has been trained on the `target_texts` of the same examples.
        """
        raise NotImplementedError

    def load_space(self, saved: Saved) -> Space:
        """Restore what `LabelSpace.to_json` wrote, or raise a UserError if it is damaged."""
        raise NotImplementedError

    def target(self, example: "Example", space: Space) -> "np.ndarray | int | float":
        """Return the label as numbers; a UserError with file and line where the space lacks it."""
        raise NotImplementedError

    def classes(self, target: Any, space: Space) -> "tuple[np.ndarray, ...]":
        """Return the class ids in a target by column, if the task `has_classes`."""
        raise NotImplementedError

    def missing_label_error(self, example: "Example") -> UserError:
        """Return the error for an example without a label."""
        return UserError(f"{example.where}: no label. Give the label column with --label.")

    def find_reference(self, example: "Example") -> object:
        """Return what the metric compares an answer with, if `has_references`."""
        raise NotImplementedError

    def gold(
        self, example: "Example", space: Space, predicted: "Answer | None" = None
    ) -> "Annotation":
        """Return the gold annotation; of several, the one nearest to the predicted answer."""
        raise NotImplementedError

    def loss(self, scores: Scores, batch: "LabelledBatch") -> "Loss":
        """Return the summed loss of a batch and what it is a sum over."""
        raise NotImplementedError

    def answers(self, scores: Scores, space: Space) -> "list[Answer]":
        """Return the answer of each input."""
        raise NotImplementedError

    def note(self, space: Space) -> str:
        """Return a note on its answers, or ""."""
        return ""

    def predict_targets(self, scores: Scores, space: Space) -> "np.ndarray | Sequence[object]":
        """Return the answers in the form that the metric compares."""
        raise NotImplementedError

    def join_spaces(self, spaces: "Sequence[Space]", weights: "np.ndarray") -> Space:
        """Return the label space of an ensemble; the `weights` of its members sum to 1."""
        return spaces[0]

    def average(
        self, scores: "Sequence[Scores]", spaces: "Sequence[Space]", weights: "np.ndarray",
        space: Space,
    ) -> Scores:  # fmt: skip
        """Return the scores of an ensemble: the mean of the members' probabilities.

        `scores` has what `Engine.distributions` gives of each member, `spaces` their label spaces;
        the `weights` sum to 1.
        """
        raise NotImplementedError

    def tune(self, scores: Scores, targets: Any, space: Space) -> Space:
        """Return the space with what decides between answers, such as a threshold.

        It is chosen on held-out scores, in every evaluation during training and once after it.
        """
        return space

    def calibrate(self, scores: Scores, targets: Any, space: Space) -> Space:
        """Return the space with what held-out scores say of confidences, if `has_confidence`.

        It comes once, after training and after `tune`.
        """
        return space

    def describe_confidence(self, space: Space) -> str:
        """Return what is known of the confidences, or ""."""
        return ""

    def uncalibrated_score(self, answer: "Answer", space: Space) -> float | None:
        """Return what the score of an answer was before calibration; None if it is the same."""
        return None

    def with_out_of_scope(self, space: Space, label: str) -> Space:
        """Return the space with a label for texts that none of the others fits."""
        raise UserError(
            "data.out_of_scope is for the tasks 'classify' and 'pair-classify'. Remove it."
        )

    def build_metric(self, space: Space) -> "Metric":
        """Return an empty accumulator of the task's metrics."""
        raise NotImplementedError

    def score_texts(
        self, engine: "Engine", texts: "Iterable[str]", space: Space
    ) -> "Iterator[Any]":
        """Yield the scores of raw texts that follow each other, unless files are "labelled"."""
        raise NotImplementedError

    def model_input(self, one: "str | Example", space: Space, where: str) -> "str | Example":
        """Return what the engine reads of an input; `where` names it in errors."""
        return one if isinstance(one, str) else one.text

    def golden_input(self, example: "Example") -> str | None:
        """Return the input to save with a model and replay on loading; None: the example's."""
        return None

    def golden_answers(self, vectors: "np.ndarray") -> "list[Answer]":
        """Return vectors as answers that can be replayed, if the task `gives_vectors`."""
        raise NotImplementedError


class ClassicModel:
    """A model that is trained without gradients through a Model: linear, n-gram, CRF.

    Language models are trained by `fit_ids` and answer by `likelihoods`; all others are trained by
    `fit` and answer by `predict`.
    """

    kind = "classic"  # its name in messages
    is_lm = False
    is_structured = False  # labels every word of a text
    pairs = False  # reads Examples with two texts
    is_linear = False  # has `contributions`
    tunes_on_dev = False  # `fit` takes the dev split and the metric to choose by
    balances: "tuple[str, ...]" = ()  # ways of `train.balance` that `fit` takes
    takes_weights = False  # `fit` takes the weights of rows
    epochs = 1  # passes over the texts, of a model that reports them one by one
    remarks: "Sequence[str]" = ()  # on the last fit, for the log
    cuts: "WordSegmenter | None" = None  # splits plain text into words, if that was learned

    @property
    def note(self) -> str:
        """A note to show beside its metrics, or ""."""
        return ""

    @property
    def is_seeded(self) -> bool:
        """True if another seed can give another model."""
        return False

    def choose_features(self, texts: "Sequence[Any]", space: Any) -> str:
        """Choose the features from the training examples; return a line for the log, or ""."""
        return ""

    def fit(
        self,
        texts: "Sequence[Any]",
        targets: Any,
        task: Any,
        space: Any,
        seed: int,
        watch: "ProgressCallback",
        dev: "tuple[Sequence[Any], Any] | None" = None,
        metric: str = "",
        balance: "Balance | None" = None,
        row_weights: "np.ndarray | None" = None,
    ) -> None:
        """Train on texts or Examples and their targets, as the task and its label space have them.

        Only a model that tunes on dev reads `dev` and `metric`; only one that takes weights is
        given `row_weights` (n,), which multiply the losses.
        """
        raise self._unsupported_error("is trained on ids of running text")

    def fit_ids(
        self,
        rows: "Iterable[np.ndarray]",
        dev_rows: "Iterable[np.ndarray]",
        space: "LMVocabulary",
        watch: "ProgressCallback",
    ) -> None:
        """Train a language model on the ids of texts, each split read once."""
        raise self._unsupported_error("is not a language model")

    def predict(self, texts: "Sequence[Any]") -> "np.ndarray | list[Decoded]":
        """Return logits (n, C), a standardised number (n, 1), or the tags of each text."""
        raise self._unsupported_error("scores tokens, not texts")

    def distributions(self, texts: "Sequence[Any]", space: Any) -> "list[SentenceDistribution]":
        """Return the probabilities of all tags, if it labels words."""
        raise self._unsupported_error("has no tags of words")

    def likelihoods(
        self, texts: "Iterable[str]", space: "LMVocabulary", running: bool = False
    ) -> "Iterator[Decoded]":
        """Yield the token probabilities of each text; see Engine.likelihoods."""
        raise self._unsupported_error("is not a language model")

    def next_log_probs(
        self, contexts: "Sequence[np.ndarray]", token: int, space: "LMVocabulary"
    ) -> "np.ndarray":
        """Return the log-probability (n,) of one token after each context, ids from the start."""
        raise self._unsupported_error("is not a language model")

    def label_scores(
        self, one: "Example", hidden: "np.ndarray", step: int, column: int
    ) -> "np.ndarray":
        """Return (M, C) the log-probability of each label of a word while words (M, T) are hidden.

        Labels are in the order of the task's label space; -inf where the rules forbid one.
        """
        raise self._unsupported_error("does not label words")

    def feature_weights(
        self, one: "Example", step: int, column: int
    ) -> "list[tuple[str, np.ndarray]]":
        """Return the known features of a word, each with its weight for every label (C,).

        Labels are in the order of the task's label space.
        """
        raise self._unsupported_error("does not label words")

    @property
    def ngrams(self) -> "NGram":
        """The n-gram model that generation steps through."""
        raise self._unsupported_error("cannot generate text")

    def coverage(self, texts: "Sequence[str]") -> "np.ndarray | None":
        """Return the known fraction (n,) of each text; None if every word counts."""
        return None

    def contributions(self, text: str, direction: "np.ndarray") -> list[tuple[int, int, float]]:
        """Return (start, end, weight) of the tokens, which sum to (logits − bias) · direction."""
        raise self._unsupported_error("is not linear in its features")

    def sparse_features(self, texts: "Sequence[Any]") -> "csr_matrix | None":
        """Return the sparse features (n, V) of texts; None if `embed` has dense vectors."""
        return None

    def embed(self, texts: "Sequence[str]") -> "np.ndarray":
        """Return sentence vectors (n, H)."""
        raise self._unsupported_error("has no sentence vectors")

    def states(self, text: str) -> "tuple[np.ndarray, np.ndarray]":
        """Return a vector for every token (T, H) and its character offsets (T, 2)."""
        raise UserError("This model reads a text as one bag; it has no vector for each token.")

    def parameters(self) -> int:
        """Return the number of learned weights."""
        raise NotImplementedError

    def save(self, folder: "Path") -> None:
        """Write the model into a folder."""
        raise NotImplementedError

    @classmethod
    def load(cls, folder: "Path", settings: "dict[str, Any]") -> "ClassicModel":
        """Load what `save` wrote, with the settings it was built with."""
        raise NotImplementedError

    def _unsupported_error(self, reason: str) -> UserError:
        return UserError(f"A '{self.kind}' model {reason}.")


class Engine:
    """Texts -> scores: what a Predictor calls, neural or classic."""

    model: "Model | None" = None  # of a neural engine
    runtime: "Runtime | None" = None  # of a neural engine
    parser: "Predictor | None" = None  # parses plain text for a model that reads trees
    members: "Sequence[Predictor]" = ()  # of an ensemble

    @property
    def input_kind(self) -> InputKind:
        """The kind of its input; a tagger reads words, even of plain text."""
        return "text"

    @property
    def note(self) -> str:
        """A note on its metrics, or ""."""
        return ""

    @property
    def has_backward_lm(self) -> bool:
        """True for a language model that also has a backward direction."""
        return False

    @property
    def word_segmenter(self) -> "WordSegmenter | None":
        """The word segmenter that was trained with it, if there is one."""
        return None

    @property
    def can_average(self) -> bool:
        """True if an ensemble can average its scores with those of others."""
        return True

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        raise NotImplementedError

    def predict(self, inputs: "Sequence[str | Example]", parts: bool = False) -> "EngineOutput":
        """Return the scores of each input; with `parts`, also token weights if there are any."""
        raise NotImplementedError

    def distributions(self, inputs: "Sequence[str | Example]") -> "EngineOutput":
        """Return scores that `Task.average` can average with those of other engines.

        They are logits, or the probabilities of all choices for words and spans.
        """
        return self.predict(inputs)

    def embed(self, texts: "Sequence[str | Example]") -> "np.ndarray":
        """Return sentence vectors (n, H)."""
        raise NotImplementedError

    def states(self, text: "str | Example") -> "tuple[np.ndarray, np.ndarray]":
        """Return a vector for every token (T, H) and its character offsets (T, 2)."""
        raise NotImplementedError

    def count_tokens(self, texts: "Sequence[str]") -> list[int]:
        """Return the number of tokens of each text, before any is truncated."""
        return [len(text.split()) for text in texts]

    def token_vectors(self) -> "tuple[list[str], np.ndarray]":
        """Return the tokens of its embedding table and their vectors (V, E)."""
        raise UserError("A classic model has no embedding table.")

    def likelihoods(self, texts: "Iterable[str]", running: bool = False) -> "Iterator[Decoded]":
        """Yield the ids (T, 1) of each text, their probabilities (T, 1) and character offsets.

        With `running`, the texts are one continuous text, without offsets; otherwise they are
        independent.
        """
        raise UserError("Only a language model has token probabilities.")

    def score_backward(self, texts: "Sequence[str]") -> "list[Decoded]":
        """Return the ids and probabilities of running text, read from its end."""
        raise UserError("This model has no backward language model.")

    def score_masked(
        self, texts: "Iterable[str]", task: "MaskedLM", space: "MLMVocabulary"
    ) -> "Iterator[MLMStats]":
        """Yield the masked-LM statistics of each document."""
        raise UserError("Only a masked language model has statistics of masked tokens.")

    def text_search(self, space: "LabelSpace") -> "TextSearch | None":
        """Return the search for texts that needs no torch; None if torch takes the steps."""
        return None

    def full_precision(self) -> "AbstractContextManager[None]":
        """Return a context in which answers do not depend on batching."""
        return nullcontext()

    def quantise_weights(self, weights: str, where: str) -> None:
        """Read with quantised weights, if the engine has a pre-trained network."""
        if weights != "float32":
            raise UserError(f"{where}: a classic model has no weights to quantise; omit weights.")

    def save(self, folder: "Path") -> None:
        """Write the engine into a model folder."""
        raise NotImplementedError
