"""The engine of an exported model: the rows of the original, a graph in place of the network."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.batch.indexer import Indexer, Row
from weft.batch.ragged import pad
from weft.errors import UserError
from weft.export.runtime import merge, parse  # noqa: F401  (imported for what they register)
from weft.export.runtime.coreference import resolve
from weft.export.runtime.feeds import Arrays, RowBatches, build_feeds
from weft.export.runtime.generation import SourceSearch, StartedTexts
from weft.export.runtime.grid import decode_grid
from weft.export.runtime.marks import word_marks
from weft.export.runtime.metadata import EXPORT_FILE, ExportInfo, Reads
from weft.export.runtime.outputs import DECODERS
from weft.export.runtime.roles import decode_roles
from weft.export.runtime.session import Session
from weft.model.traits import Traits
from weft.predict.generation.batch import TextSearch
from weft.predict.output import EngineInput, EngineOutput
from weft.predict.predictor import Predictor
from weft.predict.rows import SEGMENTER_FILE, RowEngine, average_windows, step_weights
from weft.protocols import LabelSpace
from weft.tasks.extractive_qa import SpanScores
from weft.tokens.tokenizer import Tokenizer
from weft.tokens.word_segmenter import WordSegmenter

GRAPH_FILE = "model.onnx"
STEP_FILE = "step.onnx"  # one step of a decoder
ROLES_FILE = "roles.onnx"  # the roles of predicates, once those are known
GRID_FILE = "grid.onnx"  # a row of a grid of tuples, once those before are known
TABLES_FILE = "decoding.safetensors"  # what decoding needs beside the graph
NO_MARK = -1  # behind the words of a row


class OnnxEngine(RowEngine[RowBatches]):
    """Texts -> rows -> a graph -> scores, decoded in NumPy."""

    def __init__(
        self,
        info: ExportInfo,
        reads: Reads,
        indexer: Indexer,
        session: Session,
        tables: Arrays,
        parser: Predictor | None = None,
        second: Session | None = None,
    ):
        self.info, self.reads, self.indexer = info, reads, indexer
        self.session, self.tables, self.parser = session, tables, parser
        self.second = second  # a graph that is run after the first, perhaps often
        self._traits = reads.traits()

    @classmethod
    def load(
        cls, folder: Path, info: ExportInfo, space: LabelSpace, parser: Predictor | None
    ) -> "OnnxEngine":
        """Load the graph, the tokenizer and the decoding tables of an export."""
        reads = info.reads
        sizes = {name: graph.get("bytes") for name, graph in info.graphs.items()}
        size = sizes.get(GRAPH_FILE)
        if reads is None or not isinstance(size, int):
            raise UserError(f"{folder / EXPORT_FILE}: damaged (no graph). Export the model again.")
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        marks = word_marks(info.gives.get("kind"), space)
        indexer = reads.indexer(tokenizer, WordSegmenter.load(folder / SEGMENTER_FILE), marks)
        session = Session(folder / GRAPH_FILE, size)
        second = [
            Session(folder / name, bytes_of)
            for name in (STEP_FILE, ROLES_FILE, GRID_FILE)
            if isinstance(bytes_of := sizes.get(name), int)
        ]
        tables = _read_tables(folder / TABLES_FILE)
        return cls(info, reads, indexer, session, tables, parser, *second[:1])

    @property
    def traits(self) -> Traits:
        return self._traits

    @property
    def sentence_columns(self) -> int:
        return int(self.info.gives.get("sentence_columns", 0))

    @property
    def note(self) -> str:
        return self.info.note

    @property
    def parameters(self) -> int:
        return self.info.parameters

    @property
    def can_average(self) -> bool:
        return not self.traits.is_structured

    def wrap_rows(self, rows: Sequence[Row], pairs: bool) -> RowBatches:
        return RowBatches(rows, pairs)

    def _run(self, rows: RowBatches, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Arrays]]:
        """Yield the row numbers and the named outputs of each batch, shortest rows first."""
        for chosen in rows.batches():
            batch = [rows.rows[i] for i in chosen.tolist()]
            feeds = build_feeds(batch, self.reads, rows.pairs)
            yield chosen, self.session(feeds, names) | {"lengths": self._step_lengths(feeds)}

    def _step_lengths(self, feeds: Arrays) -> np.ndarray:
        """Return the steps (B,) of the rows that the head reads: of a pair, the second text."""
        lengths = feeds["lengths_2"] if self.reads.is_bi_encoder else feeds["lengths"]
        stride, leading = (self.info.gives[name] for name in ("stride", "leading"))
        steps: np.ndarray = -(-lengths // stride) + leading
        return steps

    def _collect(self, rows: RowBatches, name: str) -> np.ndarray:
        """Return one output (R, C) of all rows, in their order."""
        out = np.zeros((0, 0), np.float32)
        for chosen, outputs in self._run(rows, [name]):
            if not out.size:
                out = np.empty((len(rows), outputs[name].shape[1]), np.float32)
            out[chosen] = outputs[name]
        return out

    def row_logits(self, rows: RowBatches) -> np.ndarray:
        return self._collect(rows, "logits")

    def weighed_logits(self, rows: RowBatches) -> tuple[np.ndarray, list[list[float] | None]]:
        if "weights" not in self.session.outputs:
            return self.row_logits(rows), [None] * len(rows)
        logits = np.zeros((0, 0), np.float32)
        parts: list[list[float] | None] = [None] * len(rows)
        for chosen, outputs in self._run(rows, ["logits", "weights"]):
            if not logits.size:
                logits = np.empty((len(rows), outputs["logits"].shape[1]), np.float32)
            logits[chosen] = outputs["logits"]
            each = step_weights(outputs["weights"], outputs["lengths"].tolist())
            for i, own in zip(chosen.tolist(), each, strict=True):
                parts[i] = own
        return logits, parts

    def decode_rows(self, rows: RowBatches) -> list[Any]:
        gives = self.info.gives
        if gives.get("kind") == "text":
            return self._write_texts(rows)
        if gives.get("kind") == "chains":
            return self._resolve(rows)
        if gives.get("kind") == "roles":
            return self._label_roles(rows)
        if gives.get("kind") == "grid":
            return self._label_grid(rows)
        decode, names = self._decoder(gives), self._head_outputs()
        out: list[Any] = [None] * len(rows)
        for chosen, outputs in self._run(rows, names):
            decoded = decode(outputs, outputs["lengths"], self.tables, gives)
            for i, one in zip(chosen.tolist(), decoded, strict=True):
                out[i] = one
        return out

    def start_texts(self, rows: RowBatches) -> Iterator[StartedTexts]:
        """Yield the states before the first word, batch by batch."""
        gives = self.info.gives
        names = [f"state.{name}" for name in (*gives["dynamic"], *gives["static"])]
        for chosen, outputs in self._run(rows, names):
            state = {name: outputs[f"state.{name}"] for name in gives["dynamic"]}
            static = {name: outputs[f"state.{name}"] for name in gives["static"]}
            most = int(static["source"].max(initial=0)) + 1 if "source" in static else 0
            copied = max(0, most - self.indexer.extended_vocab_start) if most else 0
            own = [rows.rows[i] for i in chosen.tolist()]
            yield StartedTexts(chosen, own, state, static, copied)

    def advance_texts(
        self, ids: np.ndarray, state: Arrays, static: Arrays, copied: int
    ) -> tuple[np.ndarray, Arrays]:
        """Return the logits (N, V) of the word after ids (N,), and the next state."""
        dynamic = self.info.gives["dynamic"]
        feeds = {f"state.{name}": value for name, value in (*state.items(), *static.items())}
        feeds |= {"ids": ids, "copied": np.array([copied], np.int64)}
        names = ["logits", *(f"next.{name}" for name in dynamic)]
        found = self._second_graph()(feeds, names)
        return found["logits"], {name: found[f"next.{name}"] for name in dynamic}

    def _write_texts(self, rows: RowBatches) -> list[Any]:
        """Return the ids (T, 1) of the best text for each row, and their probabilities."""
        out: list[Any] = [None] * len(rows)
        writer = SourceSearch(self)
        for start in self.start_texts(rows):
            best = writer.answer(start)
            for i, one in zip(start.numbers.tolist(), best, strict=True):
                probs = np.exp(np.array(one.logps, np.float64))[:, None]
                out[i] = (np.array(one.ids, np.int64)[:, None], probs)
        return out

    def text_search(self, space: LabelSpace) -> TextSearch | None:
        return SourceSearch(self)

    def _label_roles(self, rows: RowBatches) -> list[Any]:
        """Return the predicates and roles (L, 4) of each row, and their probabilities."""
        second, out = self._second_graph(), list[Any]([None] * len(rows))
        for chosen, outputs in self._run(rows, ["states", "predicates"]):
            lengths = outputs["lengths"]
            marks = pad([_marks_of(rows.rows[i]) for i in chosen.tolist()], lengths, NO_MARK)
            found = decode_roles(outputs, lengths, marks, self.tables, self.info.gives, second)
            for i, one in zip(chosen.tolist(), found, strict=True):
                out[i] = one
        return out

    def _label_grid(self, rows: RowBatches) -> list[Any]:
        """Return the labels (I + T, D) of each row's grid, and their probabilities."""
        second, out = self._second_graph(), list[Any]([None] * len(rows))
        for chosen, outputs in self._run(rows, ["grid"]):
            found = decode_grid(outputs, outputs["lengths"], self.tables, self.info.gives, second)
            for i, one in zip(chosen.tolist(), found, strict=True):
                out[i] = one
        return out

    def _resolve(self, rows: RowBatches) -> list[Any]:
        """Return the mentions (M, 4) of each document, and their probabilities."""
        out, names = list[Any]([None] * len(rows)), self._head_outputs()
        for chosen, outputs in self._run(rows, names):
            for k, (i, size) in enumerate(zip(chosen, outputs["lengths"], strict=True)):
                document = {name: outputs[name][k, :size] for name in names}
                marks = _marks_of(rows.rows[i])
                out[i] = resolve(document, marks, self.tables, self.info.gives)
        return out

    def _second_graph(self) -> Session:
        """Return the graph that is run after the first."""
        if self.second is None:
            raise UserError(
                f"{self.session.path.parent / EXPORT_FILE}: damaged (no second graph). Export the "
                "model again."
            )
        return self.second

    def boundary_rows(self, rows: RowBatches) -> tuple[list[SpanScores], list[np.ndarray]]:
        decode = self._decoder(self.info.gives)
        best: list[SpanScores] = [(0, 0, 0.0, 0.0, 0.0)] * len(rows)
        logits = [np.empty(0)] * len(rows)
        for chosen, outputs in self._run(rows, ["starts", "ends"]):
            both = np.stack([outputs["starts"], outputs["ends"]], 1)  # (B, 2, 1+T)
            spans = decode(outputs, outputs["lengths"], self.tables, self.info.gives)
            for i, span, own in zip(chosen.tolist(), spans, both, strict=True):
                best[i], logits[i] = span, own
        return best, logits

    def _decoder(self, gives: Mapping[str, Any]) -> Any:
        if gives.get("kind") not in DECODERS:
            raise UserError(
                f"{self.session.path.parent}: answers of kind {gives.get('kind')!r}, which this "
                "Weft cannot decode. Upgrade it, or export the model again."
            )
        return DECODERS[gives["kind"]]

    def _head_outputs(self) -> list[str]:
        """Return the outputs of the head, without states and vectors."""
        beside = ("states", "vector", "weights", "text_vector")
        return [name for name in self.session.outputs if name not in beside]

    def distributions(self, inputs: Sequence[EngineInput]) -> EngineOutput:
        """Return the logits of texts."""
        if self.traits.is_structured:
            raise UserError(
                "An exported model gives its best answer only, so it cannot be a member of an "
                "ensemble. Use the model that it was made from."
            )
        return self.predict(inputs)

    def embed(self, texts: Sequence[EngineInput]) -> np.ndarray:
        if self.traits.is_structured:
            raise UserError("A tagger has no vector for a whole text; `states` has one per word.")
        single = self.traits.is_bi_encoder and any(isinstance(one, str) for one in texts)
        name = "text_vector" if single else "vector"
        if name not in self.session.outputs:
            kind = self.info.config["pair"]["kind"]
            raise UserError(
                f"A model with [pair] kind '{kind}' reads two texts together, so it has no vector "
                "of one. Give pairs, [(text, other), …], or use --recipe towers."
            )
        rows = self.index(texts)
        return average_windows(self._collect(rows, name), rows.rows, len(texts))

    def states(self, text: EngineInput) -> tuple[np.ndarray, np.ndarray]:
        if "states" not in self.session.outputs:
            raise UserError("This export has no vector for each token; use the original model.")
        rows = self.index([text], spans=True)
        if not len(rows):
            return np.zeros((0, 0), np.float32), np.zeros((0, 2), int)
        vectors = [np.zeros((0, 0))] * len(rows)
        if self.info.gives["stride"] > 1:
            raise UserError("With a stride above 1 there is no vector for each token.")
        leading = self.info.gives["leading"]  # [CLS] has a state but no offsets
        for chosen, outputs in self._run(rows, ["states"]):
            for i, states in zip(chosen.tolist(), outputs["states"], strict=True):
                row = rows.rows[i]
                kept = states[leading : leading + len(row.ids)]
                vectors[i] = kept if row.parents is None else kept[row.ids > 0]
        spans = [row.spans for row in rows.rows if row.spans is not None]
        return np.concatenate(vectors), np.concatenate(spans)

    def save(self, folder: Path) -> None:
        raise UserError("An exported model is not saved again. Copy its folder.")


def _marks_of(row: Row) -> np.ndarray:
    assert row.marks is not None
    return row.marks


def _read_tables(path: Path) -> Arrays:
    """Return the tables of a .safetensors file; none if there is no file."""
    if not path.is_file():
        return {}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from weft.tensorfile import read_header

    read_header(path)
    try:
        tables: Arrays = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: damaged ({error}). Export the model again.") from None
    return tables
