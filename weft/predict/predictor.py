"""Predictor: texts in, Answers out, input order kept. Every verb and page goes through it."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from weft import config as configuration
from weft import jsonio, registry
from weft.doctor.drift import Fingerprint
from weft.errors import MissingLibrary, UserError, near_miss
from weft.predict.confidence import ConfidenceRules
from weft.predict.golden import (
    GOLDEN,
    MAX_GOLDEN_CHARACTERS,
    answer_exact,
    golden_line,
    input_json,
    replay_golden,
)
from weft.predict.members import SECTION
from weft.predict.model_card import architecture_name, write_card
from weft.predict.output import EngineInput, plain_texts
from weft.protocols import ClassicModel, Engine, LabelSpace, Saved, Section
from weft.storage import ESCAPE_SURROGATES, atomic_write_folder, write_text
from weft.tasks.annotation import Annotation
from weft.tasks.task import Answer, Answers, AnyTask, build_task
from weft.text.example import Example
from weft.text.formats.features import not_text_error
from weft.text.formats.recognise import is_matrix_file
from weft.tokens.truncate import load_length_limits

FORMAT = 1
MAX_LABELS_SHOWN = 5  # labels in a repr
CHUNK_TEXTS = 8192  # texts that are sorted by length and answered together
MAX_CHUNK_SCORES = 20_000_000  # with 100,000 labels, a chunk is 200 texts
Input = str | Example | tuple[str, str]  # a text, or a text pair


class Predictor:
    """A trained model of any kind: call it with texts, get an Answer for each."""

    def __init__(self, engine: Engine, task: AnyTask, space: LabelSpace, config: Section):
        self.engine, self.task, self.space, self.config = engine, task, space, config

    def __repr__(self) -> str:
        kind = architecture_name(self.config)
        labels = self.class_labels
        shown = ", ".join(labels[:MAX_LABELS_SHOWN]) + (
            ", …" if len(labels) > MAX_LABELS_SHOWN else ""
        )
        message = f", labels: {shown}" if labels else ""
        count = f"{self.parameters:,} parameters"
        return f"Predictor({self.config['task']['kind']}, {kind}{message}; {count})"

    def __call__(
        self,
        texts: str | Iterable[Input],
        *,
        parts: bool = False,
        abstain_at: float | None = None,
        label_sets: float | None = None,
    ) -> Answers:
        """Return an Answer for each text; with `parts`, also token weights if there are any.

        A model of answer spans then gives the probability of every start and end.

        A model of text pairs takes pairs: [("A dog runs.", "A dog sleeps.")].

        A classifier that should `abstain_at` an accuracy of 0.95 answers only texts above a
        confidence that keeps this promise with 95 % probability; of the others, `abstained` is True
        and the value None. With `label_sets` of 0.9, each answer has a `label_set`, and 90 % of
        such sets contain the right label. Dev texts decide both; a promise that they do not support
        is a UserError.
        """
        _check_list(texts)
        inputs = texts if isinstance(texts, Sequence) else list(texts)
        answers = self.stream(inputs, parts=parts, abstain_at=abstain_at, label_sets=label_sets)
        return Answers(answers, inputs)

    def stream(
        self,
        texts: Iterable[Input],
        *,
        parts: bool = False,
        abstain_at: float | None = None,
        label_sets: float | None = None,
    ) -> Iterator[Answer]:
        """Yield answers in order, chunk by chunk, for inputs that do not fit in memory.

        A model that labels words labels the words of an Example, if it has words.
        """
        _check_list(texts)
        rules = ConfidenceRules.of(self, abstain_at, label_sets)
        stream = iter(texts)
        done = 0
        while chunk := list(islice(stream, chunk_size(self.space))):
            examples = self.prepare_inputs(chunk, done)
            inputs = [
                self._engine_input(one, f"text {i}") for i, one in enumerate(examples, done + 1)
            ]
            done += len(examples)
            output = self.engine.predict(inputs, parts=parts)
            for i, answer in enumerate(self.task.answers(output.scores, self.space)):
                yield dataclasses.replace(
                    answer if rules is None else rules.apply(answer),
                    parts=tuple(output.parts[i] if output.parts else answer.parts),
                    coverage=float(output.coverage[i]),
                    structure=_with_text(answer.structure, examples[i]),
                )

    @property
    def is_structured(self) -> bool:
        """True if it labels the words of a text."""
        return self.task.is_structured

    @property
    def note(self) -> str:
        """Notes on the metrics and answers of the model, or ""."""
        return "; ".join(filter(None, [self.engine.note, self.task.note(self.space)]))

    @property
    def pairs(self) -> bool:
        """True if its inputs are pairs of texts."""
        return self.task.pairs

    def prepare_inputs(self, inputs: Iterable[object], done: int = 0) -> list[EngineInput]:
        """Return checked inputs: matrices and pairs as Examples, records as JSON.

        `done` is the number of inputs before these, for messages.
        """
        prepared = list(inputs)
        if self.engine.input_kind == "vectors":
            prepared = [
                Example("", vectors=one) if isinstance(one, np.ndarray) else one for one in prepared
            ]
        if self.task.record:
            prepared = [_as_json(one, i) for i, one in enumerate(prepared, done + 1)]
        if self.pairs:
            prepared = [_as_pair(one, i) for i, one in enumerate(prepared, done + 1)]
        return _checked_texts(prepared, done)

    def _engine_input(self, one: EngineInput, where: str = "input") -> EngineInput:
        """Return the engine's input: a text, or the words, tree or matrix of a file."""
        if self.pairs or self.engine.input_kind in ("trees", "vectors"):
            return one
        if isinstance(one, Example) and is_matrix_file(one.file):
            raise not_text_error(one.file)
        return self.task.model_input(one, self.space, where)

    def embed(self, texts: Sequence[Input]) -> np.ndarray:
        """Return sentence vectors (texts, H); of pairs, one vector for both texts."""
        _check_list(texts)
        if self.pairs and any(not isinstance(one, str) for one in texts):
            return self.engine.embed(self.prepare_inputs(texts))
        return self.engine.embed(plain_texts(_checked_texts(texts)))

    def states(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a vector for every token of one text (T, H), and its character offsets (T, 2)."""
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

    def save(
        self,
        folder: str | Path,
        golden: Sequence[Input] = (),
        record: object = None,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        """Write the model as one folder; `golden` texts are stored with their answers.

        With a `fingerprint` of its training texts, drift of other texts can be tested.
        """
        with atomic_write_folder(folder) as part:
            self._write(part, golden, record)
            if fingerprint is not None:
                fingerprint.save(part)

    def _write(self, folder: Path, golden: Sequence[Input], record: object) -> None:
        if any(len("".join(input_json(one).values())) > MAX_GOLDEN_CHARACTERS for one in golden):
            raise UserError(
                f"A golden text has at most {MAX_GOLDEN_CHARACTERS:,} characters. Leave it out."
            )
        self.engine.save(folder)
        _write_json(folder / "labels.json", self.space.to_json())
        if record is not None:
            _write_json(folder / "record.json", record)
        lines = [
            golden_line(text, answer)
            for text, answer in zip(golden, answer_exact(self, golden), strict=True)
        ]
        write_text(folder / GOLDEN, "".join(lines), errors=ESCAPE_SURROGATES)
        about = {"format": FORMAT, "config": self.config, "golden": len(lines)}
        _write_json(folder / "model.json", about)
        write_card(folder)


def _model_json(folder: str | Path) -> registry.Source:
    """Return a function that names the file of a model's parts."""
    paths = (Path(folder), Path(folder) / "model")
    path = next((p for p in paths if (p / "model.json").is_file()), paths[0])
    return lambda name: str(path / "model.json")


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

    With `weights` of "int8", a pre-trained network runs on a CPU with quantised weights: faster,
    but less exact. Parts from outside Weft are imported only from packages in `trust`.
    """
    folder = model_folder(Path(folder))
    saved = _read_model_json(folder / "model.json")
    config = saved["config"]
    with naming_errors(folder / "model.json"):
        task = build_task(config)
    with naming_errors(folder / "labels.json"):
        space = load_space(task, folder / "labels.json")
    engine = _load_engine(folder, config, task, space, device)
    engine.quantise_weights(weights, str(folder))
    predictor = Predictor(engine, task, space, config)
    if replay:
        with naming_errors(folder / GOLDEN):
            replay_golden(predictor, folder / GOLDEN, saved.get("golden"))
    return predictor


def _load_engine(
    folder: Path, config: Section, task: AnyTask, space: LabelSpace, device: str
) -> Engine:
    if SECTION in config:
        from weft.predict.ensemble import EnsembleEngine

        with naming_errors(folder / "model.json"):
            return EnsembleEngine.load(folder, config, task, space, device)
    if "classic" not in config:
        from weft.predict.neural import NeuralEngine

        with naming_errors(folder):
            return NeuralEngine.load(folder, config, outputs=space.size, device=device)
    return load_classic(folder, config, space)


def load_classic(folder: Path, config: Section, space: LabelSpace) -> Engine:
    """Load a classical model of a model folder."""
    from weft.predict.classic import ClassicEngine

    with naming_errors(folder / "model.json"):
        settings = registry.fill("classic", config["classic"])
        part = registry.find("classic", settings.pop("kind"))
        if not issubclass(part, ClassicModel):
            raise UserError(f"{part.__name__} does not derive from weft.protocols.ClassicModel.")
        lengths = load_length_limits(config.get("data", {}))
    with naming_errors(folder):
        return ClassicEngine(part.load(folder, settings), space, *lengths)


@contextlib.contextmanager
def naming_errors(path: Path) -> Iterator[None]:
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
        raise UserError(f"{path}: not enough memory for this model.") from None
    except ModuleNotFoundError as error:
        name = str(error.name).partition(".")[0]
        raise MissingLibrary(
            f"{path}: this model needs {name}, which is not installed: pip install {name}."
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"{path}: damaged, or from another model than the other files "
            f"({type(error).__name__}: {reason}). Restore the folder or train again."
        ) from error


def load_space(task: AnyTask, path: Path) -> LabelSpace:
    """Load the label space of a model from labels.json."""
    saved = _read_json(path)
    if not isinstance(saved, dict):
        raise UserError(f"{path}: damaged (expected an object). Restore it or train again.")
    try:
        space: LabelSpace = task.load_space(saved)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return space


def _as_pair(one: object, number: int) -> Example:
    """Return a text pair as an Example; raise UserError for anything else."""
    if isinstance(one, Example) and one.other is not None:
        return one
    if isinstance(one, (tuple, list)) and [type(text) for text in one] == [str, str]:
        return Example(one[0], other=one[1])
    where = one.where if isinstance(one, Example) and one.file else f"Text {number}"
    raise UserError(
        f"{where}: this model needs a text pair; the second text is missing. In Python, give "
        "pairs, [(text, other), …]; for a file, name the columns, --text A --text-pair B."
    )


def chunk_size(space: LabelSpace) -> int:
    """Return how many texts are answered together: fewer if there are very many labels."""
    labels = len(space.entries) or 1
    return max(1, min(CHUNK_TEXTS, MAX_CHUNK_SCORES // labels))


def _as_json(one: object, number: int) -> object:
    """Return a record as JSON if it is a dict."""
    if not isinstance(one, Mapping):
        return one
    try:
        return json.dumps(one, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"Text {number} is a record that JSON cannot hold: {error}.") from None


def _check_list(texts: object) -> None:
    if isinstance(texts, str):
        raise UserError("Call the predictor with a list of texts, not a single string.")
    if not isinstance(texts, Iterable):
        kind = type(texts).__name__
        raise UserError(f"Call the predictor with a list of texts, not {kind}.")


def _checked_texts(texts: Sequence[object], done: int = 0) -> list[EngineInput]:
    """Return the texts; raise UserError for anything that is no text."""
    out: list[EngineInput] = []
    for i, text in enumerate(texts, done + 1):
        if not isinstance(text, (str, Example)):
            raise UserError(f"Text {i} is {type(text).__name__}, not a string.")
        out.append(text)
    return out


def _with_text(predicted: Annotation | None, source: EngineInput) -> Annotation | None:
    """Return the annotation with the text that its offsets refer to."""
    if predicted is None or predicted.text or not predicted.places:
        return predicted
    return dataclasses.replace(predicted, text=source if isinstance(source, str) else source.text)


def model_folder(folder: Path) -> Path:
    """Return the model folder of a path: itself, or `model` inside a run folder."""
    if not folder.exists():
        near = [p.name for p in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        raise UserError(f"{folder}: no such model folder.{near_miss(folder.name, near)}")
    for path in (folder, folder / "model"):
        if (path / "model.json").is_file():
            return path
    if (folder / "config.json").is_file():
        raise UserError(
            f"{folder}: a checkpoint of the Hugging Face layout, not a model folder. "
            f"Convert it: `weft convert {folder} -o MODEL`."
        )
    raise UserError(
        f"{folder}: not a model folder (no model.json). "
        "Give the `model` folder of a finished run (`weft train … -o RUN` writes RUN/model)."
    )


def saved_config(path: Path) -> Section:
    """Return the configuration of a model.json."""
    config: Section = _read_model_json(path)["config"]
    return config


def _read_model_json(path: Path) -> Saved:
    parsed = _read_json(path)
    saved: Saved = parsed if isinstance(parsed, dict) else {}
    number = saved.get("format")
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        fix = "Upgrade Weft to load it" if newer else "It was not written by Weft, or is damaged"
        raise UserError(f"{path}: model format {number!r}, this Weft reads {FORMAT}. {fix}.")
    config = saved.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{path}: damaged (it holds no configuration). Restore it or train again.")
    for name, section in config.items():
        several = name in configuration.LISTED_SECTIONS and isinstance(section, list)
        tables = section if several else [section]
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


def _read_json(path: Path) -> object:
    try:
        parsed: object = jsonio.read(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the model folder is incomplete.") from None
    except UserError as error:
        raise UserError(f"{path}: damaged ({error}) Restore it or train again.") from None
    return parsed


def _write_json(path: Path, value: object) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_text(path, text, errors=ESCAPE_SURROGATES)
