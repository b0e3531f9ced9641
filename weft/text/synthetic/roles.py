"""Synthetic sentences with semantic roles: actives, passives, relatives, speech, two senses."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from weft.text.annotation.frames import Frames, Predicate
from weft.text.annotation.schemes import Span
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.semantics.roles import format_example
from weft.text.write import write_generated

SIZE = 2000
NAMES = ("Ann", "Bo", "Carla", "Dmitri", "Ella", "Farid", "Greta", "Hugo", "Ines", "Jonas")
PEOPLE = ("teacher", "farmer", "singer", "doctor", "driver", "painter", "nurse", "baker")
THINGS = ("letter", "box", "ladder", "lamp", "basket", "coat", "clock", "kite", "wheel", "drum")
FIRMS = ("bank", "school", "shop", "theatre", "factory", "museum")
ADJECTIVES = ("old", "young", "tall", "quiet", "famous", "tired")
PLACES = (
    "in the garden",
    "at the station",
    "near the river",
    "in the old town",
    "behind the house",
)
TIMES = ("yesterday", "on Monday", "last week", "in the morning", "two days ago")
MANNERS = ("slowly", "quickly", "with great care", "in silence")
GOALS = ("to the river", "across the field", "into the forest", "towards the hill")
MODALS = ("will", "may", "should", "can")
PER, THING, FIRM, GOAL, NOTHING = "person", "thing", "firm", "goal", ""


@dataclass(frozen=True)
class _Verb:
    """A verb in one sense: its forms, and what stands for its arguments after it."""

    sense: str
    base: str
    past: str
    participle: str
    objects: tuple[tuple[str, str], ...]  # role, and what fills it


VERBS = (
    _Verb("see.01", "see", "saw", "seen", (("ARG1", PER),)),
    _Verb("find.01", "find", "found", "found", (("ARG1", THING),)),
    _Verb("break.01", "break", "broke", "broken", (("ARG1", THING),)),
    _Verb("help.01", "help", "helped", "helped", (("ARG2", PER),)),
    _Verb("paint.01", "paint", "painted", "painted", (("ARG1", THING),)),
    _Verb("give.01", "give", "gave", "given", (("ARG2", PER), ("ARG1", THING))),
    _Verb("send.01", "send", "sent", "sent", (("ARG2", PER), ("ARG1", THING))),
    # The object decides on the sense.
    _Verb("run.01", "run", "ran", "run", (("ARG1", FIRM),)),
    _Verb("run.02", "run", "ran", "run", (("ARGM-DIR", GOAL),)),
    _Verb("draw.01", "draw", "drew", "drawn", (("ARG1", PER),)),
    _Verb("draw.02", "draw", "drew", "drawn", (("ARG1", THING), ("ARG2", GOAL))),
    _Verb("sleep.01", "sleep", "slept", "slept", ()),
    _Verb("leave.01", "leave", "left", "left", (("ARG1", FIRM),)),
)  # fmt: skip
PASSIVE_ROLE = "ARG1"


@dataclass
class _Sentence:
    """The words of a sentence while it is written, and its predicates."""

    draw: random.Random
    words: list[str] = field(default_factory=list)
    predicates: list[tuple[int, str, list[Span]]] = field(default_factory=list)

    def say(self, text: str) -> tuple[int, int]:
        """Add words; return where they stand."""
        start = len(self.words)
        self.words += text.split()
        return start, len(self.words)

    def noun(self, kind: str) -> tuple[int, int]:
        """Add a person, a thing, a firm or a goal."""
        if kind == PER and self.draw.random() < 0.4:
            return self.say(self.draw.choice(NAMES))
        if kind == GOAL:
            return self.say(self.draw.choice(GOALS))
        names = {PER: PEOPLE, THING: THINGS, FIRM: FIRMS}[kind]
        adjective = f"{self.draw.choice(ADJECTIVES)} " if self.draw.random() < 0.3 else ""
        name = f"{adjective}{self.draw.choice(names)}"
        article = "the" if self.draw.random() < 0.5 else "an" if name[0] in "aeiou" else "a"
        return self.say(f"{article} {name}")

    def predicate(self, form: str, sense: str, before: Sequence[Span]) -> list[Span]:
        """Add a predicate; return its roles, to which more can be added."""
        word, end = self.say(form)
        roles = [*before, Span("V", word, end)]
        self.predicates.append((word, sense, roles))
        return roles

    def clause(self, relative: bool = True) -> None:
        """Add a clause with its subject."""
        if self.draw.random() < 0.2:
            self._passive()
            return
        before: list[Span] = []
        if self.draw.random() < 0.15:
            before.append(Span("ARGM-TMP", *self.say(self.draw.choice(TIMES))))
            self.say(",")
        subject = self.noun(PER)
        if relative and self.draw.random() < 0.2:
            self._relative(subject)
            subject = subject[0], len(self.words)
        self._verb_phrase(self.draw.choice(VERBS), [*before, Span("ARG0", *subject)])

    def _verb_phrase(self, verb: _Verb, before: list[Span]) -> None:
        style = self.draw.random()
        if style < 0.15:
            before.append(Span("ARGM-MOD", *self.say(self.draw.choice(MODALS))))
            form = verb.base
        elif style < 0.3:
            self.say("did")
            before.append(Span("ARGM-NEG", *self.say("not")))
            form = verb.base
        else:
            form = verb.past
        roles = self.predicate(form, verb.sense, before)
        objects = verb.objects
        if [role for role, _ in objects] == ["ARG2", "ARG1"] and self.draw.random() < 0.5:
            roles.append(Span("ARG1", *self.noun(objects[1][1])))  # gave the box to Ann
            start, _ = self.say("to")
            roles.append(Span("ARG2", start, self.noun(objects[0][1])[1]))
        else:
            roles += [Span(role, *self.noun(kind)) for role, kind in objects]
        self._modifiers(roles)

    def _modifiers(self, roles: list[Span]) -> None:
        kinds = (("ARGM-MNR", MANNERS), ("ARGM-LOC", PLACES), ("ARGM-TMP", TIMES))
        has_time = any(role.label == "ARGM-TMP" for role in roles)
        for label, texts in kinds:
            if self.draw.random() < 0.2 and not (label == "ARGM-TMP" and has_time):
                roles.append(Span(label, *self.say(self.draw.choice(texts))))

    def _passive(self) -> None:
        verb = self.draw.choice([v for v in VERBS if v.objects and v.objects[0][0] == PASSIVE_ROLE])
        subject = Span(PASSIVE_ROLE, *self.noun(verb.objects[0][1]))
        self.say("was")
        roles = self.predicate(verb.participle, verb.sense, [subject])
        roles += [Span(role, *self.noun(kind)) for role, kind in verb.objects[1:]]
        if self.draw.random() < 0.7:
            start, _ = self.say("by")
            roles.append(Span("ARG0", start, self.noun(PER)[1]))
        self._modifiers(roles)

    def _relative(self, head: tuple[int, int]) -> None:
        """Add a clause about a noun: who is a reference to it."""
        reference = Span("R-ARG0", *self.say("who"))
        self._verb_phrase(self.draw.choice(VERBS), [Span("ARG0", *head), reference])

    def speech(self) -> None:
        """Add what someone says; speech that goes on after the speaker has two parts."""
        if self.draw.random() < 0.5:
            speaker = Span("ARG0", *self.noun(PER))
            roles = self.predicate("said", "say.01", [speaker])
            start, _ = self.say("that")
            self.clause(relative=False)
            roles.append(Span("ARG1", start, len(self.words)))
            return
        self.clause(relative=False)
        first = Span("ARG1", 0, len(self.words))
        self.say(",")
        roles = self.predicate("said", "say.01", [first])
        roles.append(Span("ARG0", *self.noun(PER)))
        self.say(",")
        start, _ = self.say("and")
        self.clause(relative=False)
        roles.append(Span("C-ARG1", start, len(self.words)))

    def wish(self) -> None:
        """Add what someone wants to do: one subject for two predicates."""
        subject = Span("ARG0", *self.noun(PER))
        roles = self.predicate("wanted", "want.01", [subject])
        start, _ = self.say("to")
        verb = self.draw.choice(VERBS)
        inner = self.predicate(verb.base, verb.sense, [subject])
        inner += [Span(role, *self.noun(kind)) for role, kind in verb.objects]
        self._modifiers(inner)
        roles.append(Span("ARG1", start, len(self.words)))

    def finish(self, name: str) -> Example:
        """Return the sentence with its period and a capital letter."""
        self.say(".")
        self.words[0] = self.words[0][0].upper() + self.words[0][1:]
        words = tuple(self.words)
        found = sorted(self.predicates, key=lambda one: one[0])
        frames = Frames(
            tuple(
                Predicate(word, sense, tuple(sorted(roles, key=lambda role: role.start)))
                for word, sense, roles in found
            )
        )
        return Example(
            " ".join(words), frames, name, words=words, places=locate_spaced_words(words)
        )


def generate_roles(seed: int = 0, size: int = SIZE) -> dict[str, list[Example]]:
    """Generate `size` distinct sentences in train, dev and test (7 : 1 : 2)."""
    draw = random.Random(f"roles {seed}")
    sizes = {"train": size * 7 // 10, "dev": size // 10}
    sizes["test"] = size - sum(sizes.values())
    seen: set[str] = set()
    out: dict[str, list[Example]] = {}
    for split, count in sizes.items():
        out[split] = []
        while len(out[split]) < count:
            sentence = _Sentence(draw)
            draw.choices((sentence.clause, sentence.speech, sentence.wish), weights=(6, 2, 1))[0]()
            example = sentence.finish(f"{split}-{len(out[split]) + 1}")
            if example.text not in seen:
                seen.add(example.text)
                out[split].append(example)
    return out


def write_roles(folder: Path, parts: Mapping[str, Sequence[Example]] | None = None) -> list[Path]:
    """Write train, dev and test in columns; existing files with other contents are an error."""
    parts = parts or generate_roles()
    return write_generated(
        folder,
        {
            f"{split}.conll": "".join(map(format_example, examples)).encode()
            for split, examples in parts.items()
        },
    )
