"""A text with all its layers: sentences, words, tags, heads, roles, entities and mentions.

Offsets are characters of the text of the document, the end excluded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from weft.jsonio import JsonObject
from weft.tasks.annotation import CharSpan
from weft.text.annotation.frames import FrameRow

LabelledSpan = tuple[int, int, str]  # characters from, up to, label
VERB = "V"


@dataclass(frozen=True)
class SourceText:
    """A document to annotate, or one part of a long one."""

    text: str
    id: str = ""
    file: str = ""
    line: int = 0
    start: int = 0  # of the text, in the characters of the whole document
    part: int = 0  # from 1; 0 if the document is whole


@dataclass(frozen=True)
class AnnotatedSentence:
    """The words of one sentence with what the models say of them; other fields are empty."""

    start: int
    end: int
    words: tuple[str, ...]
    places: tuple[CharSpan, ...]
    begins_paragraph: bool = False
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each column
    heads: tuple[int, ...] = ()  # counted from 1; 0 the root
    relations: tuple[str, ...] = ()
    frames: tuple[FrameRow, ...] = ()  # predicates and roles, in words of the sentence

    def to_json(self) -> JsonObject:
        """Return the sentence with its tokens and predicates as plain values."""
        out: JsonObject = {"start": self.start, "end": self.end}
        out["tokens"] = [self._token_json(k) for k in range(len(self.words))]
        if self.frames:
            out["predicates"] = [self._predicate_json(frame) for frame in self.frames]
        return out

    def _token_json(self, k: int) -> JsonObject:
        start, end = self.places[k]
        out: JsonObject = {"start": start, "end": end, "text": self.words[k]}
        out |= {name: column[k] for name, column in self.tags.items()}
        if self.heads:
            out |= {"head": self.heads[k], "deprel": self.relations[k]}
        return out

    def _predicate_json(self, frame: FrameRow) -> JsonObject:
        word, sense, roles = frame
        start, end = self.places[word]
        return {
            "start": start,
            "end": end,
            "sense": sense,
            "roles": [
                {"label": label, "start": self.places[i][0], "end": self.places[j - 1][1]}
                for label, i, j in roles
                if label != VERB
            ],
        }


@dataclass(frozen=True)
class AnnotatedDocument:
    """A document with its sentences, its entities and its coreference chains."""

    source: SourceText
    layers: tuple[str, ...]  # of LAYERS: what was annotated
    sentences: tuple[AnnotatedSentence, ...]
    entities: tuple[LabelledSpan, ...] = ()  # spans of a tagger
    mentions: tuple[tuple[str, int, int], ...] = ()  # chain, words of the document from, up to

    @property
    def text(self) -> str:
        """The text that offsets refer to."""
        return self.source.text

    @property
    def name(self) -> str:
        """The id of the document, with the number of its part if it has one."""
        part = f".{self.source.part}" if self.source.part else ""
        return f"{self.source.id}{part}"

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all sentences."""
        return tuple(word for one in self.sentences for word in one.words)

    @property
    def places(self) -> tuple[CharSpan, ...]:
        """The offsets of all words."""
        return tuple(place for one in self.sentences for place in one.places)

    def chains(self) -> dict[str, list[CharSpan]]:
        """Return the character spans of the mentions of each chain, in the order of the text."""
        places = self.places
        out: dict[str, list[CharSpan]] = {}
        for chain, start, end in self.mentions:
            out.setdefault(chain, []).append((places[start][0], places[end - 1][1]))
        return out

    def sentence_mentions(self) -> Iterator[list[tuple[str, int, int]]]:
        """Yield the mentions of each sentence, in words of the sentence."""
        first = 0
        for sentence in self.sentences:
            last = first + len(sentence.words)
            inside = [m for m in self.mentions if first <= m[1] and m[2] <= last]
            yield [(chain, start - first, end - first) for chain, start, end in inside]
            first = last

    def to_json(self) -> JsonObject:
        """Return everything as plain values; `start` is where the text begins in a long one."""
        out: JsonObject = {"id": self.source.id} if self.source.id else {}
        if self.source.part:
            out |= {"part": self.source.part, "start": self.source.start}
        out |= {"text": self.text, "sentences": [one.to_json() for one in self.sentences]}
        if "entities" in self.layers:
            spans = [(start, end, label) for start, end, label in self.entities]
            out["entities"] = [{"start": a, "end": b, "label": label} for a, b, label in spans]
        if "coreference" in self.layers:
            out["coreference"] = [
                {"entity": int(chain), "mentions": [{"start": a, "end": b} for a, b in spans]}
                for chain, spans in self.chains().items()
            ]
        return out
