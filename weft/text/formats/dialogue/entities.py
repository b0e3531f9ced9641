"""A database of entities for task-oriented dialogue: rows of attributes, such as restaurants.

It counts the entities that fit a state, finds their values in a text, and fills them in.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from weft import jsonio
from weft.errors import UserError
from weft.text.formats.records import SLOT_CLOSE, SLOT_OPEN, mark_slot
from weft.text.line_source import BadRows, LineSource
from weft.untrusted import has_surrogate

ANY_VALUE = "dontcare"  # a slot with this value fits every entity
MAX_ENTITIES = 100_000
MAX_CHARACTERS = 1 << 26  # of a file of entities
MAX_VALUE_CHARACTERS = 500
_WORD = re.compile(r"\w+")
_MARK = re.compile(rf"{SLOT_OPEN}([^{SLOT_CLOSE}]*){SLOT_CLOSE}")

Entity = Mapping[str, str]  # attribute -> value


@dataclass(frozen=True)
class EntityDatabase:
    """Entities in the order of their file.

    Values are compared without case, spaces and punctuation: "C.B 2, 1 A.B" is "cb21ab".
    """

    entities: tuple[Entity, ...]

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The attributes whose values differ: one with the same value everywhere says nothing."""
        names = dict.fromkeys(name for entity in self.entities for name in entity)
        alone = len(self.entities) == 1
        return tuple(
            name
            for name in names
            if alone or len({entity.get(name) for entity in self.entities}) > 1
        )

    @property
    def marks(self) -> tuple[str, ...]:
        """The mark of each slot, as it stands in a delexicalised text."""
        return tuple(map(mark_slot, self.slots))

    def find(self, state: Mapping[str, str]) -> list[Entity]:
        """Return the entities with the values of a state; slots that none has do not count."""
        wanted = {
            slot: _fold(value)
            for slot, value in state.items()
            if slot in self.slots and value != ANY_VALUE
        }
        return [
            entity
            for entity in self.entities
            if all(_fold(entity.get(slot, "")) == value for slot, value in wanted.items())
        ]

    def delexicalise(self, text: str, state: Mapping[str, str] | None = None) -> str:
        """Replace values of the database and of a state by the marks of their slots.

        The longest value wins; of slots with the same value, one that the state has, else the
        first.
        """
        extra = {
            _fold(value): slot
            for slot, value in (state or {}).items()
            if slot in self.slots and value != ANY_VALUE
        }
        parts, end = [], 0
        for first, length, slot in self._locate(text, extra):
            parts += [text[end:first], mark_slot(slot)]
            end = first + length
        return "".join([*parts, text[end:]])

    def find_mentioned(self, text: str) -> Entity | None:
        """Return the entity of the last value in a text that no other entity has, if any."""
        found = None
        for first, length, _ in self._locate(text, {}):
            folded = _fold(text[first : first + length])
            owners = self._owners.get(folded, ())
            found = self.entities[owners[0]] if len(owners) == 1 else found
        return found

    def to_json(self) -> list[dict[str, str]]:
        """Return the entities as JSON values."""
        return [dict(entity) for entity in self.entities]

    @cached_property
    def _lexicon(self) -> dict[str, str]:
        """The slot of each value."""
        found: dict[str, str] = {}
        for slot in self.slots:
            for entity in self.entities:
                if folded := _fold(entity.get(slot, "")):
                    found.setdefault(folded, slot)
        return found

    @cached_property
    def _owners(self) -> dict[str, list[int]]:
        """The entities that have each value."""
        found: dict[str, list[int]] = {}
        for i, entity in enumerate(self.entities):
            for value in {_fold(entity.get(slot, "")) for slot in self.slots} - {""}:
                found.setdefault(value, []).append(i)
        return found

    @cached_property
    def _longest(self) -> dict[str, int]:
        """Characters of the longest folded value that begins with each character."""
        longest: dict[str, int] = {}
        for value in self._lexicon:
            longest[value[0]] = max(len(value), longest.get(value[0], 0))
        return longest

    def _locate(self, text: str, extra: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
        """Yield offset, length and slot of the values in a text; `extra` has more, folded."""
        words = list(_WORD.finditer(text))
        i = 0
        while i < len(words):
            slot, count = self._match(words, i, extra)
            if count:
                first = words[i].start()
                yield first, words[i + count - 1].end() - first, slot
            i += count or 1

    def _match(
        self, words: Sequence[re.Match[str]], first: int, extra: Mapping[str, str]
    ) -> tuple[str, int]:
        """Return the slot and the number of words of the longest value that begins at a word."""
        folded, best = "", ("", 0)
        initial = words[first][0][0].lower()
        limit = max([self._longest.get(initial, 0), *map(len, extra)])
        for count, word in enumerate(words[first:], 1):
            folded += word[0].lower()
            if len(folded) > limit:
                break
            slot = extra.get(folded) or self._lexicon.get(folded)
            if slot is not None:
                best = slot, count
        return best


class SlotFiller:
    """Writes values in place of marks: those of the first entity, or else of the state.

    A mark that is repeated gets the next different value of the entities.
    """

    def __init__(self, entities: Sequence[Entity], state: Mapping[str, str]) -> None:
        self.entities, self.state = entities, state
        self.used: dict[str, list[str]] = {}

    def fill(self, text: str) -> str:
        """Return a text with values, or `(no phone)` where there is none."""
        return _MARK.sub(self._value, text)

    def _value(self, mark: re.Match[str]) -> str:
        used = self.used.setdefault(mark[1], [])
        values = dict.fromkeys(one[mark[1]] for one in self.entities if mark[1] in one)
        fallback = used[-1] if used else self.state.get(mark[1], ANY_VALUE)
        value = next((one for one in values if one not in used), fallback)
        used.append(value)
        return f"(no {mark[1]})" if value == ANY_VALUE else value


def read_entities(path: str | os.PathLike[str]) -> EntityDatabase:
    """Read a JSON list of objects, or one object a line; lines that begin with # are skipped."""
    source, texts, size = LineSource(os.fspath(path)), [], 0
    name = source.name
    for number, line in source.lines(BadRows(name, "error", None)):
        size += len(line)
        if size > MAX_CHARACTERS:
            raise UserError(f"{name}: more than {MAX_CHARACTERS:,} characters of entities.")
        if line.strip() and not line.startswith("#"):
            texts.append((number, line))
    if not texts:
        raise UserError(f"{name}: no entities. Give a JSON list of objects with attributes.")
    if texts[0][1].lstrip().startswith("["):
        return parse_entities(jsonio.parse("\n".join(t for _, t in texts), name, texts[0][0]), name)
    return parse_entities([jsonio.parse(text, name, number) for number, text in texts], name)


def parse_entities(rows: Any, where: str) -> EntityDatabase:
    """Return parsed JSON as a database, or raise a UserError that names the entity."""
    if not isinstance(rows, list) or not rows:
        raise UserError(f"{where}: expected a list of entities, found {rows!r:.40}.")
    if len(rows) > MAX_ENTITIES:
        raise UserError(f"{where}: {len(rows):,} entities; at most {MAX_ENTITIES:,} are read.")
    return EntityDatabase(
        tuple(_parse_entity(row, f"{where}: entity {i}") for i, row in enumerate(rows, 1))
    )


def _parse_entity(row: Any, where: str) -> dict[str, str]:
    if not isinstance(row, dict) or not row:
        raise UserError(f"{where} should be an object with attributes, found {row!r:.40}.")
    for slot, value in row.items():
        if not isinstance(value, str) or len(value) > MAX_VALUE_CHARACTERS:
            raise UserError(
                f"{where}: {slot!r:.40} should be a text of at most {MAX_VALUE_CHARACTERS} "
                f"characters, found {value!r:.40}."
            )
        if not slot.strip() or has_surrogate(slot + value) or set("⟨⟩\n") & set(slot + value):
            raise UserError(f"{where}: {slot!r:.40}, {value!r:.40}: not a plain line of text.")
    return {slot: " ".join(value.split()) for slot, value in row.items() if value.strip()}


def _fold(value: str) -> str:
    return "".join(_WORD.findall(value.lower()))
