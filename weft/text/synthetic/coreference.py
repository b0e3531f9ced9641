"""Synthetic stories with coreference chains: names, pronouns, descriptions and possessives."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.text.annotation.frames import Coreference, Mention
from weft.text.example import Example
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.text.formats.semantics.coreference import format_document
from weft.text.write import write_generated

SIZE = 400
WOMEN = ("Ann", "Carla", "Ella", "Greta", "Ines", "Kate", "Mona")
MEN = ("Bo", "Dmitri", "Farid", "Hugo", "Jonas", "Luca", "Omar")
JOBS = ("teacher", "farmer", "singer", "doctor", "driver", "painter", "nurse", "baker")
THINGS = ("letter", "box", "ladder", "lamp", "basket", "coat", "clock", "kite", "wheel", "drum")
ADJECTIVES = ("old", "young", "tall", "quiet", "famous", "tired")
ORIGINS = ("from the village", "of the town", "with the red hat")
MEETING = ("saw", "met", "greeted", "helped", "called", "thanked")
HANDLING = ("found", "took", "broke", "sold", "painted", "carried")
ALONE = ("slept", "laughed", "waited", "went home", "was happy")
SCENES = ("It rained .", "The sun was low .", "There was no wind .", "Night fell .")


class _Entity:
    """A person or a thing, and how it is named."""

    def __init__(self, number: int, draw: random.Random, pronouns: tuple[str, str, str]):
        self.number, self.draw, self.pronouns = number, draw, pronouns
        self.mentioned = False
        self.name = ""
        self.noun = ""
        self.owner: _Entity | None = None


class _Story:
    """Words and mentions of one document, written sentence by sentence."""

    def __init__(self, draw: random.Random):
        self.draw = draw
        self.words: list[str] = []
        self.mentions: list[Mention] = []
        self.sentences: list[int] = []
        woman, man, thing = (
            _Entity(number, draw, pronouns)
            for number, pronouns in enumerate(
                (("she", "her", "her"), ("he", "him", "his"), ("it", "it", "its"))
            )
        )
        woman.name, man.name = draw.choice(WOMEN), draw.choice(MEN)
        woman.noun, man.noun = draw.sample(JOBS, 2)
        thing.noun = draw.choice(THINGS)
        thing.owner = draw.choice((None, woman, man))
        self.people, self.thing = (woman, man), thing

    def mention(self, entity: _Entity, case: int) -> None:
        """Say an entity: by name or description at first, then mostly by a pronoun."""
        start = len(self.words)
        kind = self.draw.random()
        if entity.mentioned and kind < 0.55:
            self.words.append(entity.pronouns[case])
        elif entity.owner is not None and not entity.mentioned:
            self.mention(entity.owner, 2)
            self.words += ["'s"] if self.words[-1] not in ("her", "his") else []
            self.words.append(entity.noun)
        elif entity.name and kind < 0.75:
            self.words.append(entity.name)
        else:
            article = "the" if entity.mentioned else "a"
            extra = [self.draw.choice(ADJECTIVES)] if self.draw.random() < 0.4 else []
            self.words += [article, *extra, entity.noun]
            if not entity.mentioned and self.draw.random() < 0.3:
                self.words += self.draw.choice(ORIGINS).split()
        entity.mentioned = True
        self.mentions.append(Mention(str(entity.number), start, len(self.words)))

    def sentence(self) -> None:
        """Write one sentence about the entities, or a scene without any."""
        self.sentences.append(len(self.words))
        kind = self.draw.random()
        if kind < 0.15:
            self.words += self.draw.choice(SCENES).split()
            return
        first, second = self.draw.sample(self.people, 2)
        self.mention(first, 0)
        if kind < 0.45:
            self.words.append(self.draw.choice(MEETING))
            self.mention(second, 1)
        elif kind < 0.8:
            self.words.append(self.draw.choice(HANDLING))
            self.mention(self.thing, 1)
        else:
            self.words += self.draw.choice(ALONE).split()
        self.words.append(".")

    def finish(self, name: str) -> Example:
        """Return the story; entities that are mentioned once are left out, as in OntoNotes."""
        for start in self.sentences:
            self.words[start] = self.words[start][0].upper() + self.words[start][1:]
        counts = [sum(m.label == str(n) for m in self.mentions) for n in range(3)]
        kept = [one for one in self.mentions if counts[int(one.label)] > 1]
        label = Coreference(
            tuple(sorted(kept, key=lambda one: (one.start, -one.end))), tuple(self.sentences)
        )
        words = tuple(self.words)
        return Example(" ".join(words), label, name, words=words, places=locate_spaced_words(words))


def generate_coreference(seed: int = 0, size: int = SIZE) -> dict[str, list[Example]]:
    """Generate `size` stories in train, dev and test (7 : 1 : 2)."""
    draw = random.Random(f"coreference {seed}")
    sizes = {"train": size * 7 // 10, "dev": size // 10}
    sizes["test"] = size - sum(sizes.values())
    out: dict[str, list[Example]] = {}
    for split, count in sizes.items():
        out[split] = []
        for number in range(count):
            story = _Story(draw)
            for _ in range(draw.randint(4, 9)):
                story.sentence()
            out[split].append(story.finish(f"{split}-{number + 1}"))
    return out


def write_coreference(
    folder: Path, parts: Mapping[str, Sequence[Example]] | None = None
) -> list[Path]:
    """Write train, dev and test as CoNLL-2012; existing files with other contents are an error."""
    parts = parts or generate_coreference()
    return write_generated(
        folder,
        {
            f"{split}.conll": "".join(map(format_document, examples)).encode()
            for split, examples in parts.items()
        },
    )
