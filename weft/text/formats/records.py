"""Records: slots with their values, as `slot[value], …` or as a JSON object, and as one text."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from weft import jsonio
from weft.errors import UserError, near_miss

Record = Mapping[str, str]  # slot -> value

SLOT_OPEN, SLOT_CLOSE = "⟨", "⟩"  # around the name of a slot, which so is one token
_FIELD = re.compile(r"\s*([^\[\],]+?)\s*\[([^\[\]]*)\]\s*(?:,|$)")


def parse_record(line: str, where: str = "record") -> dict[str, str]:
    """The slots and values of a line `slot[value], slot[value]`."""
    found: dict[str, str] = {}
    place = 0
    while place < len(line.rstrip()):
        match = _FIELD.match(line, place)
        if not match:
            raise UserError(
                f"{where}: expected slot[value], found '{line[place : place + 40].strip()}'. "
                "Write slot[value], slot[value], or a JSON object; of a table, name the columns "
                "that make the record: train with --set 'data.fields=[\"NAME\", …]'."
            )
        slot, value = match[1], match[2].strip()
        if slot in found:
            raise UserError(f"{where}: the slot '{slot}' comes twice.")
        if not value:
            raise UserError(f"{where}: the slot '{slot}' has no value; leave it out.")
        found[slot] = value
        place = match.end()
    return found


def read_record(text: str, where: str = "record") -> dict[str, str]:
    """The slots and values of a text in either form."""
    if not text.lstrip().startswith("{"):
        found = parse_record(text, where)
    else:
        try:
            value = jsonio.parse(text, where)
        except UserError as error:
            reason = str(error).partition("JSON: ")[2]
            raise UserError(f"{where}: the record is no JSON object: {reason}") from None
        found = record_from_object(value, where)
    if not found:
        raise UserError(f"{where}: a record without a slot. Write slot[value], or a JSON object.")
    for slot in found:
        if SLOT_OPEN in slot or SLOT_CLOSE in slot:
            raise UserError(
                f"{where}: the slot '{slot}' has {SLOT_OPEN} or {SLOT_CLOSE} in it. Rename it."
            )
    return found


def record_from_object(value: Mapping[str, Any], where: str = "record") -> dict[str, str]:
    """A JSON object as slots and values; one without a value is left out, a list is one value."""
    found = {}
    for slot, entry in value.items():
        if isinstance(entry, list) and all(isinstance(one, (str, int, float)) for one in entry):
            entry = ", ".join(map(str, entry))
        if isinstance(entry, (Mapping, list)):
            raise UserError(
                f"{where}: the slot '{slot}' holds {entry!r:.40}. Give it a text or a number."
            )
        if isinstance(entry, bool):
            entry = "yes" if entry else "no"
        if entry is not None and str(entry).strip():
            found[str(slot)] = " ".join(str(entry).split())
    return found


def check_slots(record: Iterable[str], slots: Collection[str], where: str) -> None:
    """A UserError for a slot that no training record had."""
    for slot in record:
        if slot not in slots:
            raise UserError(
                f"{where}: unknown slot '{slot}'.{near_miss(slot, slots)} "
                f"Known: {', '.join(sorted(slots))}. Rename it, or train with such records."
            )


def mark_slot(slot: str) -> str:
    """A slot's name as it stands in a text."""
    return f"{SLOT_OPEN}{slot}{SLOT_CLOSE}"


def linearise(record: Record, hidden: Collection[str] = ()) -> str:
    """A record as one text: each slot's mark, then its value; of `hidden` slots only the mark."""
    return " ".join(
        mark_slot(slot) if slot in hidden else f"{mark_slot(slot)} {value}"
        for slot, value in record.items()
    )


def delexicalise(text: str, record: Record, hidden: Collection[str]) -> str:
    """The text with marks in place of the values of some slots, the longest value first."""
    chosen = [(slot, record[slot]) for slot in hidden if slot in record]
    for slot, value in sorted(chosen, key=lambda one: -len(one[1])):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", mark_slot(slot), text)
    return text
