"""Golden answers: recorded when a model is saved, replayed when it is loaded."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft import jsonio
from weft.errors import UserError, UserNote
from weft.jsonio import Json, JsonObject
from weft.text.example import Example

if TYPE_CHECKING:
    from typing import TypeGuard

    from weft.predict.predictor import Input, Predictor
    from weft.protocols import LabelSpace
    from weft.tasks.task import Answer

GOLDEN = "golden.jsonl"
MAX_GOLDEN_CHARACTERS = 4000  # characters of a recorded text; training records none above 2,000
TOLERANCE = 1e-3  # how far a replayed probability may be from the recorded one


def replay_golden(predictor: "Predictor", path: Path, count: object) -> None:
    """Compare the answers to the recorded ones; a difference is an error.

    `count` is the number of recorded answers, None in models of an earlier Weft.
    """
    try:
        lines = jsonio.read_lines(path)
        pairs = [
            (_recorded_input(line), line["value"], _parse_scores(line["scores"])) for line in lines
        ]
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: the model folder is incomplete. Restore it, or load with "
            "replay=False (--no-replay)."
        ) from None
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise UserError(f"{path}: damaged ({error}). Restore the folder from a backup.") from None
    if count is not None and type(count) is not int:
        raise UserError(f"{path.with_name('model.json')}: damaged ('golden' is no whole number).")
    if count is not None and count != len(lines):
        raise UserError(
            f"{path}: holds {len(lines)} recorded answers, but {count} were saved, so the model "
            "cannot be verified. Restore the file, or load with replay=False (--no-replay)."
        )
    if not lines:
        warnings.warn(
            f"{path}: no recorded answers, so the model cannot be verified",
            UserNote,
            stacklevel=4,
        )
    longest = max((len("".join(text)) for text, _, _ in pairs), default=0)
    if longest > MAX_GOLDEN_CHARACTERS:
        raise UserError(
            f"{path}: damaged (a text of {longest:,} characters; at most {MAX_GOLDEN_CHARACTERS:,} "
            "are saved). Restore the folder from a backup."
        )
    for answer, (text, value, before) in zip(
        answer_exact(predictor, [text for text, _, _ in pairs]), pairs, strict=True
    ):
        now = list(answer.value) if isinstance(answer.value, tuple) else answer.value
        scores = np.asarray(answer.scores)
        drift = np.abs(scores - before).max(initial=0.0) if scores.shape == before.shape else np.inf
        if not (drift <= TOLERANCE) or not answers_agree(now, value, before, predictor.space):
            raise UserError(
                f"{path}: the answers differ from those recorded when the model was saved. For "
                f"{str(text)[:60]!r} it predicted {value!r:.200}, now {now!r:.200} (scores differ "
                f"by {drift:.3g}). A library version or a file has changed; load with replay=False "
                "(--no-replay) to use it anyway, or train it again."
            )


def recorded_inputs(path: Path) -> "list[Input]":
    """Return the inputs whose answers are recorded in a golden.jsonl."""
    return [_recorded_input(line) for line in jsonio.read_lines(path)]


def _recorded_input(line: JsonObject) -> str | tuple[str, str]:
    """Return the recorded input: a text, or a pair."""
    first = str(line["text"])
    return (first, str(line["other"])) if "other" in line else first


def input_json(recorded: "Input") -> dict[str, str]:
    """Return an input as JSON."""
    if isinstance(recorded, str):
        return {"text": recorded}
    if isinstance(recorded, Example):
        raise UserError("A golden input is a text or a pair of texts, not an Example.")
    first, second = recorded
    return {"text": first, "other": second}


def golden_line(recorded: "Input", answer: "Answer") -> str:
    """Return the line of golden.jsonl that records an answer."""
    saved = {**input_json(recorded), "value": answer.value, "scores": answer.scores}
    return json.dumps(saved, ensure_ascii=False) + "\n"


def answer_exact(predictor: "Predictor", texts: "Sequence[Input]") -> "list[Answer]":
    """Return answers in full precision, even if the engine usually runs in less."""
    with predictor.engine.full_precision():
        if predictor.task.gives_vectors:
            return predictor.task.golden_answers(predictor.embed(texts))
        return predictor(texts)


def answers_agree(now: object, value: object, before: np.ndarray, space: "LabelSpace") -> bool:
    """Return True if two answers agree, or differ only in a near tie."""
    if now == value:
        return True
    if isinstance(now, float) and isinstance(value, float):
        scale = abs(value) if space.deviation is None else space.deviation
        return abs(now - value) <= TOLERANCE * max(1.0, scale)
    if _is_vector(now) and _is_vector(value) and space.deviation is not None:
        scale = TOLERANCE * max(1.0, space.deviation)
        return len(now) == len(value) and bool((np.abs(np.subtract(now, value)) <= scale).all())
    if isinstance(now, list):
        if space.threshold is None:
            return False
        return bool((np.abs(before - space.threshold) <= TOLERANCE).any())
    if space.positive and space.threshold is not None:
        cuts = (space.threshold, 1 - space.threshold)  # of either class
        return any(bool((np.abs(before - cut) <= TOLERANCE).any()) for cut in cuts)
    top = np.sort(before)[-2:]
    if abs(before.max(initial=0.0) - space.rejection) <= TOLERANCE:
        return True
    return len(top) == 2 and bool(top[1] - top[0] <= 2 * TOLERANCE)


def _is_vector(value: object) -> "TypeGuard[list[float]]":
    return isinstance(value, list) and all(isinstance(x, float) for x in value)


def _parse_scores(recorded: Json) -> np.ndarray:
    scores = np.array(recorded, dtype=np.float64)
    if scores.ndim > 1 or not isinstance(recorded, (int, float, list)):
        raise ValueError(f"'scores' should be numbers, found {json.dumps(recorded)[:60]}")
    return scores
