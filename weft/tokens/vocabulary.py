"""Strings to ids and back, where the position of a string is its id."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from weft import jsonio
from weft.errors import UserError, near_miss
from weft.storage import write_text

PAD, UNK, BOS, EOS = "<pad>", "<unk>", "<bos>", "<eos>"
CLS, SEP, MASK = "<cls>", "<sep>", "<mask>"
SPECIALS = (PAD, UNK, BOS, EOS, CLS, SEP, MASK)  # PAD is always id 0 and UNK id 1


class Vocabulary:
    """An ordered list of distinct strings, frozen once built."""

    def __init__(self, entries: Sequence[str]):
        self.entries = tuple(entries)
        self._ids = {entry: i for i, entry in enumerate(self.entries)}
        if len(self._ids) != len(self.entries):
            twice = next(entry for entry, n in Counter(self.entries).items() if n > 1)
            raise UserError(f"A vocabulary may not hold the same entry twice: '{twice}'.")

    @classmethod
    def count(
        cls,
        rows: Iterable[Iterable[str]],
        *,
        minimum: int = 1,
        size: int = 0,
        special: Sequence[str] = (PAD, UNK),
    ) -> "Vocabulary":
        """The entries of the rows, most frequent first, ties in alphabetical order."""
        counts: Counter[str] = Counter()
        for row in rows:
            counts.update(row)
        return cls(rank_entries(counts, minimum=minimum, size=size, special=special))

    def ids(self, row: Iterable[str]) -> list[int]:
        """Return the id of each string: UNK if unknown, or a UserError if there is no UNK."""
        unknown = self._ids.get(UNK)
        if unknown is not None:
            return [self._ids.get(entry, unknown) for entry in row]
        return [self.id(entry) for entry in row]

    def id(self, entry: str) -> int:
        """The id of one string; a UserError when it is not an entry."""
        if entry not in self._ids:
            hint = near_miss(entry, self.entries)
            raise UserError(f"'{entry}' is not among the {len(self)} known entries.{hint}")
        return self._ids[entry]

    def strings(self, ids: Iterable[int]) -> list[str]:
        """The entry of each id."""
        return [self.entries[i] for i in ids]

    def save(self, path: Path) -> None:
        """One JSON list."""
        write_text(path, json.dumps(self.entries, ensure_ascii=False, indent=0))

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what `save` wrote; a UserError that names the file when it cannot be read."""
        try:
            entries = jsonio.read(path)
        except OSError as error:
            raise UserError(f"{path}: cannot read the vocabulary: {error.strerror}.") from error
        except ValueError as error:
            raise UserError(f"{path}: not a vocabulary (a JSON list): {error}.") from error
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise UserError(f"{path}: not a vocabulary: expected a JSON list of strings.")
        return cls(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, entry: object) -> bool:
        return entry in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)


def rank_entries(
    counts: Counter[str], *, minimum: int = 1, size: int = 0, special: Sequence[str] = (PAD, UNK)
) -> list[str]:
    """Special entries, then the counted ones from frequent to rare; `size` 0 means all of them."""
    kept = [entry for entry, n in counts.items() if n >= minimum and entry not in special]
    kept.sort(key=lambda entry: (-counts[entry], entry))
    entries = [*special, *kept]
    return entries[:size] if size else entries
