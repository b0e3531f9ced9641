"""The neural engine: a Model with its tokenizer and length limit, from texts to scores."""

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from weft.batch import Padded, inference_batches
from weft.batch.documents import encode_documents
from weft.batch.indexer import Indexer, Row
from weft.batch.inference_rows import InferenceRows
from weft.decode.cuda_graphs.decode_step import enable_decode_graphs
from weft.embed.contextual import Contextual, TransformerEmbedder
from weft.errors import UserError, unknown_name
from weft.inference.forward import (
    MAX_ROWS,
    MAX_TOKENS,
    collect_outputs,
    decode_batches,
    forward_batches,
)
from weft.inference.lm_scoring import lm_head, reverse_text, score_texts
from weft.inference.mlm_scoring import score_documents
from weft.kernels.cpu.linear import LINEAR_BY_DTYPE, WeightDtype
from weft.model import (
    EncoderDecoderModel,
    EncoderModel,
    LanguageModel,
    Model,
    ModelOutput,
    build_model,
)
from weft.predict.distributions import sentence_distributions
from weft.predict.fill_mask import fill
from weft.predict.output import (
    EngineInput,
    EngineOutput,
    TokenWeight,
    plain_texts,
    word_weights,
)
from weft.predict.predictor import CHUNK_TEXTS, Predictor, load
from weft.predict.preprocess import add_parses, parse_or_text
from weft.protocols import Engine, Head, InputKind, OutputSize, Pair, Section, Seq2SeqDecoder
from weft.registry import describe_type, fits, trusted_packages
from weft.runtime import Runtime, select_runtime
from weft.storage import atomic_write
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.extractive_qa import PassageWindow, boundary_probs, choose_spans
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import EVALUATION_SEED, MASK_PATTERN, MaskedLM, MLMStats, MLMVocabulary
from weft.tasks.tag import join_parts
from weft.tensorfile import check_network, read_header
from weft.text.example import Example
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, DEFAULT_OVERLAP, Policy
from weft.tokens.word_segmenter import WordSegmenter, save

SEGMENTER_FILE = "cuts.json"  # the word segmenter, if one was trained
# Limits on the search settings of a saved model; options of `weft generate` may exceed them.
MAX_SAVED_SEARCH = {
    "max_length": 10_000,
    "num_beams": 1000,
    "num_return": 1000,
    "num_samples": 1000,
}
PARSER_FOLDER = "parser"  # inside the model folder: the parser of a model that reads trees


class NeuralEngine(Engine):
    """Texts -> rows -> batches by length -> scores, merged over the windows of long texts."""

    model: Model
    runtime: Runtime

    def __init__(
        self, model: Model, indexer: Indexer, runtime: Runtime, parser: Predictor | None = None
    ):
        self.model, self.indexer, self.runtime = model.to(runtime.device).eval(), indexer, runtime
        enable_decode_graphs(self.model.head, runtime)
        self.parser = parser

    @property
    def encoder_model(self) -> EncoderModel:
        """The model, for callers that need its encoder."""
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no encoder.")
        return self.model

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the scores of each input; the windows of a long text count equally."""
        traits = self.model.traits
        if traits.is_lm:
            return self._fill_or_score(inputs)
        if traits.is_mlm:
            return self._fill_masks(inputs)
        pairs = traits.input_kind == "pairs"
        if traits.is_structured:
            return self._find_spans(inputs, parts) if pairs else self._decode_rows(inputs)
        if parts and not pairs:  # offsets in two texts would be ambiguous
            return self._classify_with_weights(inputs)
        return self._classify(inputs)

    def distributions(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the probabilities of all choices for words or answers, else what `predict` does.

        Only the most probable choice of `predict` is left out; long texts are merged as there.
        """
        traits = self.model.traits
        if not traits.is_structured or traits.is_lm or traits.is_mlm:
            return self.predict(inputs)
        if traits.input_kind == "pairs":
            return self._find_spans(inputs, parts=True)
        rows, count = self.index(inputs), len(inputs)
        coverage, read = _coverage(rows.rows, count)
        return EngineOutput(sentence_distributions(self, rows, count), coverage, read=read)

    def _classify(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the logits of each text or pair."""
        rows = self.index(inputs)
        logits = collect_outputs(self.model, rows, self.runtime)
        coverage, read = _coverage(rows.rows, len(inputs))
        return EngineOutput(_average_windows(logits, rows.rows, len(inputs)), coverage, read=read)

    def _classify_with_weights(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the logits of each text, and the weight of each token in its vector."""
        rows = self.index(inputs, spans=True)
        logits = np.empty((0, 0))
        parts: list[list[TokenWeight]] = [[] for _ in inputs]
        for chosen, output in forward_batches(self.model, rows, self.runtime):
            values = output.scores.float().cpu().numpy()
            if not logits.size:
                logits = np.empty((len(rows), values.shape[1]), values.dtype)
            logits[chosen] = values
            for i, weights in zip(chosen, _pool_weights(output), strict=True):
                parts[rows.rows[i].text] += _weigh_tokens(rows.rows[i], weights)
        coverage, read = _coverage(rows.rows, len(inputs))
        merged = _average_windows(logits, rows.rows, len(inputs))
        return EngineOutput(merged, coverage, [tuple(own) for own in parts], read)

    def _find_spans(self, inputs: Sequence[EngineInput], parts: bool) -> EngineOutput:
        """Return the best answer span of each passage over all its windows.

        With `parts`, also the start and end distributions over the passage.
        """
        rows = self.index(inputs)
        windows = [
            passage_window(self.model, row, _second_text(inputs[row.text]), row.text)
            for row in rows.rows
        ]
        coverage, read = _coverage(rows.rows, len(inputs))
        if not parts:
            scores = decode_batches(self.model, rows, self.runtime) if len(rows) else []
            spans = choose_spans(zip(windows, scores, strict=True), len(inputs))
            return EngineOutput(spans, coverage, read=read)
        scores, logits = [None] * len(rows), [np.empty(0)] * len(rows)
        for chosen, output in forward_batches(self.model, rows, self.runtime):
            both = zip(output.scores.decode(), output.scores.boundary_logits(), strict=True)
            for i, (best, own) in zip(chosen.tolist(), both, strict=True):
                scores[i], logits[i] = best, own
        spans = choose_spans(zip(windows, scores, strict=True), len(inputs))
        probs = boundary_probs(zip(windows, logits, strict=True), len(inputs))
        spans = [replace(s, starts=a, ends=b) for s, (a, b) in zip(spans, probs, strict=True)]
        return EngineOutput(spans, coverage, read=read)

    def _decode_rows(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the labels of the words of each text, or the generated text."""
        rows = self.index(inputs)
        decoded: list[list[Decoded]] = [[] for _ in inputs]
        for row, (table, probs) in zip(
            rows.rows,
            decode_batches(self.model, rows, self.runtime) if len(rows) else (),
            strict=True,
        ):
            if not row.read_fraction:
                continue  # an empty text has no prediction
            offsets = () if row.spans is None else tuple(map(tuple, row.spans.tolist()))
            source = inputs[row.text]
            fields = source.fields if isinstance(source, Example) else ()
            whole_columns = self.model.head.sentence_columns
            decoded[row.text].append(
                Decoded(table, probs, row.words, offsets, row.tree, fields, whole_columns)
            )
        whole = [join_parts(parts) for parts in decoded]
        weights = [() if one.tree is not None else word_weights(one) for one in whole]
        coverage, read = _coverage(rows.rows, len(whole))
        return EngineOutput(whole, coverage, weights, read)

    def _fill_masks(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the best words for the masks of each text."""
        return EngineOutput(*fill(plain_texts(inputs), self.model, self.indexer, self.runtime))

    def _fill_or_score(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Fill the masks of texts if the model reads both sides; score the other texts."""
        blanks = [
            lm_head(self.model).is_bidirectional and MASK_PATTERN.search(text) is not None
            for text in plain_texts(inputs)
        ]
        if not any(blanks):
            return self._score_tokens(inputs)
        filled, scored = (
            [one for one, blank in zip(inputs, blanks, strict=True) if blank is wanted]
            for wanted in (True, False)
        )
        outputs = {True: self._fill_masks(filled), False: self._score_tokens(scored)}
        order = [(blank, blanks[:i].count(blank)) for i, blank in enumerate(blanks)]
        scores: list[Any] = [outputs[blank].scores[k] for blank, k in order]
        coverage = np.array([outputs[blank].coverage[k] for blank, k in order])
        parts = [() if blank else outputs[blank].parts[k] for blank, k in order]
        return EngineOutput(scores, coverage, parts)

    def _score_tokens(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the token probabilities of each text, scored independently."""
        texts = plain_texts(inputs)
        scored = list(self.likelihoods(texts))
        weights = [
            tuple((*span, float(p)) for span, p in zip(one.places, one.probs[:, 0], strict=True))
            for one in scored
        ]
        return EngineOutput(scored, self.indexer.tokenizer.known_fraction(texts), weights)

    @property
    def can_average(self) -> bool:
        """True if the head's output has distributions to average."""
        head: Head = self.model.head
        return head.can_average

    @property
    def has_backward_lm(self) -> bool:
        """True for a language model that also has a backward direction."""
        return self.model.traits.is_lm and lm_head(self.model).has_backward_lm

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        if not self.model.traits.is_lm:
            raise UserError("Only a language model has token probabilities.")
        space = LMVocabulary(self.indexer.tokenizer, lines=self.model.parts["task"]["lines"])
        head = lm_head(self.model)
        stream = iter(texts)
        waiting: deque[tuple[np.ndarray, tuple[CharSpan, ...]]] = deque()

        def tokenise() -> Iterator[np.ndarray]:
            while chunk := list(islice(stream, CHUNK_TEXTS)):
                ids_and_offsets: list[tuple[np.ndarray, tuple[CharSpan, ...]]]
                ids_and_offsets = (
                    [(ids, ()) for ids in space.ids(chunk)] if running else space.places(chunk)
                )
                waiting.extend(ids_and_offsets)
                if not head.decoder.reads_subtokens:
                    yield from (ids for ids, _ in ids_and_offsets)
                else:
                    yield from space.with_subtokens(
                        chunk, head.decoder.subtoken_ids, head.decoder.max_subtokens
                    )

        for log_probs in score_texts(self.model, tokenise(), self.runtime, running):
            ids, offsets = waiting.popleft()
            yield Decoded(ids[:, None], _to_probs(log_probs), places=offsets)

    def score_backward(self, texts: Sequence[str]) -> list[Decoded]:
        """Return the backward language model's scores of running text.

        Ids and probabilities come in reading order, from the end of each text.
        """
        head = lm_head(self.model)
        space = LMVocabulary(self.indexer.tokenizer, lines=True)
        tokens = space.with_subtokens(texts, head.decoder.subtoken_ids, head.decoder.max_subtokens)
        rows = [reverse_text(one) for one in tokens[::-1]]
        scored = score_texts(self.model, rows, self.runtime, running=True, backward=True)
        decoded = [
            Decoded(row[:, :1].astype(np.int64), _to_probs(log_probs))
            for row, log_probs in zip(rows, scored, strict=True)
        ]
        return decoded[::-1]

    def score_masked(
        self, texts: Iterable[str], task: MaskedLM, space: MLMVocabulary
    ) -> Iterator[MLMStats]:
        """Yield the masked-LM statistics of each document."""
        pairs = ((text, 0) for text in texts)
        documents = encode_documents(pairs, space.tokenizer, task.whole_words)
        masking = task.masking(space, self.model.traits.frame, phases=False)
        statistics = score_documents(
            self.model, documents, masking, self.runtime, EVALUATION_SEED
        )  # (D, 6)
        for row in statistics.tolist():
            yield MLMStats(*row)

    def embed(self, texts: Sequence[EngineInput]) -> np.ndarray:
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no vector for a whole text.")
        if isinstance(self.model, EncoderDecoderModel):
            return self._embed_sources(self.model, texts)
        if self.model.traits.is_structured:
            raise UserError("A tagger has no vector for a whole text; `states` has one per word.")
        pair = self.model.pair
        if pair is not None and any(isinstance(one, str) for one in texts):
            self._check_text_vectors(pair)
        if not texts:
            return np.zeros((0, self.model.pool.output_size), np.float32)
        rows = self.index(texts)
        vectors = collect_outputs(
            self.model, rows, self.runtime, select=lambda output: output.text_vector
        )
        return _average_windows(vectors, rows.rows, len(texts))

    def _embed_sources(
        self, model: EncoderDecoderModel, texts: Sequence[EngineInput]
    ) -> np.ndarray:
        """Return the vectors from which a decoder without attention writes."""
        decoder = model.head.decoder.base_decoder
        assert isinstance(decoder, Seq2SeqDecoder)

        def select(output: ModelOutput) -> Tensor:
            vector = decoder.source_vector(output.states)
            if vector is None:
                raise UserError(
                    "This decoder attends to every state of its source, so a text has no one "
                    'vector. Set decoder.source = "start", as in --recipe autoencoder.'
                )
            return vector

        rows = self.index(texts)
        if not texts:
            return np.zeros((0, model.encoder.output_size), np.float32)
        vectors = collect_outputs(model, rows, self.runtime, select=select)
        return _average_windows(vectors, rows.rows, len(texts))

    def _check_text_vectors(self, pair: Pair) -> None:
        """Raise UserError unless the model encodes each text of a pair on its own."""
        if not pair.has_text_vectors:
            kind = self.model.parts["pair"]["kind"]
            raise UserError(
                f"A model with [pair] kind '{kind}' reads two texts together, so it has no vector "
                "of one. Give pairs, [(text, other), …], or use --recipe towers."
            )

    def states(self, text: EngineInput) -> tuple[np.ndarray, np.ndarray]:
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no encoder, so it has no token vectors.")
        rows = self.index([text], spans=True)
        if not len(rows):
            return np.zeros((0, self.model.encoder.output_size), np.float32), np.zeros((0, 2), int)
        vectors = [np.zeros((0, 0))] * len(rows)
        for chosen, output in forward_batches(self.model, rows, self.runtime):
            for i, states in zip(chosen, output.states.rows(), strict=True):
                row = rows.rows[i]
                if len(states) < len(row.ids):
                    raise UserError("With a stride above 1 there is no vector for each token.")
                # A leading [CLS] has a state but no offsets.
                kept = states.float().cpu().numpy()[-len(row.ids) :]
                vectors[i] = kept if row.parents is None else kept[row.ids > 0]
        spans = [row.spans for row in rows.rows if row.spans is not None]
        return np.concatenate(vectors), np.concatenate(spans)

    def batches(self, inputs: Sequence[EngineInput]) -> Iterator[tuple[list[Row], Padded]]:
        """Yield rows with their offsets, and the batch they form."""
        rows = self.index(inputs, spans=True)
        for batch in inference_batches(rows, rows=MAX_ROWS, budget=MAX_TOKENS):
            yield [rows.rows[i] for i in batch.rows], batch.source.to(self.runtime.device)

    @contextlib.contextmanager
    def full_precision(self) -> Iterator[None]:
        usual, self.runtime = self.runtime, replace(self.runtime, half=False)
        read = [e for e in self.model.embedders if isinstance(e, Contextual)]
        numbers = [embedder.weight_dtype for embedder in read]
        for embedder in read:
            embedder.weight_dtype = "float32"
        try:
            yield
        finally:
            self.runtime = usual
            for embedder, kept in zip(read, numbers, strict=True):
                embedder.weight_dtype = kept

    def quantise_weights(self, weights: str, where: str) -> None:
        """Quantise the weights of pre-trained networks, for inference on a CPU."""
        if weights not in LINEAR_BY_DTYPE:
            raise unknown_name("choice", weights, LINEAR_BY_DTYPE, "weights")
        read = [e for e in self.model.embedders if isinstance(e, TransformerEmbedder)]
        if weights != "float32" and not read:
            raise UserError(
                f"{where}: this model has no BERT or GPT, so there are no weights to quantise. "
                "Omit weights; for a decoder, use generate.weight_dtype."
            )
        dtype: WeightDtype = "int8" if weights == "int8" else "float32"
        for embedder in read:
            embedder.weight_dtype = dtype

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, before any is truncated."""
        return [len(ids) for ids in self.indexer.tokenizer.encode_ids(texts)]

    def token_vectors(self) -> tuple[list[str], np.ndarray]:
        """Return the ordinary tokens and their vectors (V, E) in the first embedding table.

        That is an embedder's; a language model's decoder has its own.
        """
        tables = [part.token_table for part in self.model.embedder_parts]
        if isinstance(self.model, LanguageModel):
            tables = [self.model.head.decoder.words.table]
        table = next((one for one in tables if one is not None), None)
        if table is None:
            raise UserError(
                "This model has no embedding table with one vector per token: its embedder "
                "computes vectors from spelling or input features."
            )
        tokenizer = self.indexer.tokenizer
        ids = tokenizer.ordinary[tokenizer.ordinary < table.num_embeddings]
        matrix = table.weight.detach().float().cpu().numpy()[ids]
        return [tokenizer.words[i] for i in ids.tolist()], matrix

    def save(self, folder: Path) -> None:
        weights = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in self.model.state_dict().items()
        }
        with atomic_write(folder / "weights.safetensors") as part:
            save_file(weights, part)
        self.indexer.tokenizer.save(folder / "tokenizer.json")
        save(self.indexer.segmenter, folder / SEGMENTER_FILE)
        if self.parser is not None:
            self.parser.save(folder / PARSER_FOLDER)

    @classmethod
    def load(
        cls, folder: Path, config: Section, outputs: OutputSize, device: str
    ) -> "NeuralEngine":
        """Load what `save` wrote; missing and extra tensors are errors."""
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        path = folder / "weights.safetensors"
        lengths = _length_settings(config["data"], folder / "model.json")
        _check_search(config.get("generate", {}), folder / "model.json")

        def make() -> Model:
            return build_model(config, vocabulary_size=len(tokenizer), outputs=outputs)

        try:
            shapes = {name: entry.shape for name, entry in read_header(path).items()}
            check_network(make, shapes, path, trusted=bool(trusted_packages()))
            model = make()
            model.load_state_dict(load_file(path), strict=True)
        except FileNotFoundError:
            raise UserError(f"{path} is missing: the model folder is incomplete.") from None
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path}: damaged ({error}). Restore it or train again.") from None
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path} does not fit model.json: {reason}") from None
        if isinstance(model, LanguageModel) and len(tokenizer) > model.head.decoder.words.size:
            # Its table has the size of the vocabulary in labels.json, which may be another one.
            raise UserError(
                f"{folder / 'tokenizer.json'}: {len(tokenizer)} ids, but the model has vectors for "
                f"{model.head.decoder.words.size}. Restore the folder or train again."
            )
        cuts = WordSegmenter.load(folder / SEGMENTER_FILE)
        index = make_indexer(model, tokenizer, lengths[0], lengths[1], cuts, *lengths[2:])
        parser = (
            load(folder / PARSER_FOLDER, device=device)
            if (folder / PARSER_FOLDER).is_dir()
            else None
        )
        return cls(model, index, select_runtime(device), parser)

    @property
    def input_kind(self) -> InputKind:
        return self.model.traits.input_kind

    @property
    def word_segmenter(self) -> WordSegmenter | None:
        return self.indexer.segmenter

    @property
    def note(self) -> str:
        """Notes on the metrics, and on the layers that the vectors come from."""
        mixes = [embedder.scalar_mix for embedder in self.model.embedder_parts]
        layers = [f"layers of the pre-trained network: {m.summary}" for m in mixes if m is not None]
        return "; ".join(filter(None, [self.model.head.note, *layers]))

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def index(self, inputs: Sequence[EngineInput], spans: bool = False) -> InferenceRows:
        """Return the rows that the model reads; with `spans`, also the offsets of their tokens."""
        kind = self.model.traits.input_kind
        if kind == "trees":
            return InferenceRows(list(self.indexer.tree_rows(self._with_trees(inputs))))
        if kind == "words":
            return InferenceRows(list(self.indexer.sentence_rows(inputs)))
        if kind == "vectors":
            examples = [Example(one) if isinstance(one, str) else one for one in inputs]
            return InferenceRows(
                list(
                    self.indexer.feature_rows(
                        examples, self.model.traits.features, frontend=self.model.traits.frontend
                    )
                )
            )
        # A bi-encoder can also read one text alone.
        pairs = kind == "pairs" and not any(isinstance(one, str) for one in inputs)
        others = [_second_text(one) for one in inputs] if pairs else ()
        rows = self.indexer.rows(plain_texts(inputs), spans=spans, others=others)
        return InferenceRows(list(rows), pairs)

    def _with_trees(self, inputs: Sequence[EngineInput]) -> list[Example]:
        """Return the texts with trees; empty texts have none."""
        examples = [parse_or_text(one) if isinstance(one, str) else one for one in inputs]
        bare = [i for i, one in enumerate(examples) if one.tree is None and one.text.strip()]
        if bare and self.parser is None:
            first = examples[bare[0]]
            where = first.where if first.file else f"text {bare[0] + 1}"
            raise UserError(
                f"{where}: this model needs a tree, and the text has none. Give "
                "bracketed trees such as (3 (2 The) (4 good)), or train it with a parser: "
                "data.parser=FOLDER, a model of --recipe constituency."
            )
        return add_parses(examples, self.parser) if self.parser is not None and bare else examples


def _pool_weights(output: ModelOutput) -> Iterator[list[float] | None]:
    """Yield the pooling weight of each step of each row; None if the pool has none."""
    lengths = output.states.lengths.tolist()
    if output.weights is None:
        yield from (None for _ in lengths)
        return
    for values, length in zip(output.weights.tolist(), lengths, strict=True):
        yield values[:length]


def _weigh_tokens(row: Row, weights: list[float] | None) -> list[TokenWeight]:
    """Return (start, end, weight) of the tokens of a row."""
    assert row.spans is not None
    # With a stride, a weight belongs to no single token.
    if weights is None or len(weights) < len(row.spans):
        return []
    kept = weights[len(weights) - len(row.spans) :]  # without a leading [CLS]
    return [
        (start, end, weight) for (start, end), weight in zip(row.spans.tolist(), kept, strict=True)
    ]


def _to_probs(log_probs: np.ndarray) -> np.ndarray:
    """Return (T,) log-probabilities as (T, 1) probabilities."""
    probs: np.ndarray = np.exp(log_probs.astype(np.float64))[:, None]
    return probs


def _second_text(one: EngineInput) -> str:
    return "" if isinstance(one, str) else one.other or ""


def _check_search(settings: Section, path: Path) -> None:
    """Raise UserError for search settings that would run for hours when answers are replayed."""
    for name, most in MAX_SAVED_SEARCH.items():
        value = settings.get(name, 0)
        if isinstance(value, int) and value > most:
            raise UserError(
                f"{path}: generate.{name} is {value:,}; a saved model may have at most {most:,}."
            )


def _length_settings(data: Section, path: Path) -> tuple[int, Policy, float, int]:
    """Return the length limits, the truncation policy and the overlap of windows."""
    limit, policy = data.get("max_tokens"), data.get("truncate")
    # Older models lack these two.
    overlap = data.get("overlap", DEFAULT_OVERLAP)
    characters = data.get("max_characters", DEFAULT_MAX_CHARACTERS)
    for name, value, hint in (
        ("max_tokens", limit, int), ("truncate", policy, Policy), ("overlap", overlap, float),
        ("max_characters", characters, int),
    ):  # fmt: skip
        if not fits(value, hint):
            raise UserError(f"{path}: data.{name} should be {describe_type(hint)}, got {value!r}.")
    if limit < 0 or characters < 0 or not 0 <= overlap < 1:  # type: ignore[operator]
        raise UserError(
            f"{path}: data.max_tokens is {limit}, data.overlap {overlap}: out of range."
        )
    return limit, policy, overlap, characters  # type: ignore[return-value]


def passage_window(model: Model, row: Row, passage: str, text: int) -> PassageWindow:
    """Return the part of the passage in a row, aligned with the steps of the head."""
    assert row.spans is not None
    offsets = row.spans.copy()
    offsets[: row.second] = 0
    own = offsets[row.second :] if model.traits.is_bi_encoder else offsets
    return PassageWindow(text, passage, own)


def make_indexer(
    model: Model,
    tokenizer: Tokenizer,
    limit: int,
    policy: Policy,
    cuts: WordSegmenter | None = None,
    overlap: float = DEFAULT_OVERLAP,
    characters: int = DEFAULT_MAX_CHARACTERS,
) -> Indexer:
    """Return the indexer of a model's texts; `limit` 0 stands for the longest the model can read.

    Without any limit on tokens, `characters` limits a text; running text is read whole.
    """
    limits = [n for n in (limit or None, model.max_positions) if n is not None]
    most, traits = min(limits, default=None), model.traits
    return Indexer(
        tokenizer, model.subtoken_embedders, most, policy, traits.needs_full_sentence, cuts,
        traits.extended_vocab_start, traits.frame, traits.subwords, overlap, model.reads_ids,
        0 if traits.is_lm or traits.is_mlm else characters,
        model.head.mark_words if model.head.num_marks else None,
    )  # fmt: skip


def _coverage(rows: Sequence[Row], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (texts,) the coverage of each text, and the fraction of its tokens read."""
    covered, read = np.zeros(count), np.zeros(count)
    for row in rows:
        covered[row.text], read[row.text] = row.coverage, row.read_fraction
    return covered, read


def _average_windows(values: np.ndarray, rows: Sequence[Row], count: int) -> np.ndarray:
    """Average the values of the rows of each text."""
    if len(values) == count:
        return values
    owners = np.array([row.text for row in rows])
    out = np.zeros((count, values.shape[1]))
    np.add.at(out, owners, values)
    return out / np.bincount(owners, minlength=count)[:, None]
