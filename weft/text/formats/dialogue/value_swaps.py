"""Augment dialogues: copies in which the values of slots are exchanged for others.

A tracker that sees many values in each place copies a value that it has never seen.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from weft import jsonio
from weft.errors import UserError, near_miss
from weft.text.formats.dialogue.entities import ANY_VALUE, EntityDatabase
from weft.text.formats.dialogue.turns import Dialogue, State
from weft.untrusted import has_surrogate

Synonyms = Mapping[str, Sequence[str]]  # value -> other spellings
Ontology = Mapping[str, Sequence[str]]  # slot -> the values it may have
NO_SYNONYMS: Synonyms = {}
NO_ONTOLOGY: Ontology = {}
SEED = 0  # of the values that are drawn, the same in every reading


@dataclass(frozen=True)
class Augmentation:
    """Copies of dialogues: slots with other values, and values in other spellings."""

    slots: tuple[str, ...]
    synonyms: Synonyms
    ontology: Ontology = field(default_factory=dict)

    def augment(
        self, dialogues: Sequence[Dialogue], database: EntityDatabase | None, name: str = "input"
    ) -> Iterator[Dialogue]:
        """Yield the dialogues, and then a copy of each.

        The values are those of all states, of the database and of the ontology. A value is
        exchanged in every turn and state of a dialogue; different values stay different.
        """
        values = collect_values(dialogues, database, self.ontology)
        for slot in self.slots:
            if slot not in values:
                setting = "ontology" if slot in self.ontology else "swap_values"
                raise UserError(
                    f"{name}: data.{setting}: no state has the slot '{slot}'."
                    f"{near_miss(slot, values)} Known: {', '.join(sorted(values)) or 'none'}."
                )
        yield from dialogues
        draw = np.random.default_rng(SEED)
        for dialogue in dialogues:
            pools = {slot: values[slot] for slot in self.slots}
            yield swap_values(dialogue, pools, draw, self.synonyms)


def collect_values(
    dialogues: Sequence[Dialogue],
    database: EntityDatabase | None = None,
    ontology: Ontology = NO_ONTOLOGY,
) -> dict[str, tuple[str, ...]]:
    """Return the values of each slot in states, a database and an ontology; in order."""
    found: dict[str, set[str]] = {}
    for dialogue in dialogues:
        for turn in dialogue.turns:
            for slot, value in turn.state or ():
                if value != ANY_VALUE:
                    found.setdefault(slot, set()).add(value)
    for entity in database.entities if database is not None else ():
        for slot in found.keys() & entity.keys():
            found[slot].add(entity[slot])
    for slot in found.keys() & ontology.keys():
        found[slot].update(ontology[slot])
    return {slot: tuple(sorted(values)) for slot, values in found.items()}


def swap_values(
    dialogue: Dialogue,
    values: Mapping[str, Sequence[str]],
    draw: np.random.Generator,
    synonyms: Synonyms = NO_SYNONYMS,
) -> Dialogue:
    """Return a dialogue with other values of these slots, drawn without replacement.

    In the text, every value of a state is written as itself or as one of its synonyms.
    """
    present = sorted({pair for turn in dialogue.turns for pair in turn.state or ()})
    swaps: dict[tuple[str, str], str] = {}
    for slot, pool in values.items():
        old = [value for own, value in present if own == slot and value in pool]
        drawn = draw.choice(len(pool), len(old), replace=False)
        swaps |= {(slot, value): pool[i] for value, i in zip(old, drawn, strict=True)}
    texts: dict[str, str] = {}
    for pair in present:
        new = swaps.get(pair, pair[1])
        if pair[1] != ANY_VALUE:
            spellings = (new, *synonyms.get(new, ()))
            texts[pair[1].lower()] = spellings[draw.integers(len(spellings))]
    if not texts:
        return dialogue
    longest_first = sorted(texts, key=len, reverse=True)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.I)

    def swap_state(state: State) -> State:
        return tuple((slot, swaps.get((slot, value), value)) for slot, value in state)

    turns = [
        replace(
            turn,
            text=pattern.sub(lambda match: texts[match[0].lower()], turn.text),
            state=None if turn.state is None else swap_state(turn.state),
        )
        for turn in dialogue.turns
    ]
    return replace(dialogue, turns=tuple(turns), constraints=swap_state(dialogue.constraints))


def read_synonyms(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read a JSON object of values, each with the list of its other spellings."""
    return _read_lists(path, "values and synonyms", 'other spellings, such as "centre": ["center"]')


def read_ontology(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read a JSON object of slots, each with the list of its values."""
    return _read_lists(path, "slots and values", 'values, such as "area": ["north", "south"]')


def _read_lists(path: str | Path, contents: str, listed: str) -> dict[str, tuple[str, ...]]:
    saved = jsonio.read(path)
    if not isinstance(saved, dict):
        raise UserError(f"{path}: expected an object of {contents}, found {saved!r:.40}.")
    for key, values in saved.items():
        texts = [key, *values] if isinstance(values, list) else [None]
        if not all(isinstance(t, str) and t.strip() and not has_surrogate(t) for t in texts):
            raise UserError(
                f"{path}: {key!r:.40} should have a list of {listed}; found {values!r:.40}."
            )
    return {key: tuple(values) for key, values in saved.items()}
