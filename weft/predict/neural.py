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
from weft.inference.distributions import sentence_distributions
from weft.inference.forward import (
    MAX_ROWS,
    MAX_TOKENS,
    collect_outputs,
    decode_batches,
    forward_batches,
)
from weft.inference.lm_scoring import lm_head, score_texts
from weft.inference.mlm_scoring import predict_masked, score_documents
from weft.inference.windows import MaskedRow, reverse_text
from weft.kernels.cpu.linear import LINEAR_BY_DTYPE, WeightDtype
from weft.model import (
    EncoderDecoderModel,
    EncoderModel,
    LanguageModel,
    Model,
    ModelOutput,
    Traits,
    build_model,
)
from weft.predict.fill_mask import fill, fill_or_score, lm_layout, mlm_layout
from weft.predict.output import EngineInput, EngineOutput, plain_texts
from weft.predict.predictor import CHUNK_TEXTS, Predictor, load
from weft.predict.rows import (
    PARSER_FOLDER,
    SEGMENTER_FILE,
    RowEngine,
    average_windows,
    length_settings,
    row_coverage,
    step_weights,
)
from weft.protocols import Head, OutputSize, Pair, Section, Seq2SeqDecoder
from weft.registry import trusted_packages
from weft.runtime import Runtime, select_runtime
from weft.storage import atomic_write
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.extractive_qa import SpanScores
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import EVALUATION_SEED, MaskedLM, MLMStats, MLMVocabulary
from weft.tensorfile import check_network, read_header
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, DEFAULT_OVERLAP, Policy
from weft.tokens.word_segmenter import WordSegmenter, save

# Limits on the search settings of a saved model; options of `weft generate` may exceed them.
MAX_SAVED_SEARCH = {
    "max_length": 10_000,
    "num_beams": 1000,
    "num_return": 1000,
    "num_samples": 1000,
}


class NeuralEngine(RowEngine[InferenceRows]):
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

    @property
    def traits(self) -> Traits:
        return self.model.traits

    @property
    def sentence_columns(self) -> int:
        columns: int = self.model.head.sentence_columns
        return columns

    def wrap_rows(self, rows: Sequence[Row], pairs: bool) -> InferenceRows:
        return InferenceRows(rows, pairs)

    def predict(self, inputs: Sequence[EngineInput], parts: bool = False) -> EngineOutput:
        """Return the scores of each input; the windows of a long text count equally."""
        if self.traits.is_lm:
            return self._fill_or_score(inputs)
        return self._fill_masks(inputs) if self.traits.is_mlm else super().predict(inputs, parts)

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
        coverage, read = row_coverage(rows.rows, count)
        scores = sentence_distributions(self.model, rows, self.runtime, count)
        return EngineOutput(scores, coverage, read=read)

    def row_logits(self, rows: InferenceRows) -> np.ndarray:
        return collect_outputs(self.model, rows, self.runtime)

    def weighed_logits(self, rows: InferenceRows) -> tuple[np.ndarray, list[list[float] | None]]:
        logits = np.empty((0, 0))
        weights: list[list[float] | None] = [None] * len(rows)
        for chosen, output in forward_batches(self.model, rows, self.runtime):
            values = output.scores.float().cpu().numpy()
            if not logits.size:
                logits = np.empty((len(rows), values.shape[1]), values.dtype)
            logits[chosen] = values
            for i, own in zip(chosen.tolist(), _pool_weights(output), strict=True):
                weights[i] = own
        return logits, weights

    def decode_rows(self, rows: InferenceRows) -> list[Any]:
        return decode_batches(self.model, rows, self.runtime)

    def boundary_rows(self, rows: InferenceRows) -> tuple[list[SpanScores], list[np.ndarray]]:
        best: list[SpanScores] = [(0, 0, 0.0, 0.0, 0.0)] * len(rows)
        logits = [np.empty(0)] * len(rows)
        for chosen, output in forward_batches(self.model, rows, self.runtime):
            both = zip(output.scores.decode(), output.scores.boundary_logits(), strict=True)
            for i, (span, own) in zip(chosen.tolist(), both, strict=True):
                best[i], logits[i] = span, own
        return best, logits

    def _fill_masks(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the best words for the masks of each text."""
        layout = lm_layout(self.model) if self.traits.is_lm else mlm_layout(self.indexer)

        def predict(
            rows: Sequence[MaskedRow], allowed: np.ndarray, count: int
        ) -> list[tuple[np.ndarray, np.ndarray]]:
            return predict_masked(self.model, rows, allowed, count, self.runtime)

        return EngineOutput(*fill(plain_texts(inputs), self.indexer, layout, predict))

    def _fill_or_score(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Fill the masks of texts if the model reads both sides; score the other texts."""
        if not lm_head(self.model).is_bidirectional:
            return self._score_tokens(inputs)
        return fill_or_score(inputs, self._fill_masks, self._score_tokens)

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
        return average_windows(vectors, rows.rows, len(texts))

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
        return average_windows(vectors, rows.rows, len(texts))

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
        lengths = length_settings(config["data"], folder / "model.json")
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
    def note(self) -> str:
        """Notes on the metrics, and on the layers that the vectors come from."""
        mixes = [embedder.scalar_mix for embedder in self.model.embedder_parts]
        layers = [f"layers of the pre-trained network: {m.summary}" for m in mixes if m is not None]
        return "; ".join(filter(None, [self.model.head.note, *layers]))

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())


def _pool_weights(output: ModelOutput) -> Iterator[list[float] | None]:
    """Yield the pooling weight of each step of each row; None if the pool has none."""
    weights = None if output.weights is None else output.weights.cpu().numpy()
    return step_weights(weights, output.states.lengths.tolist())


def _to_probs(log_probs: np.ndarray) -> np.ndarray:
    """Return (T,) log-probabilities as (T, 1) probabilities."""
    probs: np.ndarray = np.exp(log_probs.astype(np.float64))[:, None]
    return probs


def _check_search(settings: Section, path: Path) -> None:
    """Raise UserError for search settings that would run for hours when answers are replayed."""
    for name, most in MAX_SAVED_SEARCH.items():
        value = settings.get(name, 0)
        if isinstance(value, int) and value > most:
            raise UserError(
                f"{path}: generate.{name} is {value:,}; a saved model may have at most {most:,}."
            )


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
