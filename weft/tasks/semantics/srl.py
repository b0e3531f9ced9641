"""Semantic role labelling: the predicates of a sentence, their senses, and who does what to whom.

T words   L lines of a table, as in decode/heads/roles.py
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.errors import UserError
from weft.jsonio import JsonObject
from weft.metrics.structure.roles import RolePrediction, RoleScores
from weft.protocols import LabelSpace, Saved
from weft.registry import register
from weft.tasks.annotation import Annotation, Decoded
from weft.tasks.task import Answer, StructuredTask
from weft.text.annotation.frames import Frames, Predicate
from weft.text.annotation.schemes import Span
from weft.text.annotation.senses import SenseInventory
from weft.text.example import Example, SkipCounter

VERB = "V"  # the role of the predicate itself
EMPTY_CELL = -1  # of lines behind the last one
NO_SPAN = -1  # start of a line that is a predicate
EXTRA = 3  # a predicate that was found in a sentence whose predicates are given
FOUND_STATUS = (0, 2, EXTRA)  # found by the model, whether given or not
GIVEN_STATUS = (0, 1, 2)  # what is answered: given, or found where none are given
WIDTH = 4


@dataclass(frozen=True)
class RoleSpace(LabelSpace):
    """The roles, and the senses of predicates."""

    roles: tuple[str, ...]
    inventory: SenseInventory

    @property
    def entries(self) -> tuple[tuple[str, ...], ...]:  # type: ignore[override]  # read only
        return (self.roles, self.inventory.senses)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]  # read only
        return ("role", "sense")

    @property
    def size(self) -> tuple[tuple[tuple[str, ...], str], ...]:
        """The roles, the senses, and the forms of words with their lemmas."""
        forms = tuple("\t".join(entry) for entry in self.inventory.forms)
        return ((self.roles, ""), (self.inventory.senses, ""), (forms, ""))

    @property
    def width(self) -> int:
        return WIDTH

    @cached_property
    def role_numbers(self) -> dict[str, int]:
        return {role: number for number, role in enumerate(self.roles)}

    @cached_property
    def sense_numbers(self) -> dict[str, int]:
        return {sense: number for number, sense in enumerate(self.inventory.senses)}

    def to_json(self) -> JsonObject:
        return {
            "roles": list(self.roles),
            "senses": list(self.inventory.senses),
            "forms": [list(entry) for entry in self.inventory.forms],
        }

    @classmethod
    def from_json(cls, saved: Saved) -> "RoleSpace":
        """Restore what `to_json` wrote, or raise a UserError if it is damaged."""
        try:
            roles, senses = (_strings(saved[name]) for name in ("roles", "senses"))
            forms = tuple(map(_strings, saved["forms"]))
        except (KeyError, TypeError) as error:
            raise UserError(f"The saved roles are damaged: {error!r}. Train again.") from error
        if VERB not in roles or not senses or not all(map(len, forms)):
            raise UserError(
                "The saved roles are damaged: no role V, no sense, or an empty form. Train again."
            )
        return cls(roles, SenseInventory(senses, forms))


@register("task", "srl")
class SemanticRoles(StructuredTask[RoleSpace]):
    """The predicates of a sentence with their senses and the roles of their arguments.

    Files have a column of rolesets, then a column of brackets for each predicate: PropBank,
    CoNLL-2005, CoNLL-2012. Where a file has predicates, roles are labelled for those; in plain
    text, the model finds them.
    """

    head = "role-crf"
    metric = "f1"
    has_references = True
    can_average = False
    file_format = "roles"

    def prepare(self, example: Example, tally: SkipCounter) -> Example:
        """Return the example; count roles that cannot be learned."""
        for predicate in frames_of(example).predicates:
            if len(_disjoint_roles(predicate)) < len(predicate.roles):
                tally.add("predicates with overlapping roles, learned in part", example.where)
        return example

    def space(self, examples: Iterable[Example]) -> RoleSpace:
        """Learn the roles, and the senses of each word."""
        roles: set[str] = set()
        where = "input"

        def read_predicates() -> Iterator[tuple[str, str]]:
            nonlocal where
            for example in examples:
                where = example.file or where
                for one in frames_of(example).predicates:
                    roles.update(role.label for role in one.roles)
                    yield example.words[one.word], one.sense

        inventory = SenseInventory.learn(read_predicates())
        if not inventory.senses:
            raise UserError(
                f"{where}: no sentence has a predicate. Give a column of rolesets, then one role "
                "column per predicate."
            )
        if not roles - {VERB}:
            raise UserError(f"{where}: no predicate has an argument; there are no roles to learn.")
        return RoleSpace(tuple(sorted(roles | {VERB})), inventory)

    def load_space(self, saved: Saved) -> RoleSpace:
        return RoleSpace.from_json(saved)

    def target(self, example: Example, space: RoleSpace) -> np.ndarray:
        """Return (L, 4), at least a line per word: predicates and their roles.

        Roles and senses that training never saw are left out.
        """
        lines: list[tuple[int, int, int, int]] = []
        for one in frames_of(example).predicates:
            sense = space.sense_numbers.get(one.sense, -1)
            lines.append((one.word, sense, NO_SPAN, NO_SPAN))
            lines += (
                (one.word, space.role_numbers[label], start, end)
                for label, start, end in _disjoint_roles(one)
                if label in space.role_numbers
            )
        out = np.full((max(len(lines), len(example.words)), WIDTH), EMPTY_CELL, np.int64)
        if lines:
            out[: len(lines)] = lines
        return out

    def find_reference(self, example: Example) -> Frames:
        return frames_of(example)

    def missing_label_error(self, example: Example) -> UserError:
        return UserError(
            f"{example.where}: no semantic roles. Give a column of rolesets, then one role column "
            "per predicate."
        )

    def answers(self, scores: Sequence[Decoded], space: RoleSpace) -> list[Answer]:
        """Return each predicate with its sense and its arguments, with character offsets."""
        return [self._answer(decoded, space) for decoded in scores]

    def _answer(self, decoded: Decoded, space: RoleSpace) -> Answer:
        read = [one for one in _read_table(decoded, space) if one[1] in GIVEN_STATUS]
        frames = Frames(tuple(one for one, _, _ in read))
        probs = [prob for _, _, own in read for prob in own]
        structure = annotate_frames(frames, decoded.words, decoded.places)
        value = tuple(_predicate_json(one, decoded) for one in frames.predicates)
        score = float(np.exp(np.log(np.maximum(probs, 1e-12)).mean())) if probs else 1.0
        return Answer(value, score, scores=tuple(probs), structure=structure)

    def gold(
        self, example: Example, space: RoleSpace, predicted: Answer | None = None
    ) -> Annotation:
        """Return the gold annotation."""
        return annotate_frames(frames_of(example), example.words, example.places, example.text)

    def predict_targets(self, scores: Sequence[Decoded], space: RoleSpace) -> list[RolePrediction]:
        """Return the roles of each sentence for the given predicates, and for those found."""
        out = []
        for decoded in scores:
            read = _read_table(decoded, space)
            given, found = (
                Frames(tuple(one for one, status, _ in read if status in wanted))
                for wanted in (GIVEN_STATUS, FOUND_STATUS)
            )
            out.append(RolePrediction(given, found))
        return out

    def build_metric(self, space: RoleSpace) -> RoleScores:
        return RoleScores()


def _strings(saved: object) -> tuple[str, ...]:
    if not isinstance(saved, list) or not all(isinstance(one, str) for one in saved):
        raise TypeError(f"{saved!r:.40} is no list of texts")
    return tuple(saved)


def frames_of(example: Example) -> Frames:
    """Return the predicates of an example, or raise a UserError."""
    if not isinstance(example.label, Frames):
        raise UserError(
            f"{example.where}: no semantic roles. Give a column of rolesets, then one role column "
            "per predicate, as PropBank and CoNLL-2005 have them."
        )
    return example.label


def annotate_frames(
    frames: Frames,
    words: tuple[str, ...],
    places: tuple[tuple[int, int], ...],
    text: str = "",
) -> Annotation:
    """Return predicates and roles as an annotation of the words."""
    return Annotation("frames", words, places, text, frames=frames.to_rows())


def _disjoint_roles(predicate: Predicate) -> list[Span]:
    """Return the roles that can be learned: V at the predicate, and others that do not overlap."""
    word = predicate.word
    verb = next(
        (r for r in predicate.roles if r.label == VERB and r.start <= word < r.end),
        Span(VERB, word, word + 1),
    )
    kept = [verb]
    for role in sorted(predicate.roles, key=lambda role: (role.start, -role.end)):
        if role.label != VERB and all(role.end <= k.start or k.end <= role.start for k in kept):
            kept.append(role)
    return sorted(kept, key=lambda role: role.start)


def _read_table(decoded: Decoded, space: RoleSpace) -> list[tuple[Predicate, int, list[float]]]:
    """Return each predicate, its status, and the probabilities of its sense and its roles."""
    found: list[tuple[int, str, int, list[Span], list[float]]] = []
    roles, senses = space.roles, space.inventory.senses
    lines = zip(decoded.table.tolist(), decoded.probs.ravel().tolist(), strict=True)
    for (word, label, start, end), prob in lines:
        if start == NO_SPAN:
            known = label >= 0
            sense = senses[label] if known else space.inventory.default_sense(decoded.words[word])
            found.append((word, sense, end, [], [prob]))
        else:
            found[-1][3].append(Span(roles[label], start, end))
            found[-1][4].append(prob)
    return [
        (Predicate(word, sense, tuple(own)), status, probs)
        for word, sense, status, own, probs in found
    ]


def _predicate_json(predicate: Predicate, decoded: Decoded) -> JsonObject:
    """Return a predicate with its arguments and their character offsets."""
    words, places = decoded.words, decoded.places
    start, end = places[predicate.word]
    return {
        "predicate": words[predicate.word],
        "sense": predicate.sense,
        "start": start,
        "end": end,
        "roles": [
            {
                "label": label,
                "start": places[i][0],
                "end": places[j - 1][1],
                "text": " ".join(words[i:j]),
            }
            for label, i, j in predicate.roles
            if label != VERB
        ],
    }
