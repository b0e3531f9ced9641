"""The neural engine: a Model with its tokenizer and length limit, from texts to scores."""

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from weft.batch import Padded, TokenStore, inference_batches
from weft.batch.documents import encode_documents
from weft.batch.indexer import Indexer, Row
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
from weft.inference.lm_scoring import reverse_text, score_texts
from weft.inference.mlm_scoring import score_documents
from weft.kernels.cpu.linear import LINEAR_BY_DTYPE, WeightDtype
from weft.model import EncoderModel, Model, ModelOutput, build_model
from weft.predict.fill_mask import fill
from weft.predict.predictor import CHUNK_TEXTS, EngineOutput, Predictor, load
from weft.predict.preprocess import add_parses, parse_or_text
from weft.protocols import Pair
from weft.registry import describe_type, fits, trusted_packages
from weft.runtime import Runtime, select_runtime
from weft.storage import atomic_write
from weft.tasks.annotation import CharSpan, Decoded
from weft.tasks.extractive_qa import PassageWindow, choose_spans
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import EVALUATION_SEED, MLMStats
from weft.tasks.tag import join_parts
from weft.tensorfile import check_network, read_header
from weft.text.example import Example
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.truncate import DEFAULT_MAX_CHARACTERS, DEFAULT_OVERLAP, Policy
from weft.tokens.word_segmenter import WordSegmenter, save

SEGMENTER_FILE = "cuts.json"  # how plain text is cut into words, where the training file taught it
# What a saved model may ask of its searches; options of `weft generate` may ask for more.
MAX_SAVED_SEARCH = {
    "max_length": 10_000,
    "num_beams": 1000,
    "num_return": 1000,
    "num_samples": 1000,
}
PARSER_FOLDER = "parser"  # the folder, inside a model's own, of the parser that makes its trees


class NeuralEngine:
    """Texts -> rows -> batches by length -> scores, merged over the windows of long texts."""

    def __init__(
        self, model: Model, indexer: Indexer, runtime: Runtime, parser: Predictor | None = None
    ):
        self.model, self.indexer, self.runtime = model.to(runtime.device).eval(), indexer, runtime
        enable_decode_graphs(self.model.head, runtime)
        self.parser = parser  # of plain text, for a model that reads trees

    @property
    def encoder_model(self) -> EncoderModel:
        """The model, for callers that need its encoder."""
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no encoder.")
        return self.model

    def scores(self, texts: Sequence[str], parts: bool = False) -> EngineOutput:
        """Return the scores of each text; the windows of a long one count equally."""
        if self.model.traits.is_lm:
            return self._score_lm(texts)
        if self.model.traits.is_mlm:
            plain = [one if isinstance(one, str) else one.text for one in texts]
            return EngineOutput(*fill(plain, self.model, self.indexer, self.runtime))
        if self.model.traits.is_structured and self.model.traits.input_kind == "pairs":
            return self._score_passages(texts)
        if self.model.traits.is_structured:
            return self._score_words(texts)
        store, rows = self._tokenise(texts, spans=parts)
        owners = np.array([row.text for row in rows])
        covered, read = _coverage(rows, len(texts))
        if (
            not parts or self.model.traits.input_kind == "pairs"
        ):  # places in two texts would not tell which
            found = collect_outputs(self.model, store, self.runtime)
            return EngineOutput(_average_windows(found, owners, len(texts)), covered, read=read)
        found = np.empty((0, 0))
        pieces: list[list[tuple[int, int, float]]] = [[] for _ in texts]
        for chosen, reading in forward_batches(self.model, store, self.runtime):
            out = reading.scores.float().cpu().numpy()
            if not found.size:
                found = np.empty((len(rows), out.shape[1]), out.dtype)
            found[chosen] = out
            self._collect_weights(rows, chosen, reading, pieces)
        merged = _average_windows(found, owners, len(texts))
        return EngineOutput(merged, covered, [tuple(p) for p in pieces], read)

    def _score_passages(self, given: Sequence[Any]) -> EngineOutput:
        """Return the best answer span of each passage over all its windows."""
        store, rows = self._tokenise(given)
        windows = [passage_window(self.model, r, given[r.text].other or "", r.text) for r in rows]
        found = decode_batches(self.model, store, self.runtime) if rows else []
        covered, read = _coverage(rows, len(given))
        return EngineOutput(
            choose_spans(zip(windows, found, strict=True), len(given)), covered, read=read
        )

    def _score_words(self, given: Sequence[Any]) -> EngineOutput:
        """Return word-level predictions of each text; the rows of a long one are joined."""
        store, rows = self._tokenise(given)
        found: list[list[Decoded]] = [[] for _ in given]
        for row, (table, chances) in zip(
            rows, decode_batches(self.model, store, self.runtime) if rows else (), strict=True
        ):
            if not row.read_fraction:
                continue  # nothing was read, so there is nothing to say
            places = () if row.spans is None else tuple(map(tuple, row.spans.tolist()))
            fields = getattr(given[row.text], "fields", ())
            found[row.text].append(Decoded(table, chances, row.words, places, row.tree, fields))
        whole = [join_parts(parts) for parts in found]
        # The probability of a word's answer is that of its least probable column.
        weights = [
            tuple((*place, float(c)) for place, c in zip(one.places, one.probs.min(1), strict=True))
            if one.places and one.tree is None
            else ()
            for one in whole
        ]
        covered, read = _coverage(rows, len(whole))
        return EngineOutput(whole, covered, weights, read)

    def _score_lm(self, given: Sequence[str | Example]) -> EngineOutput:
        """Return the token probabilities of each text, scored independently."""
        texts = [one if isinstance(one, str) else one.text for one in given]
        found = list(self.likelihoods(texts))
        weights = [
            tuple((*place, float(c)) for place, c in zip(one.places, one.probs[:, 0], strict=True))
            for one in found
        ]
        return EngineOutput(found, self.indexer.tokenizer.known_fraction(texts), weights)

    @property
    def turns(self) -> bool:
        """True for a language model that also has a backward direction."""
        return self.model.traits.is_lm and bool(self.model.head.has_backward_lm)

    def likelihoods(self, texts: Iterable[str], running: bool = False) -> Iterator[Decoded]:
        """What a language model makes of each text: see `weft.tasks.language.Listener`."""
        if not self.model.traits.is_lm:
            raise UserError("Only a language model can say how probable a text is.")
        space = LMVocabulary(self.indexer.tokenizer, lines=self.model.parts["task"]["lines"])
        head: Any = self.model.head
        stream = iter(texts)
        waiting: deque[tuple[np.ndarray, tuple[CharSpan, ...]]] = deque()

        def read() -> Iterator[np.ndarray]:
            while chunk := list(islice(stream, CHUNK_TEXTS)):
                bare: list[tuple[np.ndarray, tuple[CharSpan, ...]]]
                bare = [(ids, ()) for ids in space.ids(chunk)] if running else space.places(chunk)
                waiting.extend(bare)
                if head.pieces is None:
                    yield from (ids for ids, _ in bare)
                else:
                    yield from space.with_subtokens(chunk, head.pieces, head.decoder.widest)

        for logps in score_texts(self.model, read(), self.runtime, running):
            ids, places = waiting.popleft()
            chances = np.exp(logps.astype(np.float64))[:, None]
            yield Decoded(ids[:, None], chances, places=places)

    def score_backward(self, texts: Sequence[str]) -> list[Decoded]:
        """Return the backward language model's scores of running text.

        The ids of each, and how probable they are, come in the order in which they are read.
        """
        space = LMVocabulary(self.indexer.tokenizer, lines=True)
        head: Any = self.model.head
        spelled = space.with_subtokens(texts, head.pieces, head.decoder.widest)
        rows = [reverse_text(tokens) for tokens in spelled[::-1]]
        heard = score_texts(self.model, rows, self.runtime, running=True, backward=True)
        found = [
            Decoded(tokens[:, :1].astype(np.int64), np.exp(logps.astype(np.float64))[:, None])
            for tokens, logps in zip(rows, heard, strict=True)
        ]
        return found[::-1]

    def score_masked(self, texts: Iterable[str], task: Any, space: Any) -> Iterator[MLMStats]:
        """Yield the masked-LM statistics of each document."""
        found = encode_documents(((text, 0) for text in texts), space.tokenizer, task.whole_words)
        masking = task.masking(space, self.model.traits.frame, phases=False)
        for row in score_documents(
            self.model, found, masking, self.runtime, EVALUATION_SEED
        ).tolist():
            yield MLMStats(*row)

    def _with_trees(self, texts: Sequence[Any]) -> list[Example]:
        """Return the texts with trees; empty texts have none."""
        out = [parse_or_text(one) if isinstance(one, str) else one for one in texts]
        bare = [i for i, one in enumerate(out) if one.tree is None and one.text.strip()]
        if bare and self.parser is None:
            first = out[bare[0]]
            where = first.where if first.file else f"text {bare[0] + 1}"
            raise UserError(
                f"{where}: this model reads trees, and here is none. Give "
                "bracketed trees such as (3 (2 The) (4 good)), or train it with a parser: "
                "data.parser=FOLDER, a model of --recipe constituency."
            )
        return add_parses(out, self.parser) if self.parser is not None and bare else out

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, H) the vector each text was pooled into."""
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no vector for a whole text.")
        if self.model.traits.is_structured:
            raise UserError("A tagger has no vector for a whole text; `states` has one a word.")
        pair = self.model.pair
        if pair is not None and any(isinstance(one, str) for one in texts):
            self._check_single(pair)
        if not texts:
            return np.zeros((0, self.model.pool.output_size), np.float32)
        store, rows = self._tokenise(texts)
        found = collect_outputs(
            self.model, store, self.runtime, select=lambda reading: reading.vector
        )
        return _average_windows(found, np.array([row.text for row in rows]), len(texts))

    def _check_single(self, pair: Pair) -> None:
        """Raise UserError unless the model encodes each text of a pair on its own."""
        if not pair.has_text_vectors:
            kind = self.model.parts["pair"]["kind"]
            raise UserError(
                f"A model with [pair] kind '{kind}' reads two texts at once, and has no vector for "
                "one. Give pairs, [(text, other), …]; one of --recipe towers has vectors of texts."
            )

    def states(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(T, H) the encoder's vector for each token, and (T, 2) where it stands in the text."""
        if not isinstance(self.model, EncoderModel):
            raise UserError("A language model has no encoder, and so no states to show yet.")
        store, rows = self._tokenise([text], spans=True)
        if not rows:
            return np.zeros((0, self.model.encoder.output_size), np.float32), np.zeros((0, 2), int)
        vectors = [np.zeros((0, 0))] * len(rows)
        for chosen, reading in forward_batches(self.model, store, self.runtime):
            for i, states in zip(chosen, reading.states.rows(), strict=True):
                if len(states) < len(rows[i].ids):
                    raise UserError("With a stride above 1 there is no vector for each token.")
                # A [CLS] in front has a state but no place in the text.
                own = states.float().cpu().numpy()[-len(rows[i].ids) :]
                vectors[i] = own if rows[i].parents is None else own[rows[i].ids > 0]
        spans = [row.spans for row in rows if row.spans is not None]
        return np.concatenate(vectors), np.concatenate(spans)

    def batches(self, texts: Sequence[Any]) -> Iterator[tuple[list[Row], Padded]]:
        """Yield rows with their offsets, and the batch they form."""
        store, rows = self._tokenise(texts, spans=True)
        for batch in inference_batches(store, rows=MAX_ROWS, budget=MAX_TOKENS):
            yield [rows[i] for i in batch.rows], batch.source.to(self.runtime.device)

    @contextlib.contextmanager
    def full_precision(self) -> Iterator[None]:
        """Run in full precision: recorded answers must not depend on batching."""
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
        dtype: WeightDtype = "int8" if weights == "int8" else "float32"
        if weights != "float32" and not read:
            raise UserError(
                f"{where}: no BERT or GPT reads here, so there are no weights to round. Leave out "
                "weights; a decoder that writes has generate.weight_dtype."
            )
        for embedder in read:
            embedder.weight_dtype = dtype

    def save(self, folder: Path) -> None:
        weights = {n: t.detach().cpu().contiguous() for n, t in self.model.state_dict().items()}
        with atomic_write(folder / "weights.safetensors") as part:
            save_file(weights, part)
        self.indexer.tokenizer.save(folder / "tokenizer.json")
        save(self.indexer.segmenter, folder / SEGMENTER_FILE)
        if self.parser is not None:
            self.parser.save(folder / PARSER_FOLDER)

    @classmethod
    def load(
        cls, folder: Path, config: dict[str, Any], outputs: Any, device: str
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
        cuts = WordSegmenter.load(folder / SEGMENTER_FILE)
        index = make_indexer(model, tokenizer, lengths[0], lengths[1], cuts, *lengths[2:])
        parser = (
            load(folder / PARSER_FOLDER, device=device)
            if (folder / PARSER_FOLDER).is_dir()
            else None
        )
        return cls(model, index, select_runtime(device), parser)

    @property
    def reads(self) -> str:
        """The kind of input: "text", "words", "trees", "pairs" or "vectors"."""
        return self.model.traits.input_kind

    @property
    def note(self) -> str:
        """Notes on the metrics, and on the layers that the vectors come from."""
        mixes = [embedder.scalar_mix for embedder in self.model.embedder_parts]
        taken = [f"layers of the pre-trained network: {m.summary}" for m in mixes if m is not None]
        return "; ".join(filter(None, [getattr(self.model.head, "note", ""), *taken]))

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def _tokenise(self, texts: Sequence[Any], spans: bool = False) -> tuple[TokenStore, list[Row]]:
        reads, rows = self.model.traits.input_kind, []
        features = self.model.traits.features
        two = reads == "pairs" and not any(isinstance(one, str) for one in texts)
        store = TokenStore(
            self.indexer.subtoken_kinds, trees=reads == "trees", features=features, pairs=two
        )
        if reads == "trees":
            found = self.indexer.tree_rows(self._with_trees(texts))
        elif reads == "words":
            found = self.indexer.sentence_rows(texts)
        elif reads == "vectors":
            given = [Example(one) if isinstance(one, str) else one for one in texts]
            found = self.indexer.feature_rows(given, features)
        else:
            plain = [one if isinstance(one, str) else one.text for one in texts]
            others = [one.other or "" for one in texts] if two else ()
            found = self.indexer.rows(plain, spans=spans, others=others)
        for row in found:
            store.append(
                row.ids, 0, subtokens=row.subtokens, parents=row.parents, second=row.second
            )
            rows.append(row)
        return store.close(), rows

    def _collect_weights(
        self, rows: list[Row], chosen: np.ndarray, reading: ModelOutput, pieces: list[list[Any]]
    ) -> None:
        if reading.weights is None:
            return
        lengths = reading.states.lengths.tolist()
        for i, values, length in zip(chosen, reading.weights.tolist(), lengths, strict=True):
            spans = rows[i].spans
            assert spans is not None
            if length < len(spans):
                continue  # with a stride, a weight belongs to no single token
            kept = values[length - len(spans) : length]  # without a [CLS] in front
            pieces[rows[i].text] += [
                (start, end, weight)
                for (start, end), weight in zip(spans.tolist(), kept, strict=True)
            ]


def _check_search(settings: Mapping[str, Any], path: Path) -> None:
    """Raise UserError for search settings that would run for hours when answers are replayed."""
    for name, most in MAX_SAVED_SEARCH.items():
        value = settings.get(name, 0)
        if isinstance(value, int) and value > most:
            raise UserError(
                f"{path}: generate.{name} is {value:,}; of a saved model, {most:,} at most is read."
            )


def _length_settings(data: Mapping[str, Any], path: Path) -> tuple[int, Policy, float, int]:
    """Return the length limits, the truncation policy and the overlap of windows."""
    limit, policy = data.get("max_tokens"), data.get("truncate")
    # Which older models do not have:
    overlap, characters = (
        data.get("overlap", DEFAULT_OVERLAP),
        data.get("max_characters", DEFAULT_MAX_CHARACTERS),
    )
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
    places = row.spans.copy()
    places[: row.second] = 0
    return PassageWindow(
        text, passage, places[row.second :] if model.traits.is_bi_encoder else places
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
    """Return the indexer of a model's texts; `limit` 0 means as long as the model can read.

    Where nothing limits the tokens, `characters` of a text are read; of running text all are.
    """
    limits = [n for n in (limit or None, model.max_positions) if n is not None]
    most, traits = min(limits, default=None), model.traits
    return Indexer(
        tokenizer, model.subtoken_embedders, most, policy, traits.needs_full_sentence, cuts,
        traits.extended_vocab_start, traits.frame, traits.subwords, overlap, model.reads_ids,
        0 if traits.is_lm or traits.is_mlm else characters,
    )  # fmt: skip


def _coverage(rows: Sequence[Row], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (texts,) the coverage of each text, and the fraction of its tokens read."""
    covered, read = np.zeros(count), np.zeros(count)
    for row in rows:
        covered[row.text], read[row.text] = row.coverage, row.read_fraction
    return covered, read


def _average_windows(values: np.ndarray, owners: np.ndarray, count: int) -> np.ndarray:
    """Average the rows of each text."""
    if len(values) == count:
        return values
    out = np.zeros((count, values.shape[1]))
    np.add.at(out, owners, values)
    return out / np.bincount(owners, minlength=count)[:, None]
