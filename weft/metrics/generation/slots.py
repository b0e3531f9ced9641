"""Slots of a record that a text omits, invents or gets wrong, found by string rules."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from weft.errors import UserError
from weft.metrics.bootstrap import safe_divide
from weft.metrics.per_sentence import SentenceMetric, mean_of_column
from weft.metrics.sentence_counts import Statistic
from weft.text.formats.records import Record
from weft.text.formats.records import parse_record as parse_record


@dataclass(frozen=True)
class SlotRules:
    """Rules that find slot values in a text, as data.

    `phrases`: of a slot with few values, the regular expressions that say each one, as whole words
    and in any case; what one phrase has taken is not there for the phrases and values after it.
    `names`: of a slot with open values, those that are known, looked for as they are written.
    `alike`: of a slot, groups of values that may stand beside each other without contradiction.
    `harmless`: of a slot, values that a text may say though the record does not.
    """

    phrases: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    alike: Mapping[str, Sequence[frozenset[str]]] = field(default_factory=dict)
    harmless: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def with_names(self, records: Iterable[Record]) -> "SlotRules":
        """The same rules, knowing the values in these records of the slots without phrases."""
        names = {slot: set(values) for slot, values in self.names.items()}
        for record in records:
            for slot, value in record.items():
                if slot not in self.phrases:
                    names.setdefault(slot, set()).add(value)
        frozen = {slot: frozenset(values) for slot, values in names.items()}
        return SlotRules(self.phrases, frozen, self.alike, self.harmless)

    def find_values(self, text: str, record: Record) -> dict[str, set[str]]:
        """The values of each slot that the text says.

        Names go first and are taken out of the text, so that an Indian Palace says nothing about
        the food. A name that two slots know belongs to the one whose value it is in the record.
        """
        assert all(record.values()), "an empty value cannot be looked for"
        text = fold_text(text)
        known_values = set(record.values()).union(*self.names.values())
        mentioned = set()
        for name in sorted(known_values - self._phrase_values(record), key=len, reverse=True):
            text, times = _verbatim(name).subn(" | ", text)
            if times:
                mentioned.add(name)
        values_by_slot: dict[str, set[str]] = {}
        for slot in {*record, *self.names} - self.phrases.keys():
            others = {value for other, value in record.items() if other != slot}
            slot_values = {*self.names.get(slot, ()), *([record[slot]] if slot in record else [])}
            values_by_slot[slot] = mentioned & slot_values - (others - {record.get(slot)})
        for slot, values in self._compiled.items():
            rest, values_by_slot[slot] = text, set()
            for value, patterns in values.items():
                for pattern in patterns:
                    rest, times = pattern.subn(" | ", rest)
                    if times:
                        values_by_slot[slot].add(value)
        return values_by_slot

    @cached_property
    def _compiled(self) -> dict[str, dict[str, list[re.Pattern[str]]]]:
        return {
            slot: {
                value: [re.compile(rf"(?<!\w)(?:{phrase})(?!\w)") for phrase in phrases]
                for value, phrases in values.items()
            }
            for slot, values in self.phrases.items()
        }

    def _phrase_values(self, record: Record) -> set[str]:
        """Values of the record that phrases look for."""
        open_values = {value for slot, value in record.items() if slot not in self.phrases}
        return {value for slot, value in record.items() if slot in self.phrases} - open_values


class SlotErrors(SentenceMetric):
    """Slots that a text gets wrong, over the slots of the records: `slot_error`.

    A slot is `missing` if the text says none of its values, `wrong` if it says only others, and
    `added` if the record does not have it or the text says a contradicting value besides. Each
    is a share of the records' slots; `faultless` is the share of texts without any. The rules
    read strings, not meaning: measure the references too, whose errors are the floor.
    """

    def __init__(self, rules: SlotRules) -> None:
        super().__init__(5, rules)
        self.rules = rules

    def add(self, predicted: Sequence[str], gold: Sequence[Record]) -> None:
        """Count texts, each with the record that it should say."""
        for text, record in zip(predicted, gold, strict=True):
            missing, wrong, added = map(len, self.errors(text, record))
            self.add_row([len(record), missing, wrong, added, not (missing or wrong or added)])

    def errors(self, text: str, record: Record) -> tuple[list[str], list[str], list[str]]:
        """The slots that are missing, wrong and added in one text."""
        for slot, value in record.items():
            if slot in self.rules.phrases and value not in self.rules.phrases[slot]:
                known = ", ".join(sorted(self.rules.phrases[slot]))
                raise UserError(f"No rule for value '{value}' of slot '{slot}'. Known: {known}.")
        missing: list[str] = []
        wrong: list[str] = []
        added: list[str] = []
        for slot, found in sorted(self.rules.find_values(text, record).items()):
            extra = found - self.rules.harmless.get(slot, frozenset())
            if slot not in record:
                added += [slot] if extra else []
            elif record[slot] not in found:
                (wrong if extra else missing).append(slot)
            else:
                alike = (group for group in self.rules.alike.get(slot, ()) if record[slot] in group)
                added += [slot] if extra - {record[slot]}.union(*alike) else []
        return missing, wrong, added

    def statistics(self) -> Mapping[str, Statistic]:
        return {
            "slot_error": lambda sums: safe_divide(sums[:, 1:4].sum(1), sums[:, 0]),
            "missing": lambda sums: safe_divide(sums[:, 1], sums[:, 0]),
            "wrong": lambda sums: safe_divide(sums[:, 2], sums[:, 0]),
            "added": lambda sums: safe_divide(sums[:, 3], sums[:, 0]),
            "faultless": mean_of_column(4),
        }


def fold_text(text: str) -> str:
    """Lower case without accents, one space between words."""
    plain = unicodedata.normalize("NFKD", text.lower().replace("’", "'"))
    return " ".join("".join(c for c in plain if not unicodedata.combining(c)).split())


@lru_cache(maxsize=1 << 12)
def _verbatim(name: str) -> re.Pattern[str]:
    """A name as it is written, its leading article left out or not."""
    words = fold_text(name).removeprefix("the ").replace("-", " ").split()
    return re.compile(rf"(?<!\w)(?:the )?{'[ -]'.join(map(re.escape, words))}(?!\w)")
