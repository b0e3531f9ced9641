"""Parse records of slots and values, `slot[value], …` or JSON objects, and linearise them."""

import re
from collections.abc import Collection, Iterable, Mapping

from weft import jsonio
from weft.errors import UserError, near_miss
from weft.jsonio import Json

Record = Mapping[str, str]  # slot -> value

SLOT_OPEN, SLOT_CLOSE = "⟨", "⟩"  # around a slot name, which makes it one token
_FIELD = re.compile(r"\s*([^\[\],]+?)\s*\[([^\[\]]*)\]\s*(?:,|$)")


def parse_record(line: str, where: str = "record") -> dict[str, str]:
    """Parse a line `slot[value], slot[value]`."""
    record: dict[str, str] = {}
    position = 0
    while position < len(line.rstrip()):
        match = _FIELD.match(line, position)
        if not match:
            raise UserError(
                f"{where}: expected slot[value], found '{line[position : position + 40].strip()}'. "
                "Write slot[value], slot[value], or a JSON object; for a table, name the record's "
                "columns: train with --set 'data.fields=[\"NAME\", …]'."
            )
        slot, value = match[1], match[2].strip()
        if slot in record:
            raise UserError(f"{where}: slot '{slot}' is repeated.")
        if not value:
            raise UserError(f"{where}: slot '{slot}' has no value; remove it.")
        record[slot] = value
        position = match.end()
    return record


def read_record(text: str, where: str = "record") -> dict[str, str]:
    """Parse a record in either form."""
    if not text.lstrip().startswith("{"):
        record = parse_record(text, where)
    else:
        try:
            value = jsonio.parse(text, where)
        except UserError as error:
            reason = str(error).partition("JSON: ")[2]
            raise UserError(f"{where}: the record is not a JSON object: {reason}") from None
        record = record_from_object(value, where)
    if not record:
        raise UserError(f"{where}: a record without slots. Write slot[value], or a JSON object.")
    for slot in record:
        if SLOT_OPEN in slot or SLOT_CLOSE in slot:
            raise UserError(
                f"{where}: slot '{slot}' contains {SLOT_OPEN} or {SLOT_CLOSE}. Rename it."
            )
    return record


def record_from_object(value: Mapping[str, Json], where: str = "record") -> dict[str, str]:
    """Convert a JSON object to slots and values; empty slots are dropped, a list is one value."""
    record = {}
    for slot, entry in value.items():
        if isinstance(entry, list) and all(isinstance(item, (str, int, float)) for item in entry):
            entry = ", ".join(map(str, entry))
        if isinstance(entry, (Mapping, list)):
            raise UserError(f"{where}: slot '{slot}' holds {entry!r:.40}. Use a text or a number.")
        if isinstance(entry, bool):
            entry = "yes" if entry else "no"
        if entry is not None and str(entry).strip():
            record[str(slot)] = " ".join(str(entry).split())
    return record


def check_slots(record: Iterable[str], slots: Collection[str], where: str) -> None:
    """Raise a UserError for a slot that no training record had."""
    for slot in record:
        if slot not in slots:
            raise UserError(
                f"{where}: unknown slot '{slot}'.{near_miss(slot, slots)} "
                f"Known: {', '.join(sorted(slots))}. Rename it, or train with such records."
            )


def mark_slot(slot: str) -> str:
    """Return a slot name as it appears in a text."""
    return f"{SLOT_OPEN}{slot}{SLOT_CLOSE}"


def linearise(record: Record, hidden: Collection[str] = ()) -> str:
    """Linearise a record: each slot's mark and value; for `hidden` slots only the mark."""
    return " ".join(
        mark_slot(slot) if slot in hidden else f"{mark_slot(slot)} {value}"
        for slot, value in record.items()
    )


def delexicalise(text: str, record: Record, hidden: Collection[str]) -> str:
    """Replace the values of `hidden` slots by their marks, the longest value first."""
    chosen = [(slot, record[slot]) for slot in hidden if slot in record]
    for slot, value in sorted(chosen, key=lambda pair: -len(pair[1])):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", mark_slot(slot), text)
    return text
