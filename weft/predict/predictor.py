"""Predictor: texts in, Answers out, input order kept. Every verb and page goes through it."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft import registry
from weft.errors import UserError, near_miss
from weft.tasks.task import Answer, Space, Task

FORMAT = 1
CHUNK = 8192  # texts that are sorted by length together; answers stream out chunk by chunk
CLOSE = 1e-3  # how far a replayed probability may be from the recorded one


@dataclass(frozen=True)
class Scored:
    """What an engine found for some texts, in their order."""

    scores: np.ndarray  # (texts, C)
    coverage: np.ndarray  # (texts,)
    parts: Sequence[tuple] = ()  # (start, end, weight) of each token, a tuple a text


class Engine(Protocol):
    """Texts -> scores: a neural model, or one of the generation before."""

    def scores(self, texts: Sequence[str], parts: bool = False) -> Scored: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...

    def save(self, folder: Path) -> None: ...

    @property
    def parameters(self) -> int: ...


class Predictor:
    """A trained model, whatever is inside: call it with texts, get an Answer for each."""

    def __init__(self, engine: Engine, task: Task, space: Space, config: dict[str, Any]):
        self.engine, self.task, self.space, self.config = engine, task, space, config

    def __call__(self, texts: str | Iterable[str], *, parts: bool = False) -> list[Answer]:
        """An Answer for each text, in order; with `parts`, each token's weight if there is one."""
        if isinstance(texts, str):
            raise UserError("Call the predictor with a list of texts, not a single string.")
        return list(self.stream(texts, parts=parts))

    def stream(self, texts: Iterable[str], *, parts: bool = False) -> Iterator[Answer]:
        """Answers in order, a chunk at a time, for inputs that do not fit in memory."""
        stream = iter(texts)
        while chunk := list(islice(stream, CHUNK)):
            for i, text in enumerate(chunk):
                if not isinstance(text, str):
                    raise UserError(f"Text {i + 1} is {type(text).__name__}, not a string.")
            scored = self.engine.scores(chunk, parts=parts)
            for i, answer in enumerate(self.task.answers(scored.scores, self.space)):
                found = scored.parts[i] if scored.parts else ()
                share = float(scored.coverage[i])
                yield dataclasses.replace(answer, parts=tuple(found), coverage=share)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, H) sentence vectors."""
        return self.engine.embed(list(texts))

    def states(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(T, H) a vector for every token of one text, and (T, 2) its character offsets."""
        if not hasattr(self.engine, "states"):
            raise UserError("This model reads a text as one bag; it has no vector for each token.")
        return self.engine.states(text)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes it can answer, where there are classes."""
        return getattr(self.space, "entries", ())

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return self.engine.parameters

    def save(self, folder: str | Path, golden: Sequence[str] = (), record: Any = None) -> None:
        """Write the model as one folder; `golden` texts are stored with their answers."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.engine.save(folder)
        _write(folder / "labels.json", self.space.to_json())
        if record is not None:
            _write(folder / "record.json", record)
        lines = [
            json.dumps({"text": t, "value": a.value, "scores": a.scores}, ensure_ascii=False) + "\n"
            for t, a in zip(golden, self(golden), strict=True)
        ]
        (folder / "golden.jsonl").write_text("".join(lines), "utf-8")
        _write(folder / "model.json", {"format": FORMAT, "config": self.config})


def load(folder: str | Path, *, device: str = "auto", replay: bool = True) -> Predictor:
    """Read a model folder and check that it still answers as it did when it was saved."""
    folder = model_folder(Path(folder))
    saved = _read(folder / "model.json")
    if saved.get("format") != FORMAT:
        newer = isinstance(saved.get("format"), int) and saved["format"] > FORMAT
        fix = "Upgrade Weft to load it" if newer else "It was not written by Weft, or is damaged"
        raise UserError(
            f"{folder}: model format {saved.get('format')!r}, this Weft reads {FORMAT}. {fix}."
        )
    config = saved["config"]
    task: Task = registry.build("task", config["task"])
    space = task.load_space(_read(folder / "labels.json"))
    if "classic" in config:
        from weft.predict.classic import Classic

        settings = dict(config["classic"])
        part: Any = registry.find("classic", settings.pop("kind"))
        engine: Engine = Classic(part.load(folder, settings))
    else:
        from weft.predict.neural import Neural

        engine = Neural.load(folder, config, outputs=space.size, device=device)
    predictor = Predictor(engine, task, space, config)
    if replay:
        _replay(predictor, folder / "golden.jsonl")
    return predictor


def model_folder(folder: Path) -> Path:
    """The model folder that a path means: itself, or the `model` inside a run folder."""
    if not folder.exists():
        near = [p.name for p in folder.parent.glob("*/")] if folder.parent.is_dir() else []
        raise UserError(f"{folder}: no such model folder.{near_miss(folder.name, near)}")
    for place in (folder, folder / "model"):
        if (place / "model.json").is_file():
            return place
    raise UserError(
        f"{folder}: not a model folder: there is no model.json in it. "
        "Give the `model` folder of a finished run (`weft train … -o RUN` writes RUN/model)."
    )


def _replay(predictor: Predictor, path: Path) -> None:
    """Compare today's answers to the recorded ones: drift is an error, not a surprise (N7)."""
    if not path.is_file():
        return
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        pairs = [(line["text"], line["value"], line["scores"]) for line in lines]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged ({error}). Restore the folder from a backup.") from None
    for answer, (text, value, recorded) in zip(
        predictor([text for text, _, _ in pairs]), pairs, strict=True
    ):
        now = list(answer.value) if isinstance(answer.value, tuple) else answer.value
        scores, before = np.asarray(answer.scores), np.asarray(recorded)
        drift = np.abs(scores - before).max(initial=0.0) if scores.shape == before.shape else np.inf
        number = isinstance(value, float) and isinstance(now, float)
        same = now == value or (number and abs(now - value) <= CLOSE)
        if not (drift <= CLOSE) or (not same and drift > 1e-6):
            raise UserError(
                f"{path}: this model no longer answers as it did when it was saved. For the text "
                f"{text[:60]!r} it said {value!r}, now {now!r} (scores moved by {drift:.3g}). A "
                "library version or a file has changed; load with replay=False (--no-replay) to "
                "look at it anyway, or train it again."
            )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the model folder is incomplete.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged ({error}). Restore it or train again.") from None


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
