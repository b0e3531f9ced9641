"""A conversation with a model: its turns, its answers piece by piece, and its commands."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from weft.config import overrides
from weft.errors import UserError, escape_control, unknown_name
from weft.text.formats.dialogue.entities import EntityDatabase, SlotFiller
from weft.text.formats.dialogue.turns import State, Turn
from weft.text.formats.dialogue.views import (
    format_state,
    last_state,
    parse_state,
    response_source,
    update_source,
)
from weft.text.formats.records import SLOT_CLOSE, SLOT_OPEN

if TYPE_CHECKING:
    from weft.decode.search.settings import SearchSettings
    from weft.predict.generate import Generator, Token
    from weft.predict.predictor import Predictor

MAX_TURNS = 200  # that are kept
SAMPLING = ("temperature", "top_k", "top_p", "seed")  # settings that only sampling has
COMMANDS = "/undo, /reset, /set NAME VALUE, /settings, /state, /help, /quit"


class Conversation:
    """The turns of a conversation with a model, and how it answers."""

    def __init__(
        self,
        writer: "Generator",
        speakers: tuple[str, ...],
        tracker: "Predictor | None" = None,
    ) -> None:
        data = writer.predictor.config.get("data") or {}
        self.writer, self.speakers, self.tracker = writer, speakers, tracker
        self.database = writer.space.database
        _check_tracker(tracker, self.database)
        if data.get("dialogue") == "update":
            raise UserError(
                "This model tracks states and says nothing. Pass a file of dialogues to weft "
                "predict."
            )
        self.marked = bool(data.get("dialogue"))  # learned from dialogues, with speaker markers
        self.history = int(data.get("history") or 0)
        self.turns: list[Turn] = []
        usual = writer.search_settings({})
        # Beams know their words only at the end, which a conversation does not wait for.
        self.changes: dict[str, object] = {"method": "greedy"} if usual.method == "beam" else {}
        self.settings: SearchSettings = writer.search_settings(self.changes)

    def command(self, line: str) -> str:
        """Obey a line that begins with a slash, and return what to say about it."""
        name, *words = line.split()
        if name == "/undo":
            if not self.turns:
                raise UserError("There is nothing to undo.")
            own = self.speakers[0]
            last = max((i for i, turn in enumerate(self.turns) if turn.speaker == own), default=0)
            del self.turns[last:]
            return f"{len(self.turns)} turns left"
        if name == "/reset":
            self.turns.clear()
            return "0 turns left"
        if name == "/help":
            return COMMANDS
        if name == "/state":
            return self.describe_state()
        if name == "/settings":
            shown = ("method", "max_length", *SAMPLING, "repetition_penalty")
            return "; ".join(f"{one} {getattr(self.settings, one)}" for one in shown)
        if name == "/set" and len(words) == 2:
            return self.change(*words)
        if name == "/set":
            raise UserError("Write /set NAME VALUE, such as /set temperature 0.7.")
        raise UserError(f"{escape_control(name)[:40]}: no such command. There are {COMMANDS}.")

    def describe_state(self) -> str:
        """Return what the tracker has understood, and how many entities fit it."""
        if self.tracker is None or self.database is None:
            raise UserError("This conversation has no state: that needs --tracker.")
        state = last_state(self.turns)
        fit = len(self.database.find(dict(state)))
        return f"{format_state(state)} ({fit} of {len(self.database.entities)} entities fit)"

    def change(self, name: str, value: str) -> str:
        """Change a setting of the search, or raise a UserError and leave all as it was."""

        from weft.decode.search.settings import SearchSettings

        known = [field.name for field in fields(SearchSettings)]
        if name not in known:
            raise unknown_name("setting", name, known, "/set")
        changes = {**self.changes, **_parse(overrides([f"generate.{name}={value}"]))}
        if changes.get("method") == "beam":
            raise UserError("Beams cannot be streamed. /set method sample or greedy.")
        if name in SAMPLING:
            changes["method"] = "sample"
        self.settings = self.writer.search_settings(changes)
        self.changes = changes
        return f"{name} {getattr(self.settings, name)}"

    def answer(self, line: str) -> Iterator[str]:
        """Yield the answer to a line piece by piece; both are turns from then on."""

        mine = [*self.turns, Turn(self.speakers[0], " ".join(line.split()))]
        if self.tracker is not None:
            mine[-1] = replace(mine[-1], state=track_state(self.tracker, mine))
        tokens = self._fill(self._start(mine), mine)
        self.turns = mine
        pieces: list[str] = []
        try:
            for piece in cut_at_marker(tokens, self.speakers):
                pieces.append(piece)
                yield piece
        finally:
            if text := "".join(pieces).strip():
                self.turns.append(Turn(self.speakers[1], text))
            del self.turns[:-MAX_TURNS]

    def _start(self, turns: list[Turn]) -> Iterator[str]:
        """Return the tokens of an answer; turns that the model has no room for are forgotten."""
        kept = turns[-self.history :] if self.history else turns[-MAX_TURNS:]
        while True:
            tokens = self.writer.stream(self.prompt(kept), self.settings, first=len(turns))
            try:
                first = next(tokens, None)
            except UserError:
                if len(kept) == 1:
                    raise
                kept = kept[1:]
                continue
            return _texts(first, tokens)

    def _fill(self, pieces: Iterator[str], turns: list[Turn]) -> Iterator[str]:
        """Yield an answer with the values of entities that fit the state, if there is a database.

        The entity that was mentioned last comes first.
        """

        if self.database is None:
            yield from pieces
            return
        state = dict(last_state(turns))
        matches = self.database.find(state)
        for turn in reversed(turns):
            entity = self.database.find_mentioned(turn.text)
            if entity in matches:
                matches = [entity, *(one for one in matches if one is not entity)]
                break
        yield from fill_marks(pieces, SlotFiller(matches, state))

    def prompt(self, turns: list[Turn]) -> str:
        """Return what the model reads before its answer."""

        if self.marked:
            state = last_state(turns)
            return response_source(turns, self.speakers[1], 0, state, self.database)
        return " ".join(turn.text for turn in turns) if self.writer.continues else turns[-1].text


def _check_tracker(tracker: "Predictor | None", database: EntityDatabase | None) -> None:
    """Raise UserError unless a model with a database, and no other, has a tracker of states."""

    from weft.inference.track_states import tracks_states

    if tracker is None and database is not None:
        raise UserError(
            "This model answers from a database. Pass --tracker with a model that tracks states "
            "(data.dialogue = 'update')."
        )
    if tracker is not None and database is None:
        raise UserError("--tracker is for a model with a database, and this one has none.")
    if tracker is not None and not tracks_states(tracker.config):
        raise UserError("--tracker: this model does not update states (data.dialogue = 'update').")


def track_state(tracker: "Predictor", turns: Sequence[Turn]) -> State:
    """Return the state after some turns, of which the last has none yet."""

    since = max((i + 1 for i, turn in enumerate(turns) if turn.state is not None), default=0)
    (answer,) = tracker([update_source(format_state(last_state(turns)), turns[since:])])
    return tuple(parse_state(str(answer.value)).items())


def fill_marks(pieces: Iterator[str], filler: SlotFiller) -> Iterator[str]:
    """Yield a text with values in place of marks, which may come in several pieces."""

    held = ""
    for piece in pieces:
        held += piece
        if held.rfind(SLOT_OPEN) <= held.rfind(SLOT_CLOSE):
            yield filler.fill(held)
            held = ""
    if held:
        yield held


def _parse(settings: dict[str, object]) -> dict[str, object]:
    return {key.split(".", 1)[1]: value for key, value in settings.items()}


def _texts(first: "Token | None", tokens: "Iterator[Token]") -> Iterator[str]:
    """Yield the text of each token; the first has been taken already."""
    if first is not None:
        yield first.text
        yield from (token.text for token in tokens)


def cut_at_marker(pieces: Iterator[str], speakers: tuple[str, ...]) -> Iterator[str]:
    """Yield a text up to the marker of a next turn, which may come in several pieces."""
    marker = re.compile(r"\s*\[\s*(?:" + "|".join(map(re.escape, speakers)) + r")\s*\]")
    # What may be the beginning of a marker waits for the rest of it.
    begin = re.compile(r"\s*(?:\[[^\]]{0,50})?$")
    held, some = "", False
    for piece in pieces:
        held += piece
        if found := marker.search(held):
            held = held[: found.start()]
            break
        wait = begin.search(held)
        ready = held[: wait.start()] if wait else held
        held = held[len(ready) :]
        if ready:
            yield ready if some else ready.lstrip()
            some = some or bool(ready.strip())
    if rest := (held.rstrip() if some else held.strip()):
        yield rest
