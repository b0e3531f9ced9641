"""Read dialogues: turns with their speakers, and the states of the user's turns.

Four layouts: JSON lines {"turns": [{"speaker": …, "text": …, "state": {…}}]}, a JSON list of these,
the JSON list of CamRest676 (Wen et al. 2017), and lines with `__eou__` after each utterance
(DailyDialog, Li et al. 2017).
"""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from weft import jsonio
from weft.errors import UserError
from weft.text.example import SkipCounter
from weft.text.line_source import SKIP_HINT, BadRowPolicy, BadRows, LineSource
from weft.untrusted import has_surrogate

DialogueView = Literal["", "response", "state", "update", "text"]

END_OF_UTTERANCE = "__eou__"
USER, SYSTEM = "user", "system"
BAD_DIALOGUE = "broken dialogue"
MAX_BYTES = 1 << 28  # of a JSON list, which is parsed as a whole
MAX_SPEAKER_CHARACTERS = 40
HEAD_LINES = 200  # that tell what a file holds
LAYOUT_HELP = (
    'A dialogue is {"turns": [{"speaker": "user", "text": "…"}, …]}, one a line, or a line with '
    f"{END_OF_UTTERANCE} after each utterance"
)

State = tuple[tuple[str, str], ...]  # slots and values, in the order of the slots


@dataclass(frozen=True, slots=True)
class Turn:
    """An utterance of one speaker; `state` holds the constraints so far, if annotated."""

    speaker: str
    text: str
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Turns in order, with the goal of the user: constraints and requested slots."""

    turns: tuple[Turn, ...]
    id: str = ""
    file: str = ""
    line: int = 0
    constraints: State = ()
    requests: tuple[str, ...] = ()
    finished: bool = True  # False: the user gave up before the end


def is_dialogue_file(path: str | os.PathLike[str]) -> bool:
    """Return True if the first lines of a file are a dialogue of one of the four layouts."""
    name = os.fspath(path)
    if name == "-":  # without taking a line from who reads it later
        first = cast(io.BufferedReader, sys.stdin.buffer).peek(1).lstrip()
        return first.startswith((b'{"turns"', b'{"id"')) or END_OF_UTTERANCE.encode() in first
    if not os.path.isfile(name):
        return False
    with contextlib.closing(LineSource(name)) as source:
        return are_dialogues([raw.decode("utf-8", "replace") for raw in source.head(HEAD_LINES)])


def are_dialogues(head: Sequence[str]) -> bool:
    """Return True if the first lines of a file are a dialogue of one of the four layouts."""
    lines = [line.strip() for line in head[:HEAD_LINES]]
    body = [line for line in lines if line and not line.startswith("#")]
    if not body:
        return False
    if body[0].startswith("["):
        head = " ".join(body)[:20_000]
        return '"dial"' in head or '"turns"' in head
    return '"turns"' in body[0] if body[0].startswith("{") else END_OF_UTTERANCE in body[0]


def read_dialogues(
    path: str | os.PathLike[str],
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
) -> Iterator[Dialogue]:
    """Yield the dialogues of a file; a broken one is an error, or skipped and counted."""
    source = LineSource(os.fspath(path))
    bad_rows = BadRows(source.name, on_bad_row, skipped)
    for line, number, value in _read_values(source, bad_rows):
        try:
            dialogue = (
                _split_utterances(value) if isinstance(value, str) else _parse_dialogue(value)
            )
        except UserError as error:
            where = f"dialogue {number}: " if line == 0 else ""
            bad_rows.report(BAD_DIALOGUE, max(line, 1), f"{where}{error} {_hint()}")
            continue
        yield Dialogue(
            dialogue.turns, dialogue.id or str(number), source.name, max(line, 1),
            dialogue.constraints, dialogue.requests, dialogue.finished,
        )  # fmt: skip


def _hint() -> str:
    return f"Mend it, or {SKIP_HINT}."


def _read_values(source: LineSource, bad_rows: BadRows) -> Iterator[tuple[int, int, Any]]:
    """Yield the line (0: unknown), the number and the value of each dialogue."""
    number = 0
    lines = source.lines(bad_rows)
    for line, text in lines:
        if not text.strip() or text.startswith("#"):
            continue
        if number == 0 and text.lstrip().startswith("["):
            yield from _read_list(source.name, line, text, lines)
            return
        number += 1
        if not text.lstrip().startswith("{"):
            yield line, number, text
            continue
        try:
            value = jsonio.parse(text, source.name, line)
        except UserError as error:
            if not bad_rows.skip:
                raise
            bad_rows.report("invalid JSON", line, str(error))
            continue
        yield line, number, value


def _read_list(
    name: str, first: int, text: str, lines: Iterator[tuple[int, str]]
) -> Iterator[tuple[int, int, Any]]:
    size, parts = len(text), [text]
    for _, one in lines:
        size += len(one) + 1
        if size > MAX_BYTES:
            raise UserError(
                f"{name}: a JSON list of more than {MAX_BYTES:,} characters. Write one dialogue "
                "a line."
            )
        parts.append(one)
    values = jsonio.parse("\n".join(parts), name, first)
    for number, value in enumerate(values, 1):
        yield 0, number, value


def _split_utterances(line: str) -> Dialogue:
    if END_OF_UTTERANCE not in line:
        raise UserError(f"no {END_OF_UTTERANCE} in the line. {LAYOUT_HELP}.")
    body = line.rsplit(END_OF_UTTERANCE, 1)[0]  # topic, acts and emotions may follow
    texts = [" ".join(one.split()) for one in body.split(END_OF_UTTERANCE)]
    if not all(texts):
        raise UserError(f"utterance {texts.index('') + 1} is empty.")
    return Dialogue(tuple(Turn("AB"[i % 2], text) for i, text in enumerate(texts)))


def _parse_dialogue(value: Any) -> Dialogue:
    if not isinstance(value, dict):
        raise UserError(f"a dialogue should be a JSON object, found {value!r:.40}.")
    if "dial" in value:
        return _parse_camrest(value)
    rows = value.get("turns")
    if not isinstance(rows, list) or not rows:
        raise UserError(f"no 'turns' list; found {sorted(map(str, value))!r:.80}. {LAYOUT_HELP}.")
    turns = tuple(_parse_turn(row, i) for i, row in enumerate(rows))
    goal = value.get("goal", {})
    if not isinstance(goal, dict):
        raise UserError(f"the goal should be a JSON object, found {goal!r:.40}.")
    requests = goal.get("requests", [])
    if not isinstance(requests, list):
        raise UserError(f"goal.requests should be a list of slots, found {requests!r:.40}.")
    return Dialogue(
        turns, str(value.get("id", "")), constraints=_parse_state(goal.get("constraints", {}), 0),
        requests=tuple(map(str, requests)), finished=value.get("finished") is not False,
    )  # fmt: skip


def _parse_turn(row: Any, i: int) -> Turn:
    if isinstance(row, str):
        row = {"speaker": "AB"[i % 2], "text": row}
    if not isinstance(row, dict):
        raise UserError(f"turn {i + 1} should be a text or an object, found {row!r:.40}.")
    speaker, text, state = row.get("speaker"), row.get("text"), row.get("state")
    if not isinstance(text, str):
        raise UserError(f"turn {i + 1} has no 'text'; found {sorted(map(str, row))!r:.80}.")
    if not isinstance(speaker, str) or not speaker.strip():
        raise UserError(f"turn {i + 1} has no 'speaker'.")
    if len(speaker) > MAX_SPEAKER_CHARACTERS or set("[]\n") & set(speaker):
        raise UserError(
            f"turn {i + 1}: the speaker {speaker!r:.60} should be a short name without brackets."
        )
    return Turn(
        speaker, _check_text(text, i), None if state is None else _parse_state(state, i + 1)
    )


def _check_text(text: str, i: int) -> str:
    if not text.strip():
        raise UserError(f"turn {i + 1} is empty.")
    if has_surrogate(text):
        raise UserError(f"turn {i + 1} has a lone surrogate, which is not valid text.")
    return " ".join(text.split())


def _parse_state(value: Any, turn: int) -> State:
    where = f"the state of turn {turn}" if turn else "goal.constraints"
    if not isinstance(value, dict):
        raise UserError(f"{where} should be an object of slots and values, found {value!r:.40}.")
    for slot, filler in value.items():
        if not isinstance(filler, str) or not filler.strip() or not slot.strip():
            raise UserError(f"{where}: slot {slot!r:.40} has the value {filler!r:.40}, no text.")
        if has_surrogate(slot + filler):
            raise UserError(f"{where}: slot {slot!r:.40} has a lone surrogate.")
        if set("=;") & set(slot + filler):
            raise UserError(f"{where}: {slot!r:.40}, {filler!r:.40}: '=' and ';' separate slots.")
    return tuple(sorted((slot, " ".join(filler.split())) for slot, filler in value.items()))


def _parse_camrest(value: dict[str, Any]) -> Dialogue:
    """Return a dialogue of CamRest676; what a user turn informs is the whole state so far."""
    turns: list[Turn] = []
    try:
        for i, row in enumerate(value["dial"]):
            state = {
                slot: filler
                for act in row["usr"]["slu"]
                if act["act"] == "inform"
                for slot, filler in act["slots"]
                if slot != "slot"  # a request
            }
            turns.append(
                Turn(USER, _check_text(row["usr"]["transcript"], 2 * i), _parse_state(state, i + 1))
            )
            if row["sys"]["sent"].strip():
                turns.append(Turn(SYSTEM, _check_text(row["sys"]["sent"], 2 * i + 1)))
        goal = value.get("goal", {})
        constraints = dict(goal.get("constraints", ()))
        requests = tuple(str(slot) for slot in goal.get("request-slots", ()))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"not a dialogue of CamRest676: {error!r:.60}.") from None
    if not turns:
        raise UserError("the dialogue has no turns.")
    return Dialogue(
        tuple(turns), str(value.get("dialogue_id", "")),
        constraints=_parse_state(constraints, 0), requests=requests,
        finished=value.get("finished") is not False,
    )  # fmt: skip
