"""Make of a dialogue the examples of a task: responses, states or texts.

A response may be delexicalised: values of a database stand in it as the names of their attributes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence

from weft.errors import UserError
from weft.text.example import Example, SkipCounter
from weft.text.formats.dialogue.entities import EntityDatabase
from weft.text.formats.dialogue.turns import (
    LAYOUT_HELP,
    SYSTEM,
    Dialogue,
    DialogueView,
    State,
    Turn,
    read_dialogues,
)
from weft.text.formats.dialogue.value_swaps import Augmentation, collect_values
from weft.text.line_source import BadRowPolicy

NO_STATE = "none"  # the text of a state without slots
STATE = "state"  # the marker before the previous state
MATCHES = "matches"  # the marker before the number of entities that fit a state
MANY_MATCHES = 5  # from here on, the number does not matter (Wen et al. 2017)


def read_dialogue_examples(
    path: str | os.PathLike[str],
    view: DialogueView,
    history: int = 0,
    *,
    on_bad_row: BadRowPolicy = "error",
    skipped: SkipCounter | None = None,
    labelled: bool = True,
    database: EntityDatabase | None = None,
    augmentation: Augmentation | None = None,
) -> Iterator[Example]:
    """Yield the examples of a task; `history` is how many turns are read, 0: all.

    Without `labelled`, also what a model could answer and the file does not: the response to the
    last turn, and the states of turns without one. With a `database`, responses are delexicalised,
    and follow the state and the number of entities that fit it. With an `augmentation`, a copy of
    each dialogue follows, with other values.
    """
    some = False
    dialogues: Iterable[Dialogue] = read_dialogues(path, on_bad_row=on_bad_row, skipped=skipped)
    slots: tuple[str, ...] = ()
    if view == "update" or augmentation is not None:
        whole = list(dialogues)
        dialogues, slots = whole, tuple(collect_values(whole))
        if augmentation is not None:
            dialogues = augmentation.augment(whole, database, os.fspath(path))
    for dialogue in dialogues:
        for example in dialogue_examples(dialogue, view, history, labelled, database, slots):
            some = True
            yield example
    if not some:
        missing = {
            "state": 'No user turn has a "state".',
            "update": 'No user turn has a "state".',
            "text": "The file has no dialogue.",
        }.get(view, "No dialogue has a response.")
        raise UserError(f"{os.fspath(path)}: {missing} {LAYOUT_HELP}.")


def dialogue_examples(
    dialogue: Dialogue,
    view: DialogueView,
    history: int = 0,
    labelled: bool = True,
    database: EntityDatabase | None = None,
    slots: Sequence[str] = (),
) -> Iterator[Example]:
    """Yield the examples of one dialogue; an update says of each of the `slots` what it is."""
    if view == "text":
        text = join_turns(dialogue.turns)
        yield Example(text, None, dialogue.id, dialogue.file, dialogue.line)
    elif view == "update":
        yield from _state_updates(dialogue, labelled, slots)
    elif view == "state":
        yield from _states(dialogue, history, labelled)
    else:
        yield from _responses(dialogue, history, labelled, database)


def _states(dialogue: Dialogue, history: int, labelled: bool) -> Iterator[Example]:
    for i, turn in enumerate(dialogue.turns):
        if turn.state is not None or not (labelled or turn.speaker == SYSTEM):
            text = join_turns(select_history(dialogue.turns[: i + 1], history))
            yield _example(
                dialogue, i, text, None if turn.state is None else format_state(turn.state)
            )


def _responses(
    dialogue: Dialogue, history: int, labelled: bool, database: EntityDatabase | None
) -> Iterator[Example]:
    """Yield the responses: the turns of the system, or without one every turn but the first."""
    turns = dialogue.turns
    has_system = any(turn.speaker == SYSTEM for turn in turns)
    for i, turn in enumerate(turns):
        if i and (turn.speaker == SYSTEM or not has_system):
            state = last_state(turns[:i])
            text = response_source(turns[:i], turn.speaker, history, state, database)
            response = (
                turn.text if database is None else database.delexicalise(turn.text, dict(state))
            )
            yield _example(dialogue, i, text, response)
    if not labelled and turns[-1].speaker != SYSTEM:
        speaker, state = next_speaker(turns), last_state(turns)
        text = response_source(turns, speaker, history, state, database)
        yield _example(dialogue, len(turns), text, None)


def _example(dialogue: Dialogue, turn: int, text: str, label: str | None) -> Example:
    name, group = f"{dialogue.id}-{turn}", f"{dialogue.file}:{dialogue.id}"
    return Example(text, label, name, dialogue.file, dialogue.line, group=group)


def response_source(
    turns: Sequence[Turn],
    speaker: str,
    history: int = 0,
    state: State = (),
    database: EntityDatabase | None = None,
) -> str:
    """Return what a model reads before the response of a speaker.

    With a database, the state comes first, and the number of entities that fit it.
    """
    text = join_turns(select_history(turns, history), speaker)
    if database is None:
        return text
    count = len(database.find(dict(state)))
    matches = str(count) if count < MANY_MATCHES else "many"
    return f"{mark_speaker(STATE)} {format_state(state)} {mark_speaker(MATCHES)} {matches} {text}"


def last_state(turns: Sequence[Turn]) -> State:
    """Return the last state of some turns; without one, an empty state."""
    return next((turn.state for turn in reversed(turns) if turn.state is not None), ())


def _state_updates(dialogue: Dialogue, labelled: bool, slots: Sequence[str]) -> Iterator[Example]:
    """Yield an example for each state: the state before and the turns since, and the new state."""
    turns, before, since = dialogue.turns, NO_STATE, 0
    for i, turn in enumerate(turns):
        if turn.state is None and (labelled or turn.speaker == SYSTEM):
            continue
        text = update_source(before, turns[since : i + 1])
        state = None if turn.state is None else format_state(turn.state, slots)
        yield _example(dialogue, i, text, state)
        before, since = format_state(turn.state) if turn.state is not None else before, i + 1


def update_source(before: str, turns: Sequence[Turn]) -> str:
    """Return what a model reads to update a state: the state before, and the turns since."""
    return f"{mark_speaker(STATE)} {before} {join_turns(turns)}"


def replace_state(text: str, state: str) -> str:
    """Return the text of a state update with another state before."""
    marker, turns = mark_speaker(STATE), text.partition(" [")[2]
    return f"{marker} {state} [{turns}"


def select_history(turns: Sequence[Turn], history: int) -> Sequence[Turn]:
    """Return the last `history` turns; 0: all."""
    return turns[-history:] if history else turns


def next_speaker(turns: Sequence[Turn]) -> str:
    """Return the next speaker: the last one other than the present, or the system."""
    last = turns[-1].speaker
    return next((turn.speaker for turn in reversed(turns) if turn.speaker != last), SYSTEM)


def mark_speaker(speaker: str) -> str:
    """Return the marker before the turns of a speaker."""
    return f"[{speaker}]"


def join_turns(turns: Sequence[Turn], next_speaker: str = "") -> str:
    """Return turns as one text, each behind its speaker's marker; the next speaker's ends it."""
    parts = [f"{mark_speaker(turn.speaker)} {turn.text}" for turn in turns]
    return " ".join([*parts, mark_speaker(next_speaker)] if next_speaker else parts)


def format_state(state: State, slots: Sequence[str] = ()) -> str:
    """Return a state as text: `area = south ; food = thai`; of `slots` it lacks, `= none`."""
    full = {**dict.fromkeys(slots, NO_STATE), **dict(state)}
    return " ; ".join(f"{slot} = {value}" for slot, value in sorted(full.items())) or NO_STATE


def parse_state(text: str) -> dict[str, str]:
    """Return the slots and values of a text that `format_state` could have written."""
    pairs = (part.split("=", 1) for part in text.split(";"))
    state = {pair[0].strip(): " ".join(pair[1].split()) for pair in pairs if len(pair) == 2}
    return {slot: value for slot, value in state.items() if slot and value not in ("", NO_STATE)}
