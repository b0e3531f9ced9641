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
from weft import registry
from weft.errors import UserError, near_miss
from weft.tasks.structure import Structure
from weft.tasks.task import Answer, Space, Task, built
from weft.text.example import Example, Tally
from weft.text.formats import is_matrices
from weft.text.matrices import no_text

FORMAT = 1
CHUNK = 8192  # texts that are sorted by length together; answers stream out chunk by chunk
Asked = str | Example | tuple[str, str]  # a text, or two
CLOSE = 1e-3  # how far a replayed probability may be from the recorded one


@dataclass(frozen=True)
class Scored:
    """What an engine found for some texts, in their order."""

    scores: Any  # (texts, C), or of a model that answers at every word a value a text
    coverage: np.ndarray  # (texts,)
    parts: Sequence[tuple] = ()  # (start, end, weight) of each token, a tuple a text


class Engine(Protocol):
    """Texts -> scores: a neural model, or one of the generation before."""

    def scores(self, texts: Sequence[Any], parts: bool = False) -> Scored: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray: ...

    def save(self, folder: Path) -> None: ...

    @property
    def parameters(self) -> int: ...


class Predictor:
    """A trained model, whatever is inside: call it with texts, get an Answer for each."""

    def __init__(self, engine: Engine, task: Task, space: Space, config: dict[str, Any]):
        self.engine, self.task, self.space, self.config = engine, task, space, config

    def __call__(self, texts: str | Iterable[Asked], *, parts: bool = False) -> list[Answer]:
        """An Answer for each text, in order; with `parts`, each token's weight if there is one.

        A model of two texts is given pairs: [("A dog runs.", "A dog sleeps.")].
        """
        _check_list(texts)
        return list(self.stream(texts, parts=parts))

    def stream(self, texts: Iterable[Asked], *, parts: bool = False) -> Iterator[Answer]:
        """Answers in order, a chunk at a time, for inputs that do not fit in memory.

        Of an Example the words that its file gives are answered, where the model answers at each.
        """
        stream = iter(texts)
        before = 0
        while some := list(islice(stream, CHUNK)):
            chunk = self.carried(some, before)
            given = [self._given(one, f"text {i}") for i, one in enumerate(chunk, before + 1)]
            before += len(chunk)
            scored = self.engine.scores(given, parts=parts)
            for i, answer in enumerate(self.task.answers(scored.scores, self.space)):
                found = scored.parts[i] if scored.parts else answer.parts
                share = float(scored.coverage[i])
                seen = _over(answer.structure, chunk[i])
                yield dataclasses.replace(
                    answer, parts=tuple(found), coverage=share, structure=seen
                )

    @property
    def by_word(self) -> bool:
        """Whether it answers about the words of a text, and not only about the whole."""
        return hasattr(self.task, "gold")

    @property
    def pairs(self) -> bool:
        """Whether it answers about two texts at a time."""
        return getattr(self.task, "pairs", False)

    def carried(self, given: Iterable[Any], before: int = 0) -> list[Any]:
        """What can be asked, checked: a matrix or a pair of texts as an Example, a record as JSON,
        for models that read such."""
        own = getattr(self.engine, "reads", "") == "vectors"
        out = [
            Example("", vectors=one) if own and isinstance(one, np.ndarray) else one
            for one in given
        ]  # fmt: skip
        if getattr(self.task, "record", False):
            out = [_as_json(one, i) for i, one in enumerate(out, before + 1)]
        if self.pairs:
            out = [two_texts(one, i) for i, one in enumerate(out, before + 1)]
        _check_texts(out, before)
        return out

    def _given(self, one: str | Example, where: str = "input") -> str | Example:
        """What the engine is asked: a text, or the words, tree or matrix that a file gives."""
        if self.pairs or getattr(self.engine, "reads", "") in ("trees", "vectors"):
            return one
        if isinstance(one, Example) and is_matrices(one.file):
            raise no_text(one.file)
        if hasattr(self.task, "given"):
            return self.task.given(one, self.space, where)
        if isinstance(one, str):
            return one
        ready = one
        if one.tree is not None and self.by_word and hasattr(self.task, "prepare"):
            ready = self.task.prepare(one, Tally())
        return ready if self.by_word and ready.words else one.text

    def embed(self, texts: Sequence[Asked]) -> np.ndarray:
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
    def labels(self) -> tuple[str, ...]:
        """The classes it can answer, where there are classes."""
        return getattr(self.space, "entries", ())

    @property
    def parameters(self) -> int:
        """How many numbers were learned."""
        return self.engine.parameters

    def save(self, folder: str | Path, golden: Sequence[Asked] = (), record: Any = None) -> None:
        """Write the model as one folder; `golden` texts are stored with their answers."""
        folder = Path(folder)
        try:
            self._write(folder, golden, record)
        except OSError as error:
            raise UserError(f"Cannot write {folder}: {error.strerror or error}.") from None

    def _write(self, folder: Path, golden: Sequence[Asked], record: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.engine.save(folder)
        _write(folder / "labels.json", self.space.to_json())
        if record is not None:
            _write(folder / "record.json", record)
        lines = [
            json.dumps({**_texts(t), "value": a.value, "scores": a.scores}, ensure_ascii=False)
            + "\n"
            for t, a in zip(golden, _exactly(self, golden), strict=True)
        ]
        (folder / "golden.jsonl").write_text("".join(lines), "utf-8")
        _write(folder / "model.json", {"format": FORMAT, "config": self.config})


def _model_json(folder: str | Path) -> registry.Source:
    """Return what names the file that says which parts a model has."""
    places = (Path(folder), Path(folder) / "model")
    own = next((p for p in places if (p / "model.json").is_file()), places[0])
    return lambda name: str(own / "model.json")


@registry.trusts(_model_json)
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    replay: bool = True,
    weights: str = "float32",
    trust: Sequence[str] = (),
) -> Predictor:
    """Read a model folder and check that it still answers as it did when it was saved.

    With `weights` of "int8", a pre-trained network reads on a processor with rounded weights:
    faster, and less exactly. Parts from outside Weft are imported only from packages in `trust`.
    """
    folder = model_folder(Path(folder))
    config = saved_config(folder / "model.json")
    task = built(config)
    saved = _read(folder / "labels.json")
    try:
        space = task.load_space(saved)
    except UserError as error:
        raise UserError(f"{folder / 'labels.json'}: {error}") from None
    if "classic" in config:
        from weft.predict.classic import Classic

        settings = dict(config["classic"])
        part: Any = registry.find("classic", settings.pop("kind"))
        if weights != "float32":
            raise UserError(
                f"{folder}: a classic model has no weights to round; leave out weights."
            )
        engine: Engine = Classic(part.load(folder, settings), space)
    else:
        from weft.predict.neural import Neural

        engine = Neural.load(folder, config, outputs=space.size, device=device)
        engine.round_weights(weights, str(folder))
    predictor = Predictor(engine, task, space, config)
    if replay:
        _replay(predictor, folder / "golden.jsonl")
    return predictor


def two_texts(given: Any, number: int) -> Example:
    """A pair of texts as an Example, or a UserError that says what a model of two texts takes."""
    if isinstance(given, Example) and given.other is not None:
        return given
    if isinstance(given, (tuple, list)) and [type(one) for one in given] == [str, str]:
        return Example(given[0], other=given[1])
    where = given.where if isinstance(given, Example) and given.file else f"Text {number}"
    raise UserError(
        f"{where}: this model reads two texts, and here is no second one. In Python, give pairs, "
        "[(text, other), …]; of a file, name the columns, --text A --other B."
    )


def _as_json(given: Any, number: int) -> Any:
    """A record that is given as a dict, as it stands in a file."""
    if not isinstance(given, Mapping):
        return given
    try:
        return json.dumps(given, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"Text {number} is a record that JSON does not know: {error}.") from None


def _texts(asked: Any) -> dict[str, str]:
    """What was asked, as JSON has it."""
    if isinstance(asked, str):
        return {"text": asked}
    first, second = asked
    return {"text": first, "other": second}


def _check_list(texts: str | Iterable[Any]) -> None:
    if isinstance(texts, str):
        raise UserError("Call the predictor with a list of texts, not a single string.")


def _check_texts(texts: Sequence[Any], before: int = 0) -> None:
    for i, text in enumerate(texts, before + 1):
        if not isinstance(text, (str, Example)):
            raise UserError(f"Text {i} is {type(text).__name__}, not a string.")


def _over(said: Structure | None, given: str | Example) -> Structure | None:
    """A structure together with the text that its places count in."""
    if said is None or said.text or not said.places:
        return said
    return dataclasses.replace(said, text=given if isinstance(given, str) else given.text)


def model_folder(folder: Path) -> Path:
    """The model folder that a path means: itself, or the `model` inside a run folder."""
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
    """The configuration in a model.json, if this Weft can read it and it is whole."""
    saved = _read(path)
    number = saved.get("format") if isinstance(saved, dict) else None
    if number != FORMAT:
        newer = isinstance(number, int) and number > FORMAT
        fix = "Upgrade Weft to load it" if newer else "It was not written by Weft, or is damaged"
        raise UserError(f"{path}: model format {number!r}, this Weft reads {FORMAT}. {fix}.")
    config = saved.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{path}: damaged (it holds no configuration). Restore it or train again.")
    model = configuration.parts_of(config)
    if missing := [name for name in ("task", "data", *model) if name not in config]:
        gone = "], [".join(missing)
        raise UserError(f"{path}: damaged (it has no [{gone}]). Restore it or train again.")
    return config


def _replay(predictor: Predictor, path: Path) -> None:
    """Compare today's answers to the recorded ones: drift is an error, not a surprise (N7)."""
    try:
        # Not splitlines: it would also cut a text at U+2028.
        lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        pairs = [(_recorded(line), line["value"], _numbers(line["scores"])) for line in lines]
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: the model folder is incomplete. Restore it, or load with "
            "replay=False (--no-replay)."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: damaged ({error}). Restore the folder from a backup.") from None
    for answer, (text, value, before) in zip(
        _exactly(predictor, [text for text, _, _ in pairs]), pairs, strict=True
    ):
        now = list(answer.value) if isinstance(answer.value, tuple) else answer.value
        scores = np.asarray(answer.scores)
        drift = np.abs(scores - before).max(initial=0.0) if scores.shape == before.shape else np.inf
        if not (drift <= CLOSE) or not _same(now, value, before, predictor.space):
            raise UserError(
                f"{path}: this model no longer answers as it did when it was saved. For the text "
                f"{str(text)[:60]!r} it said {value!r}, now {now!r} (scores moved by {drift:.3g}). "
                "A library version or a file has changed; load with replay=False (--no-replay) to "
                "look at it anyway, or train it again."
            )


def _recorded(line: dict[str, Any]) -> Any:
    """What was asked when an answer was recorded: a text, or two."""
    first = str(line["text"])
    return (first, str(line["other"])) if "other" in line else first


def _exactly(predictor: Predictor, texts: Sequence[Asked]) -> list[Answer]:
    """Answers in full precision, where the engine usually saves some of it."""
    with getattr(predictor.engine, "exactly", contextlib.nullcontext)():
        if hasattr(predictor.task, "recorded"):  # it gives vectors, and no answers
            return predictor.task.recorded(predictor.embed(texts))
        return predictor(texts)


def _same(now: Any, value: Any, before: np.ndarray, space: Any) -> bool:
    """Whether two answers agree, or differ only because it was a close call."""
    if now == value:
        return True
    if isinstance(now, float) and isinstance(value, float):
        return abs(now - value) <= CLOSE * max(1.0, getattr(space, "deviation", abs(value)))
    if isinstance(now, list):
        if not hasattr(space, "threshold"):
            return False
        return bool((np.abs(before - space.threshold) <= CLOSE).any())
    top = np.sort(before)[-2:]
    return len(top) == 2 and bool(top[1] - top[0] <= 2 * CLOSE)


def _numbers(recorded: list[float]) -> np.ndarray:
    return np.array(recorded, dtype=np.float64)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing: the model folder is incomplete.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: damaged ({error}). Restore it or train again.") from None


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")
