"""Tuples written one after the other, each from the sentence and those before it (IMoJIE).

The source is the sentence and the tuples so far, the target the next tuple; after the last one it
is END (Kolluru et al. 2020, "iterative memory"). Words are joined by spaces, so that a model that
copies can copy each of them.
"""

from collections.abc import Iterable, Iterator, Sequence

from weft.text.annotation.frames import Extraction, Extractions
from weft.text.example import Example
from weft.tokens.pretokenizer import split_words

END = "EndOfExtractions"
NEXT, RELATION, ARGUMENT = "[T]", "[R]", "[O]"  # before a tuple, its predicate, each argument


def read_steps(examples: Iterable[Example]) -> Iterator[Example]:
    """Yield an example for each tuple of each sentence, and one for the end of its tuples.

    All steps of a sentence are of one group, so that a split keeps them together.
    """
    for example in examples:
        if not isinstance(example.label, Extractions):
            continue
        written = [write_tuple(one) for one in example.label.tuples if one.arguments]
        for count, target in enumerate([*written, END]):
            yield Example(
                join_memory(example.text, written[:count]), target, "", example.file, example.line,
                group=example.text,
            )  # fmt: skip


def join_memory(text: str, written: Sequence[str]) -> str:
    """Return the source of the next step: a sentence, and the tuples that were written for it."""
    return f" {NEXT} ".join([_spaced(text), *written])


def write_tuple(one: Extraction) -> str:
    """Return a tuple as a text: its subject, its predicate, its other arguments."""
    subject, *others = map(_spaced, one.arguments)
    parts = [subject, RELATION, _spaced(one.predicate)]
    return " ".join([*parts, *(f"{ARGUMENT} {other}" for other in others)])


def parse_tuple(text: str, confidence: float) -> Extraction | None:
    """Return the tuple that a text writes, or None if it lacks a part."""
    subject, relation, rest = text.partition(f" {RELATION} ")
    predicate, *others = (part.strip() for part in rest.split(ARGUMENT))
    if not relation or not subject.strip() or not predicate:
        return None
    return Extraction(predicate, (subject.strip(), *filter(None, others)), confidence)


def _spaced(text: str) -> str:
    return " ".join(split_words(text)[0])
