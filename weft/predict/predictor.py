"""Predictor: texts in, Answers out, input order kept. Every verb and page goes through it."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft import config as configuration
from weft import jsonio, registry
from weft.errors import UserError, near_miss
from weft.predict.golden import (
    GOLDEN,
    MAX_GOLDEN_CHARACTERS,
    answer_exact,
    input_json,
    replay_golden,
)
from weft.protocols import LabelSpace
from weft.storage import ESCAPE_SURROGATES, atomic_write_folder, write_text
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer, AnyTask, build_task
from weft.text.example import Example
from weft.text.formats.features import not_text_error
from weft.text.formats.recognise import is_matrix_file
from weft.tokens.truncate import load_length_limits

FORMAT = 1
MAX_LABELS_SHOWN = 5  # labels in a repr
CHUNK_TEXTS = 8192  # texts that are sorted by length together; answers stream out chunk by chunk
MAX_CHUNK_SCORES = 20_000_000  # of a chunk, at most: with 100,000 labels a chunk is 200 texts
Input = str | Example | tuple[str, str]  # a text, or two


@dataclass(frozen=True)
class EngineOutput:
    """The output of an engine for a list of texts, in order."""

    scores: Any  # (texts, C), or of a model that answers at every word a value a text
    coverage: np.ndarray  # (texts,) fraction of the tokens that were read and told apart
    parts: Sequence[tuple] = ()  # (start, end, weight) of each token, a tuple a text
    read: np.ndarray | None = None  # (texts,) fraction of the tokens that were read; None: all


class Engine(Protocol):
    """Texts to scores: a neural or classical model."""

    def scores(self, texts: Sequence[Any], parts: bool = False) -> EngineOutput: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...

    def save(self, folder: Path) -> None: ...

    @property
    def parameters(self) -> int: ...


class Predictor:
    """A trained model of any kind: call it with texts, get an Answer for each."""

    def __init__(self, engine: Engine, task: AnyTask, space: LabelSpace, config: dict[str, Any]):
        self.engine, self.task, self.space, self.config = engine, task, space, config

    def __repr__(self) -> str:
        config = self.config
        encoder = config.get("encoder", config.get("decoder", {})).get("kind", "")
        kind = config.get("classic", {}).get("kind", encoder)
        labels = self.class_labels
        shown = ", ".join(labels[:MAX_LABELS_SHOWN]) + (
            ", …" if len(labels) > MAX_LABELS_SHOWN else ""
        )
        message = f", labels: {shown}" if labels else ""
        count = f"{self.parameters:,} parameters"
        return f"Predictor({config['task']['kind']}, {kind}{message}; {count})"

    def __call__(self, texts: str | Iterable[Input], *, parts: bool = False) -> list[Answer]:
        """Return an Answer for each text; with `parts`, also token weights if there are any.

        A model of two texts is given pairs: [("A dog runs.", "A dog sleeps.")].
        """
        _check_list(texts)
        return list(self.stream(texts, parts=parts))

    def stream(self, texts: Iterable[Input], *, parts: bool = False) -> Iterator[Answer]:
        """Yield answers in order, chunk by chunk, for inputs that do not fit in memory.

        Of an Example the words that its file gives are answered, where the model answers at each.
        """
        _check_list(texts)
        stream = iter(texts)
        before = 0
        while some := list(islice(stream, chunk_size(self.space))):
            chunk = self.carried(some, before)
            given = [
                self._engine_input(one, f"text {i}") for i, one in enumerate(chunk, before + 1)
            ]
            before += len(chunk)
            scored = self.engine.scores(given, parts=parts)
            for i, answer in enumerate(self.task.answers(scored.scores, self.space)):
                found = scored.parts[i] if scored.parts else answer.parts
                share = float(scored.coverage[i])
                seen = _with_text(answer.structure, chunk[i])
                yield dataclasses.replace(
                    answer, parts=tuple(found), coverage=share, structure=seen
                )

    @property
    def is_structured(self) -> bool:
        """True if it labels the words of a text."""
        return self.task.is_structured

    @property
    def pairs(self) -> bool:
        """True if its inputs are pairs of texts."""
        return self.task.pairs

    def carried(self, given: Iterable[Any], before: int = 0) -> list[Any]:
        """Return checked inputs: matrices and pairs as Examples, records as JSON."""
        own = getattr(self.engine, "reads", "") == "vectors"
        out = [
            Example("", vectors=one) if own and isinstance(one, np.ndarray) else one
            for one in given
        ]  # fmt: skip
        if self.task.record:
            out = [_as_json(one, i) for i, one in enumerate(out, before + 1)]
        if self.pairs:
            out = [_as_pair(one, i) for i, one in enumerate(out, before + 1)]
        _check_texts(out, before)
        return out

    def _engine_input(self, one: str | Example, where: str = "input") -> str | Example:
        """Return the engine's input: a text, or the words, tree or matrix of a file."""
        if self.pairs or getattr(self.engine, "reads", "") in ("trees", "vectors"):
            return one
        if isinstance(one, Example) and is_matrix_file(one.file):
            raise not_text_error(one.file)
        return self.task.model_input(one, self.space, where)

    def embed(self, texts: Sequence[Input]) -> np.ndarray:
        """(texts, H) sentence vectors; of pairs, what a model of two texts makes of both."""
        _check_list(texts)
        if self.pairs and any(not isinstance(one, str) for one in texts):
            return self.engine.embed(self.carried(texts))
        _check_texts(texts)
        return self.engine.embed([t.text if isinstance(t, Example) else str(t) for t in texts])

    def states(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(T, H) a vector for every token of one text, and (T, 2) its character offsets."""
        if not hasattr(self.engine, "states"):
            raise UserError("This model reads a text as one bag; it has no vector for each token.")
        return self.engine.states(text)

    @property
    def labels(self) -> tuple[str, ...] | tuple[tuple[str, ...], ...]:
        """The class labels, or the tags of each column."""
        return self.space.entries

    @property
    def class_labels(self) -> tuple[str, ...]:
        """The labels of texts; () if the answers are not classes."""
        return tuple(label for label in self.labels if isinstance(label, str))

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self.engine.parameters

    def save(self, folder: str | Path, golden: Sequence[Input] = (), record: Any = None) -> None:
        """Write the model as one folder; `golden` texts are stored with their answers."""
        with atomic_write_folder(folder) as part:
            self._write(part, golden, record)

    def _write(self, folder: Path, golden: Sequence[Input], record: Any) -> None:
        if any(len("".join(input_json(one).values())) > MAX_GOLDEN_CHARACTERS for one in golden):
            raise UserError(
                f"A golden text has at most {MAX_GOLDEN_CHARACTERS:,} characters. Leave it out."
            )
        self.engine.save(folder)
        _write_json(folder / "labels.json", self.space.to_json())
        if record is not None:
            _write_json(folder / "record.json", record)
        lines = [
            json.dumps({**input_json(t), "value": a.value, "scores": a.scores}, ensure_ascii=False)
            + "\n"
            for t, a in zip(golden, answer_exact(self, golden), strict=True)
        ]
        write_text(folder / GOLDEN, "".join(lines), errors=ESCAPE_SURROGATES)
        about = {"format": FORMAT, "config": self.config, "golden": len(lines)}
        _write_json(folder / "model.json", about)


def _model_json(folder: str | Path) -> registry.Source:
    """Return a function that names the file of a model's parts."""
    places = (Path(folder), Path(folder) / "model")
    own = next((p for p in places if (p / "model.json").is_file()), places[0])
    return lambda name: str(own / "model.json")


@registry.check_types
@registry.with_trust(_model_json, saved=True)
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    replay: bool = True,
    weights: str = "float32",
    trust: str | Sequence[str] = (),
) -> Predictor:
    """Read a model folder and check that it still answers as it did when it was saved.

    With `weights` of "int8", a pre-trained network reads on a processor with rounded weights:
    faster, and less exactly. Parts from outside Weft are imported only from packages in `trust`.
    """
    folder = model_folder(Path(folder))
    saved = _read_model_json(folder / "model.json")
    config = saved["config"]
    with _naming_errors(folder / "model.json"):
        task = build_task(config)
    with _naming_errors(folder / "labels.json"):
        space = _load_space(task, folder / "labels.json")
    if "classic" in config:
        from weft.predict.classic import ClassicEngine

        with _naming_errors(folder / "model.json"):
            settings = registry.fill("classic", config["classic"])
            part: Any = registry.find("classic", settings.pop("kind"))
            lengths = load_length_limits(config.get("data", {}))
        if weights != "float32":
            raise UserError(
                f"{folder}: a classic model has no weights to round; leave out weights."
            )
        with _naming_errors(folder):
            engine: Engine = ClassicEngine(part.load(folder, settings), space, *lengths)
    else:
        from weft.predict.neural import NeuralEngine

        with _naming_errors(folder):
            engine = NeuralEngine.load(folder, config, outputs=space.size, device=device)
        engine.quantise_weights(weights, str(folder))
    predictor = Predictor(engine, task, space, config)
    if replay:
        with _naming_errors(folder / GOLDEN):
            replay_golden(predictor, folder / GOLDEN, saved.get("golden"))
    return predictor


@contextlib.contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    """Turn any error of a damaged model file into one line that names the file."""
    folder = path.parent if path.suffix else path
    try:
        yield
    except UserError as error:
        if str(folder) in str(error):
            raise
        raise UserError(f"{path}: {error}") from error
    except (OSError, Warning):
        raise
    except MemoryError:
        raise UserError(f"{path}: there is not enough memory for this model.") from None
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: damaged, or not of one model with the other files "
            f"({type(error).__name__}: {reason}). Restore the folder or train again."
        ) from error


def _load_space(task: AnyTask, path: Path) -> LabelSpace:
    """Load the label space of a model from labels.json."""
    saved = _read_json(path)
    if not isinstance(saved, dict):
        raise UserError(f"{path}: damaged (expected an object). Restore it or train again.")
    try:
        return task.load_space(saved)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _as_pair(given: Any, number: int) -> Example:
    """Return a pair of texts as an Example; raise UserError for anything else."""
    if isinstance(given, Example) and given.other is not None:
        return given
    if isinstance(given, (tuple, list)) and [type(one) for one in given] == [str, str]:
        return Example(given[0], other=given[1])
    where = given.where if isinstance(given, Example) and given.file else f"Text {number}"
    raise UserError(
        f"{where}: this model reads two texts, and here is no second one. In Python, give pairs, "
        "[(text, other), …]; of a file, name the columns, --text A --text-pair B."
    )


def chunk_size(space: LabelSpace) -> int:
    """Return how many texts are answered together: fewer where each has very many scores."""
    labels = len(space.entries) or 1
    return max(1, min(CHUNK_TEXTS, MAX_CHUNK_SCORES // labels))


def _as_json(given: Any, number: int) -> Any:
    """Return a record given as a dict as JSON."""
    if not isinstance(given, Mapping):
        return given
    try:
        return json.dumps(given, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"Text {number} is a record that JSON does not know: {error}.") from None


def _check_list(texts: str | Iterable[Any]) -> None:
    if isinstance(texts, str):
        raise UserError("Call the predictor with a list of texts, not a single string.")
    if not isinstance(texts, Iterable):
        kind = type(texts).__name__
        raise UserError(f"Call the predictor with a list of texts, not {kind}.")


def _check_texts(texts: Sequence[Any], before: int = 0) -> None:
    for i, text in enumerate(texts, before + 1):
        if not isinstance(text, (str, Example)):
            raise UserError(f"Text {i} is {type(text).__name__}, not a string.")


def _with_text(predicted: Annotation | None, given: str | Example) -> Annotation | None:
    """Return the annotation with the text that its offsets refer to."""
    if predicted is None or predicted.text or not predicted.places:
        return predicted
    return dataclasses.replace(predicted, text=given if isinstance(given, str) else given.text)


def model_folder(folder: Path) -> Path:
    """Return the model folder of a path: itself, or `model` inside a run folder."""
    if not folder.exists():
        near = [p.name for p in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        raise UserError(f"{folder}: no such model folder.{near_miss(folder.name, near)}")
    for place in (folder, folder / "model"):
        if (place / "model.json").is_file():
            return place
    if (folder / "config.json").is_file():
        raise UserError(
            f"{folder}: not a model folder but, it seems, a checkpoint of the Hugging Face layout. "
            f"Make a model of it: `weft convert {folder} -o MODEL`."
        )
    raise UserError(
        f"{folder}: not a model folder: there is no model.json in it. "
        "Give the `model` folder of a finished run (`weft train … -o RUN` writes RUN/model)."
    )


def saved_config(path: Path) -> dict[str, Any]:
    """Return the configuration of a model.json."""
    return _read_model_json(path)["config"]


def _read_model_json(path: Path) -> dict[str, Any]:
    saved = _read_json(path)
    number = saved.get("format") if isinstance(saved, dict) else None
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        fix = "Upgrade Weft to load it" if newer else "It was not written by Weft, or is damaged"
        raise UserError(f"{path}: model format {number!r}, this Weft reads {FORMAT}. {fix}.")
    config = saved.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{path}: damaged (it holds no configuration). Restore it or train again.")
    for name, section in config.items():
        tables = section if name == "embedder" and isinstance(section, list) else [section]
        if not tables or not all(isinstance(table, dict) for table in tables):
            raise UserError(
                f"{path}: damaged ([{name}] should hold settings, found "
                f"{json.dumps(section)[:60]}). Restore it or train again."
            )
    model = configuration.model_sections(config)
    if missing := [name for name in ("task", "data", *model) if name not in config]:
        gone = "], [".join(missing)
        raise UserError(f"{path}: damaged (it has no [{gone}]). Restore it or train again.")
    return saved


def _read_json(path: Path) -> Any:
    try:
        return jsonio.read(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the model folder is incomplete.") from None
    except UserError as error:
        raise UserError(f"{path}: damaged ({error}) Restore it or train again.") from None


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_text(path, text, errors=ESCAPE_SURROGATES)
