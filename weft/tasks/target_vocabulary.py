"""The output vocabulary of generated text: tokens, copied words, values of a record."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.protocols import LabelSpace, Saved
from weft.text.formats.dialogue.entities import EntityDatabase, parse_entities
from weft.text.formats.records import SLOT_CLOSE, SLOT_OPEN, mark_slot
from weft.tokens.vocabulary import BOS, EOS

if TYPE_CHECKING:
    from weft.tokens.tokenizer import Tokenizer

_MARK = re.compile(rf"{SLOT_OPEN}[^{SLOT_CLOSE}]*{SLOT_CLOSE}")


@dataclass(frozen=True)
class TargetVocabulary(LabelSpace):
    """The tokenizer of the target or of both sides, and what else may be generated."""

    tokenizer: "Tokenizer" = field()
    shared: bool = False
    copies: bool = False  # words of the source that are not in the vocabulary
    slots: tuple[str, ...] = ()  # of the training records
    hidden: tuple[str, ...] = ()  # slots whose values are written back afterwards
    database: EntityDatabase | None = None  # of entities whose values stand in no text

    @property
    def width(self) -> int:
        """The one column of a target: token ids."""
        return 1

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """The vocabulary size, and the ids that begin and end a text.

        A tokenizer of whole words has none of its own for that; those come after its words.
        """
        known = {token: i for i, token in enumerate(self.tokenizer.vocabulary)}
        size, ends = len(known), []
        for token in (BOS, EOS):
            ends.append(known.get(token, size))
            size += token not in known
        return size, ends[0], ends[1]

    def encode(self, text: str, source: str = "") -> np.ndarray:
        """(T,) the ids of an answer and of its end; words of the source may be copied."""
        if not self.copies:
            (ids,) = self.tokenizer.encode_ids([text])
        else:
            beyond = self.size[0]
            ((_, oov_words),) = self.tokenizer.encode_with_oov([source], beyond)
            ((tokens, _),) = self.tokenizer.encode_with_oov([text], beyond, [oov_words])
            ids = tokens.ids
        return np.append(ids, self.size[2]).astype(np.int64)

    def text(
        self, ids: np.ndarray, copied: Sequence[str] = (), fields: Sequence[tuple[str, str]] = ()
    ) -> str:
        """The text of some ids, up to the one that ends it.

        `copied` are the source's OOV words, `fields` the record whose values are written back.
        """
        kept, last = ids.ravel().tolist(), self.size[2]
        kept = kept[: kept.index(last)] if last in kept else kept
        size, others = len(self.tokenizer), self.oov_words(copied, fields)
        return self.tokenizer.decode((i for i in kept if i < size or i in others), others).strip()

    def oov_words(
        self, copied: Sequence[str] = (), fields: Sequence[tuple[str, str]] = ()
    ) -> dict[int, str]:
        """Return the words of ids that exist for one source only: OOV words and slot values."""
        others = {self.size[0] + i: word for i, word in enumerate(copied)}
        space = self.tokenizer.space  # a value is a word of its own
        others |= {i: space + mark for mark, i in self._entity_marks.items()}
        return others | {self._marks[s]: space + v for s, v in fields if s in self._marks}

    def token_text(self, token: int, copied: Sequence[str] = ()) -> str:
        """One token as it stands in a text; where sub-words mark spaces, with its space."""
        beyond, entries = self.size[0], self.tokenizer.vocabulary
        if token >= beyond:
            return copied[token - beyond] if token - beyond < len(copied) else ""
        if token >= len(entries):
            return EOS if token == self.size[2] else BOS
        return entries[token].replace(self.tokenizer.space or "\0", " ")

    @cached_property
    def _entity_marks(self) -> dict[str, int]:
        marks = () if self.database is None else self.database.marks
        known = {token: i for i, token in enumerate(self.tokenizer.vocabulary)} if marks else {}
        return {mark: known[mark] for mark in marks if mark in known}

    @cached_property
    def _marks(self) -> dict[str, int]:
        known = {token: i for i, token in enumerate(self.tokenizer.vocabulary)}
        return {slot: known[mark_slot(slot)] for slot in self.hidden if mark_slot(slot) in known}

    @staticmethod
    def without_marks(text: str) -> str:
        """A text without the marks of slots, which a tokenizer should not learn to cut."""
        return _MARK.sub(" ", text) if SLOT_OPEN in text else text

    def to_json(self) -> JsonObject:
        return {
            "tokenizer": json.loads(self.tokenizer.to_json()), "shared": self.shared,
            "copies": self.copies, "slots": list(self.slots), "hidden": list(self.hidden),
            "database": None if self.database is None else self.database.to_json(),
        }  # fmt: skip

    def with_database(self, database: EntityDatabase) -> "TargetVocabulary":
        """Return the vocabulary with the marks of a database's slots as words of their own."""
        tokenizer = self.tokenizer.with_words(database.marks)
        return replace(self, tokenizer=tokenizer, database=database)

    @classmethod
    def from_json(cls, saved: Saved) -> "TargetVocabulary":
        """Restore what `to_json` wrote."""
        from weft.tokens.tokenizer import Tokenizer

        try:
            text = json.dumps(saved["tokenizer"], ensure_ascii=False)
            entities = saved.get("database")
            return cls(
                Tokenizer.from_json(text), bool(saved["shared"]), bool(saved["copies"]),
                tuple(saved["slots"]), tuple(saved["hidden"]),
                None if entities is None else parse_entities(entities, "database"),
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            raise UserError(f"The target's words are damaged: {error!r}. Train again.") from error
